package providers

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
)

// httpRequest builds the request with an allow-list of headers. GetBody stays nil: with it, or with any kind of
// idempotency header, Go's transport would re-send the request by itself (reliability F1).
//
// begun becomes true when the transport writes the request; from then on the vendor may have seen it.
func (p *OpenAI) httpRequest(c *call, req *Request, body *requestBody, size int64) (hreq *http.Request, begun *atomic.Bool) {
	begun = new(atomic.Bool)
	trace := &httptrace.ClientTrace{
		GetConn:      func(string) { c.arm(p.timeouts.Connect, p.connectTimeout) },
		WroteHeaders: func() { begun.Store(true) },
	}
	if req.Stream {
		trace.GotConn = func(httptrace.GotConnInfo) { c.arm(p.timeouts.FirstByte, p.firstByteTimeout) }
	} else {
		trace.GotConn = func(httptrace.GotConnInfo) { c.disarm() }
	}
	target := *p.endpoint
	hreq = &http.Request{
		Method:        http.MethodPost,
		URL:           &target,
		Host:          target.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        requestHeader(req),
		Body:          body,
		ContentLength: size,
	}
	return hreq.WithContext(httptrace.WithClientTrace(c.ctx, trace)), begun
}

func requestHeader(req *Request) http.Header {
	accept := "application/json"
	if req.Stream {
		accept = "text/event-stream"
	}
	h := http.Header{
		"Content-Type":    {"application/json"},
		"Accept":          {accept},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {"caddy-svc"},
	}
	if req.APIKey != "" {
		h["Authorization"] = []string{"Bearer " + req.APIKey}
	}
	return h
}

// encodeRequest returns the body as slices and its length in bytes. Only the contract's fields go upstream, always
// in the same order, which keeps the vendor's prompt cache warm. Message contents are not copied.
func encodeRequest(req *Request) (parts [][]byte, size int64) {
	// Slices of b that were handed out stay valid when b moves on to a larger array.
	b := make([]byte, 0, 512)
	parts = make([][]byte, 0, 2*len(req.Messages)+1)
	start := 0
	b = append(b, `{"model":`...)
	b = AppendQuoted(b, req.Model)
	b = append(b, `,"messages":[`...)
	for i, m := range req.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"role":`...)
		b = AppendQuoted(b, m.Role)
		b = append(b, `,"content":`...)
		parts = append(parts, b[start:len(b):len(b)], m.Content)
		start = len(b)
		b = append(b, '}')
	}
	b = append(b, ']')
	b = appendParameters(b, req)
	b = append(b, '}')
	parts = append(parts, b[start:])
	for _, part := range parts {
		size += int64(len(part))
	}
	return parts, size
}

func appendParameters(b []byte, req *Request) []byte {
	b = appendFloat(b, `,"temperature":`, req.Temperature)
	b = appendFloat(b, `,"top_p":`, req.TopP)
	if req.MaxTokens > 0 {
		field := req.MaxTokensField
		if field == "" {
			field = "max_tokens"
		}
		b = append(b, ',')
		b = AppendQuoted(b, field)
		b = append(b, ':')
		b = strconv.AppendInt(b, req.MaxTokens, 10)
	}
	for i, stop := range req.Stop {
		if i == 0 {
			b = append(b, `,"stop":[`...)
		} else {
			b = append(b, ',')
		}
		b = AppendQuoted(b, stop)
	}
	if len(req.Stop) > 0 {
		b = append(b, ']')
	}
	if req.Stream {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	return b
}

func appendFloat(b []byte, name string, f *float64) []byte {
	if f == nil || math.IsNaN(*f) || math.IsInf(*f, 0) {
		return b
	}
	return strconv.AppendFloat(append(b, name...), *f, 'g', -1, 64)
}

var errTakenBack = errors.New("the call is over")

// requestBody lets the transport read the slices of a request. The transport may go on reading after it has
// returned; takeBack makes sure that it doesn't, so that the caller may use the memory again.
type requestBody struct {
	mu    sync.Mutex
	parts [][]byte
	taken int // bytes of the first part already read
	used  bool
	gone  bool
	sent  func() // called when all is read, nil for none
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return 0, errTakenBack
	}
	b.used = true
	defer b.dropRead()
	for len(b.parts) > 0 && n < len(p) {
		k := copy(p[n:], b.parts[0][b.taken:])
		n += k
		b.taken += k
		if b.taken == len(b.parts[0]) {
			b.parts, b.taken = b.parts[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// dropRead lets go of the slices when all of them were read. The response refers to its request, and so to this body, until
// the end of the answer.
func (b *requestBody) dropRead() {
	if len(b.parts) > 0 || b.parts == nil {
		return
	}
	b.parts = nil
	if b.sent != nil {
		b.sent()
	}
}

// again returns a body with the same slices in place of one that was not touched.
func (b *requestBody) again() *requestBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &requestBody{parts: b.parts, sent: b.sent}
}

// Close implements io.Closer.
func (b *requestBody) Close() error { return nil }

// touched says whether anything was read: then it may be on the wire.
func (b *requestBody) touched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// takeBack ends all reading, now and later. A nil body is fine.
func (b *requestBody) takeBack() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.gone, b.parts = true, nil
	b.mu.Unlock()
}
