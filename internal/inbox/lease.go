package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// listSizes are the lengths of the lists in this package's statements. The largest is that of a full transaction of deliveries, which so
// finds and locks its conversations at once. Each is half of the one before: the rows of any list are written by few statements, and a
// look-up is padded to less than twice its keys.
var listSizes = store.ListSizes{256, 128, 64, 32, 16, 8, 4, 2, 1}

// Lease leases due conversations for a life and returns them, as many as there are free places or fewer; when it returns some, more
// may be due. Organizations take turns: the one that has the fewest leases, in all processes, gets the next, each time for its
// conversation that has been due for longest. A lease that ran out is taken again; that counts as a failed attempt of its
// conversation and running turn, because its worker died or stalled. Two workers never get the same conversation. Conversations of
// types that are left out ([Queue.SkipUnknown]) aren't due.
func (q *Queue) Lease(ctx context.Context, free Places, life time.Duration) ([]Lease, error) {
	if free.Free <= 0 {
		return nil, nil
	}
	free.Free = min(free.Free, maxLeases)
	ids, err := q.loadIDs(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("lease conversations: %w", err)
	}
	if ids.none() {
		return nil, nil // nothing was stored yet
	}
	op := &leaseOp{queue: q, free: free, life: life}
	if err := q.db.Do(ctx, Kind, op); err != nil {
		return nil, fmt.Errorf("lease conversations: %w", err)
	}
	for i := range op.leases {
		op.leases[i] = q.opened(op.leases[i])
	}
	return op.leases, nil
}

// opened returns a lease whose customer's id is opened.
func (q *Queue) opened(lease Lease) Lease {
	lease.CustomerRef = q.openID("the customer's id of "+lease.ConversationID, lease.CustomerRef, vault.CustomerID(lease.OrgID))
	return lease
}

type leaseOp struct {
	queue  *Queue
	free   Places
	life   time.Duration
	leases []Lease
}

var lockDueConversations = listSizes.Statement(`SELECT `+conversationRowColumns+` FROM conversations
	WHERE run_at <= $1 AND lease_until < $1 AND id IN {list}`, 1, 1)

// run leases conversations, and with read reads them, too.
func (op *leaseOp) run(ctx context.Context, tx store.Tx, read bool) error {
	op.leases = nil
	now := tx.Now()
	ids, wanted, err := op.queue.due(ctx, tx, op.free)
	if err != nil {
		return err
	}
	rows := make(map[string]*conversationRow, len(ids))
	err = store.EachPadded(listSizes, ids, func(size int, piece []string) error {
		text := lockDueConversations[size]
		if locksRows(tx) {
			text += " FOR UPDATE SKIP LOCKED"
		}
		return tx.Query(ctx, collectConversations(rows), text, store.Arguments(piece, now)...)
	})
	if err != nil {
		return err
	}
	free := op.free.clone()
	for _, id := range ids {
		if c := rows[id]; c != nil && len(op.leases) < wanted && free.may(c.orgID) {
			free.take(c.orgID)
			op.leases = append(op.leases, c.lease(tx, now, op.life))
		}
	}
	queueConversations(tx, rows)
	if read {
		op.queueReadings(tx)
	}
	return nil
}

// queueReadings queues the reading of the leased conversations, for [Queue.OpenLeased].
func (op *leaseOp) queueReadings(tx store.Tx) {
	channels := map[string]*store.ChannelAgent{}
	for i := range op.leases {
		lease := &op.leases[i]
		channel := channels[lease.ChannelID]
		if channel == nil {
			channel = op.queue.db.Channels.QueueWithAgent(tx, lease.OrgID, lease.ChannelID)
			channels[lease.ChannelID] = channel
		}
		lease.reading = op.queue.queueReading(tx, *lease, channel)
	}
}

// countAttempt counts a failed attempt of a conversation's last turn, if it runs.
const countAttempt = `UPDATE turns SET attempts = attempts + 1, updated_at = $2 WHERE id = $1 AND state = 'awaiting'`

// lease gives the conversation to a worker.
func (c *conversationRow) lease(tx store.Tx, now int64, life time.Duration) Lease {
	takenOver := c.leaseUntil > 0 // it was not given back
	if takenOver {
		c.attempts++
		tx.Queue(store.AnyRows, countAttempt, c.turnID, now)
	}
	c.leaseToken++
	c.leaseUntil = now + max(1, life.Milliseconds())
	c.changed = true
	lease := c.asLease()
	lease.TakenOver = takenOver
	return lease
}

// asLease returns the lease, in which the customer's id is sealed.
func (c *conversationRow) asLease() Lease {
	return Lease{
		ConversationID: c.id, OrgID: c.orgID, ChannelID: c.key.channelID, CustomerRef: c.key.customerRef,
		Token: c.leaseToken, Attempts: c.attempts, Until: time.UnixMilli(c.leaseUntil),
	}
}

// leased is the common part of operations under a lease.
type leased struct {
	lease   Lease
	refused error
}

func (l *leased) conversation() string { return l.lease.ConversationID }

// Urgent implements [store.Urgent]: begun turns go on before new ones, and their leases don't run out behind a long line. There
// are as many as leases.
func (*leased) Urgent() bool { return true }

