package providers

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Endpoint appends a path to a base URL and keeps its query. It fails unless the base URL is an absolute http or https URL.
func Endpoint(baseURL, path string) (*url.URL, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, errors.New("the base URL of the provider can't be parsed") // the error would quote it
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("the base URL of the provider is no absolute http or https URL")
	}
	if u.Path == "" {
		u.Path = "/" // JoinPath keeps a path relative if it doesn't begin with a slash
	}
	return u.JoinPath(path), nil
}

// Dialect encodes the requests and decodes the answers of one vendor's HTTP interface. Its methods are called concurrently. They
// do no I/O and must not keep their arguments.
type Dialect interface {
	// Endpoint returns the address to which the request is posted. It is not modified.
	Endpoint(req *Request) *url.URL
	// Header adds the dialect's own headers, such as the header of the key. h already contains Content-Type, Accept,
	// Accept-Encoding and User-Agent. Headers that make a transport send a request again by itself (Idempotency-Key) are removed.
	Header(h http.Header, req *Request)
	// Body returns the JSON body in slices, which are sent one after the other. Message contents should be slices of their own,
	// because a copy of a long prompt is expensive. For a request that the dialect can't write, the error is [Unwritable].
	Body(req *Request) ([][]byte, error)
	// Answer reads the body of a whole answer. An error that isn't an *[Error] counts as FailureRefused.
	Answer(body []byte) (Event, error)
	// Stream returns the reader of one stream.
	Stream() StreamReader
	// Fault returns the error of an answer with another status than 200, from its header and up to 64 KiB of its body, which may
	// have any form. With status 200 the body is a JSON value in a stream that isn't an event. See [StatusError].
	Fault(status int, header http.Header, body []byte) *Error
}

// StreamReader reads the events of one stream. It is used by one goroutine at a time.
type StreamReader interface {
	// Event reads the data of one server-sent event, which is not empty, or one object of [JSONLines]. An error ends the answer. An
	// error that isn't an *[Error] counts as FailureRefused.
	Event(data []byte) (Piece, error)
}

// JSONLines is embedded in the [StreamReader] of a vendor whose streams are JSON objects instead of server-sent events: one object
// on each line, or one array that grows by an object. The header Accept of a stream is text/event-stream unless the dialect replaces
// it.
type JSONLines struct{}

func (JSONLines) jsonLines() {}

// Piece is the content of one event of a stream. Zero fields have no meaning.
type Piece struct {
	// Text is the next piece of the answer as a JSON string literal. A character may be split between two pieces.
	Text JSONString
	// FinishReason is the vendor's finish reason; see [Event.FinishReason]. It may come early and more than once. The last one
	// counts.
	FinishReason string
	// Usage is the vendor's report; see [Event.Usage]. It may be nil, and the next call of [StreamReader.Event] may overwrite it.
	Usage *Usage
	// Model is the vendor's name of the model; see [Event.Model]. It may come in every event.
	Model string
	// End means that the answer is complete and that nothing relevant follows.
	End bool
}

// HTTP is the [Provider] of a vendor with an HTTP interface and a [Dialect]. It keeps no connection. Its only goroutine of its
// own reads for up to 50 ms after the terminator of a stream.
type HTTP struct {
	dialect   Dialect
	transport http.RoundTripper
	timeouts  Timeouts
	grace     time.Duration
	logger    *slog.Logger
	// largeBytes is the number of bytes of maxLargeBytes that current answers use.
	largeBytes atomic.Int64

	// The causes with which the timers cancel a call.
	connectTimeout, firstByteTimeout, idleTimeout, responseTimeout, maxDuration *timeoutError
}

// NewHTTP returns the provider for the dialect.
func NewHTTP(dialect Dialect, config *Config) *HTTP {
	p := &HTTP{
		dialect: dialect, transport: config.Transport, timeouts: config.Timeouts.orDefaults(),
		grace:  cmp.Or(max(config.FinishGrace, 0), 2*time.Second),
		logger: cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
	}
	if p.transport == nil {
		p.transport = &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second}
	}
	p.connectTimeout = &timeoutError{"no connection", p.timeouts.Connect}
	p.firstByteTimeout = &timeoutError{"no answer began", p.timeouts.FirstByte}
	p.idleTimeout = &timeoutError{"the answer paused", p.timeouts.Idle}
	p.responseTimeout = &timeoutError{"no complete answer", p.timeouts.Response}
	p.maxDuration = &timeoutError{"the call did not end", p.timeouts.MaxDuration}
	return p
}

