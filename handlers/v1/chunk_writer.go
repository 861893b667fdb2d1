package v1

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	// writeTimeout bounds how long a write to the client may take. A client that never reads would otherwise keep a vendor's
	// connection, a hold and a stream of its organization for as long as the server runs.
	writeTimeout = 30 * time.Second
	// deadlineEvery is the least time between two changes of the write deadline: one for each token would cost more than the token.
	deadlineEvery = 5 * time.Second
)

// largePiece is the length in bytes from which a piece is not copied into the pending events. It is also the length of net/http's buffer.
const largePiece = 4 << 10

// maxPooledBuffer keeps one huge answer from pinning its memory in the pool.
const maxPooledBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// takeBuffer returns an empty buffer.
func takeBuffer() *[]byte {
	return buffers.Get().(*[]byte) //nolint:forcetypeassert,errcheck // the pool holds nothing else
}

// giveBuffer empties b and returns it to the pool: its old content is the answer to one customer and must not reach another.
func giveBuffer(b *[]byte) {
	*b = (*b)[:0]
	if cap(*b) <= maxPooledBuffer {
		buffers.Put(b)
	}
}

// ChunkWriter writes a streamed answer in this order: role chunk, content chunks, finish chunk, usage
// and svc chunk, [DONE]. It implements [gateway.QuotedSink]. It writes at Flush, with a large piece, and when much is pending.
type ChunkWriter struct {
	// Begun is set once there is text for the client, if only in pending. From then on the answer is a stream, so that the form of
	// a failure doesn't depend on how the network cut the vendor's events.
	Begun bool

	w  http.ResponseWriter
	rc http.ResponseController
	// liftsDeadline is set if the write deadline must be lifted after each write: on HTTP/2 it also ends an idle stream, and a model may
	// think for minutes.
	liftsDeadline bool
	// pending are the bytes that are not written yet; they end with an event.
	pending *[]byte
	// head is the constant beginning of every chunk, up to the value of "choices".
	head []byte
	// sent is set once the status and some bytes are written: a failure can then only be an event of the stream.
	sent bool
	// deadlineSet is when the write deadline was set, zero while there is none.
	deadlineSet time.Time
}

var _ gateway.QuotedSink = (*ChunkWriter)(nil)

// NewChunkWriter returns a writer of the answer to r. Its buffer is pooled: Free must be called.
func NewChunkWriter(w http.ResponseWriter, r *http.Request) *ChunkWriter {
	return &ChunkWriter{w: w, rc: *http.NewResponseController(w), liftsDeadline: r.ProtoMajor == 2, pending: takeBuffer()}
}

// Free returns the buffer to the pool and lifts the write deadline. The writer must not be used after it.
func (c *ChunkWriter) Free() {
	c.liftDeadline()
	giveBuffer(c.pending)
	c.pending = nil
}

// Begin prepares the role chunk.
func (c *ChunkWriter) Begin(head gateway.Head) error {
	b := append(make([]byte, 0, 128+len(head.Model)), `data: {"id":"`...)
	b = append(b, head.ID...)
	b = append(b, `","object":"chat.completion.chunk","created":`...)
	b = strconv.AppendInt(b, head.Created, 10)
	b = append(b, `,"model":`...)
	b = providers.AppendQuoted(b, head.Model)
	if head.Replayed {
		handlers.MarkReplayed(c.w.Header())
	}
	c.head = append(b, `,"choices":[`...)
	b = append(*c.pending, c.head...)
	b = append(b, `{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`...)
	*c.pending = append(b, "\n\n"...)
	return nil
}

// A content chunk is its head, beforeText, the quoted text and afterText.
const (
	beforeText = `{"index":0,"delta":{"content":`
	afterText  = "},\"finish_reason\":null}]}\n\n"
)

// Text adds a content chunk.
func (c *ChunkWriter) Text(piece string) error {
	c.beginText()
	*c.pending = providers.AppendQuoted(*c.pending, piece)
	return c.endText()
}