// holder returns the conversation while the lease is the last one given and wasn't given back. One that ran out is still good
// as long as no other worker took the conversation: the locked row decides.
func (l *leased) holder(s *session) *conversationRow {
	l.refused = nil
	c := s.rows[l.lease.ConversationID]
	if c == nil || c.deleted || c.leaseUntil == 0 || c.leaseToken != l.lease.Token || c.orgID != l.lease.OrgID {
		l.refused = ErrLeaseLost
		return nil
	}
	return c
}

func (l *leased) refusal() error { return l.refused }

// refusable is an operation that can be refused.
type refusable interface {
	operation
	refusal() error
}

// do runs an operation and returns its fault or its refusal.
func (q *Queue) do(ctx context.Context, doing string, op refusable) error {
	err := q.commit(ctx, op)
	if err == nil {
		err = op.refusal()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if failpoint.Enabled {
		if _, after, passes := failpoints(op); passes {
			failpoint.Hit(after)
		}
	}
	return nil
}

// Renew makes a lease last for another life from now. It returns [ErrLeaseLost] or a wrapped error of the store, after which it
// may be repeated.
func (q *Queue) Renew(ctx context.Context, lease Lease, life time.Duration) (Lease, error) {
	op := &renewOp{leased: leased{lease: lease}, life: life}
	if err := q.do(ctx, "renew a lease", op); err != nil {
		return lease, err
	}
	op.lease.CustomerRef = lease.CustomerRef
	return op.lease, nil
}

type renewOp struct {
	leased

	life time.Duration
}

func (op *renewOp) run(_ context.Context, s *session) error {
	if c := op.holder(s); c != nil {
		c.leaseUntil = max(c.leaseUntil, s.now+max(1, op.life.Milliseconds()))
		c.changed = true
		op.lease = c.asLease()
	}
	return nil
}

// Release gives a conversation back after success: remaining work makes it due, after the quiet window if one lasts. It returns
// [ErrLeaseLost] or a wrapped error of the store.
func (q *Queue) Release(ctx context.Context, lease Lease) error {
	return q.do(ctx, "release a conversation", &releaseOp{leased: leased{lease: lease}})
}

// Backoff gives a conversation back after a failed attempt: it is due after wait, whatever arrives meanwhile, and its
// attempts and those of its running turn count one more. It returns [ErrLeaseLost] or a wrapped error of the store.
func (q *Queue) Backoff(ctx context.Context, lease Lease, wait time.Duration) error {
	return q.do(ctx, "back off from a conversation", &releaseOp{leased: leased{lease: lease}, failed: true, wait: wait})
}

// Postpone gives a conversation back whose turn must wait without a failure: it is due after wait, or when something arrives.
// It returns [ErrLeaseLost] or a wrapped error of the store.
func (q *Queue) Postpone(ctx context.Context, lease Lease, wait time.Duration) error {
	return q.do(ctx, "postpone a conversation", &releaseOp{leased: leased{lease: lease}, wait: wait})
}

type releaseOp struct {
	leased

	failed bool
	wait   time.Duration // 0: due as its rows say
	left   workLeft
}

func (op *releaseOp) read(s *session) { op.left.read(s.tx, op.conversation(), "") }

func (op *releaseOp) run(_ context.Context, s *session) error {
	c := op.holder(s)
	if c == nil {
		return nil
	}
	c.leaseUntil, c.changed = 0, true
	if op.failed || op.wait > 0 {
		c.runAt = sql.NullInt64{Int64: s.now + max(0, op.wait.Milliseconds()), Valid: true}
		c.wake = true
	}
	switch {
	case op.failed:
		c.attempts++
		s.tx.Queue(store.AnyRows, countAttempt, c.turnID, s.now)
		return nil
	case op.wait > 0:
		return nil
	}
	c.attempts = 0
	c.reschedule(op.left, s.now)
	return nil
}

// workLeft is what is left to do in a conversation.
type workLeft struct {
	runs   bool          // there is a running turn
	unsent sql.NullInt64 // when the first part was made that isn't sent yet
	texts  bool          // texts wait for an answer
}

// read queues the reading. It doesn't count the part with the id without, "" for none.
func (w *workLeft) read(tx store.Tx, conversationID, without string) {
	tx.QueueQuery(func(row store.Row) error { return row.Scan(&w.runs, &w.unsent, &w.texts) }, `SELECT
		EXISTS (SELECT 1 FROM `+runningTurn+`),
		(SELECT created_at FROM outbound_messages WHERE `+unsentOf+` AND id <> $2 ORDER BY created_at LIMIT 1),
		EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled)`, conversationID, without)
}

// reschedule makes a conversation due by what its rows say. Texts wait for the end of a pause, and for the hand-back by a person.
func (c *conversationRow) reschedule(left workLeft, now int64) {
	c.changed = true
	c.unsentSince = c.updatedAt
	if left.unsent.Valid {
		c.unsentSince = left.unsent.Int64
	}
	begun := left.runs || left.unsent.Valid
	inWindow := c.runAt.Valid && c.runAt.Int64 > now && c.waitingSince.Valid
	waits := left.texts && c.state == StateAssistant && c.blockedAt == 0
	switch {
	case !begun && !waits:
		c.runAt, c.waitingSince = sql.NullInt64{}, sql.NullInt64{}
	case !begun && inWindow:
	case !begun && c.pausedUntil > now:
		c.runAt = sql.NullInt64{Int64: c.pausedUntil, Valid: true}
		c.wake = true
	default:
		c.runAt = sql.NullInt64{Int64: now, Valid: true}
		c.wake = true
	}
}
