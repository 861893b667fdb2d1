package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/tracing"
)

// tracerName is the instrumentation scope of this package's spans.
const tracerName = "github.com/caddy-svc/caddy-svc/internal/worker"

// Attributes of spans. None has a text, a name or an address of a customer.
const (
	keyChannelType = attribute.Key("svc.channel.type")
	keyOutcome     = attribute.Key("svc.outcome")
	keyTexts       = attribute.Key("svc.texts")
)

// maxJoined bounds the spans of texts that are answered together with an earlier one.
const maxJoined = 16

// startSpan begins a child of the span in ctx, or a root span of Config.Tracer if ctx has no span. It returns a nil span if nothing
// is traced.
func (p *pass) startSpan(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	tracer := p.Tracer
	if parent := trace.SpanFromContext(ctx); parent.IsRecording() {
		tracer = parent.TracerProvider().Tracer(tracerName)
	}
	if tracer == nil {
		return ctx, nil
	}
	options = append(options, trace.WithAttributes(keyChannelType.String(p.work.Channel.Type)))
	return tracer.Start(ctx, name+" "+p.work.Channel.Type, options...) //nolint:spancheck // the caller ends it
}

// traceTurn begins the span of a turn, and returns a function that ends it. The span of a turn's first try is the span to which the webhook
// of its first text has linked ([tracing.Answer]); the spans of later tries are below it. While a visitor waits, the span is the request's
// child instead.
func (p *pass) traceTurn(ctx context.Context) (context.Context, func()) {
	if p.span != nil || p.Tracer == nil && !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, func() {}
	}
	if first := p.firstText(); first != "" && !trace.SpanFromContext(ctx).IsRecording() {
		root := tracing.Answer(p.lease.ChannelID, first)
		if p.work.Turn == nil {
			ctx = tracing.WithRoot(ctx, root)
		} else {
			ctx = trace.ContextWithRemoteSpanContext(ctx, root)
		}
	}
	ctx, p.span = p.startSpan(ctx, "answer", trace.WithSpanKind(trace.SpanKindConsumer))
	return ctx, func() {
		p.span.End()
		p.span = nil
	}
}

// firstText returns the platform's id of the turn's first text, "" if it isn't known.
func (p *pass) firstText() string {
	if p.work.Turn == nil {
		return p.work.Waiting[0].PlatformMessageID
	}
	if request, err := decodeRequest(p.work.Turn.Request); err == nil {
		return request.First
	}
	return ""
}

// traceJoined lets the links of the webhooks of texts that are answered together lead to the span of their answer.
func (p *pass) traceJoined(texts []inbox.Message) {
	if p.span == nil {
		return
	}
	p.span.SetAttributes(keyTexts.Int(len(texts)))
	if p.Tracer == nil {
		return
	}
	link := trace.WithLinks(trace.Link{SpanContext: p.span.SpanContext()})
	for i := range texts[:min(len(texts), maxJoined)] {
		own := tracing.Answer(p.lease.ChannelID, texts[i].PlatformMessageID)
		if own.SpanID() == p.span.SpanContext().SpanID() {
			continue
		}
		_, span := p.Tracer.Start(tracing.WithRoot(context.Background(), own), "join "+p.work.Channel.Type, link)
		span.End()
	}
}

// turnEnded counts the end of a pass over a turn, and notes it in the span.
func (p *pass) turnEnded(outcome string) {
	p.Observer.TurnEnded(outcome)
	if p.span != nil {
		p.span.SetAttributes(keyOutcome.String(outcome))
	}
}

// endSend ends the span of a try to send, if there is one.
func endSend(span trace.Span, outcome string) {
	if span == nil {
		return
	}
	span.SetAttributes(keyOutcome.String(outcome))
	if outcome != endedSent {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
