package providers

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// blank contains everything that all requests have in common. GetBody stays nil: with it, or with any kind of idempotency header,
// Go's transport would send the request again by itself.
var blank = http.Request{Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}

// httpRequest builds the request. The transport reports to the call, which may send it once more.
func (p *HTTP) httpRequest(c *call, endpoint *url.URL, req *Request, body *requestBody) *http.Request {
	c.trace.GetConn = func(string) { c.arm(p.timeouts.Connect, p.connectTimeout) }
	c.trace.WroteHeaders = func() { c.begun.Store(true) }
	if req.Stream {
		c.trace.GotConn = func(httptrace.GotConnInfo) { c.arm(p.timeouts.FirstByte, p.firstByteTimeout) }
	} else {
		c.trace.GotConn = func(httptrace.GotConnInfo) { c.disarm() }
	}
	c.target = *endpoint
	hreq := blank.WithContext(httptrace.WithClientTrace(c.ctx, &c.trace))
	hreq.URL, hreq.Host = &c.target, c.target.Host
	hreq.Header = p.requestHeader(req)
	hreq.Body, hreq.ContentLength = body, body.Left()
	if _, reports := p.transport.(*http.Transport); reports && hreq.ContentLength <= smallBody {
		body.parts = [][]byte{bytes.Join(body.parts, nil)} // no transport uses it yet
		hreq.Body = io.NopCloser(bytes.NewReader(body.parts[0]))
		if sent := body.sent; sent != nil { // a long request may contain a short prompt
			body.sent = nil
			sent()
		}
	}
	return hreq
}

// smallBody is the size in bytes up to which a body is copied into a bytes.Reader. Go's transport sends this body with the
// headers in one packet, and any other body in a second one. The transport buffers 4 KiB of both. It reads no body before it
// reports WroteHeaders, so begun replaces used for small bodies.
const smallBody = 3 << 10

func (p *HTTP) requestHeader(req *Request) http.Header {
	accept := "application/json"
	if req.Stream {
		accept = "text/event-stream"
	}
	values := []string{"application/json", accept, "identity", "caddy-svc"}
	h := http.Header{
		"Content-Type":    values[0:1:1],
		"Accept":          values[1:2:2],
		"Accept-Encoding": values[2:3:3],
		"User-Agent":      values[3:4:4],
	}
	p.dialect.Header(h, req)
	if req.Traceparent != "" {
		h["Traceparent"] = []string{req.Traceparent}
	}
	delete(h, "Idempotency-Key")
	delete(h, "X-Idempotency-Key")
	return h
}

var errTakenBack = errors.New("the call is over")

// requestBody contains the slices of a request. The transport may go on reading after it has returned. takeBack ends the reading,
// so that the caller may reuse the memory.
type requestBody struct {
	mu    sync.Mutex
	parts [][]byte
	taken int // bytes of the first part that were read
	used  bool
	gone  bool
	sent  func() // called when everything was read; may be nil
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

// WriteTo writes the rest. It doesn't copy it to a TCP connection. takeBack waits for WriteTo, which ends when the end of the
// call closes the connection.
func (b *requestBody) WriteTo(w io.Writer) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return 0, errTakenBack
	}
	b.used = true
	defer b.dropRead()
	rest := net.Buffers(slices.Clone(b.parts))
	if len(rest) > 0 {
		rest[0] = rest[0][b.taken:]
	}
	n, err := rest.WriteTo(w)
	b.parts, b.taken = rest, 0
	return n, err
}

// dropRead drops the slices after all of them were read. Otherwise the response, which refers to its request and so to this body,
// would keep them until the end of the answer.
func (b *requestBody) dropRead() {
	if len(b.parts) > 0 || b.parts == nil {
		return
	}
	b.parts = nil
	if b.sent != nil {
		b.sent()
	}
}

// Left returns the number of bytes that are left to read.
func (b *requestBody) Left() (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range b.parts {
		n += int64(len(part))
	}
	return n - int64(b.taken)
}

// again returns a body with the same slices for a second try, or nil if anything was read, because it may have been sent.
func (b *requestBody) again() *requestBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used {
		return nil
	}
	return &requestBody{parts: b.parts, sent: b.sent}
}

// Close implements io.Closer.
func (b *requestBody) Close() error { return nil }

// takeBack ends all reading permanently. The body may be nil.
func (b *requestBody) takeBack() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.gone, b.parts = true, nil
	b.mu.Unlock()
}

// JSONString is a text as a JSON string literal with its quotes (RFC 8259 §7). Prompts keep this form from the client's body to
// the vendor's, so that a long text is neither unescaped nor escaped again.
//
// The methods expect a valid literal. For any other input they return some text and don't panic.
type JSONString []byte

// Quote returns s as a literal. Bytes that aren't UTF-8 become U+FFFD.
func Quote(s string) JSONString { return AppendQuoted(make([]byte, 0, len(s)+2), s) }

