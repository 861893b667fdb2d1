package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/tracing"
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
	var pending []inbox.Outbound
	for i := range p.work.Outbound {
		row := &p.work.Outbound[i]
		if row.State != inbox.OutboundSending {
			pending = append(pending, *row)
		} else if err := p.unclear(ctx, row); err != nil { // a worker was sending it when it died
			return 0, err
		}
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
	kind := p.kind()
	p.lease.Paces = inbox.Paces{Channel: inbox.Pace(kind.Pace), Customer: inbox.Pace(kind.CustomerPace)}
	return nil
}

// waited returns how long ago it was since, in epoch milliseconds by the database's clock.
func (p *pass) waited(since int64) time.Duration {
	return time.Duration(p.work.ReadAt-since)*time.Millisecond + time.Since(p.opened)
}

// stopping reports whether nothing new may be begun.
func (p *pass) stopping() bool { return closed(p.stop) }

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
