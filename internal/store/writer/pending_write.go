package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// PendingWrite is an operation on its way through the writer.
type PendingWrite struct {
	kind int // index of the kind, or one of the special ones below
	op   Op
	run  func(ctx context.Context, tx driver.Tx) error // of an Exec

	class class
	size  int // in bytes, see Sized

	deadlocks int // that ended its transaction

	next, previous *PendingWrite // in its line
	queued         bool          // guarded by the queue's mutex

	asked time.Time // when it was handed over
	done  chan struct{}
	err   error
}

// Special values of PendingWrite.kind.
const (
	execWrite = -1 // a hand-written write
	pingWrite = -2 // asks whether the writer is alive
)

// Done is closed when the operation's transaction has ended.
func (t *PendingWrite) Done() <-chan struct{} { return t.done }

// Err is the operation's error, nil when it is durable. It may be asked after Done is closed only.
func (t *PendingWrite) Err() error { return t.err }

func (t *PendingWrite) finish(err error) {
	t.err = err
	close(t.done)
}

func newPendingWrite(kind int, op Op) *PendingWrite {
	t := &PendingWrite{kind: kind, op: op, class: ordinary, asked: time.Now(), done: make(chan struct{})}
	if op, ok := op.(Urgent); ok && op.Urgent() {
		t.class = urgent
	}
	if op, ok := op.(Sized); ok {
		t.size = op.Size()
	}
	return t
}

// errUnknownKind: the kind is missing among the options.
var errUnknownKind = errors.New("store: the kind was not given to Open")

// Do queues an operation and waits until it is durable.
func (w *Writer) Do(ctx context.Context, kind Kind, op Op) error {
	index, ok := w.indexes[kind.Name()]
	if !ok {
		return fmt.Errorf("%w: %s", errUnknownKind, kind.Name())
	}
	return w.await(ctx, newPendingWrite(index, op))
}

// Submit queues an operation and does not wait.
func (w *Writer) Submit(kind Kind, op Op) *PendingWrite { return w.submit(kind, op, false) }

// SubmitLazily queues an operation that has time.
func (w *Writer) SubmitLazily(kind Kind, op Op) *PendingWrite { return w.submit(kind, op, true) }

func (w *Writer) submit(kind Kind, op Op, isLazy bool) *PendingWrite {
	index, ok := w.indexes[kind.Name()]
	write := newPendingWrite(index, op)
	if isLazy {
		write.class = lazy
	}
	if !ok {
		write.finish(fmt.Errorf("%w: %s", errUnknownKind, kind.Name()))
		return write
	}
	if err := w.queue.push(write); err != nil {
		write.finish(err)
	}
	return write
}

// Exec queues a hand-written write and waits until it is durable.
func (w *Writer) Exec(ctx context.Context, run func(ctx context.Context, tx driver.Tx) error) error {
	write := newPendingWrite(execWrite, nil)
	write.run = run
	return w.await(ctx, write)
}

// Op is one durable operation of a kind: a pointer to the kind's own struct, which also carries the result.
type Op any

// Urgent is an [Op] that may end work that has begun: the settlement of a call that the vendor has answered, a worker's note that a message is
// sent. If Urgent is true it goes before the others, and isn't refused while too much waits. The number of urgent operations must be limited by
// the work that has begun. Urgent is called once, when the operation is handed over.
type Urgent interface{ Urgent() bool }

// Sized is an [Op] that may write many bytes. Size is about their number: a transaction carries up to 8 MiB, and in any case the first waiting
// operation of each class. It is called once, when the operation is handed over. An Op without it counts as 0 bytes.
type Sized interface{ Size() int }

// Joint is an [Op] that carries an operation of another kind, with which it shares a savepoint. The transaction's other operations of that kind
// are handed to the carrier's kind as well, which applies them with the carried ones, so that one transaction locks their rows in one order.
type Joint interface {
	// Joins returns the other kind. Nil means none.
	Joins() Kind
}

// Undoer is an [Op] of a kind that keeps some of its effects in the process's memory. If the transaction is known to have failed, Undo reverses
// the effects of the last Apply: before other operations are applied, and before this one ends or is applied again. After a COMMIT of unknown
// outcome it isn't called.
type Undoer interface{ Undo() }

// Kind turns operations of one sort into rows. The writer hands it all operations of that sort which share a transaction, in arrival order. The
// kind locks their rows, decides in Go, and writes. Apply returns one error for each op, or nil when all are decided: a refusal (no funds, already
// settled) is a decision, stored in the op itself.
//
// An error, a panic or a failed statement is a fault: the writer rolls the kind's savepoint back and runs its operations again, in small groups
// and then each alone, in the next transactions. An operation that fails alone gets its error. When the transaction as a whole is lost, all its
// operations get that error and none runs again. Apply must therefore set every result afresh, and may keep effects in memory only for an
// [Undoer].
type Kind interface {
	// Name is the kind's name in metrics and logs, unique within a database.
	Name() string
	Apply(ctx context.Context, tx driver.Tx, ops []Op) []error
}

// RowLocking is a [Kind] with an Apply that locks all rows that its operations change before it decides by them, in one order, and that keeps
// nothing in the process's memory. Where the engine locks single rows, its next transaction begins while the last one commits. A row that both
// change has that order.
type RowLocking interface {
	Kind
	LocksRows()
}