// Open sends the request (see [Provider]). A whole answer is read to its end before Open returns.
func (p *HTTP) Open(ctx context.Context, req *Request) (Events, error) {
	c := p.newCall(ctx, req.Cancel, req.Stream)
	opened := false
	defer func() {
		if !opened { // even if the dialect panics
			c.end()
		}
	}()
	events, failure := p.open(c, req)
	if failure != nil {
		return nil, failure
	}
	opened = true
	return events, nil
}

func (p *HTTP) open(c *call, req *Request) (Events, *Error) {
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
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Type"))), "text/html") {
		return nil, &Error{Failure: FailureRefused, Elsewhere: true, Status: resp.StatusCode, Detail: "the answer is an HTML page"}
	}
	if req.Stream {
		return p.openStream(c, resp, body, req.APIKey)
	}
	return p.readAnswer(c, resp, body, req.APIKey)
}

// send sends the request. It sends it once more if no connection was made.
func (p *HTTP) send(c *call, req *Request) (*http.Response, *Error) {
	parts, err := p.dialect.Body(req)
	if err != nil {
		return nil, asError(err, 0, req.APIKey)
	}
	body := &requestBody{parts: parts, sent: req.Sent}
	hreq := p.httpRequest(c, p.dialect.Endpoint(req), req, body)
	req.Messages = nil
	for retried := false; ; retried = true {
		c.lend(body)
		if req.Stream {
			c.arm(p.timeouts.FirstByte, p.firstByteTimeout)
		}
		resp, err := p.transport.RoundTrip(hreq)
		if err == nil {
			return resp, nil
		}
		if body = body.again(); retried || body == nil || c.begun.Load() || isTimeout(err) || context.Cause(c.ctx) != nil {
			return nil, c.failure(err)
		}
		hreq = hreq.WithContext(hreq.Context()) // the transport may still use the first one
		hreq.Body = body
		p.logger.Warn("connecting to the model provider failed; trying once more", "host", hreq.Host, "error", err)
	}
}

// isTimeout reports, by the type of the error, whether the transport's own dialer timed out.
func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// ErrNoList is returned by [Lister] if the protocol has no list of models.
var ErrNoList = errors.New("the protocol has no list of models")

// ListedModel is a model in a vendor's list.
type ListedModel struct {
	// Name is the vendor's name of the model, and Aliases are other names for it.
	Name    string
	Aliases []string
	// Shutdown is the time from which the vendor no longer serves the model. Zero means that the vendor names none.
	Shutdown time.Time
}

// Lister is an optional interface of a [Provider] whose vendor lists its models. The operator's checks use it, model calls never do.
type Lister interface {
	// ListModels requests the vendor's list once, with apiKey or without credentials if it is empty. It returns [ErrNoList] if there is
	// no list. Other errors are *[Error].
	ListModels(ctx context.Context, apiKey string) ([]ListedModel, error)
}

// ListDialect is an optional interface of a [Dialect] whose vendor lists its models.
type ListDialect interface {
	// ListEndpoint returns the address of the list. It is read with GET and the headers of [Dialect.Header].
	ListEndpoint() *url.URL
	// ReadList reads the body of the list. An error that isn't an *[Error] counts as FailureRefused.
	ReadList(body []byte) ([]ListedModel, error)
}

var _ Lister = (*HTTP)(nil)

const (
	// listWait limits the request of a list.
	listWait = 30 * time.Second
	// maxListBytes limits a list. OpenRouter's has 1 MB.
	maxListBytes = 16 << 20
)

var errListTimeout = &timeoutError{"no list of models", listWait}

// ListModels implements [Lister].
func (p *HTTP) ListModels(ctx context.Context, apiKey string) ([]ListedModel, error) {
	dialect, ok := p.dialect.(ListDialect)
	if !ok {
		return nil, ErrNoList
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listWait, errListTimeout)
	defer cancel()
	c := &call{ctx: ctx}
	req := blank.WithContext(ctx)
	req.Method, req.URL, req.Header = http.MethodGet, dialect.ListEndpoint(), p.requestHeader(&Request{APIKey: apiKey})
	req.Host = req.URL.Host
	req.Header.Del("Content-Type")
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return nil, c.failure(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, err := decodedBody(resp)
	if err != nil {
		return nil, c.unreadable(err)
	}
	raw, err := io.ReadAll(&cappedReader{body, maxListBytes})
	if err != nil {
		return nil, c.failure(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, tidy(p.dialect.Fault(resp.StatusCode, resp.Header, raw[:min(len(raw), maxErrorBytes)]), resp.StatusCode, apiKey)
	}
	models, err := dialect.ReadList(raw)
	if err != nil {
		return nil, asError(err, resp.StatusCode, apiKey)
	}
	return models, nil
}
