package inbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Kind writes the operations of a [Queue]. It belongs among the kinds of [store.Options]; it has no state, so that one value serves
// every database.
var Kind store.Kind = kind{}

type kind struct{}

// operation is one write on one conversation. Its functions run again when a transaction was undone, so that they set the variables of
// their caller anew each time.
type operation struct {
	// conversation is the id of the conversation, which may be gone when it is locked. find reads it, without locks, where the caller doesn't
	// have it; an empty id means that there is no conversation.
	conversation string
	find         func(ctx context.Context, tx store.Tx) (id string, err error)
	// reads queue the reading of other rows that run depends on. They are read before run, under the conversation's lock, and show the
	// writes of earlier operations in the batch.
	reads []func(s *session)
	// run runs on the locked row with the changes by earlier operations in the batch. The row is nil if the conversation is gone. The error
	// is a [refusal], after which the other writes of run are committed, or a fault of the database.
	run func(s *session, c *conversationRow) error

	size   int  // about how many bytes it writes
	urgent bool // it continues what was begun under a lease
	// pace is the channel on which the operation may send, or which it closes; its pace is locked.
	pace paceKey
	// call is the model call that is held or settled in the operation's commit. Nil means none. ruling is its [Step.Ruling].
	call   *Call
	ruling func(refused error) (replaced string, lost bool, err error)
	// before and after are the failpoints on both sides of its COMMIT.
	before, after failpoint.Point

	refused error // the result
}

// refusal is the error of an operation that changes nothing more for a reason of the caller.
type refusal struct{ error }

// Size implements [store.Sized].
func (op *operation) Size() int { return op.size }

// Urgent implements [store.Urgent]: begun turns continue before new ones, and their leases don't run out in a long line. There
// are as many as leases.
func (op *operation) Urgent() bool { return op.urgent }

// Kind implements [Step].
func (*operation) Kind() store.Kind { return Kind }

// Ruling implements [Step].
func (op *operation) Ruling() (replaced string, lost bool, refused error) {
	if op.ruling != nil {
		return op.ruling(op.refused)
	}
	return "", false, op.refused
}

// Call is a model call that answers a turn. The beginning and the end of the turn are durable together with the call's hold and settlement, so
// that a turn needs no other claim on its call: the turn names the last call that was begun for it, and only that call is paid.
type Call struct {
	ID string
	// Commit writes a step of the turn with the hold or the settlement, and returns the error of either. Nil writes the step alone, for a call
	// that costs nothing.
	Commit func(ctx context.Context, step Step) error
	// Supersede discards the answer when newer texts wait: the next turn answers all of them. The error is then [ErrSuperseded].
	Supersede bool
}

// ErrSuperseded is returned in place of storing an answer for [Call.Supersede].
var ErrSuperseded = errors.New("inbox: newer texts wait")

// Step is an operation that begins or ends a turn, for the transaction of its call's hold or settlement.
type Step interface {
	store.Op
	// Kind applies the operation.
	Kind() store.Kind
	// Ruling returns the decision of the applied operation about the call. replaced is the turn's earlier call of a dead worker; empty
	// means none. lost reports whether the turn has, or will get, another call in place of this ended one. refused is why the call can't
	// begin, or hasn't ended.
	Ruling() (replaced string, lost bool, refused error)
}

// do runs an operation and returns its fault or its refusal.
func (q *Queue) do(ctx context.Context, doing string, op *operation) error {
	var err error
	if op.call != nil && op.call.Commit != nil {
		err = op.call.Commit(ctx, op)
	} else {
		err = q.write(ctx, op)
	}
	if err == nil {
		err = op.refused
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if failpoint.Enabled() && op.after != "" {
		failpoint.Hit(op.after)
	}
	return nil
}

// onLease returns an operation under a lease. run gets the conversation while the lease is the last one given and wasn't given back. A lease
// that ran out is still good as long as no other worker took the conversation: the locked row decides.
func onLease(lease Lease, run func(s *session, c *conversationRow) error, reads ...func(*session)) *operation {
	return &operation{conversation: lease.ConversationID, urgent: true, reads: reads, run: func(s *session, c *conversationRow) error {
		if c == nil || c.leaseUntil == 0 || c.leaseToken != lease.Token || c.orgID != lease.OrgID {
			return refusal{ErrLeaseLost}
		}
		return run(s, c)
	}}
}

// onOwn returns an operation of an organization on one of its conversations.
func onOwn(orgID, id string, run func(s *session, c *conversationRow) error, reads ...func(*session)) *operation {
	return &operation{
		conversation: id, reads: reads, before: failpoint.BeforePersonCommit, after: failpoint.AfterPersonCommit,
		run: func(s *session, c *conversationRow) error {
			if c == nil || c.orgID != orgID {
				return refusal{store.ErrNotFound}
			}
			return run(s, c)
		},
	}
}

// readInto returns a read of one row into variables, which keep their values if there is no row.
func readInto(into []any, text string, args ...any) func(*session) {
	return func(s *session) {
		s.tx.QueueQuery(func(row store.Row) error { return row.Scan(into...) }, text, args...)
	}
}

// session is the state that the operations of one transaction share.
type session struct {
	ctx  context.Context
	tx   store.Tx
	now  int64 // the database's clock, epoch milliseconds
	rows map[string]*conversationRow
	// paces are the paces of channels, by id.
	paces map[paceKey]*channelPace
	// arrived are the messages of the batch that are not inserted yet.
	arrived []*messageRow
}

// query reads rows at this point of the transaction.
func (s *session) query(doing string, scan func(store.Row) error, text string, args ...any) error {
	return store.Wrap(doing, s.tx.Query(s.ctx, scan, text, args...))
}

// value reads a row into a variable, which keeps its value if there is no row.
func (s *session) value(doing string, into any, text string, args ...any) error {
	return s.query(doing, func(row store.Row) error { return row.Scan(into) }, text, args...)
}

// audit writes an entry about a conversation into the audit log.
func (s *session) audit(c *conversationRow, actor, action string) {
	store.QueueAudit(s.tx, store.AuditEntry{At: s.now, Actor: actor, Action: "conversation." + action, Target: c.id, OrgID: c.orgID})
}

// Name is the kind's name in metrics and logs.
func (kind) Name() string { return "inbox" }

// LocksRows implements [store.RowLocking].
func (kind) LocksRows() {}

// Apply locks the conversations of all operations in order of id, stores arrivals, runs the workers' operations one after the
// other, and leases last, when all else is written. No caller in one transaction has seen the result of another, so any order
// is correct. A fault is the fault of all: the writer rolls back and runs each alone.
func (kind) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	return slices.Repeat([]error{apply(ctx, tx, ops)}, len(ops))
}

