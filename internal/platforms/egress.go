package platforms

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// maxAnswer is how many bytes of an answer are read; all good answers and all known errors are far smaller.
const maxAnswer = 64 << 10

var errTooSlow = errors.New("the platform did not answer in time")

// newTransport goes to the operator's addresses only, which may be private, so it blocks no address; nothing that a
// tenant sets becomes part of a host, and no redirect is followed (reliability S18).
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: maxAnswer,
	}
}

// call is one request to a platform.
type call struct {
	platform Type
	base     *url.URL
	method   string
	// path begins with a slash. What a tenant contributes to it was checked to need no escaping.
	path   string
	query  url.Values
	header map[string]string // as they are sent, not canonical
	json   any               // body, or
	form   url.Values        // body
}

func (q *call) request(ctx context.Context) (*http.Request, error) {
	u := *q.base
	u.Path += q.path
	u.RawQuery = q.query.Encode()
	var body []byte
	contentType := ""
	switch {
	case q.json != nil:
		encoded, err := json.Marshal(q.json)
		if err != nil {
			return nil, errors.New("the message can't be written as JSON")
		}
		body, contentType = encoded, "application/json"
	case q.form != nil:
		body, contentType = []byte(q.form.Encode()), "application/x-www-form-urlencoded"
	}
	req, err := http.NewRequestWithContext(ctx, q.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the request can't be built")
	}
	req.GetBody = nil // with it Go would send the request again by itself
	req.Header.Set("User-Agent", "caddy-svc")
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for name, value := range q.header {
		req.Header[name] = []string{value}
	}
	return req, nil
}

// answer is what came back: a status, and the body if it came whole and was not too long.
type answer struct {
	platform Type
	status   int
	header   http.Header
	body     []byte
}

// wire notes how far a request got. Its hooks run on other goroutines.
type wire struct{ sought, connected, wrote atomic.Bool }

func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:      func(string) { w.sought.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { w.connected.Store(true) },
		WroteHeaders: func() { w.wrote.Store(true) },
	}
}

// unsent tells that surely nothing was sent: no connection was made, or a kept one turned out to be closed before the
// headers were written. When our own time ran out with a connection in hand, another goroutine may still be writing.
func (w *wire) unsent(ended bool) bool {
	return w.sought.Load() && !w.wrote.Load() && (!w.connected.Load() || !ended)
}

// do makes the call. It fails with Retry if surely nothing was sent, else with Unknown.
func (c *Client) do(parent context.Context, q *call) (*answer, *SendError) {
	if q.base == nil {
		return nil, refusedf("the configured address of %s is faulty", q.platform)
	}
	if err := context.Cause(parent); err != nil {
		return nil, retryLater(0, err)
	}
	ctx, cancel := context.WithTimeoutCause(parent, c.config.Timeout, errTooSlow)
	defer cancel()
	var progress wire
	req, err := q.request(httptrace.WithClientTrace(ctx, progress.trace()))
	if err != nil {
		return nil, refused(err)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		cause := networkError(ctx, err)
		if progress.unsent(ctx.Err() != nil) {
			return nil, retryLater(0, cause)
		}
		return nil, unknown(cause)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(body) > maxAnswer {
		body = nil // the status still tells something
	}
	return &answer{platform: q.platform, status: resp.StatusCode, header: resp.Header, body: body}, nil
}

// networkError says what went wrong in our own words: the texts of net/http may quote the address, in which some
// platforms want their tokens, or what the other side sent.
func networkError(ctx context.Context, err error) error {
	var (
		dns     *net.DNSError
		network *net.OpError
	)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &dns):
		return errors.New("the platform's host name can't be resolved")
	case errors.As(err, &network) && network.Op == "dial":
		return errors.New("no connection to the platform")
	case isTLS(err):
		return errors.New("no trusted TLS connection to the platform")
	}
	return errors.New("the connection to the platform broke")
}

func isTLS(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	return errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert)
}

// decode reads the body as JSON into target; it tells whether it could.
func (a *answer) decode(target any) bool { return json.Unmarshal(a.body, target) == nil }

func (a *answer) good() bool { return a.status >= 200 && a.status < 300 }

// vendor describes the answer for logs.
func (a *answer) vendor(code, subcode string) *vendorError {
	return &vendorError{platform: a.platform, status: a.status, code: code, subcode: subcode}
}

// unreadable judges an answer that isn't in the platform's own words: some server between us and the platform, or a
// platform out of order. Only a status that says that the request was turned away is believed.
func (a *answer) unreadable() *SendError {
	cause := a.vendor("", "")
	switch {
	case a.status == http.StatusTooManyRequests:
		return retryLater(a.retryAfter(), cause)
	case a.status == http.StatusUnauthorized:
		return needsReauth(a.platform.Refreshable(), cause)
	case a.status == http.StatusRequestTimeout:
		return unknown(cause)
	case a.status >= 300 && a.status < 500:
		return refused(cause)
	}
	return unknown(cause)
}

// unlisted judges an error in the platform's own words that no table names.
func (a *answer) unlisted(cause error) *SendError {
	switch {
	case a.status == http.StatusTooManyRequests, a.status >= 500:
		return retryLater(a.retryAfter(), cause)
	case a.status == http.StatusUnauthorized:
		return needsReauth(a.platform.Refreshable(), cause)
	}
	return refused(cause)
}

// retryAfter reads Retry-After in seconds; no platform here sends a date.
func (a *answer) retryAfter() time.Duration { return seconds(a.header.Get("Retry-After")) }

// seconds reads a number of seconds that a platform states; 0 if it isn't one. Nobody means more than a year.
func seconds(text string) time.Duration {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 366*24*3600)) * time.Second
}

// word is a JSON string, number or truth value as text: platforms write ids and codes one way or another. Anything else
// is empty.
type word string

func (w *word) UnmarshalJSON(raw []byte) error {
	var s string
	switch {
	case json.Unmarshal(raw, &s) == nil:
		*w = word(s) // null leaves s empty
	case len(raw) > 0 && (raw[0] == '{' || raw[0] == '['):
		*w = ""
	default:
		*w = word(raw)
	}
	return nil
}

func isWordByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-'
}

func consistsOf(s string, allowed func(byte) bool) bool {
	for i := range len(s) {
		if !allowed(s[i]) {
			return false
		}
	}
	return s != ""
}

func isDigits(s string) bool { return consistsOf(s, func(b byte) bool { return b >= '0' && b <= '9' }) }
