package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/providers"
)

var (
	// errClientGone is the cause with which the vendor's call is cancelled if no client waits for its answer.
	errClientGone = errors.New("the client is gone")
	// errNoEvents is the cause of a call that got neither events nor an error from its adapter.
	errNoEvents = errors.New("the adapter returned nothing")
)

// ask calls vendors until one answers and passes its answer on. It returns nil after a vendor's complete answer.
func (c *call) ask(ctx context.Context) error {
	failpoint.Hit(failpoint.AfterHold)
	if c.claim != nil { // a replay, which doesn't reach the provider, has returned before
		if err := c.nextEndpoint(); err != nil {
			return err
		}
	}
	// The key is read after the hold, because a replay must not depend on a key that was deleted later.
	if err := c.address(ctx); err != nil {
		return err
	}
	if c.claim == nil && ctx.Err() != nil {
		return clientGone(context.Cause(ctx))
	}
	for {
		err := c.attempt(ctx)
		c.endAttempt(err)
		if err == nil || !c.failOver(ctx, err) {
			return c.verdict(err)
		}
	}
}

// attempt calls the vendor at the chosen endpoint and passes its answer on.
func (c *call) attempt(ctx context.Context) (err error) {
	c.tries.made++
	c.tries.running = true
	up := c.detach(ctx)
	c.upstreamAt = c.Now()
	c.startSpan(ctx)
	c.lendPrompt()
	if c.tries.made == 1 {
		if err := c.begin(); err != nil {
			return err
		}
	}
	c.events, err = c.open(up)
	c.upstream.Sent()
	if err != nil {
		return err
	}
	c.answered.Store(true)
	failpoint.Hit(failpoint.AfterUpstreamHeaders)
	if err := c.relay(); err != nil {
		return err
	}
	failpoint.Hit(failpoint.AfterLastByte)
	return nil
}

// leaveVendor ends the vendor's call, if it has begun. It runs after the settlement, even after a panic.
func (c *call) leaveVendor() {
	c.endProbe()
	if c.hangUp != nil {
		defer c.hangUp()
	}
	defer c.endEarly() //nolint:errcheck // the answer has ended in another way
	if c.events != nil {
		c.closeEvents()
	}
}

// upstreamKey returns the secret for the vendor. The error is a *[Failure] if there is none.
func (c *call) upstreamKey(ctx context.Context) (string, error) {
	switch {
	case !c.req.BYOK && c.provider.KeyMode == KeyMissing:
		return "", final(OutcomeProviderError, "", "No key is configured for this model's provider.")
	case !c.req.BYOK:
		return c.provider.APIKey, nil
	}
	sealed, ok, err := c.DB.ProviderKeys.Sealed(ctx, c.req.OrgID, c.provider.Name)
	if err != nil {
		return "", fmt.Errorf("reading the provider key: %w", err)
	}
	if !ok {
		return "", final(OutcomeProviderError, "", "The organization has no key of its own for this model's provider.")
	}
	key, err := c.Ring.Open(sealed, vault.ProviderKey(c.req.OrgID, c.provider.Name))
	if err != nil {
		return "", fmt.Errorf("opening the provider key: %w", err)
	}
	return string(key), nil
}

// detach returns the context of the vendor's call, and sets hangUp and the request's Cancel. The context ends when the client is gone or the
// process can't wait, and not with the request's context, so that settling goes on afterwards. It has no values of the request, because Caddy's
// dialer would use addresses from them.
//
// If the worker of a turn gives up, the next worker repeats the turn, so its call ends as at the process's exit. A turn that people interrupt ends
// in the same way and is not repeated.
func (c *call) detach(ctx context.Context) context.Context {
	up, cancel := context.WithCancelCause(c.cut) // with the cause ErrExiting
	c.upstream.Cancel = cancel
	stopClient := context.AfterFunc(ctx, func() {
		switch {
		case c.req.Turn != nil && errors.Is(context.Cause(ctx), ErrInterrupted):
			cancel(ErrInterrupted)
		case c.req.Turn != nil:
			cancel(ErrExiting)
		case !c.drain():
			cancel(errClientGone)
		}
	})
	c.limitAttempt(cancel)
	c.hangUp = func() bool {
		stopped := stopClient()
		for _, timer := range [...]*time.Timer{c.tries.budget, c.tries.silence} {
			if timer != nil {
				timer.Stop()
			}
		}
		cancel(nil)
		c.decided.Do(func() {}) // waits for a decision in progress
		if c.draining.Load() {
			c.drains.give(c.req.OrgID, c.provider.Name)
		}
		return stopped
	}
	return up
}

