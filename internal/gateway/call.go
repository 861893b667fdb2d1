package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/providers"
)

// errClientGone is the cause with which the vendor's call is cancelled when no client waits for its answer.
var errClientGone = errors.New("the client is gone")

// call is the state of one running call; it lives on one goroutine.
type call struct {
	*Gateway
	req   *Request
	sink  Sink
	cut   context.Context //nolint:containedctx // the process's lifetime, not the request's
	leave func()

	id      string
	started time.Time

	model    *Model
	provider *ProviderEntry
	prompt   promptSize
	upstream providers.Request

	// entered lists the counters in which the call is counted as running.
	entered []placeOwner

	// claim is the request's Idempotency-Key, nil without one; claimed reports that the store has given it to this call.
	claim   *billing.Claim
	claimed bool
	// held is the amount of the open hold, 0 for none.
	held int64
	// unknown is a hold whose commit was never confirmed: it may or may not exist, and end abandons it.
	unknown *billing.Hold
	// resolved: the hold, if any, is settled or handed to settleLater.
	resolved bool

	// draining: the client is gone and the call goes on, in one of the gateway's places (see drain). Decided once, by the end
	// of the request's context or by a failed write.
	draining atomic.Bool
	decided  sync.Once
	// answered: the vendor's response has begun with success, so the prompt costs something.
	answered  atomic.Bool
	early     earlyStatus
	delivered delivered
	// unflushed: the sink has text that isn't flushed.
	unflushed bool
	finish    string
	reported  *providers.Usage

	upstreamAt  time.Time
	firstTextAt time.Time
}

// run is the whole path of a call; every return has settled what was held.
func (c *call) run(ctx context.Context) (*Result, error) {
	if f := c.enterOrg(); f != nil {
		return nil, c.refuse(f)
	}
	if f := c.prepare(ctx); f != nil {
		return nil, c.refuse(f)
	}
	replay, f := c.hold(ctx)
	if f != nil {
		return nil, c.refuse(f)
	}
	if replay != nil {
		return c.replay(ctx, replay)
	}
	failpoint.Hit(failpoint.AfterHold)
	if c.claim != nil { // a replay, which doesn't reach the provider, has returned by now
		if f := c.enterProvider(); f != nil {
			return nil, c.give(f)
		}
	}
	key, f := c.upstreamKey(ctx)
	if f != nil {
		return nil, c.give(f)
	}
	c.upstream.APIKey = key
	if c.claim == nil && ctx.Err() != nil {
		return nil, c.give(clientGone(context.Cause(ctx)))
	}
	up, release := c.detach(ctx)
	defer release()

	c.upstreamAt = c.Now()
	c.letGoOfPrompt()
	if err := c.begin(); err != nil {
		return nil, c.fail(err)
	}
	defer c.endEarly() //nolint:errcheck // the answer has ended another way
	events, err := c.open(up)
	c.upstream.Sent()
	if err != nil {
		return nil, c.fail(err)
	}
	defer c.closeEvents(events)
	c.answered.Store(true)
	if c.abandoned() {
		return nil, c.fail(c.abandon(events))
	}
	failpoint.Hit(failpoint.AfterUpstreamHeaders)

	if err := c.relay(events); err != nil {
		return nil, c.fail(err)
	}
	failpoint.Hit(failpoint.AfterLastByte)
	return c.complete()
}

// letGoOfPrompt leaves the prompt to the adapter alone, which drops it once the vendor has it: its texts are slices of the
// client's whole body, and a stream goes on for minutes. A request without Sent keeps its prompt.
func (c *call) letGoOfPrompt() {
	if c.req.Sent == nil {
		c.upstream.Sent = func() {}
		return
	}
	c.upstream.Sent = c.req.Sent
	c.req.Messages, c.prompt.messages = nil, nil
}

