// Package inbox is the durable queue of customer messages: messages from the platforms, the leases of conversations, the turns
// that answer messages, and the delivery of every part of an answer. The rows of the conversation are the queue; there is no
// other.
//
// # The path of a message
//
//	Enqueue ─→ message ─ Lease, Open ─→ BeginCall ─→ turn asking ─ Answer ─→ outbound pending ─ Sending ─→ sending ─ Sent ─→ sent
//	                                                  │                                                   └ SendFailed → failed, delivery_unknown
//	                                                  └ GiveWay, Stand
//
// # Invariants
//
//   - A message is accepted once: (channel, platform message id) is unique, and [Queue.Enqueue] returns only after the commit.
//   - A conversation is with one worker at a time. A lease carries a token that only grows; every write of a worker locks the
//     conversation and compares it, so that a worker that has lost the lease changes nothing ([ErrLeaseLost]). Leases run out
//     by the database's clock.
//   - A text is answered by one turn only, and a turn has one answer. A turn is for all waiting texts, in order of platform time, then
//     arrival. A conversation has one running turn, which its row names.
//   - A turn names its last call ([Call]). No other call can be charged: hold and charge are durable with its beginning and its end.
//   - `sending` is committed before the platform is called. A worker that finds a sending part marks it delivery_unknown, because its own
//     worker died; no part is sent twice, unless a person wishes so ([Queue.Resend]).
//   - No part of the assistant's is sent while a person has the conversation ([ErrHandedOver]), but the last words with which it gave the
//     conversation to people.
//   - Bodies, names and requests are sealed before they reach the writer, and never logged.
//
// [Check] verifies the invariants that rows can show.
//
// # Transactions
//
// [Kind] is the only writer. It makes missing conversations (sorted), locks all that a batch touches in order of id and reads in the same
// round trip the rows that its operations depend on, decides arrivals in plain Go, writes them with few statements, runs the workers'
// operations one after the other on the locked rows, then leases with SKIP LOCKED. Leased conversations are read in the same transaction
// ([Queue.OpenLeased]). Where turns begin or end with their calls, the ledger's kind applies the whole batch before its own, so that a
// transaction locks all of its conversations in one order, and wallets after them: nodes can't deadlock.
//
// # What it does not do
//
// The worker calls models and platforms, builds prompts, splits texts, chooses pauses and judges whether a message may be sent.
// The webhook verifies signatures and resolves routes.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Queue is the inbox of one database. It holds no rows; any number of them, in any number of processes, may work on the same
// database. It is safe for concurrent use.
type Queue struct {
	// Log gets up to one warning a minute when lists show a placeholder for a text that doesn't open. Nil discards it. It must be set
	// before the queue is used.
	Log *slog.Logger

	db *store.DB
	// write runs an operation in a transaction of the writer.
	write func(ctx context.Context, op store.Op) error
	ring  *vault.Ring
	files *media.Keeper
	ids   atomic.Pointer[idKeys] // nil until loadIDs has found or made a key

	mu        sync.Mutex
	awoke     time.Time // when Wait last returned because of due work
	complaint time.Time // when unreadable last wrote to Log
	skipped   []string  // channel types, see SkipUnknown; replaced, never changed
	served    string    // the organization after which the next lease begins, see due
}

// New opens the queue kept in db, which must have been opened with [Kind] among its kinds. The ring seals and opens the texts of customers
// and assistants; nil suffices for reads of states ([Queue.Depth], [Queue.DeadTurns]).
func New(db *store.DB, ring *vault.Ring) *Queue {
	return &Queue{
		db: db, ring: ring, files: media.NewKeeper(db, ring),
		write: func(ctx context.Context, op store.Op) error { return db.Do(ctx, Kind, op) },
	}
}

