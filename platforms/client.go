package platforms

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// DefaultTimeout limits a call to a platform, from the search for a connection to the end of the answer.
const DefaultTimeout = 15 * time.Second

// maxAnswer is the number of bytes of an answer that are read unless the request allows more. All good answers to messages and
// all known errors are far smaller.
const maxAnswer = 64 << 10

// uploadFactor multiplies the timeout of a call with a file.
const uploadFactor = 4

// UploadTime is the longest duration of a call with a file and the ordinary call that follows it.
const UploadTime = (uploadFactor + 1) * DefaultTimeout

var errTooSlow = errors.New("the platform did not answer in time")

// ClientConfig configures a [Client]. The zero value is usable.
type ClientConfig struct {
	// Transport carries the requests. nil means a transport of the client's own. [Client.Close] closes its idle connections. A
	// transport must call httptrace hooks as [http.Transport] does: without them every failure counts as [Unknown], none as
	// [Retry].
	Transport http.RoundTripper
	// Timeout limits every call. 0 means [DefaultTimeout].
	Timeout time.Duration
}

// Client makes HTTP calls to platforms. It limits their time and the size of their answers, never follows redirects, never sends
// a request twice, and classifies network failures. It is safe for concurrent use.
type Client struct {
	transport http.RoundTripper
	own       *http.Transport // nil if the transport is the caller's
	timeout   time.Duration
}

// NewClient returns a client.
func NewClient(config ClientConfig) *Client {
	c := &Client{transport: config.Transport, timeout: config.Timeout}
	if c.transport == nil {
		// It reaches private addresses, because only the operator chooses hosts. Nothing that a tenant sets becomes part of a host, and no
		// redirect is followed.
		dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
		c.own = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    5 * time.Second,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        60 * time.Second,
			MaxResponseHeaderBytes: maxAnswer,
		}
		c.transport = c.own
	}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	return c
}

// Transport returns the transport for other requests to addresses that the operator chose. It follows no redirects, and limits
// neither time nor size.
func (c *Client) Transport() http.RoundTripper { return c.transport }

// Close closes the idle connections of the client's own transport.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// ParseBase parses the base address of an interface, to which paths are appended. The error doesn't quote the address, which may
// contain a password by mistake.
func ParseBase(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, errors.New("is not an address")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("may only have scheme, host, port and path")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

// Request is one call to a platform.
type Request struct {
	// Name names the platform in errors.
	Name string
	// Base is the address to which Path is appended; see [ParseBase].
	Base   *url.URL
	Method string
	// Path begins with a slash. The caller has checked that the parts of it that a tenant sets need no escaping.
	Path string
	// Query is appended to the address. It may be nil.
	Query url.Values
	// Header has the names as they are sent, not in canonical form.
	Header map[string]string
	// JSON, Form or Parts is the body. A request without a body has none of them. A request with Parts may take four times as long
	// as others.
	JSON  any
	Form  url.Values
	Parts []Part
	// MaxAnswer is the number of bytes of the answer that are read. 0 means 64 KiB.
	MaxAnswer int
}

func (q *Request) build(ctx context.Context) (*http.Request, error) {
	u := *q.Base
	u.Path += q.Path
	u.RawQuery = q.Query.Encode()
	var body []byte
	var contentType string // empty for a request without a body
	var err error
	switch {
	case q.JSON != nil:
		contentType = "application/json"
		if body, err = json.Marshal(q.JSON); err != nil {
			err = errors.New("the message can't be written as JSON")
		}
	case q.Form != nil:
		body, contentType = []byte(q.Form.Encode()), "application/x-www-form-urlencoded"
	case q.Parts != nil:
		body, contentType, err = multipartBody(q.Parts)
	}
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the request can't be built")
	}
	req.GetBody = nil // otherwise Go would send the request again by itself
	req.Header.Set("User-Agent", "caddy-svc")
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for name, value := range q.Header {
		req.Header[name] = []string{value}
	}
	return req, nil
}

// multipartBody writes parts as a form with files (RFC 7578).
func multipartBody(parts []Part) (body []byte, contentType string, err error) {
	var text bytes.Buffer
	form := multipart.NewWriter(&text)
	for _, part := range parts {
		parameters := map[string]string{"name": part.Name}
		header := textproto.MIMEHeader{}
		if part.FileName != "" {
			parameters["filename"] = part.FileName
			header.Set("Content-Type", cmp.Or(part.MediaType, "application/octet-stream"))
		}
		header.Set("Content-Disposition", mime.FormatMediaType("form-data", parameters))
		in, err := form.CreatePart(header)
		if err == nil {
			_, err = in.Write(part.Content)
		}
		if err != nil {
			return nil, "", errors.New("the file can't be written as a form")
		}
	}
	if form.Close() != nil {
		return nil, "", errors.New("the file can't be written as a form")
	}
	return text.Bytes(), form.FormDataContentType(), nil
}

// Response is the response to a [Request].
type Response struct {
	Name   string // of the request
	Status int
	Header http.Header
	Body   []byte // nil if it did not arrive whole or was too long
}

// wire records how far a request got. Its hooks run on other goroutines.
type wire struct{ sought, connected, wrote atomic.Bool }

