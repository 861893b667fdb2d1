package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Ticket is an operation on its way through the writer.
type Ticket struct {
	kind int // index of the kind, or one of the special ones below
	op   Op
	run  func(ctx context.Context, tx Tx) error // of an Exec

	class class
	size  int // in bytes, see Sized

	deadlocks int // that ended its transaction

	next, previous *Ticket // in its line
	queued         bool    // guarded by the queue's mutex

	asked time.Time // when it was handed over
	done  chan struct{}
	err   error
}

// Special values of Ticket.kind.
const (
	execTicket = -1 // a hand-written write
	pingTicket = -2 // asks whether the writer is alive
)

// Done is closed when the operation's transaction has ended.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Err is the operation's error, nil when it is durable. It may be asked after Done is closed only.
func (t *Ticket) Err() error { return t.err }

func (t *Ticket) finish(err error) {
	t.err = err
	close(t.done)
}

func newTicket(kind int, op Op) *Ticket {
	t := &Ticket{kind: kind, op: op, class: ordinary, asked: time.Now(), done: make(chan struct{})}
	if op, ok := op.(Urgent); ok && op.Urgent() {
		t.class = urgent
	}
	if op, ok := op.(Sized); ok {
		t.size = op.Size()
	}
	return t
}

// newPing asks whether the writer is alive.
func newPing() *Ticket {
	t := newTicket(pingTicket, nil)
	t.class = urgent
	return t
}

// errUnknownKind: the wiring forgot to give the kind to Open.
var errUnknownKind = errors.New("store: the kind was not given to Open")

// Do hands an operation to the writer and waits until it is durable.
//
// An operation that could not begin within 2 s, or within one and a half transactions when they are slow, 4 s at
// most, is refused at once with [ErrBusy]: nothing happened, and whoever asked may come back after a second. An [Urgent]
// one isn't, unless 8,192 of them are in line.
//
// When ctx ends before the writer took the operation, it is withdrawn, nothing happened, and Do returns the context's
// cause, as an [ErrBusy]. Once taken, Do waits for the end of its transaction, whatever ctx does, so that the outcome is
// always known. The writer bounds both. When transactions become slower while operations wait, those that can't be taken
// within 5 s any more end with [ErrBusy] as soon as that shows, the last in line first; an urgent one is given up after
// 10 s. On PostgreSQL a transaction has 4 s from its beginning until COMMIT is sent, and then 5 s for the answer; on SQLite
// it may wait for its turn for a second and then 5 s for the file's lock. An operation that
// PostgreSQL ends because of a deadlock runs again, three times at most; then it is an [ErrBusy]. Other errors: [ErrClosed],
// [ErrCommitUnknown], or the fault of the operation itself, after it ran alone, too.
func (db *DB) Do(ctx context.Context, kind Kind, op Op) error {
	index, ok := db.kinds[kind.Name()]
	if !ok {
		return fmt.Errorf("%w: %s", errUnknownKind, kind.Name())
	}
	return db.writer.do(ctx, newTicket(index, op))
}

// Submit hands an operation to the writer and does not wait. What [DB.Do] would refuse is finished at once.
func (db *DB) Submit(kind Kind, op Op) *Ticket { return db.submit(kind, op, false) }

// SubmitLazily is [DB.Submit] for an operation that has time: it goes with the next transaction that something else
// starts and that has room, and starts one itself after a second, or when 256 of its sort are in line, or when the
// database is closed. It is refused with [ErrBusy] when 8,192 of its sort are in line. A process that is killed meanwhile
// loses it.
func (db *DB) SubmitLazily(kind Kind, op Op) *Ticket { return db.submit(kind, op, true) }

func (db *DB) submit(kind Kind, op Op, isLazy bool) *Ticket {
	index, ok := db.kinds[kind.Name()]
	ticket := newTicket(index, op)
	if isLazy {
		ticket.class = lazy
	}
	if !ok {
		ticket.finish(fmt.Errorf("%w: %s", errUnknownKind, kind.Name()))
		return ticket
	}
	if err := db.writer.queue.push(ticket); err != nil {
		ticket.finish(err)
	}
	return ticket
}

// Exec runs one hand-written write in a savepoint of its own in the writer's next transaction, and waits as [DB.Do]
// does. run's error rolls the savepoint back and is returned as it is wrapped; what it queued last is flushed after it.
// run is called by the writer's goroutine: it must not wait for anything but tx.
func (db *DB) Exec(ctx context.Context, run func(ctx context.Context, tx Tx) error) error {
	ticket := newTicket(execTicket, nil)
	ticket.run = run
	return db.writer.do(ctx, ticket)
}
