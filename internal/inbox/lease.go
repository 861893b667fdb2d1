package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// listSizes are the lengths of the lists in this package's statements. With the largest, a full transaction of deliveries finds and locks
// its conversations with one statement. Each length is half of the length before: the rows of any list are written by few statements, and a
// look-up is padded to less than twice its keys.
var listSizes = store.ListSizes{256, 128, 64, 32, 16, 8, 4, 2, 1}

// Lease leases due conversations for a life and returns them, as many as there are free places or fewer. Organizations take turns: the
// organization with the fewest leases in all processes gets the next, each time for its conversation that has been due for longest. A lease that
// ran out is taken again; that counts as a failed attempt of its conversation and running turn, because its worker died or stalled. Two workers
// never get the same conversation. Conversations of types that are left out ([Queue.SkipUnknown]) aren't due.
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

// opened returns a lease with the customer's id opened.
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

// run leases conversations, and with read also reads them, for [Queue.OpenLeased].
func (op *leaseOp) run(ctx context.Context, tx store.Tx, read bool) error {
	op.leases = nil
	free := op.free.clone()
	for more := true; more; {
		before := len(op.leases)
		var err error
		if more, err = op.lease(ctx, tx, &free); err != nil {
			return err
		}
		more = more && len(op.leases) > before
	}
	if !read {
		return nil
	}
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
	return nil
}

