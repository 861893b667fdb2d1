// Package providers is the contract between the gateway and the vendors of models, and the call that all vendors share.
//
// # Adapters
//
// A [Provider] answers one [Request] with [Events]: pieces of text, one finish reason, the token counts. A vendor with an
// HTTP interface needs no client of its own. It describes its request and answer as a [Dialect], and [NewHTTP] makes the
// Provider: timers, one retry of a failed connect, bounds of memory, server-sent events and error handling come with it.
//
// An adapter is a package with a [Driver], which describes the protocol and makes Providers from a configuration. A Caddy
// module of the namespace svc.providers makes it available as `protocol NAME`; it needs nothing but the driver. What only
// some drivers can do are small interfaces of their own: [option.Checker]. Packages openai and echo are the built-in
// adapters. Package providertest checks any adapter against this contract.
//
// The contract is v0: it changes as vendors need it to.
//
// # Invariants
//
//   - An answer ends in exactly one of two ways: io.EOF after the finish reason, or an [*Error]. A stream that
//     breaks off is never reported as complete.
//   - No text follows the finish reason, also with vendors that repeat it in every event or send an error after it.
//   - One request of the caller is one request on the wire. The only exception is a connect that failed before
//     any byte of the request was handed to a connection; it is tried once more and logged.
//   - Every wait has a timer, and each timer cancels the call with its own cause. The reason of a failure is read from
//     [context.Cause], never from the text of an error.
//   - Nothing of the vendor is passed on but text, finish reason and token counts. Vendor texts end in
//     [Error.Detail], which is for logs.
//   - After Open has failed or Close has returned, the memory of the [Request] is not read any more.
//
// # What it does not do
//
// No choice of model or vendor, no prices, no limits, no estimate of missing usage, no judgement whether a reported
// usage is plausible for the model (all internal/gateway), no public error codes or texts (handlers), no Caddy.
package providers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
)

// Message is one message of a prompt.
type Message struct {
	// Role is system, user, assistant or tool.
	Role string
	// Content is the text as a JSON string literal with its quotes: valid JSON, valid UTF-8, no lone surrogate.
	// It goes upstream as it stands, so a long prompt is neither unescaped nor escaped again.
	Content JSONString
}

// Request is one validated model call. Adapters add nothing to it but what the vendor
// requires.
type Request struct {
	// Model is the vendor's name of the model.
	Model string
	// MaxTokensField is the name under which MaxTokens goes upstream: "max_tokens" or "max_completion_tokens". Dialects
	// with one name for it ignore the field.
	MaxTokensField string
	// Messages has at least one element. An adapter may set it to nil once it has encoded them. Their contents are slices of a
	// client's body, whose memory serves another request once the answer's events are closed, or Open has failed: an adapter
	// refers to none of them after that.
	Messages []Message
	// Temperature and TopP are nil when the vendor's default applies.
	Temperature, TopP *float64
	// MaxTokens bounds the generated tokens, at least 1.
	MaxTokens int64
	// Stop are the stop sequences, nil for none.
	Stop []string
	// Stream asks for the vendor's stream form.
	Stream bool
	// APIKey is the secret to send. With an empty one the request carries no credentials.
	APIKey string
	// Traceparent is the W3C trace context to send with the request, https://www.w3.org/TR/trace-context; "" sends none.
	Traceparent string
	// Sent, if not nil, may be called by the adapter once it refers to no content of Messages any more, because the vendor
	// has all of it. It is called at most once, from any goroutine.
	Sent func()
}

// Usage counts the tokens of a call, as the vendor reported them. A nil *Usage is no report. The gateway estimates what the vendor
// didn't count: a prompt of 0 tokens, and text that came after the last completion count above 0.
type Usage struct {
	PromptTokens int64
	// CompletionTokens are all generated tokens of the answer so far. Those of hidden reasoning belong to them, also where
	// the vendor counts them elsewhere.
	CompletionTokens int64
	// CachedPromptTokens is the part of PromptTokens that the vendor read from its cache.
	CachedPromptTokens int64
}