// Do makes the call. It fails with [Retry] if certainly nothing was sent, else with [Unknown]. A response with any status is a
// success.
func (c *Client) Do(parent context.Context, q *Request) (*Response, *Error) {
	if q.Base == nil {
		return nil, Refusef("the configured address of %s is faulty", q.Name)
	}
	if err := context.Cause(parent); err != nil {
		return nil, RetryLater(0, err)
	}
	timeout := c.timeout
	if q.Parts != nil {
		timeout *= uploadFactor
	}
	ctx, cancel := context.WithTimeoutCause(parent, timeout, errTooSlow)
	defer cancel()
	var progress wire
	req, err := q.build(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { progress.sought.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { progress.connected.Store(true) },
		WroteHeaders: func() { progress.wrote.Store(true) },
	}))
	if err != nil {
		return nil, Fail(Refused, err)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		cause := networkError(ctx, err)
		// Certainly nothing was sent if no connection was made, or if a kept connection turned out to be closed before the headers were
		// written. When the call's own context has ended, another goroutine may still be writing to a connection.
		unsent := progress.sought.Load() && !progress.wrote.Load() && (!progress.connected.Load() || ctx.Err() == nil)
		if unsent {
			return nil, RetryLater(0, cause)
		}
		return nil, Fail(Unknown, cause)
	}
	defer func() { _ = resp.Body.Close() }()
	most := cmp.Or(q.MaxAnswer, maxAnswer)
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil || len(body) > most {
		body = nil // the status is still useful
	}
	return &Response{Name: q.Name, Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// networkError describes a failure in our own words, because the texts of net/http may quote data of the other side, or the
// address, which contains the token for some platforms.
func networkError(ctx context.Context, err error) error {
	var (
		dns         *net.DNSError
		network     *net.OpError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &dns):
		return errors.New("the platform's host name can't be resolved")
	case errors.As(err, &network) && network.Op == "dial":
		return errors.New("no connection to the platform")
	case errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &alert):
		return errors.New("no trusted TLS connection to the platform")
	}
	return errors.New("the connection to the platform broke")
}

// Decode reads the body as JSON into target and reports whether it could.
func (r *Response) Decode(target any) bool { return json.Unmarshal(r.Body, target) == nil }

// OK reports whether the status is 2xx.
func (r *Response) OK() bool { return r.Status >= 200 && r.Status < 300 }

// NoID returns the failure of a call that the platform accepted without an id in its answer.
func (r *Response) NoID() *Error { return Fail(Unknown, r.Error("", "")) }

// ID returns the id in the answer of a call that ended with err. Without an id it returns [Response.NoID].
func (r *Response) ID(id Word, err error) (string, error) {
	switch {
	case err != nil:
		return "", err
	case id == "":
		return "", r.NoID()
	}
	return string(id), nil
}

// Unreadable classifies a response without the platform's own error format, which comes from a proxy or from a platform that is
// out of order. It trusts only statuses that refuse the request. refreshable means that a refresh may resolve a 401.
func (r *Response) Unreadable(refreshable bool) *Error {
	cause := r.Error("", "")
	switch {
	case r.Status == http.StatusTooManyRequests:
		return TooMany(r.RetryAfter(), cause)
	case r.Status == http.StatusUnauthorized:
		return Unauthorized(refreshable, cause)
	case r.Status == http.StatusRequestTimeout:
		return Fail(Unknown, cause)
	case r.Status >= 300 && r.Status < 500:
		return Fail(Refused, cause)
	}
	return Fail(Unknown, cause)
}

// Unlisted classifies an error in the platform's own format with a code that the adapter doesn't list.
func (r *Response) Unlisted(refreshable bool, cause error) *Error {
	switch {
	case r.Status == http.StatusTooManyRequests:
		return TooMany(r.RetryAfter(), cause)
	case r.Status >= 500:
		return RetryLater(r.RetryAfter(), cause)
	case r.Status == http.StatusUnauthorized:
		return Unauthorized(refreshable, cause)
	}
	return Fail(Refused, cause)
}

// RetryAfter returns the pause in the header Retry-After, which is a number of seconds or a date. It returns 0 if there is no
// header. A date is compared with the Date of the answer and ignored if there is none, because our own clock may differ.
func (r *Response) RetryAfter() time.Duration {
	header := r.Header.Get("Retry-After")
	until, err := http.ParseTime(header)
	if err != nil {
		return Seconds(header)
	}
	answered, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		return 0
	}
	return max(until.Sub(answered), 0)
}

// Seconds parses a number of seconds that a platform states, and limits it to a year. It returns 0 if the text isn't one.
func Seconds(text string) time.Duration {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 366*24*3600)) * time.Second
}

// Word decodes a JSON string, number or truth value as text, because platforms write ids and codes in any of these forms. Any
// other value becomes empty.
type Word string

// UnmarshalJSON implements [json.Unmarshaler]. It never fails.
func (w *Word) UnmarshalJSON(raw []byte) error {
	var s string
	switch {
	case json.Unmarshal(raw, &s) == nil:
		*w = Word(s) // null leaves s empty
	case len(raw) > 0 && (raw[0] == '{' || raw[0] == '['):
		*w = ""
	default:
		*w = Word(raw)
	}
	return nil
}