// detach returns the context of the vendor's call. It ends when the client is gone or the process can't wait, and not with the
// request's context, so that settling goes on afterwards. It has no values of the request: Caddy's dialer would take addresses
// from them.
//
// drain decides whether the call outlives its client. A turn whose worker gives up is asked again by the next worker: it is cut
// as at the process's exit, and charged only what the vendor reported.
func (c *call) detach(ctx context.Context) (up context.Context, release func()) {
	up, cancel := context.WithCancelCause(context.Background())
	stopClient := context.AfterFunc(ctx, func() {
		switch {
		case c.req.TurnID != "":
			cancel(ErrExiting)
		case !c.drain(), c.claim == nil && c.answered.Load(): // the latter if the vendor began at the same moment
			cancel(errClientGone)
		}
	})
	stopCut := context.AfterFunc(c.cut, func() { cancel(ErrExiting) })
	return up, func() {
		stopClient()
		stopCut()
		cancel(nil)
		c.decided.Do(func() {}) // waits for a decision in progress
		if c.draining.Load() {
			c.drains.give(c.req.OrgID, c.provider.Name)
		}
	}
}

// drain lets the call go on without its client, if a place for that is free. With an Idempotency-Key it goes on to its end,
// because the client may come back for the answer that it pays for. Without one it goes on until the vendor begins to answer:
// only then is it known whether there is anything to pay for, and clients must not spend the operator's money by hanging up.
// drain returns false when the call ends with its client: all places are taken, the call is free, or the vendor has begun.
func (c *call) drain() bool {
	if c.claim == nil && (c.held == 0 || c.answered.Load()) {
		return false
	}
	c.decided.Do(func() {
		c.draining.Store(c.drains.take(c.req.OrgID, c.provider.Name, c.Catalog.share(maxDrains)))
	})
	return c.draining.Load()
}

// abandoned reports whether a stream began for a client that had left and can't come back. An answer in one piece is complete
// by then, with its usage.
func (c *call) abandoned() bool { return c.claim == nil && c.sink != nil && c.draining.Load() }

// abandon takes the part of the answer that has arrived, which is what the call costs, and returns the error that ends it.
func (c *call) abandon(events providers.Events) error {
	for {
		more, err := c.buffered(events)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		event, err := c.next(events)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := c.take(event, events); err != nil {
			return err
		}
	}
	return &providers.Error{Failure: providers.FailureCanceled, Cause: errClientGone}
}

// relay passes the answer on as it arrives. It returns nil after the vendor's complete answer, when all text of it is flushed,
// because the settlement may take time.
func (c *call) relay(events providers.Events) error {
	for {
		event, err := c.next(events)
		if err != nil {
			early := c.endEarly()
			if !errors.Is(err, io.EOF) {
				return err
			}
			return c.flush(early)
		}
		if err := c.take(event, events); err != nil {
			return err
		}
	}
}

// take handles one event of the answer.
func (c *call) take(event providers.Event, events providers.Events) error {
	if event.Usage != nil {
		c.reported = event.Usage
	}
	if event.FinishReason != "" {
		c.finish = event.FinishReason
	}
	var early error
	if event.Text != "" {
		if c.firstTextAt.IsZero() {
			c.firstTextAt = c.Now()
			early = c.endEarly()
		}
		c.delivered.add(event.Text)
	}
	if c.sink == nil {
		return nil
	}
	if event.Text != "" {
		err := c.toClient(func() error {
			c.unflushed = true
			return errors.Join(early, c.sink.Text(event.Text))
		})
		if err != nil {
			return err
		}
	}
	// The closing events wait for the settlement anyway.
	if c.finish != "" {
		return nil
	}
	if more, err := c.buffered(events); more || err != nil {
		return err
	}
	return c.flush(nil)
}

// flush flushes the sink if it has text; a status alone is left to earlyStatus. early is the error of an early flush.
func (c *call) flush(early error) error {
	if !c.unflushed && early == nil {
		return nil
	}
	c.unflushed = false
	return c.toClient(func() error { return errors.Join(early, c.sink.Flush()) })
}

// toClient writes to a client that is still there. A client that is gone ends the call as a cancelled one, unless the call goes
// on without it.
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

// completionID returns the public id of the answer, which shares the sortable part of the call's id.
func (c *call) completionID() string { return "chatcmpl-" + c.id[len("call_"):] }

