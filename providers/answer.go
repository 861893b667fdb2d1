package providers

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// maxAnswerBytes limits an answer that isn't a stream, after decompression. The largest answer of 200,000 tokens, with each
	// character escaped, is half of it.
	maxAnswerBytes = 16 << 20
	// maxPooledAnswer is the largest buffer that is kept for the next answer.
	maxPooledAnswer = 64 << 10
	// smallAnswerBytes is the size up to which an answer, or an event of a stream, may grow on its own while it is read. Usual
	// answers have some KiB. Everything above it counts against maxLargeBytes, together with the vendor's other answers.
	smallAnswerBytes = 256 << 10
	// maxLargeBytes has room for two of the largest answers, so that a vendor that sends megabytes to every call doesn't fill the
	// memory.
	maxLargeBytes = 2 * maxAnswerBytes
	// maxStreamBytes limits a whole stream after decompression. The largest answer of 200,000 tokens in the most verbose dialect
	// is a third of it.
	maxStreamBytes = 256 << 20
	// maxErrorBytes and maxErrorWait limit the reading of an error's body.
	maxErrorBytes = 64 << 10
	maxErrorWait  = 5 * time.Second
)

var (
	errAnswerTooLarge  = errors.New("the answer is too large")
	errManyLarge       = errors.New("too many large answers of the vendor are being read at once")
	errUnknownEncoding = errors.New("the answer has an encoding that was not asked for")
)

// decodedBody returns the body decompressed. Requests ask for identity, but some vendors send gzip. Any other encoding is an
// error.
func decodedBody(resp *http.Response) (io.Reader, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(strings.Join(resp.Header["Content-Encoding"], ","))); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		plain, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("decompress the answer: %w", err)
		}
		return plain, nil
	default:
		return nil, errUnknownEncoding
	}
}

// unreadable returns the error for a failure of decodedBody.
func (c *call) unreadable(err error) *Error {
	if errors.Is(err, errUnknownEncoding) || errors.Is(err, gzip.ErrHeader) {
		return &Error{Failure: FailureRefused, Elsewhere: true, Status: http.StatusOK, Cause: err}
	}
	return c.failure(err)
}

// cappedReader fails with errAnswerTooLarge if there are more than left bytes.
type cappedReader struct {
	src  io.Reader
	left int64
}

// Read implements io.Reader.
func (r *cappedReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.left -= int64(n)
	if r.left < 0 {
		return 0, errAnswerTooLarge
	}
	return n, err
}

// heldReader reads an answer that is kept as a whole, and counts its size against the bounds of the call and the vendor.
type heldReader struct {
	src  io.Reader
	call *call
	read int
}

// Read implements io.Reader. It returns errManyLarge if the vendor's answers are too large together.
func (r *heldReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.read += n
	if r.read > smallAnswerBytes {
		if err := r.call.hold(r.read); err != nil {
			return 0, err
		}
	}
	return n, err
}

// answerBuffers are the buffers of answers that were read without an error. Only the text is copied out of them.
var answerBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readAnswer reads a whole answer and ends the call.
func (p *HTTP) readAnswer(c *call, resp *http.Response, body io.Reader, apiKey string) (Events, *Error) {
	buf := answerBuffers.Get().(*bytes.Buffer) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	buf.Grow(int(min(max(resp.ContentLength, 2048), smallAnswerBytes)) + bytes.MinRead)
	if _, err := buf.ReadFrom(&heldReader{src: &cappedReader{body, maxAnswerBytes}, call: c}); err != nil {
		return nil, c.failure(err)
	}
	event, err := p.dialect.Answer(buf.Bytes())
	if err != nil {
		return nil, asError(err, resp.StatusCode, apiKey)
	}
	event.Text, event.Quoted = event.Answer(), nil
	if buf.Cap() <= maxPooledAnswer {
		buf.Reset()
		answerBuffers.Put(buf)
	}
	event.FinishReason = plainReason(event.FinishReason)
	event.Model = plainModel(event.Model)
	c.end()
	return WholeAnswer(event), nil
}

// asError returns a dialect's error as an [*Error]. The text of an error of another type may quote the vendor, so it is a detail.
func asError(err error, status int, apiKey string) *Error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Failure: FailureRefused, Elsewhere: true, Detail: err.Error()}
	}
	return tidy(e, status, apiKey)
}

// plainReason returns a finish reason in OpenAI's words, because it reaches the client. Any other word means "stop".
func plainReason(reason string) string {
	switch reason {
	case "length", "content_filter":
		return reason
	}
	return "stop"
}

// maxModel limits the name of a model in bytes.
const maxModel = 128

// plainModel returns a name of printable ASCII characters without spaces, and "" in place of any other, because it reaches
// traces.
func plainModel(name string) string {
	if len(name) > maxModel || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return name
}

// WholeAnswer returns a complete answer as one event.
func WholeAnswer(event Event) Events { return &answer{event: event} }

type answer struct {
	event Event
	given bool
}

// Next implements [Events].
func (a *answer) Next() (Event, error) {
	if a.given {
		return Event{}, io.EOF
	}
	a.given = true
	return a.event, nil
}

// Buffered implements [Events].
func (a *answer) Buffered() bool { return true }

// Close implements [Events]. The connection is already free.
func (a *answer) Close() {}

// refusal returns the error for an answer with another status than 200. Because the status is known, a failure to read the body
// is ignored.
func (p *HTTP) refusal(c *call, resp *http.Response, apiKey string) *Error {
	if context.Cause(c.ctx) != nil {
		return c.failure(nil)
	}
	c.arm(min(p.timeouts.Idle, maxErrorWait), p.idleTimeout)
	var raw []byte
	if body, err := decodedBody(resp); err == nil {
		raw, _ = io.ReadAll(io.LimitReader(body, maxErrorBytes))
	}
	c.disarm()
	return tidy(p.dialect.Fault(resp.StatusCode, resp.Header, raw), resp.StatusCode, apiKey)
}
