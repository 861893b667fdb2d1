// Package providers is the contract between the gateway and the vendors of models, and the HTTP call that all vendors share.
//
// # Adapters
//
// A [Provider] answers one [Request] with [Events]: pieces of text, one finish reason, the token counts. A vendor with an HTTP
// interface needs no client of its own. It describes its request and answer as a [Dialect], and [NewHTTP] makes the Provider,
// with timers, one retry of a failed connect, bounds of memory, server-sent events and error handling.
//
// An adapter is a package with a [Driver], which describes the protocol and makes Providers from a configuration. A Caddy module
// of the namespace svc.providers makes it available as `protocol NAME`; it needs nothing but the driver. A driver may also
// implement [option.Checker]. Packages openai, anthropic, gemini and echo are the built-in adapters. Package providertest checks any
// adapter against this contract.
//
// The contract is v0: it changes as vendors need it to.
//
// # Invariants
//
//   - An answer ends in exactly one of two ways: io.EOF after the finish reason, or an [*Error]. A stream that breaks off is
//     never reported as complete.
//   - No text follows the finish reason, even if the vendor repeats it in every event or sends an error after it.
//   - One request of the caller is one request on the wire. The only exception is a connect that failed before any byte of the
//     request was handed to a connection: it is tried once more and logged.
//   - Every wait has a timer, and each timer cancels the call with its own cause. The reason of a failure is read from
//     [context.Cause], never from the text of an error.
//   - Only text, finish reason and token counts of the vendor are passed on. Vendor texts end in [Error.Detail], which is for
//     logs.
//   - After Open has failed or Close has returned, the memory of the [Request] is no longer read.
//
// # Outside of the package
//
// Choice of model and vendor, prices, limits, the estimate of missing usage and the check of reported usage (all
// internal/gateway), public error codes and texts (handlers), Caddy.
package providers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
)

// Message is one message of a prompt.
type Message struct {
	// Role is system, user, assistant or tool.
	Role string
	// Content is the text as a JSON string literal with its quotes: valid JSON, valid UTF-8, no lone surrogate. It is sent to the
	// vendor unchanged, so a long prompt is neither unescaped nor escaped again.
	Content JSONString
}

// Request is one validated model call. Adapters add only parameters that the vendor requires.
type Request struct {
	// Model is the vendor's name of the model.
	Model string
	// MaxTokensField is the vendor's name of MaxTokens: "max_tokens" or "max_completion_tokens". Empty means the dialect's usual
	// name. Dialects with only one name for it ignore the field.
	MaxTokensField string
	// Messages has one or more elements. An adapter may set it to nil once it has encoded them. The contents are slices of a
	// client's body, and its memory is reused after the answer's events are closed or Open has failed. The adapter must not refer
	// to the contents after that.
	Messages []Message
	// Temperature and TopP are nil if the vendor's default applies.
	Temperature, TopP *float64
	// MaxTokens limits the generated tokens. It is 1 or more.
	MaxTokens int64
	// Stop are the stop sequences that the model accepts ([Description.MaxStops]); the gateway applies the others itself. It may
	// be nil.
	Stop []string
	// Thinking is the vendor's word for the least thinking of the model, such as "none", "minimal" or "disabled", as the model's
	// configuration has it. A dialect writes it into its vendor's field. Empty means that nothing is sent about thinking.
	Thinking string
	// Reasoning is set if the model generates hidden tokens, as its configuration says.
	Reasoning bool
	// Stream is set for an answer in pieces.
	Stream bool
	// APIKey is the secret to send. If it is empty, the request has no credentials.
	APIKey string
	// Traceparent is the W3C trace context to send with the request, https://www.w3.org/TR/trace-context. It may be empty.
	Traceparent string
	// Sent may be nil. An adapter may call it, once and from any goroutine, when it no longer refers to any content of Messages
	// because the vendor has all of it.
	Sent func()
	// Cancel may be nil. It ends the context of Open with a cause. That context then belongs to this call alone, so an adapter with timers needs
	// no context of its own. An adapter that passes the request on more than once must set Cancel to nil.
	Cancel context.CancelCauseFunc
}

