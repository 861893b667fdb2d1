package providers

import "context"

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