// SkipUnknown leaves conversations of channels of unknown types out of [Queue.Lease] and [Queue.Wait] from now on: this program
// doesn't contain their platforms. They stay due, for a program that does. added are the types that were not left out before. It
// reads the types of all channels.
func (q *Queue) SkipUnknown(ctx context.Context, known func(channelType string) bool) (added []string, err error) {
	types, err := q.db.Channels.Types(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for channels without a platform: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range types {
		if !known(t.Type) && !slices.Contains(q.skipped, t.Type) {
			added = append(added, t.Type)
		}
	}
	q.skipped = slices.Concat(q.skipped, added)
	return added, nil
}

// skip returns the condition that leaves skipped types out of a statement on conversations, and its arguments after args.
func (q *Queue) skip(args []any) (condition string, with []any) {
	q.mu.Lock()
	skipped := q.skipped
	q.mu.Unlock()
	if len(skipped) == 0 {
		return "", args
	}
	length := 1 // one of a few, so that there are few statements
	for length < len(skipped) {
		length *= 8
	}
	list := slices.Concat(skipped, slices.Repeat(skipped[:1], length-len(skipped)))
	unknown := " AND channel_id NOT IN (SELECT id FROM channels WHERE type IN " + store.ParameterRows(len(list), 1, len(args)) + ")"
	return unknown, store.Arguments(list, args...)
}

// The errors that callers distinguish with [errors.Is], besides [store.ErrNotFound] and the store's faults. None of them
// contains anything that a customer or tenant wrote.
var (
	// ErrLeaseLost: another worker has the conversation, it was given back, or it is gone. Nothing was written.
	ErrLeaseLost = errors.New("inbox: the lease is lost")
	// ErrHandedOver: a person has the conversation, or the customer has blocked the channel. The turn or the part of an answer
	// was discarded, if it was not already.
	ErrHandedOver = errors.New("inbox: the conversation was handed over")
	// ErrEnded: the turn or the message has ended, or never existed.
	ErrEnded = errors.New("inbox: the turn or message has ended")
	// ErrConversationClosed: the customer has blocked the channel, so that nothing can be sent.
	ErrConversationClosed = errors.New("inbox: the conversation is closed")
	// ErrDraftMode: the assistant of the channel writes drafts, see [Queue.Propose].
	ErrDraftMode = errors.New("inbox: the channel's answers are drafts")
	// ErrRouteChanged: the remembered route of a delivery is no longer its channel's. Nothing was stored.
	ErrRouteChanged = errors.New("inbox: the route of the channel has changed")
	// ErrInvalid: the caller's arguments can't be stored.
	ErrInvalid = errors.New("inbox: invalid")
)

// minWakeInterval is the shortest time between two returns of Wait for due work: a worker that may not take the work, because
// the organization has its share, doesn't spin.
const minWakeInterval = 20 * time.Millisecond

// Wait returns nil when work may be due: immediately when some is, when a conversation becomes due, or after idle. The transaction that
// made the conversation due wakes it on PostgreSQL, and on SQLite within a tenth of a second. A lease that ran out is noticed after idle at
// the latest. It returns the cause of ctx's end, or a wrapped error of the store, after which the caller should wait a little and call it
// again.
func (q *Queue) Wait(ctx context.Context, idle time.Duration) error {
	q.mu.Lock()
	left := minWakeInterval - time.Since(q.awoke)
	q.mu.Unlock()
	if err := repeat.Pause(ctx, left); err != nil {
		return err
	}
	ctxIdle, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	err := q.db.Listen(ctxIdle, wakeChannel, func(wait func(context.Context, time.Duration) (bool, error)) error {
		for {
			next, err := q.next(ctxIdle) // after the subscription, so that nothing falls in between
			if err != nil || next == 0 {
				return err
			}
			if heard, err := wait(ctxIdle, next); err != nil || !heard {
				return err
			}
		}
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && ctxIdle.Err() == nil:
		return fmt.Errorf("wait for work: %w", err)
	}
	q.mu.Lock()
	q.awoke = time.Now()
	q.mu.Unlock()
	return nil
}

// Committed returns [store.DB.Committed] of the queue's database.
func (q *Queue) Committed() <-chan struct{} { return q.db.Committed() }

// nextDue reads the time at which the next conversation is due, or one in an hour, which is longer than any wait. {but} leaves some out.
const nextDue = `SELECT CASE WHEN EXISTS (SELECT 1 FROM conversations WHERE run_at <= $1 AND lease_until < $1{but}) THEN $1
	ELSE coalesce((SELECT min(run_at) FROM conversations WHERE run_at > $1{but}), $1 + 3600000) END`

// next returns the time until a conversation is due, which is not positive when one is due now.
func (q *Queue) next(ctx context.Context) (time.Duration, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, err
	}
	but, args := q.skip([]any{now})
	due, err := store.ReadRow(ctx, q.db, "look for work", store.ScanValue[int64], strings.ReplaceAll(nextDue, "{but}", but), args...)
	return max(0, time.Duration(due-now)*time.Millisecond), err
}

// idKeys are the keys under which the database has the platforms' ids of customers and messages. Outside of this package's methods an id is
// plain; inside, from [Queue.seal] to the rows, it is sealed: equal ids of an organization are sealed alike, so that sealed ids are
// compared. Without keys nothing was stored yet.
type idKeys struct {
	keys []*vault.IDKey // the first seals, all open
}

// errIDKeyAdded: another process has added a key at this moment.
var errIDKeyAdded = errors.New("inbox: another process has added a key of ids")

// idKeyTries bounds how often the keys are read again after another process has added one.
const idKeyTries = 5

// loadIDs reads the keys once for the queue. With begin, or where conversations are stored, it makes the first key: otherwise a store without
// a key stays empty, and has nothing to open. If all keys were sealed with master keys that are lost, it makes another, so that customers
// of before begin new conversations; when a lost master key comes back, the oldest key that opens seals again.
func (q *Queue) loadIDs(ctx context.Context, begin bool) (*idKeys, error) {
	if ids := q.ids.Load(); ids != nil {
		return ids, nil
	}
	var err error
	for range idKeyTries {
		var ids *idKeys
		ids, err = q.readIDs(ctx, begin)
		if err == nil && !ids.none() {
			q.ids.Store(ids)
		}
		if !errors.Is(err, errIDKeyAdded) {
			return ids, err
		}
	}
	return nil, err
}

// readIDs reads or makes the keys. It returns [errIDKeyAdded] when they have to be read again.
func (q *Queue) readIDs(ctx context.Context, begin bool) (*idKeys, error) {
	stored, err := q.db.IDKeys.All(ctx)
	if err != nil {
		return nil, err
	}
	ids := &idKeys{}
	var lost error
	for _, key := range stored {
		secret, err := q.ring.Open(key.Sealed, vault.StoredIDKey(key.Number))
		if errors.Is(err, vault.ErrUnknownKey) {
			lost = err
			continue
		}
		var opened *vault.IDKey
		if err == nil {
			opened, err = vault.ParseIDKey(secret)
		}
		if err != nil {
			return nil, fmt.Errorf("open the key of ids %d: %w", key.Number, err)
		}
		ids.keys = append(ids.keys, opened)
	}
	if len(ids.keys) > 0 {
		return ids, nil
	}
	if !begin && lost == nil {
		_, err := store.ReadRow(ctx, q.db, "look for conversations", store.ScanValue[int], `SELECT 1 FROM conversations LIMIT 1`)
		if errors.Is(err, store.ErrNotFound) {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if lost != nil && q.Log != nil {
		q.Log.Error("no key of customers' ids opens; customers of before begin new conversations until the lost master key is put back",
			slog.Any("error", lost))
	}
	return q.addIDKey(ctx, int64(len(stored)))
}

// addIDKey makes a key.
func (q *Queue) addIDKey(ctx context.Context, number int64) (*idKeys, error) {
	secret := vault.NewIDKey()
	key, err := vault.ParseIDKey(secret)
	if err == nil {
		err = q.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			added, err := q.db.IDKeys.Add(ctx, tx, store.IDKey{Number: number, Sealed: q.ring.Seal(secret, vault.StoredIDKey(number))})
			if err == nil && !added {
				err = errIDKeyAdded
			}
			return err
		})
	}
	return &idKeys{keys: []*vault.IDKey{key}}, store.Wrap("make a key of ids", err)
}

// none reports whether there are no keys.
func (k *idKeys) none() bool { return k == nil || len(k.keys) == 0 }

// seal returns the form in which the database has an id. Without a key nothing was stored, and the form is empty, which no row has.
func (k *idKeys) seal(id string, place vault.AAD) string {
	if k.none() {
		return ""
	}
	return k.keys[0].Seal(id, place)
}

// open returns the id of a sealed form.
func (k *idKeys) open(sealed string, place vault.AAD) (id string, err error) {
	if k.none() {
		return "", vault.ErrUnknownKey
	}
	for _, key := range k.keys {
		if id, err = key.Open(sealed, place); err == nil {
			break
		}
	}
	return id, err
}

// openID opens an id of a row. One that doesn't open is left empty, as if the platform hadn't sent it.
func (q *Queue) openID(what, sealed string, place vault.AAD) string {
	id, err := q.ids.Load().open(sealed, place)
	if err != nil {
		q.unreadable(what, err)
	}
	return id
}

const (
	// checkPage is how many rows one read of a check covers, on a machine that is quick enough.
	checkPage = 5000
	// lateSending is how long a part may be sending without a worker.
	lateSending = 15 * 60 * 1000 // milliseconds
)

// sentence is an invariant, as a query of the rows that break it. A paged one covers the rows of a table with id > $1 AND id <= $2; the
// others get the database's clock as $1.
type sentence struct {
	table string // "" reads few rows anyway
	text  string
}

var sentences = []sentence{
	{"messages", `SELECT m.id, 'names the turn ' || m.turn_id || ', which is not of its conversation' FROM messages m
		WHERE m.id > $1 AND m.id <= $2 AND m.turn_id IS NOT NULL AND NOT EXISTS (
			SELECT 1 FROM turns t WHERE t.id = m.turn_id AND t.conversation_id = m.conversation_id AND t.org_id = m.org_id)`},
	{"messages", `SELECT m.id, 'names the turn ' || m.turn_id || ', which was superseded' FROM messages m
		JOIN turns t ON t.id = m.turn_id
		WHERE m.id > $1 AND m.id <= $2 AND t.state = 'superseded'`},
	{"messages", `SELECT m.id, 'is no customer''s message, and names the turn ' || m.turn_id FROM messages m
		WHERE m.id > $1 AND m.id <= $2 AND m.turn_id IS NOT NULL AND m.author <> 'customer'`},
	{"messages", `SELECT m.id, 'waits in a conversation that is never due' FROM messages m
		LEFT JOIN conversations c ON c.id = m.conversation_id
		WHERE m.id > $1 AND m.id <= $2 AND m.turn_id IS NULL AND NOT m.handled AND c.run_at IS NULL
			AND coalesce(c.state, 'assistant') <> 'human'`},
	{"turns", `SELECT t.id, 'is answered and has no parts' FROM turns t
		WHERE t.id > $1 AND t.id <= $2 AND t.state = 'answered'
			AND NOT EXISTS (SELECT 1 FROM outbound_messages o WHERE o.turn_id = t.id)`},
	{"turns", `SELECT t.id, 'is ' || t.state || ' and has parts' FROM turns t
		WHERE t.id > $1 AND t.id <= $2 AND t.state <> 'answered'
			AND EXISTS (SELECT 1 FROM outbound_messages o WHERE o.turn_id = t.id AND o.state <> 'discarded')`},
	{"turns", `SELECT t.id, 'is ' || t.state || ' and answers no message' FROM turns t
		WHERE t.id > $1 AND t.id <= $2 AND t.state IN ('awaiting', 'answered', 'needs_attention', 'dead') AND t.code <> '` + codeClosed + `'
			AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.turn_id = t.id)`},
	{"turns", `SELECT t.id, 'is awaiting an answer in a conversation that is never due' FROM turns t
		LEFT JOIN conversations c ON c.id = t.conversation_id
		WHERE t.id > $1 AND t.id <= $2 AND t.state = 'awaiting' AND c.run_at IS NULL`},
	{"turns", `SELECT t.id, 'is awaiting an answer, and its conversation does not name it' FROM turns t
		LEFT JOIN conversations c ON c.id = t.conversation_id
		WHERE t.id > $1 AND t.id <= $2 AND t.state = 'awaiting' AND coalesce(c.turn_id, '') <> t.id`},
	{"turns", `SELECT t.id, 'needs attention, and its conversation does not say so' FROM turns t
		JOIN conversations c ON c.id = t.conversation_id
		WHERE t.id > $1 AND t.id <= $2 AND t.state = 'needs_attention' AND c.attention = ''`},
	{"outbound_messages", `SELECT o.id, 'belongs to the turn ' || o.turn_id || ', which is not of its conversation'
		FROM outbound_messages o
		WHERE o.id > $1 AND o.id <= $2 AND o.turn_id IS NOT NULL AND NOT EXISTS (
			SELECT 1 FROM turns t WHERE t.id = o.turn_id AND t.conversation_id = o.conversation_id AND t.org_id = o.org_id)`},
	{"outbound_messages", `SELECT o.id, o.state || ' in a conversation that is never due' FROM outbound_messages o
		LEFT JOIN conversations c ON c.id = o.conversation_id
		WHERE o.id > $1 AND o.id <= $2 AND o.state IN ('pending', 'sending') AND c.run_at IS NULL`},
	{"outbound_messages", `SELECT o.id, o.state || ' and older than what its conversation sends' FROM outbound_messages o
		JOIN conversations c ON c.id = o.conversation_id
		WHERE o.id > $1 AND o.id <= $2 AND o.state IN ('pending', 'sending') AND o.created_at < c.unsent_since`},
	{"", `SELECT o.id, 'sending since ' || o.updated_at || ' and no worker has its conversation'
		FROM conversations c CROSS JOIN outbound_messages o
		WHERE c.run_at IS NOT NULL AND o.conversation_id = c.id AND o.created_at >= c.unsent_since
			AND c.lease_until < $1 AND o.state = 'sending' AND o.updated_at + ` + strconv.Itoa(lateSending) + ` < $1`},
	{"", `SELECT min(o.id), count(*) || ' parts of ' || min(c.id) || ' are sending at once'
		FROM conversations c CROSS JOIN outbound_messages o
		WHERE c.run_at IS NOT NULL AND o.conversation_id = c.id AND o.created_at >= c.unsent_since
			AND o.state = 'sending' AND CAST($1 AS BIGINT) > 0 GROUP BY c.id || '' HAVING count(*) > 1`}, // by the bare id all are read
}

// CheckSince looks for rows that break the queue's invariants: every text is answered by one turn of its own conversation only, an answered turn
// has its parts and no other has any, unfinished work is due, and no part has been sending for more than 15 minutes without a worker. It
// checks rows from a moment on, in epoch milliseconds, and unfinished rows. 0 means all rows.
// It reads page by page while the database is in use, writes nothing, and reports up to 20 findings of each sort. The error is one of reading.
func CheckSince(ctx context.Context, db *store.DB, since int64) ([]store.Finding, error) {
	now, err := db.Now(ctx)
	var findings []store.Finding
	for _, s := range sentences {
		var found []store.Finding
		switch {
		case err != nil:
		case s.table == "":
			few := fmt.Sprintf("%s LIMIT %d", s.text, store.MostFindings)
			found, err = store.ReadRows(ctx, db, "look at unfinished rows", store.ScanFinding, few, now)
		default:
			found, err = store.ReadFindings(ctx, db, s.table, s.after(since), checkPage, s.text)
		}
		findings = append(findings, found...)
	}
	return findings, store.Wrap("check the queue", err)
}

// after returns the id after which the rows since a moment are. It is empty for all rows.
func (s sentence) after(since int64) string {
	switch {
	case since <= 0:
		return ""
	case s.table == "turns":
		return store.FirstID("trn", since)
	}
	return store.FirstID("msg", since)
}