// complete settles a whole answer. It returns a Result only after the commit.
func (c *call) complete() (*Result, error) {
	usage, source := c.finalUsage()
	settled, err := c.settle(OutcomeCompleted, usage, source, nil)
	if err != nil {
		f := &Failure{
			Outcome: OutcomeInternalError, Message: "The answer could not be recorded and was not charged.", Cause: err,
		}
		if c.claim != nil { // settleLater goes on with the charge
			f.Message = "The answer could not be recorded yet. Send the same request with the same Idempotency-Key again: " +
				"it gets the answer and is charged once."
		}
		return nil, f
	}
	return &Result{
		ID: c.completionID(), Created: c.started.Unix(), Model: c.model.ID,
		Text: c.wholeText(), FinishReason: c.finish, Usage: usage,
		ChargedMicros: settled.ChargedMicros, BYOK: c.req.BYOK,
	}, nil
}

func (c *call) wholeText() string {
	if c.sink != nil {
		return ""
	}
	return c.delivered.text.String()
}

// refuse ends a call that never reached its vendor and holds nothing.
func (c *call) refuse(f *Failure) error {
	c.observe(f.Outcome, billing.Usage{}, billing.UsageNone, billing.Settled{})
	return f
}

// give ends a call that holds something and never reached its vendor.
func (c *call) give(f *Failure) error {
	if _, err := c.settle(f.Outcome, billing.Usage{}, billing.UsageNone, f); err != nil {
		c.Logger.Error("a refused call could not be voided", "call", c.id, "request_id", c.req.RequestID, "error", err)
	}
	return f
}

// fail ends a call that its vendor, its client or the process's exit broke: it settles what
// docs/billing.md#what-each-ending-costs says and returns the failure.
func (c *call) fail(err error) error {
	_ = c.endEarly() // the settlement decides what the client gets, so nothing may be written meanwhile
	f := c.failure(err)
	usage, source := billing.Usage{}, billing.UsageNone
	switch {
	case c.sane():
		usage, source = c.reportedUsage(), billing.UsageProvider
	case f.Outcome == OutcomeClientGone && c.answered.Load():
		usage, source = c.estimate(), billing.UsageEstimated
	}
	if _, settleErr := c.settle(f.Outcome, usage, source, f); settleErr != nil {
		c.Logger.Error("a failed call could not be settled", "call", c.id, "request_id", c.req.RequestID, "error", settleErr)
	}
	return f
}

// failure returns the public form of an adapter's error.
func (c *call) failure(err error) *Failure {
	var p *providers.Error
	if !errors.As(err, &p) {
		return &Failure{Outcome: OutcomeInternalError, Message: "The service failed.", Cause: err}
	}
	if p.Detail != "" {
		c.Logger.Debug("what the vendor said", "call", c.id, "request_id", c.req.RequestID, "vendor", p.Detail)
	}
	switch p.Failure {
	case providers.FailureCanceled:
		if errors.Is(err, ErrExiting) {
			return &Failure{Outcome: OutcomeExiting, Message: "The service is shutting down.", Cause: err}
		}
		return &Failure{Outcome: OutcomeClientGone, Message: "The client closed the connection.", Cause: err}
	case providers.FailureOverloaded:
		return &Failure{
			Outcome: OutcomeProviderOverloaded, Message: "The model provider is overloaded.",
			RetryAfter: overloadedRetryAfter(p.RetryAfter), Cause: err,
		}
	case providers.FailureTimeout:
		return &Failure{
			Outcome: OutcomeProviderTimeout, Message: "The model provider did not answer in time.", Cause: err,
		}
	case providers.FailureContextTooLong:
		f := c.contextTooLong()
		f.Cause = err
		return f
	case providers.FailureRequestTooLarge:
		return &Failure{
			Outcome: OutcomeRequestTooLarge, Field: "messages", NoRetry: true,
			Message: "The model provider refused the size of the request.", Cause: err,
		}
	case providers.FailureRefused, providers.FailureUnreachable, providers.FailureBroken:
	}
	return &Failure{
		Outcome: OutcomeProviderError, Message: "The model provider returned an error.", NoRetry: p.Permanent, Cause: err,
	}
}

// overloadedRetryAfter returns the vendor's wish within 1 to 60 s, else 5 s.
func overloadedRetryAfter(wish time.Duration) time.Duration {
	if wish <= 0 {
		return 5 * time.Second
	}
	return min(max(wish, time.Second), time.Minute)
}
