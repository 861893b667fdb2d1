package inbox

import (
	"context"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Kind writes the operations of a [Queue]. It belongs among the kinds of [store.Options]; it has no state, so that one value serves
// every database.
var Kind store.Kind = kind{}

type kind struct{}

// operation is one write on one conversation. It runs on the locked row, sees the changes by the operations before it in the
// batch, and stores a refusal in itself; its error is a fault of the database.
type operation interface {
	// conversation is the id of the conversation it touches, which may be gone when it is locked; "" is none.
	conversation() string
	run(ctx context.Context, s *session) error
}

// reader is an operation that depends on more rows than the conversation's.
type reader interface {
	operation
	// read queues the reading of these rows. They are read before run, under the conversation's lock, and show what earlier operations
	// of the batch have written.
	read(s *session)
}

// finder is an operation that has to read, without locks, which conversation it touches.
type finder interface {
	find(ctx context.Context, tx store.Tx) error
}

// session is the state that the operations of one transaction share.
type session struct {
	tx   store.Tx
	now  int64 // the database's clock, epoch milliseconds
	rows map[string]*conversationRow
	// paces are those of channels, by id.
	paces map[paceKey]*channelPace
}

// Name is the kind's name in metrics and logs.
func (kind) Name() string { return "inbox" }

// LocksRows implements [store.RowLocking].
func (kind) LocksRows() {}

// Apply locks the conversations of all operations in order of id, stores arrivals, runs the workers' operations one after the
// other, and leases last, when all else is written. No caller in one transaction has seen the result of another, so any order
// is correct. A fault is the fault of all: the writer rolls back and runs each alone.
func (kind) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	faults := make([]error, len(ops))
	if err := apply(ctx, tx, ops); err != nil {
		for i := range faults {
			faults[i] = err
		}
	}
	return faults
}

func apply(ctx context.Context, tx store.Tx, ops []store.Op) error {
	var arrived []*enqueueOp
	var others []operation
	var leases []*leaseOp
	for _, op := range ops {
		switch op := op.(type) {
		case *enqueueOp:
			arrived = append(arrived, op)
		case *leaseOp:
			leases = append(leases, op)
		case operation:
			others = append(others, op)
		default:
			return fmt.Errorf("the inbox has no operation %T", op)
		}
	}
	s := &session{tx: tx, rows: map[string]*conversationRow{}, paces: map[paceKey]*channelPace{}}
	if err := s.runAll(ctx, arrived, others); err != nil {
		return err
	}
	queueConversations(tx, s.rows)
	s.writePaces()
	for i, op := range leases {
		if err := op.run(ctx, tx, i == 0); err != nil { // a process has one worker; the reads of several would add up
			return fmt.Errorf("lease conversations: %w", err)
		}
	}
	return passFailpoints(ctx, tx, others)
}

// passFailpoints writes the last row of the batch and passes the failpoints between it and COMMIT.
func passFailpoints(ctx context.Context, tx store.Tx, ops []operation) error {
	if !failpoint.Enabled {
		return nil
	}
	if err := tx.Flush(ctx); err != nil {
		return fmt.Errorf("write the queue: %w", err)
	}
	for _, op := range ops {
		if before, _, passes := failpoints(op); passes {
			failpoint.Hit(before)
		}
	}
	return nil
}

// personal is an operation of a person.
type personal interface {
	own(s *session) *conversationRow
}

// failpoints returns the points on both sides of an operation's COMMIT, if it has such points and was not refused.
func failpoints(op operation) (before, after failpoint.Point, passes bool) {
	refusable, ok := op.(refusable)
	if !ok || refusable.refusal() != nil {
		return "", "", false
	}
	if _, passes = op.(*proposeOp); passes {
		return failpoint.BeforeDraftCommit, failpoint.AfterDraftCommit, true
	}
	_, passes = op.(personal)
	return failpoint.BeforePersonCommit, failpoint.AfterPersonCommit, passes
}

func (s *session) runAll(ctx context.Context, arrived []*enqueueOp, others []operation) error {
	delivery := newDelivery(arrived, s.rows)
	ids, err := delivery.find(ctx, s.tx, len(others) == 0)
	if err != nil {
		return fmt.Errorf("find conversations: %w", err)
	}
	for _, op := range others {
		if finder, ok := op.(finder); ok {
			if err := finder.find(ctx, s.tx); err != nil {
				return fmt.Errorf("find conversations: %w", err)
			}
		}
		if id := op.conversation(); id != "" {
			ids = append(ids, id)
		}
	}
	queueLock(s.tx, ids, s.rows)
	s.queuePaces(others)
	delivery.queueRoutes(s.tx)
	delivery.queueReads(s.tx)
	late := s.queueReads(delivery, others)
	if err := s.tx.Flush(ctx); err != nil {
		return fmt.Errorf("lock conversations: %w", err)
	}
	s.now = s.tx.Now() // after the locks, because PostgreSQL sends its clock along with the first answer
	if delivery, err = delivery.withoutChanged(ctx, s.tx); err != nil {
		return fmt.Errorf("leave out deliveries: %w", err)
	}
	if err := delivery.store(ctx, s); err != nil {
		return fmt.Errorf("store arrivals: %w", err)
	}
	for i, op := range others {
		if c := s.rows[op.conversation()]; late[i] && c != nil { // what it reads depends on the row that is left
			queueConversations(s.tx, map[string]*conversationRow{c.id: c})
		}
		if reading, ok := op.(reader); ok && late[i] {
			reading.read(s)
			if err := s.tx.Flush(ctx); err != nil {
				return fmt.Errorf("read the queue: %w", err)
			}
		}
		if err := op.run(ctx, s); err != nil {
			return fmt.Errorf("write the queue: %w", err)
		}
	}
	return nil
}

// queueReads queues what operations read, in the round trip of the locks. An operation on a conversation that arrivals or an earlier
// operation may change reads later: it is late, at its index among ops.
func (s *session) queueReads(arrived *delivery, ops []operation) (late []bool) {
	late = make([]bool, len(ops))
	touched := arrived.conversations()
	for i, op := range ops {
		id := op.conversation()
		late[i] = touched[id]
		if reading, ok := op.(reader); ok && !late[i] {
			reading.read(s)
		}
		touched[id] = true
	}
	return late
}