// Event is one step of an answer. A zero field has no meaning; one event may set several (a whole answer is one event with
// all of them).
type Event struct {
	// Text is a piece of the answer, valid UTF-8.
	Text string
	// Quoted is set in place of Text when the vendor's literal of the piece is the one that [AppendQuoted] writes, so that it is
	// passed on to the client as it came. stream.event decides it. It is valid until the next call of
	// Next, Buffered or Close. Adapters of their own need not set it.
	Quoted JSONString
	// FinishReason is set once, in the last event: stop, length, content_filter, … as the vendor sent it, at most
	// 32 letters, digits, hyphens and underscores. No text follows it.
	FinishReason string
	// Usage is set when the vendor reported it, with or after the text that it counts. Of several reports of a stream the largest
	// count of each field counts.
	Usage *Usage
	// Model is the vendor's name of the model that answers, "" if the vendor doesn't give it: at most 128 printable ASCII
	// characters without spaces. It may be another name than the request's, such as that of a dated version.
	Model string
}

// Answer returns the piece of the answer, whether it is in Text or in Quoted.
func (e *Event) Answer() string {
	if e.Quoted != nil {
		return e.Quoted.Text()
	}
	return e.Text
}

// AnswerLen returns the length of [Event.Answer] in bytes.
func (e *Event) AnswerLen() int {
	if e.Quoted != nil {
		return e.Quoted.ByteLen()
	}
	return len(e.Text)
}

// empty reports whether the event is no step of the answer. A model alone is none.
func (e *Event) empty() bool {
	return e.Text == "" && e.Quoted == nil && e.FinishReason == "" && e.Usage == nil
}

// Events is a running answer. Next is called by one goroutine at a time.
type Events interface {
	// Next blocks for the next event. After the complete answer it returns io.EOF: a finish reason was seen, or
	// the vendor's terminator. Any other end is an *[Error]. Usage seen before a failure was already returned.
	Next() (Event, error)
	// Buffered reports whether Next would return without waiting for the vendor. The gateway
	// flushes to its client when it is false, so that a burst of events costs one write.
	Buffered() bool
	// Close ends the call without waiting for anything; the connection is free at once, or as soon as the few bytes that may
	// follow the terminator were read. It may come at any time, from any goroutine, more than once.
	// After it Next returns what it would have returned anyway, or FailureCanceled.
	Close()
}

// Provider is the adapter to one configured model vendor. It is safe for concurrent use. A panic in one of its methods, or
// in one of its Events, fails that call only, as [FailureBroken].
type Provider interface {
	// Open sends the request and returns once the vendor has begun a successful answer: its status and, for a
	// stream, the first event, so that a failure before any answer is an error here and not in the middle of an
	// answer. A whole answer is delivered through the same Events (text, finish reason, usage at once).
	// The answer lives until Close or the end of ctx, after which Open and Next must return at once. Errors are *[Error].
	Open(ctx context.Context, req *Request) (Events, error)
}

// Driver makes a vendor's protocol available. It has no state; its methods may be called at any time. A Caddy module of the
// namespace svc.providers is a driver; the name of its protocol is the end of the module's id.
type Driver interface {
	// Describe returns the description of the protocol, which depends on no configuration. It always returns the same.
	Describe() *Description
	// New returns the adapter for one configured provider. It makes no request.
	New(config *Config) (Provider, error)
}

// Description describes a protocol to the configuration.
type Description struct {
	// Name is the name in the configuration: lower-case letters, digits and underscores.
	Name string
	// Label names the protocol for people, such as "OpenAI".
	Label string
	// ExampleURL is a base URL for messages; it may be empty.
	ExampleURL string
	// Local is set if the protocol needs no network, so that base_url, transport and api_key have no meaning.
	Local bool
	// Endpoints are the base URLs of other vendors with this protocol, by the vendor's name. A configuration that gives such a
	// name as its protocol is refused with the address as a hint.
	Endpoints map[string]string
	// Options are those of the block of `protocol NAME { … }` and, in JSON, of the object `options`. None is a table.
	Options []option.Option
}