// AppendQuoted appends s as a JSON string literal with its quotes to dst. It escapes only characters that JSON requires to be
// escaped. Bytes that aren't UTF-8 become U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b < utf8.RuneSelf {
			if !escaped(b) {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = appendEscaped(dst, b)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			start = i + 1
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscaped(dst []byte, b byte) []byte {
	switch b {
	case '"', '\\':
		return append(dst, '\\', b)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
}

// canonical reports whether s is valid and equals the output of [AppendQuoted] for its text.
func (s JSONString) canonical() bool {
	in := s.inner()
	if len(in) == 0 {
		return string(s) == `""`
	}
	ascii := true
	for i := 0; i < len(in); {
		switch b := in[i]; {
		case b >= utf8.RuneSelf:
			ascii = false
			i++
		case b == '\\':
			var buf [jsonscan.UnitLen]byte
			r, size := jsonscan.DecodeRune(in[i:])
			if r >= utf8.RuneSelf || !escaped(byte(r)) || !bytes.HasPrefix(in[i:], appendEscaped(buf[:0], byte(r))) {
				return false
			}
			i += size
		case escaped(b):
			return false
		default:
			i++
		}
	}
	return ascii || utf8.Valid(in)
}

// escaped reports whether [AppendQuoted] escapes the ASCII character b.
func escaped(b byte) bool { return b < ' ' || b == '"' || b == '\\' }

// Text returns the decoded text. Lone surrogates and bytes that aren't UTF-8 become U+FFFD.
func (s JSONString) Text() string { return jsonscan.Literal(s).Text() }

// AppendText appends the decoded text, as [JSONString.Text] returns it, to dst.
func (s JSONString) AppendText(dst []byte) []byte { return jsonscan.AppendText(dst, s.inner()) }

// Joined is a text of several literals. The first literal isn't copied.
type Joined struct {
	// Text is nil until the first literal.
	Text JSONString
	// Copied is set if there are several literals.
	Copied bool
}

// Add appends a literal. It does nothing for nil.
func (j *Joined) Add(piece JSONString) {
	switch {
	case piece == nil:
	case j.Text == nil:
		j.Text = piece
	default:
		if !j.Copied {
			j.Text, j.Copied = slices.Clone(j.Text), true
		}
		j.Text = append(j.Text[:len(j.Text)-1], piece[1:]...)
	}
}

// textAfter decodes a piece of a text that comes in several literals. before is the high surrogate at the end of the previous
// pieces, or 0. It forms one character with a low surrogate at the start of this piece, else it becomes U+FFFD. A high surrogate
// at the end of this piece is returned for the next one instead of being decoded.
func (s JSONString) textAfter(before rune) (text string, half rune) {
	in := s.inner()
	if len(in) == 0 {
		return "", before
	}
	if before == 0 && bytes.IndexByte(in, '\\') < 0 {
		return s.Text(), 0
	}
	dst := make([]byte, 0, len(in)+utf8.UTFMax)
	if before != 0 {
		r, n := utf8.RuneError, 0
		if low, ok := jsonscan.Unit(in); ok {
			if pair := utf16.DecodeRune(before, low); pair != utf8.RuneError {
				r, n = pair, jsonscan.UnitLen
			}
		}
		dst = utf8.AppendRune(dst, r)
		in = in[n:]
	}
	if half = highAtEnd(in); half != 0 {
		in = in[:len(in)-jsonscan.UnitLen]
	}
	return string(jsonscan.AppendText(dst, in)), half
}

// highAtEnd returns the high surrogate if its escape ends the text, else 0.
func highAtEnd(in []byte) rune {
	start := len(in) - jsonscan.UnitLen
	if start < 0 {
		return 0
	}
	r, ok := jsonscan.Unit(in[start:])
	if !ok || r < 0xD800 || r > 0xDBFF {
		return 0
	}
	backslashes := 0
	for start > backslashes && in[start-backslashes-1] == '\\' {
		backslashes++
	}
	if backslashes%2 == 1 { // the last of them escapes the backslash of this escape
		return 0
	}
	return r
}

// ByteLen returns the length of the decoded text in bytes, without decoding it.
func (s JSONString) ByteLen() int { return jsonscan.Literal(s).Len() }

func (s JSONString) inner() []byte { return jsonscan.Literal(s).Inner() }

// Body writes the body of a request, for [Dialect.Body]. The contents of messages are not copied.
type Body struct {
	json  []byte
	start int // of the bytes of json that aren't in parts
	parts [][]byte
}

// NewBody returns an empty body with room for the request.
func NewBody(req *Request) Body {
	return Body{json: make([]byte, 0, 512), parts: make([][]byte, 0, 2*len(req.Messages)+1)}
}

// Add adds JSON.
func (b *Body) Add(json string) { b.json = append(b.json, json...) }

// Quote adds a text as a JSON string.
func (b *Body) Quote(text string) { b.json = AppendQuoted(b.json, text) }

// Int adds a number.
func (b *Body) Int(n int64) { b.json = strconv.AppendInt(b.json, n, 10) }

// Float adds the JSON before a number, and the number. It adds nothing for a number that JSON can't have.
func (b *Body) Float(before string, number *float64) {
	if number != nil && !math.IsNaN(*number) && !math.IsInf(*number, 0) {
		b.json = strconv.AppendFloat(append(b.json, before...), *number, 'g', -1, 64)
	}
}

// List adds a list of strings after the JSON before it, which ends with the bracket. It adds nothing if the list is empty.
func (b *Body) List(before string, list []string) {
	if len(list) == 0 {
		return
	}
	for i, text := range list {
		if i > 0 {
			before = ","
		}
		b.Add(before)
		b.Quote(text)
	}
	b.Add("]")
}

// Slice adds JSON that isn't copied.
func (b *Body) Slice(json []byte) {
	// Earlier slices of json stay valid when it moves to a larger array.
	b.parts = append(b.parts, b.json[b.start:len(b.json):len(b.json)], json)
	b.start = len(b.json)
}

// Slices returns the body.
func (b *Body) Slices() [][]byte { return append(b.parts, b.json[b.start:]) }