// Usage counts the tokens of a call as the vendor reported them. A nil *Usage means that there is no report. The gateway
// estimates counts that the vendor left out: a prompt of 0 tokens, and text after the last completion count above 0.
type Usage struct {
	// PromptTokens are all tokens of the prompt. They include tokens that the vendor read from or wrote to its cache, even if the
	// vendor counts these separately.
	PromptTokens int64
	// CompletionTokens are all generated tokens of the answer so far. They include tokens of hidden reasoning, even if the vendor
	// counts these separately.
	CompletionTokens int64
	// CachedPromptTokens is the part of PromptTokens that the vendor read from its cache.
	CachedPromptTokens int64
	// CacheWriteTokens is the part of PromptTokens that the vendor wrote to its cache for its usual, short time, and
	// LongCacheWriteTokens the part that it wrote for an hour or longer.
	CacheWriteTokens, LongCacheWriteTokens int64
	// ReasoningTokens is the part of CompletionTokens that is hidden. It is informational: CompletionTokens has the price.
	ReasoningTokens int64
}

// Event is one step of an answer. Zero fields have no meaning. One event may set several fields; a whole answer is one event with
// all of them.
type Event struct {
	// Text is a piece of the answer, valid UTF-8.
	Text string
	// Quoted replaces Text when the vendor's literal of the piece is what [AppendQuoted] would write, so that the literal can be
	// copied to the client. It is valid until the next call of Next, Buffered or Close. Only [HTTP] sets it; other adapters need
	// not.
	Quoted JSONString
	// FinishReason is set once, in the last event, in OpenAI's words: "stop", "length" or "content_filter". No text follows it. A
	// dialect maps its vendor's words; [HTTP] replaces any other word by "stop".
	FinishReason string
	// Usage is set when the vendor reported it, with or after the text that it counts. If a stream has several reports, the
	// largest count of each field is used. It is valid until the next call of Next, Buffered or Close, because some vendors report with
	// every piece.
	Usage *Usage
	// Model is the vendor's name of the answering model: up to 128 printable ASCII characters without spaces. It is empty if the
	// vendor doesn't report it. It may differ from the requested name, for example by the date of a version.
	Model string
}

// Answer returns the piece of the answer from Text or Quoted.
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

// empty reports whether the event adds nothing to the answer. A model alone adds nothing.
func (e *Event) empty() bool {
	return e.Text == "" && e.Quoted == nil && e.FinishReason == "" && e.Usage == nil
}

// Events is a running answer. Next is called by one goroutine at a time.
type Events interface {
	// Next waits for the next event. It returns io.EOF after the complete answer, that is after a finish reason or the vendor's
	// terminator. Any other end is an *[Error]. Usage that came before a failure has already been returned.
	Next() (Event, error)
	// Buffered reports whether Next would return without waiting for the vendor. The gateway flushes to its client when it is
	// false, so that a burst of events costs one write.
	Buffered() bool
	// Close ends the call without waiting. The connection becomes free immediately, or when the few bytes that may follow the
	// terminator have been read. Close may be called at any time, from any goroutine, and more than once. A later Next returns the
	// next buffered event or FailureCanceled.
	Close()
}

// Provider is the adapter to one configured model vendor. It is safe for concurrent use. A panic in one of its methods, or in its
// Events, fails only that call, as [FailureBroken].
type Provider interface {
	// Open sends the request. It returns when the vendor has begun a successful answer: after its status and, for a stream, the
	// first event, so that a failure before any answer is an error of Open. A whole answer is delivered through the same Events.
	// The answer lives until Close or the end of ctx, after which Open and Next must return immediately. Errors are *[Error].
	Open(ctx context.Context, req *Request) (Events, error)
}

// Driver makes a vendor's protocol available. It has no state; its methods may be called at any time. A Caddy module of the
// namespace svc.providers is a driver; the name of its protocol is the end of the module's id.
type Driver interface {
	// Describe returns the description of the protocol. It depends on no configuration and is always the same.
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
	// ExampleURL is a base URL for messages. It may be empty.
	ExampleURL string
	// Local is set if the protocol needs no network, so that base_url, transport and api_key have no meaning.
	Local bool
	// Presets are vendors with this protocol, which a configuration may name instead of the protocol.
	Presets []Preset
	// MaxStops is the largest number of stop sequences that the protocol accepts. 0 means none, below 0 any number.
	MaxStops int
	// RefusesBlankStops is set if the protocol refuses stop sequences of white space only.
	RefusesBlankStops bool
	// Options are the options in the block of `protocol NAME { … }` and, in JSON, in the object `options`. None is a table.
	Options []option.Option
}