func apply(ctx context.Context, tx store.Tx, ops []store.Op) error {
	var arrived []*enqueueOp
	var others []*operation
	var leases []*leaseOp
	for _, op := range ops {
		switch op := op.(type) {
		case *enqueueOp:
			arrived = append(arrived, op)
		case *leaseOp:
			leases = append(leases, op)
		case *operation:
			others = append(others, op)
		default:
			return fmt.Errorf("the inbox has no operation %T", op)
		}
	}
	s := &session{ctx: ctx, tx: tx, rows: map[string]*conversationRow{}, paces: map[paceKey]*channelPace{}}
	if err := s.runAll(arrived, others); err != nil {
		return err
	}
	queueConversations(tx, s.rows)
	s.writePaces()
	for i, op := range leases {
		if err := op.run(ctx, tx, i == 0); err != nil { // a process has one worker; the reads of several would add up
			return fmt.Errorf("lease conversations: %w", err)
		}
	}
	if !failpoint.Enabled() {
		return nil
	}
	if err := tx.Flush(ctx); err != nil { // the last row of the batch, before the failpoints
		return fmt.Errorf("write the queue: %w", err)
	}
	for _, op := range others {
		if op.before != "" && op.refused == nil {
			failpoint.Hit(op.before)
		}
	}
	return nil
}

func (s *session) runAll(arrived []*enqueueOp, others []*operation) error {
	delivery := newDelivery(s, arrived)
	ids, err := delivery.find(len(others) == 0)
	if err != nil {
		return fmt.Errorf("find conversations: %w", err)
	}
	for _, op := range others {
		if op.find != nil {
			if op.conversation, err = op.find(s.ctx, s.tx); err != nil {
				return fmt.Errorf("find conversations: %w", err)
			}
		}
		if op.conversation != "" {
			ids = append(ids, op.conversation)
		}
	}
	queueLock(s.tx, ids, s.rows)
	s.queuePaces(others)
	delivery.queueRoutes()
	delivery.queueReads()
	late := s.queueReads(delivery, others)
	if err := s.tx.Flush(s.ctx); err != nil {
		return fmt.Errorf("lock conversations: %w", err)
	}
	s.now = s.tx.Now() // after the locks, because PostgreSQL sends its clock along with the first answer
	if delivery, err = delivery.withoutChanged(); err != nil {
		return fmt.Errorf("leave out deliveries: %w", err)
	}
	if err := delivery.store(); err != nil {
		return fmt.Errorf("store arrivals: %w", err)
	}
	for i, op := range others {
		if err := s.run(op, late[i]); err != nil {
			return fmt.Errorf("write the queue: %w", err)
		}
	}
	return nil
}

// queueReads queues what operations read, in the round trip of the locks. An operation on a conversation that arrivals or an earlier
// operation may change reads later: it is late, at its index among ops.
func (s *session) queueReads(arrived *delivery, ops []*operation) (late []bool) {
	late = make([]bool, len(ops))
	touched := map[string]bool{}
	for _, id := range slices.AppendSeq(slices.Clone(arrived.failed), maps.Values(arrived.ids)) {
		touched[id] = true
	}
	for i, op := range ops {
		if late[i] = touched[op.conversation]; !late[i] {
			for _, read := range op.reads {
				read(s)
			}
		}
		touched[op.conversation] = true
	}
	return late
}

// run runs an operation. A late one first reads, and its reads may depend on the row as earlier operations left it.
func (s *session) run(op *operation, late bool) error {
	c := s.rows[op.conversation]
	if late && c != nil {
		queueConversations(s.tx, map[string]*conversationRow{c.id: c})
	}
	if late && len(op.reads) > 0 {
		for _, read := range op.reads {
			read(s)
		}
		if err := s.tx.Flush(s.ctx); err != nil {
			return err
		}
	}
	if c != nil && c.deleted {
		c = nil
	}
	op.refused = nil
	err := op.run(s, c)
	if refused, ok := errors.AsType[refusal](err); ok {
		op.refused = refused.error
		return nil
	}
	return err
}