// drain lets the call go on without its client, if a place is free, and reports whether it does. A call that costs nothing and
// has no Idempotency-Key ends with its client.
func (c *call) drain() bool {
	if c.claim == nil && c.held == 0 || c.endsWithClient() {
		return false
	}
	c.decided.Do(func() {
		c.draining.Store(c.drains.take(c.req.OrgID, c.provider.Name, c.Catalog.share(maxDrains), maxDrains))
	})
	return c.draining.Load()
}

// endsWithClient reports whether the vendor's call ends when its client is gone. That is so for a stream once its text is coming, because people
// stop an answer to save the rest of its price. Before the vendor begins it isn't known whether there is anything to pay for. A call is read to
// its end if the client may come back for it with its Idempotency-Key, or if only the usage shows its price: after the finish reason, for an
// answer in one piece, and for a model with hidden tokens. Otherwise clients could spend the operator's money by hanging up.
func (c *call) endsWithClient() bool {
	return c.answered.Load() && c.claim == nil && c.sink != nil && !c.model.Reasoning && !c.finished.Load()
}

// relay passes the answer on as it arrives. It returns nil after the vendor's complete answer, when all text of it is flushed, because the
// settlement may last. A stream that goes on without its client only until the vendor begins ends with the text that has arrived by that moment.
func (c *call) relay() error {
	for {
		if c.draining.Load() && c.endsWithClient() {
			if more, err := c.buffered(); err != nil {
				return err
			} else if !more {
				return &providers.Error{Failure: providers.FailureCanceled, Cause: errClientGone}
			}
		}
		event, err := c.next()
		if err != nil && c.stops != nil {
			err = c.endText(err)
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		case c.isEmpty():
			return &providers.Error{Failure: providers.FailureRefused, Elsewhere: true, Cause: errEmpty}
		default:
			c.settleOn()
			return c.flush(c.endEarly())
		}
		if err := c.take(event); err != nil {
			return err
		}
		if c.stopped() && !c.readsOn() {
			return c.flush(c.endEarly())
		}
	}
}

// take handles one event of the answer.
func (c *call) take(event providers.Event) error {
	if made := event.AnswerLen(); made > 0 {
		if c.firstTextAt.IsZero() {
			if silence := c.tries.silence; silence != nil && !silence.Stop() { // the wait for the first text was over before it came
				return &providers.Error{Failure: providers.FailureTimeout, Elsewhere: true, Cause: errSilent}
			}
			c.firstTextAt = c.Now()
			c.settleOn()
		}
		c.uncounted += int64(made)
	}
	if c.stops != nil {
		c.untilStop(&event)
	}
	if event.FinishReason != "" {
		c.finish = event.FinishReason
		c.finished.Store(true)
	}
	if event.Model != "" {
		c.answering = event.Model
	}
	if event.Usage != nil {
		c.report(event.Usage)
	}
	if err := c.pass(&event); err != nil || c.sink == nil {
		return err
	}
	// The closing events wait for the settlement anyway, but a call that goes on after a stop sequence may take long.
	if c.finish != "" && (!c.stopped() || !c.readsOn()) {
		return nil
	}
	if more, err := c.buffered(); more || err != nil {
		return err
	}
	return c.flush(nil)
}

// pass adds the text of an event, if it has any, to the answer and writes it to the client.
func (c *call) pass(event *providers.Event) error {
	if event.Text == "" && event.Quoted == nil {
		return nil
	}
	var early error
	if c.delivered.bytes == 0 {
		early = c.endEarly()
	}
	c.delivered.add(event)
	if c.sink == nil {
		return nil
	}
	return c.toClient(func() error {
		c.unflushed = true
		return errors.Join(early, c.write(event))
	})
}

