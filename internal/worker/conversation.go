package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platforms"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// historyMessages bounds what is read, and opened, of a conversation's past for one turn. Chats are short messages:
// more than this many seldom help an answer, and each costs its reading every time.
const historyMessages = 200

// pass is one go over a leased conversation. It lives on one goroutine.
type pass struct {
	*Worker
	lease inbox.Lease
	work  inbox.Work
	// stop is closed when the worker shall begin nothing new.
	stop <-chan struct{}
	// superseded: an answer was thrown away in this pass for newer messages; the next one is sent whatever comes.
	superseded bool
	// postponed: the pass ends for want of a place for its call. Nothing failed.
	postponed bool
	// live is set when somebody waits for the answer to see it while it is made.
	live *live
	// credentials are the channel's, opened when the first message is sent.
	credentials *platforms.Credentials
}

// converse does what is due in a leased conversation and gives the lease back.
func (w *Worker) converse(ctx context.Context, lease inbox.Lease, stop <-chan struct{}) {
	p := &pass{Worker: w, lease: lease, stop: stop}
	p.converse(ctx)
}

// converse does what is due and gives the lease back. A broken conversation must not take the others with it, so a panic
// ends only this one.
func (p *pass) converse(ctx context.Context) {
	w, lease := p.Worker, p.lease
	ctx, release := w.keepLease(ctx, lease)
	wait, err := p.guarded(ctx)
	lost := errors.Is(err, inbox.ErrLeaseLost) || errors.Is(context.Cause(ctx), errLeaseLost)
	cut := ctx.Err() != nil
	release()
	switch {
	case lost:
		w.Observer.LeaseLost()
		w.Logger.WarnContext(ctx, "a conversation's lease was lost", "conversation", lease.ConversationID)
		return
	case cut && err != nil:
		wait = 0
	case err != nil:
		p.postponed = false
		w.Logger.ErrorContext(ctx, "working on a conversation failed", "conversation", lease.ConversationID, "error", err)
		wait = backoff(lease.Attempts, 0)
	}
	p.giveBack(ctx, wait)
}

// giveBack ends the lease: the conversation is due as its rows say, or after wait.
func (p *pass) giveBack(ctx context.Context, wait time.Duration) {
	ctx, cancel := storing(ctx)
	defer cancel()
	var err error
	switch {
	case wait <= 0:
		err = p.Leases.Release(ctx, p.lease)
	case p.postponed:
		err = p.Leases.Postpone(ctx, p.lease, wait)
	default:
		err = p.Leases.Backoff(ctx, p.lease, wait)
	}
	if err != nil && !errors.Is(err, inbox.ErrLeaseLost) {
		p.Logger.ErrorContext(ctx, "giving a lease back failed; it will run out", "conversation", p.lease.ConversationID, "error", err)
	}
}

// guarded turns a panic into an error.
func (p *pass) guarded(ctx context.Context) (wait time.Duration, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			wait, err = 0, fmt.Errorf("panic: %v\n%s", broken, debug.Stack())
		}
	}()
	return p.run(ctx)
}

// run does what is due: what a dead worker left, what is to be sent, then the turn. wait > 0 asks for another try then.
func (p *pass) run(ctx context.Context) (wait time.Duration, err error) {
	err = p.open(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound): // somebody deleted it
		return 0, nil
	case err != nil:
		return 0, err
	}
	pending, err := p.settleUnclear(ctx)
	if err != nil {
		return 0, err
	}
	if wait, err := p.send(ctx, pending); wait > 0 || err != nil {
		return wait, err
	}
	return p.turn(ctx)
}

// open reads the conversation, afresh.
func (p *pass) open(ctx context.Context) error {
	ctx, cancel := storing(ctx)
	defer cancel()
	work, err := p.Turns.Open(ctx, p.lease, historyMessages)
	if err != nil {
		return fmt.Errorf("opening the conversation: %w", err)
	}
	p.work = work
	return nil
}

// settleUnclear marks what a worker was sending when it died: nobody knows whether the customer has it. The rest is
// pending.
func (p *pass) settleUnclear(ctx context.Context) (pending []inbox.Outbound, err error) {
	for i := range p.work.Outbound {
		row := &p.work.Outbound[i]
		if row.State != inbox.OutboundSending {
			pending = append(pending, *row)
			continue
		}
		if err := p.unclear(ctx, row); err != nil {
			return nil, err
		}
	}
	return pending, nil
}

// stopping reports whether nothing new should be begun.
func (p *pass) stopping() bool { return closed(p.stop) }
