package handlers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// PacedBody reads a request's body and ends the reading when it arrives too slowly. The deadline is the connection's, or
// the stream's with HTTP/2: nothing else wakes a read that waits for bytes.
type PacedBody struct {
	r    *http.Request
	w    http.ResponseWriter
	conn http.ResponseController

	grace time.Duration
	// rate is in bytes per second. 0 means that the deadline doesn't move.
	rate  int64
	began time.Time
	// arrived counts the bytes that were read, and from extendAt on the deadline has to move.
	arrived, extendAt int64
	late, ended       bool
}

// BoundUnread sets the deadline of a body that no handler may read. Without it an HTTP/1 server waits for up to 256 KiB of the body before it
// sends the answer, for as long as the client likes. A handler that reads the body sets a deadline of its own. A late body keeps its deadline,
// because its connection closes.
func BoundUnread(w http.ResponseWriter, r *http.Request, after time.Duration) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 && w.Header().Get("Connection") != "close" {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(after))
	}
}

// NewPacedBody returns the body of r, all of which must arrive within grace, plus a second for every rate bytes that have
// arrived; a rate of 0 adds nothing.
func NewPacedBody(w http.ResponseWriter, r *http.Request, grace time.Duration, rate int64) *PacedBody {
	return &PacedBody{r: r, w: w, conn: *http.NewResponseController(w), grace: grace, rate: rate}
}

// Read implements io.Reader. Its error wraps os.ErrDeadlineExceeded when the body is too slow.
func (p *PacedBody) Read(into []byte) (int, error) {
	if p.began.IsZero() || p.rate > 0 && p.arrived >= p.extendAt {
		p.extend()
	}
	n, err := p.r.Body.Read(into)
	p.arrived += int64(n)
	p.ended = p.ended || errors.Is(err, io.EOF)
	if errors.Is(err, os.ErrDeadlineExceeded) && !p.late {
		p.late = true
		if p.r.ProtoMajor == 1 {
			p.w.Header().Set("Connection", "close")
		}
	}
	return n, err
}

// extend sets the deadline to the moment at which more bytes than have arrived must be there. It is set anew only after another eighth of a
// second's bytes, and so is up to that much late: with HTTP/2 it is a message to another goroutine.
func (p *PacedBody) extend() {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	allowed := p.grace
	if p.rate > 0 {
		step := max(1, p.rate/8)
		p.extendAt = p.arrived + step
		// In steps, for bytes times nanoseconds overflow.
		whole, rest := p.extendAt/p.rate, p.extendAt%p.rate
		allowed += time.Duration(whole)*time.Second + time.Duration(float64(rest)/float64(p.rate)*float64(time.Second))
	}
	// Only tests, and the dashboard in its requests to the API, have connections without deadlines.
	_ = p.conn.SetReadDeadline(p.began.Add(allowed))
}

// hasten ends the grace no later than the given time from now.
func (p *PacedBody) hasten(within time.Duration) {
	if left := time.Since(p.began) + within; left < p.grace {
		p.grace = left
		p.extend()
	}
}

// Finish lifts the deadline of a body that was read to its end: the next request on the connection has its own. The server
// waits no longer than the grace for the rest of another one, and not at all for that of a late one.
func (p *PacedBody) Finish() {
	switch {
	case p.late:
	case p.ended:
		_ = p.conn.SetReadDeadline(time.Time{})
	default:
		BoundUnread(p.w, p.r, p.grace)
	}
}

// Discard reads on for up to limit bytes without keeping them: most clients read an answer only after they have sent
// their whole body, and would otherwise see a broken connection instead. A client that waits for 100 Continue has sent
// nothing yet and is not asked to.
func (p *PacedBody) Discard(limit int64) {
	if p.late || p.r.Body == nil || p.arrived == 0 && p.r.Header.Get("Expect") != "" {
		return
	}
	// Whether it works makes no difference to the answer.
	_, _ = io.CopyN(io.Discard, p, 2*limit)
}

// fault returns the error of a body that could not be read: invalid_request.
func (p *PacedBody) fault(err error, limit int64) *Error {
	if tooMuch, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return TooLarge(min(limit, tooMuch.Limit))
	}
	e := InvalidRequest("", "The request body could not be read to its end.")
	if p.late {
		e.Message = "The request body arrived too slowly."
	}
	e.Cause = fmt.Errorf("reading the request body: %w", err)
	return e
}

// meteredBody charges the bytes of a body as they are read. Headers alone cost nothing.
type meteredBody struct {
	io.Closer

	in      *PacedBody
	budget  *ByteBudget
	account Account
	charged int64
}

// Meter returns the body of r for a caller that reads it to the end and keeps it in memory. Its bytes are charged to the organization, or to the
// client's address if orgID is empty, and must arrive at the budget's pace. Read returns the same errors as [ReadBody]. release gives the bytes
// back and may be called more than once.
func (b *ByteBudget) Meter(w http.ResponseWriter, r *http.Request, orgID string) (body io.ReadCloser, release func()) {
	account := accountOf(r, orgID)
	grace, rate := b.paceOf(account.Share)
	m := &meteredBody{Closer: r.Body, budget: b, account: account}
	before := *r // the caller puts the metered body into r
	m.in = NewPacedBody(w, &before, grace, rate)
	return m, sync.OnceFunc(func() {
		m.in.Finish()
		b.Give(account, m.charged)
	})
}

func (m *meteredBody) Read(into []byte) (int, error) {
	n, err := m.in.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, m.in.fault(err, 0)
	}
	if !m.budget.Take(m.account, int64(n)) {
		return 0, noRoom(m.account.Share)
	}
	m.charged += int64(n)
	if err != nil {
		m.in.Finish()
	}
	return n, err
}
