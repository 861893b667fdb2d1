package inbox

import (
	"context"
	"errors"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Call is a model call that answers a turn. What begins or ends the turn is durable together with the call's hold or settlement, so that a
// turn needs no other claim on its call: the turn names the last call that was begun for it, and only that one is paid.
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
	// Ruling returns what the operation, which has been applied, decided about the call. replaced is the turn's call before this one, whose
	// worker is gone; empty means none. lost reports whether the turn has, or will get, another call in place of this one that has ended.
	// refused is why the call can't begin, or hasn't ended.
	Ruling() (replaced string, lost bool, refused error)

	call() *Call // nil means none
}

// callID returns the id of the call that the operation begins or ends, "" for none.
func (op *turnOp) callID() string {
	if op.lease.Call == nil {
		return ""
	}
	return op.lease.Call.ID
}

// commit writes the operation, with its call's hold or settlement if it has any.
func (q *Queue) commit(ctx context.Context, op refusable) error {
	if step, ok := op.(Step); ok && step.call() != nil && step.call().Commit != nil {
		return step.call().Commit(ctx, step)
	}
	return q.db.Do(ctx, Kind, op)
}

func (op *turnOp) call() *Call { return op.lease.Call }

// Kind is that of [Step].
func (*turnOp) Kind() store.Kind { return Kind }

// Ruling is that of [Step]. A call has ended whatever the queue makes of its answer, unless something else will end it. A turn whose lease is
// lost while it runs gets another call. One that people have ended, or that was erased, doesn't.
func (op *turnOp) Ruling() (replaced string, lost bool, refused error) {
	if errors.Is(op.refused, ErrDraftMode) {
		return "", false, op.refused
	}
	running := op.turnState == TurnAwaiting && errors.Is(op.refused, ErrLeaseLost)
	return "", op.turnState != "" && (running || op.turnCall != op.callID()), nil
}