// write passes the text of an event on, as a literal if the sink accepts that.
func (c *call) write(event *providers.Event) error {
	if sink, ok := c.sink.(QuotedSink); ok && event.Quoted != nil {
		return sink.Quoted(event.Quoted)
	}
	return c.sink.Text(event.Answer())
}

// flush flushes the sink if it has text. A status alone is left to earlyStatus. early is the error of an early flush.
func (c *call) flush(early error) error {
	if !c.unflushed && early == nil {
		return nil
	}
	c.unflushed = false
	return c.toClient(func() error { return errors.Join(early, c.sink.Flush()) })
}

// toClient writes to a client that is still there. If the client is gone, the call ends as a cancelled one or goes on without it.
func (c *call) toClient(write func() error) error {
	if c.draining.Load() {
		return nil
	}
	err := write()
	if err == nil || c.drain() {
		return nil
	}
	return &providers.Error{Failure: providers.FailureCanceled, Cause: fmt.Errorf("%w: %w", errClientGone, err)}
}

// open calls the provider's adapter. Here and below, a panic of the adapter fails only this call.
func (c *call) open(ctx context.Context) (events providers.Events, err error) {
	defer c.contain(&err)
	events, err = c.provider.Provider.Open(ctx, &c.upstream)
	if events == nil && err == nil {
		err = &providers.Error{Failure: providers.FailureBroken, Elsewhere: true, Cause: errNoEvents}
	}
	return events, err
}

func (c *call) next() (event providers.Event, err error) {
	defer c.contain(&err)
	return c.events.Next()
}

func (c *call) buffered() (more bool, err error) {
	defer c.contain(&err)
	return c.events.Buffered(), nil
}

func (c *call) closeEvents() {
	var err error // it is logged, and the call has ended anyway
	defer c.contain(&err)
	c.events.Close()
}

// contain is deferred around calls of an adapter and turns a panic into an error. The text of the panic is logged only if it
// comes from the runtime, because any other text may contain a prompt or a key.
func (c *call) contain(err *error) {
	p := recover()
	if p == nil {
		return
	}
	text := fmt.Sprintf("%T", p)
	if fault, ok := p.(runtime.Error); ok {
		text = fault.Error()
	}
	c.Logger.Error("the adapter of a provider panicked", "provider", c.provider.Name, "call", c.id,
		"request_id", c.req.RequestID, "panic", text, "stack", string(debug.Stack()))
	*err = &providers.Error{Failure: providers.FailureBroken, Elsewhere: true, Cause: errors.New("the adapter panicked: " + text)}
}

// DefaultEarlyStatus is the default of [Config.EarlyStatus].
const DefaultEarlyStatus = 10 * time.Second

// earlyStatus flushes the status and the first chunk of a stream if the vendor's first text is slow: a model may think for minutes, and proxies
// give up on a response that doesn't begin. Until the flush a failure has a status of its own.
type earlyStatus struct {
	timer *time.Timer

	// mu is held while the timer's goroutine uses the sink.
	mu sync.Mutex
	// over means that only Call's goroutine may use the sink.
	over bool
	// err is the sink's error, panicked the value of its panic. Both are passed to Call's goroutine.
	err      error
	panicked any
}

// begin begins the client's response, without writing anything yet, and starts the timer.
func (c *call) begin() error {
	if c.sink == nil {
		c.delivered.keep = math.MaxInt
		return nil
	}
	err := c.toClient(func() error {
		return c.sink.Begin(Head{ID: c.completionID(), Created: c.started.Unix(), Model: c.model.ID})
	})
	if err == nil {
		c.early.timer = time.AfterFunc(c.EarlyStatus, c.flushEarly)
	}
	return err
}

// flushEarly runs on the timer's goroutine.
func (c *call) flushEarly() {
	e := &c.early
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || c.draining.Load() {
		return
	}
	defer func() { e.panicked = recover() }()
	e.err = c.sink.Flush()
}

// endEarly stops the timer and returns the error of an early flush. After it only Call's goroutine uses the sink. It may be
// called more than once.
func (c *call) endEarly() error {
	e := &c.early
	if e.timer == nil {
		return nil
	}
	e.timer.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if p := e.panicked; p != nil {
		e.panicked = nil
		panic(p)
	}
	if e.err != nil {
		return fmt.Errorf("beginning the answer early: %w", e.err)
	}
	return nil
}
