package handlers

import (
	"context"
	"runtime"
)

// largeDecode is the size in bytes from which a body counts as large while it is decoded.
const largeDecode = 64 << 10

// decodeSlots bound how many bodies are decoded at a time, and so what all decoders together take. Large bodies may have
// half of the slots, so that small ones never stand behind them. Waiting is first come, first served, and how much can wait
// before a body is bounded by the shares of the [ByteBudget]: one organization can't keep the others waiting for longer
// than it takes to decode what it may hold.
type decodeSlots struct{ all, large chan struct{} }

func newDecodeSlots() decodeSlots {
	n := max(4, 2*runtime.GOMAXPROCS(0))
	return decodeSlots{all: make(chan struct{}, n), large: make(chan struct{}, n/2)}
}

// Decoding waits for a slot to decode a body of the given size in bytes. done gives it back. The error is that of ctx, as
// an answer of the contract.
func (b *ByteBudget) Decoding(ctx context.Context, size int) (done func(), err error) {
	if b == nil || b.decodes.all == nil {
		return func() {}, nil
	}
	if size < largeDecode {
		return enter(ctx, b.decodes.all)
	}
	leaveLarge, err := enter(ctx, b.decodes.large)
	if err != nil {
		return nil, err
	}
	leave, err := enter(ctx, b.decodes.all)
	if err != nil {
		leaveLarge()
		return nil, err
	}
	return func() { leave(); leaveLarge() }, nil
}

func enter(ctx context.Context, slots chan struct{}) (leave func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, Busy(BudgetRetryAfter, context.Cause(ctx))
	}
}
