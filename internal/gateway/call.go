package gateway

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Call runs one call: it prepares the call (limits, model, bounds, hold), calls the vendor, passes the text on to sink as it arrives, and settles.
// If the call's Idempotency-Key has an earlier answer, Call returns that answer instead of calling the vendor and settling. Without a sink the
// text is in the Result. Errors are always *[Failure]; after the first sink.Flush that wrote something, only the stream can carry them.
//
// When ctx ends, the client counts as gone. call.drain decides whether the vendor's call goes on without it.
func (g *Gateway) Call(ctx context.Context, req *Request, sink Sink) (*Result, error) {
	cut, leave, err := g.Calls.Enter()
	if err != nil {
		return nil, &Failure{Outcome: OutcomeExiting, Message: "the gateway is shutting down", Cause: err}
	}
	c := &call{
		Gateway: g, req: req, sink: sink, cut: cut, leave: leave,
		started: g.Now(), id: store.NewID("call"),
	}
	c.entered = c.enteredRoom[:0]
	defer c.leaveAll()
	defer c.end()
	defer c.leaveVendor()

	var replayed *Result
	first, err := c.prepare(ctx)
	switch {
	case err != nil:
	case first != nil:
		replayed, err = c.replay(first)
	default:
		err = c.ask(ctx)
		c.upstreamEnd = c.Now()
	}
	switch {
	case err != nil:
		return nil, c.fail(c.failure(ctx, err))
	case replayed != nil:
		return replayed, nil
	default:
		return c.complete()
	}
}

// prepare does everything before the vendor's call: the limits of running calls, the model, the bounds of prompt and answer, and
// the hold of their price. If the call's key was answered before, it returns that first use and holds nothing.
func (c *call) prepare(ctx context.Context) (*billing.Replay, error) {
	if c.claim = c.req.claim(); c.claim != nil {
		c.delivered.keep = maxTranscript
	}
	if err := c.enterOrg(); err != nil {
		return nil, err
	}
	model, known := c.Catalog.Model(c.req.Model)
	if !known || !model.OpenTo(c.req.Env) {
		return nil, unsupportedModel()
	}
	c.model, c.provider = model, c.Catalog.providers[model.Provider]
	if !c.req.AllModels {
		exceptions, err := c.DB.Organizations.Models(ctx, c.req.OrgID)
		if err != nil {
			return nil, fmt.Errorf("reading the organization's models: %w", err)
		}
		if enabled, excepted := exceptions[c.model.ID]; excepted && !enabled {
			return nil, unsupportedModel()
		}
	}
	if c.claim == nil { // with a key it isn't known yet whether the provider will be called
		if err := c.enterProvider(); err != nil {
			return nil, err
		}
	}
	if err := c.bound(ctx); err != nil {
		return nil, err
	}
	if c.sink == nil {
		if err := c.room(min(bytesPerToken*c.upstream.MaxTokens, maxWholeRoom)); err != nil {
			return nil, err
		}
	}
	first, err := c.hold(ctx)
	c.prepared = err == nil && first == nil
	return first, err
}

// call is the state of one running call. It is used by one goroutine, except for its atomic fields and early.
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

	// entered lists the counters that count the call as running. enteredRoom is its memory.
	entered     []placeOwner
	enteredRoom [3]placeOwner

	// claim is the request's Idempotency-Key, or nil. claimed reports that the store has given it to this call.
	claim   *billing.Claim
	claimed bool
	// held is the amount of the open hold. 0 means that nothing is held.
	held int64
	// prepared means that prepare succeeded without an earlier answer. From then on the call gets a row, whatever its end.
	prepared bool
	// resolved means that the hold is settled or handed to settleLater.
	resolved bool

	// hangUp ends the vendor's call. It is nil until the call begins. events are the events of the answer.
	hangUp func()
	events providers.Events
	// draining means that the client is gone and the call goes on, in one of the gateway's places (see drain). It is decided once,
	// at the end of the request's context or after a failed write.
	draining atomic.Bool
	decided  sync.Once
	// answered means that the vendor's response has begun successfully, so the prompt has a cost. finished means that the finish
	// reason has come.
	answered  atomic.Bool
	finished  atomic.Bool
	early     earlyStatus
	delivered delivered
	// unflushed means that the sink has text that isn't flushed.
	unflushed bool
	finish    string
	// reported is the vendor's usage so far. uncounted is the number of bytes of text after the vendor's last count.
	reported  billing.Usage
	uncounted int64
	// answering is the vendor's name of the answering model. Empty means that the vendor doesn't name it.
	answering string

	// upstreamAt is the start of the vendor's call, or zero. upstreamEnd is the end of ask.
	upstreamAt, upstreamEnd time.Time
	firstTextAt             time.Time
	// span is the vendor's call in the request's trace, or nil.
	span trace.Span
}
