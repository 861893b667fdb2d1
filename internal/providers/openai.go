package providers

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Timeouts are the limits of one call to a vendor (design §4). Zero fields take the default.
type Timeouts struct {
	// Connect bounds the wait for a usable connection: DNS, TCP, TLS, and a free place in the pool. Default 5 s.
	Connect time.Duration
	// FirstByte bounds a stream's wait from the connection to the first byte of its first event; the vendor's
	// headers and comments don't end it. Default 60 s.
	FirstByte time.Duration
	// Idle bounds a stream's silence after that. Only bytes of events end a silence, comments don't. The time in
	// which nobody calls Next doesn't count. Default 60 s.
	Idle time.Duration
	// Response bounds a non-stream call from its start to the end of the answer. Default 300 s.
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

// OpenAIConfig describes one OpenAI-compatible upstream.
type OpenAIConfig struct {
	// BaseURL is the address that "/chat/completions" is appended to, such as https://api.openai.com/v1. A query
	// in it is kept. It is the operator's, so private addresses are fine.
	BaseURL string
	// Transport carries the requests; nil is an own HTTP transport without a proxy. It must neither follow
	// redirects nor send a request again by itself, and should report to net/http/httptrace: without that the
	// connect timer is part of the first byte's.
	Transport http.RoundTripper
	// Timeouts are the limits of each call.
	Timeouts Timeouts
	// FinishGrace is how long a stream is waited for after its finish reason, for its usage and its end, before it counts
	// as complete although the vendor keeps it open. Only more text begins that time anew. Default 2 s.
	FinishGrace time.Duration
	// Logger hears of retried connects; nil discards.
	Logger *slog.Logger
}

// OpenAI is the adapter to any OpenAI-compatible upstream: the vendor itself and those that imitate its
// chat-completions interface (Ollama, vLLM, llama.cpp, Groq, Gemini's compatible endpoint, …). It holds no
// connection and, but for the 50 ms at most after the terminator of a stream, no goroutine of its own.
type OpenAI struct {
	endpoint  *url.URL
	fault     error // of the base URL
	transport http.RoundTripper
	timeouts  Timeouts
	grace     time.Duration
	logger    *slog.Logger
	// largeBytes is how much of maxLargeBytes the answers that are being read have.
	largeBytes atomic.Int64

	// The causes with which the timers cancel a call.
	connectTimeout, firstByteTimeout, idleTimeout, responseTimeout, maxDuration *timeoutError
}

var _ Provider = (*OpenAI)(nil)

// NewOpenAI returns the adapter. A base URL that is no absolute http or https URL makes every call fail with
// FailureRefused; the configuration refuses it before.
func NewOpenAI(config OpenAIConfig) *OpenAI {
	p := &OpenAI{
		transport: config.Transport,
		timeouts:  config.Timeouts.orDefaults(),
		grace:     config.FinishGrace,
		logger:    config.Logger,
	}
	p.endpoint, p.fault = endpoint(config.BaseURL)
	if p.transport == nil {
		p.transport = &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second}
	}
	if p.grace <= 0 {
		p.grace = 2 * time.Second
	}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	p.connectTimeout = &timeoutError{"no connection", p.timeouts.Connect}
	p.firstByteTimeout = &timeoutError{"no answer began", p.timeouts.FirstByte}
	p.idleTimeout = &timeoutError{"the answer paused", p.timeouts.Idle}
	p.responseTimeout = &timeoutError{"no complete answer", p.timeouts.Response}
	p.maxDuration = &timeoutError{"the call did not end", p.timeouts.MaxDuration}
	return p
}

func endpoint(baseURL string) (*url.URL, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, errors.New("the base URL of the provider can't be parsed")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("the base URL of the provider is no absolute http or https URL")
	}
	if u.Path == "" {
		u.Path = "/" // JoinPath keeps a path relative that doesn't begin with a slash
	}
	return u.JoinPath("chat/completions"), nil
}

// Open sends the request (see [Provider]). A non-stream answer is read to its end before Open returns.
func (p *OpenAI) Open(ctx context.Context, req *Request) (Events, error) {
	if p.fault != nil {
		return nil, &Error{Failure: FailureRefused, Permanent: true, Cause: p.fault}
	}
	c := p.newCall(ctx, req.Stream)
	events, failure := p.open(c, req)
	if failure != nil {
		c.end()
		return nil, failure
	}
	return events, nil
}

func (p *OpenAI) open(c *call, req *Request) (Events, *Error) {
	if context.Cause(c.ctx) != nil {
		return nil, c.failure(nil)
	}
	resp, failure := p.send(c, req) //nolint:bodyclose // attach gives the body to the call, which closes it
	if failure != nil {
		return nil, failure
	}
	c.attach(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return nil, p.refusal(c, resp, req.APIKey)
	}
	body, err := decodedBody(resp)
	if err != nil {
		return nil, c.unreadable(err)
	}
	if isHTML(resp.Header) {
		return nil, &Error{Failure: FailureRefused, Status: resp.StatusCode, Detail: "the answer is an HTML page"}
	}
	if req.Stream {
		return p.openStream(c, resp, body, req.APIKey)
	}
	return readAnswer(c, resp, body, req.APIKey)
}

// send makes the request, and once more if no connection came about.
func (p *OpenAI) send(c *call, req *Request) (*http.Response, *Error) {
	parts, size := encodeRequest(req)
	body := &requestBody{parts: parts, sent: req.Sent}
	req.Messages = nil
	for retried := false; ; retried = true {
		c.lend(body)
		if req.Stream {
			c.arm(p.timeouts.FirstByte, p.firstByteTimeout)
		}
		hreq, begun := p.httpRequest(c, req, body, size)
		resp, err := p.transport.RoundTrip(hreq)
		if err == nil {
			return resp, nil
		}
		again := !retried && !begun.Load() && !body.touched() && !isTimeout(err) && context.Cause(c.ctx) == nil
		if !again {
			return nil, c.failure(err)
		}
		body = body.again()
		p.logger.Warn("connecting to the model provider failed; trying once more", "host", p.endpoint.Host, "error", err)
	}
}

// isTimeout says whether the transport's own dialer gave up waiting, by type.
func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

func isHTML(h http.Header) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(h.Get("Content-Type"))), "text/html")
}