// lease fills free places with due conversations. more: others may be due.
func (op *leaseOp) lease(ctx context.Context, tx store.Tx, free *Places) (more bool, err error) {
	now := tx.Now()
	ids, wanted, more, err := op.queue.due(ctx, tx, *free)
	if err != nil {
		return false, err
	}
	rows := make(map[string]*conversationRow, len(ids))
	err = store.EachPadded(listSizes, ids, func(size int, piece []string) error {
		return tx.Query(ctx, collectConversations(rows), lockDueConversations[size]+store.SkipLocked(tx), store.Arguments(piece, now)...)
	})
	if err != nil {
		return false, err
	}
	wanted += len(op.leases)
	for _, id := range ids {
		if c := rows[id]; c != nil && len(op.leases) < wanted && free.may(c.orgID) {
			free.take(c.orgID)
			op.leases = append(op.leases, c.lease(tx, now, op.life))
		}
	}
	queueConversations(tx, rows)
	return more, nil
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

// ranOut reports whether the lease has run out. No part is marked as sending under a lease that ran out. Its worker stops before it calls the
// platform, and the next worker of the conversation would have to treat the part as possibly delivered.
func (c *conversationRow) ranOut(now int64) bool { return c.leaseUntil < now }

// asLease returns the lease, in which the customer's id is sealed.
func (c *conversationRow) asLease() Lease {
	return Lease{
		ConversationID: c.id, OrgID: c.orgID, ChannelID: c.key.channelID, CustomerRef: c.key.customerRef,
		Token: c.leaseToken, Attempts: c.attempts, Until: time.UnixMilli(c.leaseUntil),
	}
}

// Renew makes a lease last for another life from now. It returns [ErrLeaseLost] or a wrapped error of the store, after which it
// may be repeated.
func (q *Queue) Renew(ctx context.Context, lease Lease, life time.Duration) (Lease, error) {
	var renewed Lease
	err := q.do(ctx, "renew a lease", onLease(lease, func(s *session, c *conversationRow) error {
		c.leaseUntil = max(c.leaseUntil, s.now+max(1, life.Milliseconds()))
		c.changed = true
		renewed = c.asLease()
		return nil
	}))
	if err != nil {
		return lease, err
	}
	renewed.CustomerRef = lease.CustomerRef
	return renewed, nil
}

// Release gives a conversation back after success: remaining work makes it due, after the quiet window if one lasts. It returns
// [ErrLeaseLost] or a wrapped error of the store.
func (q *Queue) Release(ctx context.Context, lease Lease) error {
	var left workLeft
	return q.do(ctx, "release a conversation", onLease(lease, func(s *session, c *conversationRow) error {
		s.release(c, left)
		return nil
	}, left.read(lease.ConversationID, "")))
}

// Backoff gives a conversation back after a failed attempt: it is due after wait, even if something arrives earlier, and the attempts of
// the conversation and of its running turn count one more. It returns [ErrLeaseLost] or a wrapped error of the store.
func (q *Queue) Backoff(ctx context.Context, lease Lease, wait time.Duration) error {
	return q.do(ctx, "back off from a conversation", onLease(lease, func(s *session, c *conversationRow) error {
		c.putOff(s.now, wait)
		c.attempts++
		s.tx.Queue(store.AnyRows, countAttempt, c.turnID, s.now)
		return nil
	}))
}

// Postpone gives a conversation back because its turn must wait without a failure: it is due after wait, or when something arrives. Without
// a wait it is [Queue.Release]. It returns [ErrLeaseLost] or a wrapped error of the store.
func (q *Queue) Postpone(ctx context.Context, lease Lease, wait time.Duration) error {
	if wait <= 0 {
		return q.Release(ctx, lease)
	}
	return q.do(ctx, "postpone a conversation", onLease(lease, func(s *session, c *conversationRow) error {
		c.putOff(s.now, wait)
		return nil
	}))
}

// putOff ends the lease and makes the conversation due after wait.
func (c *conversationRow) putOff(now int64, wait time.Duration) {
	c.leaseUntil, c.changed, c.wake = 0, true, true
	c.runAt = sql.NullInt64{Int64: now + max(0, wait.Milliseconds()), Valid: true}
}

// release ends the lease after success, with the work that is left.
func (s *session) release(c *conversationRow, left workLeft) {
	c.leaseUntil, c.attempts = 0, 0
	c.reschedule(left, s.now)
}

// workLeft is the work that is left in a conversation.
type workLeft struct {
	runs   bool          // there is a running turn
	unsent sql.NullInt64 // when the first part was made that isn't sent yet
	texts  bool          // texts wait for an answer
}

// read reads it. The part with the id without doesn't count.
func (w *workLeft) read(conversationID, without string) func(*session) {
	return readInto([]any{&w.runs, &w.unsent, &w.texts}, `SELECT
		EXISTS (SELECT 1 FROM `+runningTurn+`),
		(SELECT created_at FROM outbound_messages WHERE `+unsentOf+` AND id <> $2 ORDER BY created_at LIMIT 1),
		EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled)`, conversationID, without)
}

// reschedule makes a conversation due by its rows. Texts wait for the end of a pause, and for the hand-back by a person.
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

// The reasons for which [Queue.Claim] doesn't lease a conversation.
var (
	// ErrLeased: another lease is valid; it may end soon.
	ErrLeased = errors.New("inbox: the conversation is leased")
	// ErrNotDue: there is nothing to do in it, or not before the pause after a failed attempt is over.
	ErrNotDue = errors.New("inbox: nothing is to be done in the conversation now")
)

// Claim leases one conversation for a caller that waits for its answer, with the same duties as after [Queue.Lease]. A quiet
// window ends with it; a pause after a failed attempt doesn't. It returns [ErrLeased], [ErrNotDue], also for a conversation
// that doesn't exist or isn't the organization's, or a wrapped error of the store.
func (q *Queue) Claim(ctx context.Context, orgID, conversationID string, life time.Duration) (Lease, error) {
	if _, err := q.loadIDs(ctx, false); err != nil {
		return Lease{}, fmt.Errorf("claim a conversation: %w", err)
	}
	var lease Lease
	err := q.do(ctx, "claim a conversation", &operation{conversation: conversationID, run: func(s *session, c *conversationRow) error {
		if c == nil || c.orgID != orgID {
			return refusal{ErrNotDue}
		}
		if err := claimable(c.runAt, c.leaseUntil, c.attempts, s.now); err != nil {
			return refusal{err}
		}
		if c.runAt.Int64 > s.now {
			c.runAt = sql.NullInt64{Int64: s.now, Valid: true}
		}
		lease = c.lease(s.tx, s.now, life)
		return nil
	}})
	if err != nil {
		return Lease{}, err
	}
	return q.opened(lease), nil
}

// claimable returns why the conversation can't be claimed now, or nil.
func claimable(runAt sql.NullInt64, leaseUntil, attempts, now int64) error {
	switch {
	case leaseUntil >= now:
		return ErrLeased
	case !runAt.Valid, runAt.Int64 > now && attempts > 0:
		return ErrNotDue
	default:
		return nil
	}
}
