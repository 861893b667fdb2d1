package handlers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

const (
	// answerGrace is how long a write of an answer may last. Then the connection ends, or with HTTP/2 and HTTP/3 the stream.
	answerGrace = 10 * time.Second
	// answerPiece is the size of a write in bytes, so that a slow client has the grace for each piece and not for all of a large
	// answer.
	answerPiece = 32 << 10
	// stalledGrace is how long a write to a stream of HTTP/2 may last. The deadline of a stream resets it with a frame, which a client that reads
	// nothing from its connection never gets. After this time the connection ends.
	stalledGrace = answerGrace + 5*time.Second
	// serverBuffer is the size in bytes up to which net/http keeps a write, so that it doesn't wait.
	serverBuffer = 4 << 10
	// counted is the length up to which net/http, and HTTP/3's server, add Content-Length themselves. A ninth header would make Go's map
	// of them grow.
	counted = 2 << 10
)

// HangUpper is implemented by response writers that can end the connection of their request.
type HangUpper interface {
	// HangUp returns the function that ends the connection, nil if deadlines do.
	HangUp() func()
}

// hangUp returns the function that ends the connection of w, nil if there is none.
func hangUp(w http.ResponseWriter) func() {
	for {
		switch inner := w.(type) {
		case HangUpper:
			return inner.HangUp()
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return nil
		}
	}
}

// Room is the memory of one answer, charged to an account of a [ByteBudget] from before the answer is built until the client has
// it. It is for answers that must not be refused once there is something to answer: a change that is made, a call that is paid.
// It is not safe for concurrent use.
type Room struct {
	budget  *ByteBudget
	account Account
	// bytes are reserved within the share, and beyond are charged although the share had no room.
	bytes, beyond int64
}

// NewRoom returns a room of 0 bytes. It must be closed.
func NewRoom(budget *ByteBudget, account Account) *Room {
	return &Room{budget: budget, account: account}
}

// Grow makes the room at least n bytes large, and reports whether the account's share had the memory.
func (m *Room) Grow(n int64) bool {
	more := n - m.bytes
	if more <= 0 {
		return true
	}
	if !m.budget.Take(m.account, more) {
		return false
	}
	m.bytes = n
	return true
}

// NoRoom returns the error of an answer that has no room: rate_limited.
func NoRoom() *Error {
	return &Error{
		Code: errcode.RateLimited, RetryAfter: BudgetRetryAfter, Cause: ErrBudget,
		Message: "The answers that you have not read yet are too large together. Read them, then retry.",
	}
}

// Send writes a whole answer, as [WriteWhole] does, and closes the room when the client has it, except for the last 4 KiB, which are the server's
// own buffer. If the text is larger than the room and the share, it is charged to the account alone, and other accounts keep their room.
func (m *Room) Send(w http.ResponseWriter, status int, contentType string, text []byte) {
	defer m.Close()
	size := int64(len(text))
	if !m.Grow(size) {
		m.beyond = size - m.bytes
		m.budget.exceed(m.account, m.beyond)
	}
	if less := m.bytes - size; less > 0 {
		m.budget.Give(m.account, less)
		m.bytes = size
	}
	WriteWhole(w, status, contentType, text)
}

// Close returns the memory. It may be called more than once, and on a nil room.
func (m *Room) Close() {
	if m == nil {
		return
	}
	m.budget.Give(m.account, m.bytes)
	m.budget.exceed(m.account, -m.beyond)
	m.bytes, m.beyond = 0, 0
}

// Send writes a whole answer that may be refused: if the share of the request's account ([AccountOf]) has no room for the text, it
// writes nothing and returns [NoRoom].
func (b *ByteBudget) Send(w http.ResponseWriter, r *http.Request, status int, contentType string, text []byte) error {
	room := Room{budget: b, account: AccountOf(r)}
	if !room.Grow(int64(len(text))) {
		return NoRoom()
	}
	room.Send(w, status, contentType, text)
	return nil
}

// WriteJSON is [WriteWhole] for JSON.
func WriteJSON(w http.ResponseWriter, status int, text []byte) {
	WriteWhole(w, status, "application/json", text)
}

// WriteWhole writes a whole answer of any media type, with its length and Cache-Control: no-store. It is for answers that are small or that all
// requests share; [ByteBudget.Send] also bounds the memory of answers that clients don't read. Nothing may be written after it.
func WriteWhole(w http.ResponseWriter, status int, contentType string, text []byte) {
	values := []string{contentType, "nosniff", "no-store"}
	h := w.Header()
	h["Content-Type"] = values[0:1:1]
	h["X-Content-Type-Options"] = values[1:2:2]
	h["Cache-Control"] = values[2:3:3]
	delete(h, "Content-Length") // of a handler before
	if len(text) > counted {
		h["Content-Length"] = []string{strconv.Itoa(len(text))}
	}
	w.WriteHeader(status)
	WriteRest(w, text)
}

// WriteRest writes the body of an answer after its headers were sent, piece by piece with a deadline for each. Nothing may be written after it:
// the last deadline stays, for the bytes that the server still buffers, until the server has answered.
func WriteRest(w http.ResponseWriter, text []byte) {
	// The client may be gone, and its error would reach no one.
	_, _ = NewAnswerWriter(w).write(text)
}

// AnswerWriter writes a body in pieces with a deadline for each, so that a client that reads nothing keeps neither the memory of
// the answer nor its connection. Pauses between two writes may last as long as they like.
type AnswerWriter struct {
	w    http.ResponseWriter
	conn http.ResponseController
	// armed: the connection, or the stream, has a deadline of this writer.
	armed bool
}

// NewAnswerWriter returns a writer of an answer's body.
func NewAnswerWriter(w http.ResponseWriter) *AnswerWriter {
	return &AnswerWriter{w: w, conn: *http.NewResponseController(w)}
}

// Write implements io.Writer. It returns an error when the client has not read enough in time, or has left.
func (a *AnswerWriter) Write(text []byte) (int, error) {
	n, err := a.write(text)
	if err == nil && a.armed {
		_ = a.conn.SetWriteDeadline(time.Time{}) // the writer has accepted a deadline
	}
	return n, err
}

// write leaves the deadline of the last piece in place.
func (a *AnswerWriter) write(text []byte) (written int, err error) {
	var stalled *time.Timer
	if len(text) > serverBuffer {
		if end := hangUp(a.w); end != nil {
			stalled = time.AfterFunc(stalledGrace, end)
			defer stalled.Stop()
		}
	}
	for written < len(text) && err == nil {
		if stalled != nil {
			stalled.Reset(stalledGrace)
		}
		// Only tests, and the dashboard in its requests to the API, have writers without deadlines.
		a.armed = a.conn.SetWriteDeadline(time.Now().Add(answerGrace)) == nil
		var n int
		n, err = a.w.Write(text[written:min(written+answerPiece, len(text))])
		written += n
	}
	return written, err
}
