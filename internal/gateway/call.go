package gateway

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
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
	c := &call{Gateway: g, req: req, sink: sink, cut: cut, leave: leave, started: g.Now(), id: store.NewID("call")}
	c.entered = c.enteredRoom[:0]
	defer c.leaveFrom(0)
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
	if err := c.enterCaller(); err != nil {
		return nil, err
	}
	model, known := c.Catalog.Model(c.req.Model)
	if !known || !model.Enabled(nil, c.req.Env, c.req.KeyModels) {
		return nil, unsupportedModel()
	}
	c.price = &model.Price
	if model.Prices != nil {
		c.price = model.Prices.At(c.started)
	}
	c.model, c.endpoint = model, model.serving[0]
	c.provider = c.endpoint.entry
	if !c.req.AllModels {
		exceptions, err := c.DB.Organizations.Models(ctx, c.req.OrgID)
		if err != nil {
			return nil, fmt.Errorf("reading the organization's models: %w", err)
		}
		if !model.Enabled(exceptions, c.req.Env, c.req.KeyModels) {
			return nil, unsupportedModel()
		}
	}
	if c.claim == nil { // with a key it isn't known yet whether the provider will be called
		if err := c.nextEndpoint(); err != nil {
			return nil, err
		}
	}
	if err := c.bound(ctx); err != nil {
		return nil, err
	}
	if err := c.room(c.wholeRoom()); err != nil {
		return nil, err
	}
	if err := c.splitStops(); err != nil {
		return nil, err
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

	model *Model
	// endpoint is the endpoint of the running or last attempt, and provider its provider. Before the first one they are the model's first.
	endpoint *endpoint
	provider *ProviderEntry
	tries    attempts
	// price is the model's price at the start of the call.
	price    *billing.Price
	prompt   promptSize
	upstream providers.Request

	// entered lists the counters that count the call as running. The first callers of them count until the end of Call. enteredRoom is its memory.
	entered     []placeOwner
	enteredRoom [4]placeOwner
	callers     int

	// claim is the request's Idempotency-Key, or nil. claimed reports that the store has given it to this call.
	claim   *billing.Claim
	claimed bool
	// budgets is the call's part in its organization's budgets, or nil.
	budgets *billing.Budgeted
	// held is the amount of the open hold. 0 means that nothing is held.
	held int64
	// prepared means that prepare succeeded without an earlier answer. From then on the call gets a row, whatever its end.
	prepared bool
	// resolved means that the hold is settled or handed to settleLater.
	resolved bool

	// hangUp ends the vendor's call and reports whether the client was still there. It is nil until the call begins. events are the
	// events of the answer.
	hangUp func() bool
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
	// stops is the search for the stop sequences that the vendor doesn't apply. It is nil if there are none.
	stops *stopSearch
	// unflushed means that the sink has text that isn't flushed.
	unflushed bool
	finish    string
	// reported is the vendor's usage so far. uncounted is the number of bytes of text after the vendor's last count.
	reported  billing.Usage
	uncounted int64
	// answering is the vendor's name of the answering model. Empty means that the vendor doesn't name it.
	answering string

	// upstreamAt is the start of the last attempt, or zero, and upstreamEnd its end.
	upstreamAt, upstreamEnd time.Time
	firstTextAt             time.Time
	// span is the vendor's call in the request's trace, or nil.
	span trace.Span
}

// tracerName is the instrumentation scope of this package's spans.
const tracerName = "github.com/caddy-svc/caddy-svc/internal/gateway"

// ChatOperation is the conventions' name of the only operation.
const ChatOperation = "chat"

// wellKnownProviders are the conventions' names of vendors that usually have another provider name in a configuration.
var wellKnownProviders = map[string]string{
	"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "gemini": "gcp.gemini", "mistral": "mistral_ai", "moonshot": "moonshot_ai",
	"vertex": "gcp.vertex_ai", "xai": "x_ai",
}

// WellKnownProvider returns the conventions' name of a vendor, by the provider's name in a configuration.
func WellKnownProvider(name string) string { return cmp.Or(wellKnownProviders[name], name) }

// startSpan begins the span of the vendor's call as a child of the request's span. If that isn't recorded, it does nothing and
// allocates nothing. The vendor gets the span's context if the provider's entry says so.
//
// The attributes gen_ai.* follow OpenTelemetry's conventions for generative AI as of November 2026, which are still in development and have
// changed their names before: https://github.com/open-telemetry/semantic-conventions-genai. Attributes with contents of prompts and replies are
// never set. Our own svc.model is the public id of the model, and svc.call.id the id of the call in the ledger.
func (c *call) startSpan(ctx context.Context) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return
	}
	attributes := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", ChatOperation), attribute.String("gen_ai.provider.name", WellKnownProvider(c.provider.Name)),
		attribute.String("gen_ai.request.model", c.upstream.Model), attribute.Bool("gen_ai.request.stream", c.upstream.Stream),
		attribute.Int64("gen_ai.request.max_tokens", c.upstream.MaxTokens),
		attribute.String("svc.model", c.model.ID), attribute.String("svc.call.id", c.id),
	}
	if c.upstream.Temperature != nil {
		attributes = append(attributes, attribute.Float64("gen_ai.request.temperature", *c.upstream.Temperature))
	}
	if c.upstream.TopP != nil {
		attributes = append(attributes, attribute.Float64("gen_ai.request.top_p", *c.upstream.TopP))
	}
	_, c.span = parent.TracerProvider().Tracer(tracerName).Start(ctx, ChatOperation+" "+c.upstream.Model, //nolint:spancheck // endSpan ends it
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(c.upstreamAt), trace.WithAttributes(attributes...))
	if sc := c.span.SpanContext(); c.provider.SendTraceparent && sc.IsValid() {
		c.upstream.Traceparent = "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
	}
}

// endSpan ends the span, if there is one, with the time of the end of the vendor's call.
func (c *call) endSpan(outcome Outcome, usage billing.Usage, source billing.UsageSource) {
	if c.span == nil {
		return
	}
	if c.finish != "" {
		c.span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{c.finish}))
	}
	if c.answering != "" {
		c.span.SetAttributes(attribute.String("gen_ai.response.model", c.answering))
	}
	if !c.firstTextAt.IsZero() {
		c.span.SetAttributes(attribute.Float64("gen_ai.response.time_to_first_chunk", c.firstTextAt.Sub(c.upstreamAt).Seconds()))
	}
	if source != billing.UsageNone {
		c.span.SetAttributes(attribute.Int64("gen_ai.usage.input_tokens", usage.PromptTokens),
			attribute.Int64("gen_ai.usage.cache_read.input_tokens", usage.CachedPromptTokens),
			attribute.Int64("gen_ai.usage.output_tokens", usage.CompletionTokens))
	}
	if outcome != OutcomeCompleted {
		c.span.SetAttributes(attribute.String("error.type", string(outcome)))
		c.span.SetStatus(codes.Error, "")
	}
	var options []trace.SpanEndOption
	if !c.upstreamEnd.IsZero() {
		options = append(options, trace.WithTimestamp(c.upstreamEnd))
	}
	c.span.End(options...)
	c.span = nil
}
