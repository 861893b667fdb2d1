package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// historyMessages bounds the earlier messages that are read, and opened, for one turn. Messages of a chat are short: more of
// them seldom help an answer, and are read each time.
const historyMessages = 200

// pass is one pass over a leased conversation. It runs on one goroutine.
type pass struct {
	*Worker
	lease inbox.Lease
	work  inbox.Work
	// opened is when work was read.
	opened time.Time
	// stop is closed when the worker must begin nothing new.
	stop <-chan struct{}
	// superseded: an answer was discarded in this pass for newer messages; the next one is sent in any case.
	superseded bool
	// postponed: the pass ends because its call has no place, or its platform is missing. Nothing failed.
	postponed bool
	// early is set when the next part can't be sent yet.
	early *inbox.PacedError
	// ending, unless nil, is called before the write that stores the last message as sent and ends the lease.
	ending func()
	// released: the lease has ended with the last message's commit.
	released bool
	// span is the turn's span. It is nil if the turn isn't traced.
	span trace.Span
	// live is set when a visitor waits for the answer.
	live *live
	// credentials are the channel's, opened when the first message is sent.
	credentials platforms.Credentials
}

// converse works on the conversation and gives the lease back. A panic ends only this pass.
func (p *pass) converse(ctx context.Context) {
	w, lease := p.Worker, p.lease
	ctx, release := w.keepLease(ctx, lease)
	wait, err := p.guarded(ctx)
	lost := errors.Is(err, inbox.ErrLeaseLost) || errors.Is(context.Cause(ctx), errLeaseLost)
	cut := ctx.Err() != nil
	release()
	switch {
	case p.released && err == nil:
		return
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
		err = p.Queue.Release(ctx, p.lease)
	case p.postponed:
		err = p.Queue.Postpone(ctx, p.lease, wait)
	default:
		err = p.Queue.Backoff(ctx, p.lease, wait)
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

// run handles the parts that a dead worker was sending, sends pending parts, and runs a turn for waiting texts. A wait above 0 is the pause
// before another try.
func (p *pass) run(ctx context.Context) (wait time.Duration, err error) {
	err = p.open(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound): // deleted meanwhile
		return 0, nil
	case err != nil:
		return 0, err
	}
	if channel := &p.work.Channel; channel.ID != "" { // else it is deleted
		// Without its platform in this program, a conversation stays as it is, for a program that contains it.
		if _, known := p.Platforms.Find(channel.Type); !known {
			p.postponed = true
			return firstWait, p.skipMissing(ctx)
		}
	}
	pending, err := p.settleUnclear(ctx)
	if err != nil {
		return 0, err
	}
	if wait, err := p.send(ctx, pending, false); wait > 0 || err != nil {
		return wait, err
	}
	if len(pending) > 0 && p.work.Turn == nil && len(p.work.Waiting) > 0 { // the answer should know what was sent
		if err := p.open(ctx); err != nil {
			return 0, err
		}
	}
	return p.turn(ctx)
}

// open reads the conversation into p.work, the first time in the state of its lease.
func (p *pass) open(ctx context.Context) error {
	ctx, cancel := storing(ctx)
	defer cancel()
	read := p.Queue.Open
	if p.opened.IsZero() {
		read = p.Queue.OpenLeased
	}
	work, err := read(ctx, p.lease, historyMessages)
	if err != nil {
		return fmt.Errorf("opening the conversation: %w", err)
	}
	p.work, p.opened = work, time.Now()
	p.pace()
	return nil
}

// waited returns how long ago it was since, in epoch milliseconds by the database's clock.
func (p *pass) waited(since int64) time.Duration {
	return time.Duration(p.work.ReadAt-since)*time.Millisecond + time.Since(p.opened)
}

// settleUnclear marks parts that a worker was sending when it died as delivery_unknown. The rest is pending.
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

// stopping reports whether nothing new may be begun.
func (p *pass) stopping() bool { return closed(p.stop) }
