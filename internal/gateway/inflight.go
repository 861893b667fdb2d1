package gateway

import (
	"context"
	"errors"
	"sync"
)

// ErrExiting is the cause with which running calls are cancelled when the process exits and its grace period is over.
var ErrExiting = errors.New("the gateway is shutting down")

// InFlight counts the calls on one store, so that the store is closed only after the last of them has settled, whichever
// configuration it began under.
type InFlight struct {
	cut    context.Context //nolint:containedctx // it is the lifetime that the calls are joined to
	cancel context.CancelCauseFunc

	load load

	mu      sync.Mutex
	running int
	entered int64
	closed  bool
	// idle is closed when running falls to 0 during a Wait. It is nil without a Wait.
	idle chan struct{}
}

// NewInFlight returns a registry without calls.
func NewInFlight() *InFlight {
	cut, cancel := context.WithCancelCause(context.Background())
	return &InFlight{cut: cut, cancel: cancel}
}

// Enter registers a call, or a request that may become one. The returned context ends when the process can't wait any longer; its cause is
// [ErrExiting]. leave must be called exactly once, after everything is settled. After [InFlight.Close] succeeded, Enter fails with ErrExiting.
func (f *InFlight) Enter() (cut context.Context, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, ErrExiting
	}
	f.running++
	f.entered++
	return f.cut, f.leave, nil
}

func (f *InFlight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if f.running == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// Running returns the number of registered calls.
func (f *InFlight) Running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

// Wait returns when no call is running, or with the cause of ctx's end.
func (f *InFlight) Wait(ctx context.Context) error {
	for {
		idle := f.whenIdle()
		if idle == nil {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// whenIdle returns nil when nothing runs, else a channel that is closed when that comes true.
func (f *InFlight) whenIdle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == 0 {
		return nil
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	return f.idle
}

// Entered returns how many calls have ever been registered; two equal readings show that none came between.
func (f *InFlight) Entered() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entered
}

// Close refuses calls from now on, if none is running and none was registered since Entered returned entered; otherwise it does
// nothing and returns false.
func (f *InFlight) Close(entered int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = f.closed || f.running == 0 && f.entered == entered
	return f.closed
}

// Cut ends the running calls: each is cancelled upstream with [ErrExiting] and settles the usage that its vendor reported.
func (f *InFlight) Cut() { f.cancel(ErrExiting) }
