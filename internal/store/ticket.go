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

	lazy bool // starts no transaction of its own, see SubmitLazily

	next, previous *Ticket // in the queue
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
	return &Ticket{kind: kind, op: op, asked: time.Now(), done: make(chan struct{})}
}

// errUnknownKind: the wiring forgot to give the kind to Open.
var errUnknownKind = errors.New("store: the kind was not given to Open")

// Do hands an operation to the writer and waits until it is durable.
//
// When ctx ends before the writer took it, the operation is withdrawn, nothing happened, and Do returns the context's
// cause (with [ErrBusy] when the queue was full all the while; without an end of ctx a full queue is waited for 5 s).
// Once taken, Do waits for the end of its transaction, whatever ctx does, so that the outcome is always known. The writer
// bounds both: on PostgreSQL every operation has ended 5 s after it was handed over, one that could not begin in time
// with [ErrBusy]; on SQLite it may wait 10 s for its turn and then 5 s for the file's lock. Other errors: [ErrClosed],
// [ErrCommitUnknown], or the fault of the operation itself, after it ran alone, too.
func (db *DB) Do(ctx context.Context, kind Kind, op Op) error {
	index, ok := db.kinds[kind.Name()]
	if !ok {
		return fmt.Errorf("%w: %s", errUnknownKind, kind.Name())
	}
	return db.writer.do(ctx, newTicket(index, op))
}

// Submit hands an operation to the writer and does not wait. A full queue finishes the ticket with [ErrBusy] at once.
func (db *DB) Submit(kind Kind, op Op) *Ticket { return db.submit(kind, op, false) }

// SubmitLazily is [DB.Submit] for an operation that has time: it goes with the next transaction that something else
// starts, and starts one itself after a second, or when 256 of its sort are in line, or when the database is closed. A
// process that is killed meanwhile loses it.
func (db *DB) SubmitLazily(kind Kind, op Op) *Ticket { return db.submit(kind, op, true) }

func (db *DB) submit(kind Kind, op Op, lazy bool) *Ticket {
	index, ok := db.kinds[kind.Name()]
	ticket := newTicket(index, op)
	ticket.lazy = lazy
	if !ok {
		ticket.finish(fmt.Errorf("%w: %s", errUnknownKind, kind.Name()))
		return ticket
	}
	if err := db.writer.queue.tryPush(ticket); err != nil {
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