// Config configures a [Provider].
type Config struct {
	// BaseURL is the vendor's address, to which a dialect appends its paths (see [Endpoint]). It is the operator's, so
	// private addresses are fine. Empty for local protocols.
	BaseURL string
	// Options are the values of the configured options, with references resolved. Options that were not given are absent.
	Options map[string]string
	// Transport carries the requests; nil is an own HTTP transport without a proxy. It must neither follow
	// redirects nor send a request again by itself, and should report to net/http/httptrace: without that the
	// connect timer is part of the first byte's.
	Transport http.RoundTripper
	// Timeouts are the limits of each call.
	Timeouts Timeouts
	// FinishGrace bounds the wait for the usage and the end of a stream after its finish reason; then the stream counts as complete
	// although the vendor keeps it open. Only more text begins that time anew. Default 2 s.
	FinishGrace time.Duration
	// Logger receives retried connects; nil discards. It must get no key and no text of a prompt or an answer.
	Logger *slog.Logger
}

// Timeouts are the limits of one call to a vendor. Zero fields take the default.
type Timeouts struct {
	// Connect bounds the wait for a usable connection: DNS, TCP, TLS, and a free place in the pool. Default 5 s.
	Connect time.Duration
	// FirstByte bounds a stream's wait from the connection to the first byte of its first event; the vendor's
	// headers and comments don't end it. Default 60 s.
	FirstByte time.Duration
	// Idle bounds a stream's silence after that. Only bytes of events end a silence, comments don't. The time in
	// which Next isn't called doesn't count. Default 60 s.
	Idle time.Duration
	// Response bounds a call without a stream from its start to the end of the answer. Default 300 s.
	Response time.Duration
	// MaxDuration bounds every call from its start to its end. Default 10 min.
	MaxDuration time.Duration
}

func (t Timeouts) orDefaults() Timeouts {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Connect, 5 * time.Second},
		{&t.FirstByte, 60 * time.Second},
		{&t.Idle, 60 * time.Second},
		{&t.Response, 300 * time.Second},
		{&t.MaxDuration, 10 * time.Minute},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}

// Check returns everything in which the description breaks the contract, nil if nothing does. The product refuses to start with
// a description that is faulty.
func (d *Description) Check() error {
	faults := option.Check(d.Options)
	if !option.IsName(d.Name) {
		faults = append(faults, fmt.Errorf("the name %q is not made of a-z, 0-9 and _, at most %d of them", d.Name, option.MaxName))
	}
	if d.Label == "" {
		faults = append(faults, errors.New("the label is missing"))
	}
	for _, o := range d.Options {
		if o.Keys != nil {
			faults = append(faults, fmt.Errorf("option %q is a table, which only platforms have", o.Name))
		}
	}
	return errors.Join(faults...)
}

// WithDeadline returns p with a deadline on the context of every call, after which the call fails as [FailureTimeout].
// [HTTP] bounds its calls by itself and is returned as it is.
func WithDeadline(p Provider, limit time.Duration) Provider {
	if _, bounded := p.(*HTTP); bounded || p == nil || limit <= 0 {
		return p
	}
	return &bounded{p, limit, &timeoutError{"the call did not end", limit}}
}

type bounded struct {
	Provider
	limit time.Duration
	cause *timeoutError
}

// Open implements [Provider].
func (b *bounded) Open(ctx context.Context, req *Request) (Events, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, b.cause)
	opened := false
	defer func() {
		if !opened { // also when the adapter panics
			cancel()
		}
	}()
	events, err := b.Provider.Open(ctx, req)
	if err != nil || events == nil {
		return nil, b.failure(ctx, err)
	}
	opened = true
	return &boundedEvents{events, b, ctx, cancel}, nil
}

// failure returns err, or that of the deadline if the call ended because of it.
func (b *bounded) failure(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) || !errors.Is(context.Cause(ctx), b.cause) {
		return err
	}
	return &Error{Failure: FailureTimeout, Cause: b.cause}
}

type boundedEvents struct {
	Events
	provider *bounded
	ctx      context.Context //nolint:containedctx // of the call
	cancel   context.CancelFunc
}

// Next implements [Events].
func (e *boundedEvents) Next() (Event, error) {
	event, err := e.Events.Next()
	return event, e.provider.failure(e.ctx, err)
}

// Close implements [Events].
func (e *boundedEvents) Close() {
	defer e.cancel()
	e.Events.Close()
}