// Preset is a vendor that speaks a protocol. `preset NAME` of a provider sets the protocol, the address and the options, unless the
// configuration gives them.
type Preset struct {
	// Name is the name in the configuration: lower-case letters, digits and underscores. A built-in preset wins over a guest's.
	Name string
	// Label names the vendor for people, such as "Azure OpenAI".
	Label string
	// BaseURL is the vendor's address. With words in capitals, such as RESOURCE, it is an example, because these parts are the operator's
	// own: the configuration must then have a base_url.
	BaseURL string
	// Options are the values of the protocol's options.
	Options map[string]string
	// MaxStops replaces [Description.MaxStops] for the vendor: the number of stop sequences that all its models accept.
	MaxStops int
}

// Incomplete reports whether BaseURL is only an example.
func (p *Preset) Incomplete() bool { return p.BaseURL != strings.ToLower(p.BaseURL) }

// Config configures a [Provider].
type Config struct {
	// BaseURL is the vendor's address, to which a dialect appends its paths (see [Endpoint]). The operator chooses it, so it may
	// be private. It is empty for local protocols.
	BaseURL string
	// Options are the values of the configured options, with references resolved. Options that were not given are absent.
	Options map[string]string
	// Transport carries the requests. nil means an HTTP transport of the provider's own, without a proxy. A transport must not
	// follow redirects or send a request again by itself. It should call the hooks of net/http/httptrace: otherwise the time to
	// connect counts as time to the first byte.
	Transport http.RoundTripper
	// Timeouts are the limits of each call.
	Timeouts Timeouts
	// FinishGrace limits the wait for the usage and the end of a stream after its finish reason. After it the stream counts as
	// complete even if the vendor keeps it open. More text restarts the time. Default 2 s.
	FinishGrace time.Duration
	// Logger receives retried connects. nil discards them. It must get no key and no text of a prompt or an answer.
	Logger *slog.Logger
}

// Timeouts are the limits of one call to a vendor. Zero fields take the default.
type Timeouts struct {
	// Connect limits the wait for a usable connection: DNS, TCP, TLS, and a free place in the pool. Default 5 s.
	Connect time.Duration
	// FirstByte limits a stream's wait from the connection to the first byte of its first event. The vendor's headers and comments
	// don't end this wait. Default 60 s.
	FirstByte time.Duration
	// Idle limits the silence of a stream after its first event. Only bytes of events end a silence, comments don't. Time without
	// a call of Next doesn't count. Default 60 s.
	Idle time.Duration
	// Response limits a call without a stream from its start to the end of the answer. Default 300 s.
	Response time.Duration
	// MaxDuration limits every call from its start to its end. Default 10 min.
	MaxDuration time.Duration
}

func (t Timeouts) orDefaults() Timeouts {
	t.Connect = cmp.Or(max(t.Connect, 0), 5*time.Second)
	t.FirstByte = cmp.Or(max(t.FirstByte, 0), 60*time.Second)
	t.Idle = cmp.Or(max(t.Idle, 0), 60*time.Second)
	t.Response = cmp.Or(max(t.Response, 0), 300*time.Second)
	t.MaxDuration = cmp.Or(max(t.MaxDuration, 0), 10*time.Minute)
	return t
}

// Check returns every fault of the description, or nil. The product doesn't start with a faulty description.
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
	for i := range d.Presets {
		faults = append(faults, d.presetFaults(&d.Presets[i])...)
	}
	return errors.Join(faults...)
}

func (d *Description) presetFaults(p *Preset) (faults []error) {
	if !option.IsName(p.Name) || p.Label == "" {
		faults = append(faults, fmt.Errorf("preset %q: the name is not made of a-z, 0-9 and _, or the label is missing", p.Name))
	}
	if _, err := Endpoint(p.BaseURL, ""); err != nil {
		faults = append(faults, fmt.Errorf("preset %q: %w", p.Name, err))
	}
	for name, value := range p.Options {
		i := slices.IndexFunc(d.Options, func(o option.Option) bool { return o.Name == name })
		if i < 0 {
			faults = append(faults, fmt.Errorf("preset %q: the protocol has no option %q", p.Name, name))
		} else if check := d.Options[i].Check; check != nil && check(value) != "" {
			faults = append(faults, fmt.Errorf("preset %q: option %q %s", p.Name, name, check(value)))
		}
	}
	return faults
}

// WithDeadline returns p with a deadline on the context of every call, after which the call fails as [FailureTimeout]. [HTTP]
// limits its calls by itself and is returned unchanged.
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

// failure returns err, or a FailureTimeout if the deadline ended the call.
func (b *bounded) failure(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) || !errors.Is(context.Cause(ctx), b.cause) {
		return err
	}
	return &Error{Failure: FailureTimeout, Elsewhere: true, Cause: b.cause}
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