// Quoted adds a content chunk. A large piece is written immediately, so that a client that reads slowly holds no copy of it here.
func (c *ChunkWriter) Quoted(piece providers.JSONString) error {
	c.beginText()
	if len(piece) < largePiece {
		*c.pending = append(*c.pending, piece...)
		return c.endText()
	}
	if err := c.write(*c.pending); err != nil {
		return err
	}
	*c.pending = (*c.pending)[:0]
	if err := c.write(piece); err != nil {
		return err
	}
	return c.endText()
}

func (c *ChunkWriter) beginText() {
	c.Begun = true
	b := append(*c.pending, c.head...)
	*c.pending = append(b, beforeText...)
}

func (c *ChunkWriter) endText() error {
	*c.pending = append(*c.pending, afterText...)
	if len(*c.pending) >= maxPooledBuffer/2 {
		return c.Flush()
	}
	return nil
}

// write writes to the client without pushing.
func (c *ChunkWriter) write(b []byte) error {
	if !c.sent {
		c.start()
	}
	c.setDeadline()
	if _, err := c.w.Write(b); err != nil {
		return fmt.Errorf("writing to the client: %w", err)
	}
	return nil
}

// Flush writes the pending events and pushes them to the client.
func (c *ChunkWriter) Flush() error {
	if len(*c.pending) == 0 {
		return nil
	}
	err := c.write(*c.pending)
	*c.pending = (*c.pending)[:0]
	if err != nil {
		return err
	}
	if err := c.rc.Flush(); err != nil {
		return fmt.Errorf("flushing to the client: %w", err)
	}
	if c.liftsDeadline {
		c.liftDeadline()
	}
	return nil
}

// setDeadline gives the client writeTimeout, less up to deadlineEvery, to read the bytes that are written now. On HTTP/2 that ends this stream
// alone.
func (c *ChunkWriter) setDeadline() {
	now := time.Now()
	if now.Sub(c.deadlineSet) < deadlineEvery {
		return
	}
	if c.rc.SetWriteDeadline(now.Add(writeTimeout)) == nil { // else a writer without a connection, in tests
		c.deadlineSet = now
	}
}

// liftDeadline lifts the write deadline, if there is one.
func (c *ChunkWriter) liftDeadline() {
	if !c.deadlineSet.IsZero() {
		c.deadlineSet = time.Time{}
		_ = c.rc.SetWriteDeadline(c.deadlineSet) // the writer has accepted a deadline before
	}
}

// start commits the response's status and headers.
func (c *ChunkWriter) start() {
	c.sent = true
	// One allocation for all values. Their capacity is 1, so that an Add by another handler doesn't overwrite the next one's.
	values := []string{"text/event-stream; charset=utf-8", "no-cache", "no", "nosniff"}
	header := c.w.Header()
	header["Content-Type"] = values[0:1:1]
	header["Cache-Control"] = values[1:2:2]
	header["X-Accel-Buffering"] = values[2:3:3] // some proxies buffer streams without it
	header["X-Content-Type-Options"] = values[3:4:4]
	header.Del("Content-Length")
	c.w.WriteHeader(http.StatusOK)
}

// Finish ends a settled stream: closing chunk, usage and charge, terminator.
func (c *ChunkWriter) Finish(result *gateway.Result) error {
	b := append(*c.pending, c.head...)
	b = append(b, `{"index":0,"delta":{},"finish_reason":`...)
	b = providers.AppendQuoted(b, result.FinishReason)
	b = append(b, "}]}\n\n"...)
	b = append(b, c.head...)
	b = append(b, `],`...)
	b = appendUsageAndCharge(b, result)
	*c.pending = append(b, "}\n\ndata: [DONE]\n\n"...)
	return c.Flush()
}

// Fail ends a broken stream with one error event, without a finish chunk, usage or [DONE].
func (c *ChunkWriter) Fail(failure *handlers.Error, requestID string) {
	*c.pending = handlers.AppendErrorEvent(*c.pending, failure, requestID)
	_ = c.Flush() // fails only if the client is gone
}
