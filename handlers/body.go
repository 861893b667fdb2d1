package handlers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// MaxChatBody is the largest body that /v1 reads: 32 MiB, room for several messages of 200,000 characters
// that are escaped to 12 bytes each.
const MaxChatBody = 32 << 20

const (
	// firstBuffer is the size of a body's first buffer in bytes. It is allocated before a byte has arrived and isn't charged, because the
	// goroutine that waits for the body needs more memory.
	firstBuffer = 512
	// quadrupled is the size up to which a full buffer becomes four times as large; beyond, twice.
	quadrupled = 64 << 10
	// begun is how much of an organization's body must be there for a buffer of the declared length, if that is up to wholeBuffer, so that the
	// body isn't copied again while it grows.
	begun       = 8 << 10
	wholeBuffer = 256 << 10
	// PromptDelivery is the size in bytes up to which a delivery is read although the reserve of deliveries is used up, if it declares its length
	// and arrives within PromptTime. Platforms send most deliveries in one packet, for which a connection has room anyway, so the memory is held
	// only briefly.
	PromptDelivery = 4 << 10
	// PromptTime is the time for the body of a prompt delivery.
	PromptTime = time.Second
)

// ReadBody reads the whole body of r, up to limit bytes. The buffer grows with the bytes that arrive and not by the declared length, except for an
// organization's body of up to 256 KiB, and is charged to the account. release gives the bytes back, may be called more than once, and must be
// called when nothing refers to the body. It is never nil. After an error nothing stays charged. [Recycle] is for a body with memory that may
// serve the next one.
//
// Errors: a Content-Encoding other than identity, and a body that is beyond limit, broken, shorter than declared or slower than the budget's pace:
// invalid_request. No room in the share: rate_limited for an organization, internal_error for others, both with a hint to come back.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, budget *ByteBudget, account Account) (body []byte, release func(), err error) {
	grace, rate := budget.paceOf(account.Share)
	return ReadPaced(NewPacedBody(w, r, grace, rate), limit, budget, account)
}

// ReadPaced is [ReadBody] for a body with a pace of its own.
func ReadPaced(in *PacedBody, limit int64, budget *ByteBudget, account Account) (body []byte, release func(), err error) {
	defer in.Finish()
	switch {
	case !plainEncoding(in.r.Header):
		err = InvalidRequest("", "A compressed request body is not supported. Send it without Content-Encoding.")
	case in.r.ContentLength > limit:
		err = TooLarge(limit)
	default:
		b := &buffer{budget: budget, account: account}
		if err = b.fill(in, limit); err == nil {
			clear(b.bytes[len(b.bytes):cap(b.bytes)]) // what stood there may be of another body
			return b.bytes, b.release, nil
		}
		b.release()
	}
	in.Discard(limit)
	return nil, func() {}, err
}

// buffer is a body that is being read, and the bytes that it has charged to the budget.
type buffer struct {
	bytes []byte
	// spare is the memory of bytes if it can serve another body once this one has outgrown it, else nil.
	spare    *[]byte
	budget   *ByteBudget
	account  Account
	charged  int64
	released atomic.Bool
}

// release gives the charged bytes back. It may be called more than once.
func (b *buffer) release() {
	if !b.released.Swap(true) {
		b.budget.Give(b.account, b.charged)
	}
}

// bufferSizes are the sizes, in KiB, through which all bodies grow.
var bufferSizes = [...]int64{2, 8, 32, 48, 64, 96, 128, 192, 256, 384, 512}

// buffers has memory that bodies have outgrown, or that was given to [Recycle], by [bufferSizes]. Other bodies than those are never among them,
// so none of their bytes reaches another request.
var buffers [len(bufferSizes)]sync.Pool

// poolOf returns the pool of the buffers of a size, nil if there is none.
func poolOf(size int64) *sync.Pool {
	if i := slices.Index(bufferSizes[:], size>>10); i >= 0 && size%1024 == 0 {
		return &buffers[i]
	}
	return nil
}

// lastSize returns the size of the last buffer of a body of the declared length: one of [bufferSizes] if it is no more than half larger.
func lastSize(declared int64) int64 {
	for _, size := range bufferSizes {
		if size <<= 10; size >= declared && size <= declared+declared/2 {
			return size
		}
	}
	return declared
}

// Recycle lets the memory of a body that [ReadBody] has returned serve other requests. Nothing may refer to the body, which is a stronger
// condition than for release: not even a connection that still sends it, or the answer to it. It clears the body, so that a reference by mistake
// finds no text of other clients. A build with the race detector reports the access as a race.
func Recycle(body []byte) {
	clear(body)
	memory := body[:0]
	if pool := poolOf(int64(cap(memory))); pool != nil {
		pool.Put(&memory)
	}
}

func (b *buffer) fill(in *PacedBody, limit int64) error {
	declared := in.r.ContentLength
	if declared == 0 || in.r.Body == nil || in.r.Body == http.NoBody {
		return nil
	}
	if declared < 0 {
		declared = limit
	}
	b.bytes = make([]byte, 0, min(firstBuffer, declared, limit))
	for {
		if len(b.bytes) == cap(b.bytes) {
			if more, err := b.full(in, declared, limit); err != nil || !more {
				return err
			}
		}
		n, err := in.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if n > 0 && b.charged == 0 {
			if err := b.charge(in, int64(cap(b.bytes))); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return in.fault(err, limit)
		}
	}
}

// full makes room in a full buffer, unless the body ends exactly here.
func (b *buffer) full(in *PacedBody, declared, limit int64) (more bool, err error) {
	size := int64(cap(b.bytes))
	if size == declared || size == limit {
		switch _, err := io.ReadFull(in, make([]byte, 1)); { // the end also proves that the body is whole
		case err == nil:
			return false, TooLarge(limit)
		case errors.Is(err, io.EOF):
			return false, nil
		default:
			return false, in.fault(err, limit)
		}
	}
	next := 2 * size
	if size >= begun && declared <= wholeBuffer && b.account.Share == ShareOrganizations {
		next = lastSize(declared)
	} else if size < quadrupled {
		next = 4 * size
	}
	return true, b.grow(in, min(next, lastSize(declared), limit))
}

// grow moves the bytes to a buffer of the given size. For a moment both are held and charged.
func (b *buffer) grow(in *PacedBody, size int64) error {
	before, spare, account, charged := b.bytes, b.spare, b.account, b.charged
	if err := b.charge(in, size); err != nil {
		return err
	}
	b.spare = nil
	if pool := poolOf(size); pool != nil {
		var ok bool
		if b.spare, ok = pool.Get().(*[]byte); !ok {
			b.spare = new(make([]byte, 0, size))
		}
		b.bytes = *b.spare
	} else {
		b.bytes = make([]byte, 0, size)
	}
	b.bytes = append(b.bytes, before...)
	if spare != nil {
		poolOf(int64(cap(before))).Put(spare)
	}
	b.budget.Give(account, charged)
	return nil
}

// charge charges size bytes in addition to the earlier charge, which grow gives back. A delivery that becomes large moves to the share of large
// ones. A small delivery without room is not charged, but must arrive soon.
func (b *buffer) charge(in *PacedBody, size int64) error {
	account := b.account
	if account.Share == ShareDeliveries && size > LargeDelivery {
		account.Share = ShareLargeDeliveries
	}
	if b.budget.Take(account, size) {
		b.account, b.charged = account, size
		return nil
	}
	if declared := in.r.ContentLength; account.Share == ShareDeliveries && declared >= 0 && declared <= PromptDelivery {
		b.charged = 0
		in.hasten(PromptTime)
		return nil
	}
	b.bytes = nil
	if account.Share != ShareOrganizations { // whose senders can't change it
		return Busy(BudgetRetryAfter, ErrBudget)
	}
	return &Error{
		Code: errcode.RateLimited, RetryAfter: BudgetRetryAfter, Cause: ErrBudget,
		Message: "The organization's requests that are arriving now are too large together. Retry shortly.",
	}
}

// plainEncoding reports whether every Content-Encoding is identity.
func plainEncoding(h http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(h["Content-Encoding"], ","), ",") {
		if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
			return false
		}
	}
	return true
}

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

// MaxDepth is the depth to which arrays and objects of a JSON body may be nested.
const MaxDepth = 64

// JSONBody reads one JSON body by the rules of [jsonscan.Strict], with the bounds and the error texts of the contract. It does not interpret
// members: its callers do, by callbacks.
type JSONBody struct {
	jsonscan.Scanner
	body []byte
	// field is the field of the request that a repeated name belongs to.
	field string
}

// NewJSONBody returns the reader of a body.
func NewJSONBody(body []byte) JSONBody {
	return JSONBody{Scanner: jsonscan.Strict(body, MaxDepth), body: body}
}

// Document reads the whole body, which must be one object; member and field are as in [JSONBody.Object]. It returns nil if
// the body is valid.
func (s *JSONBody) Document(member func(name jsonscan.Literal) bool, field func(name jsonscan.Literal) string) *Error {
	switch {
	case len(bytes.TrimLeft(s.body, " \t\r\n")) == 0:
		return InvalidRequest("", "The request body is empty. It must be a JSON object.")
	case s.Peek() == '{':
		s.Object(member, field)
	case s.Skip() && s.End():
		return InvalidRequest("", "The request body must be a JSON object.")
	}
	if s.End() {
		return nil
	}
	what, at := s.Fault()
	return InvalidRequest(s.field, "The request body is not valid JSON: %s at byte %d.", what, at)
}

// Object reads an object like [jsonscan.Scanner.Object]. If field isn't nil, it returns the field of the request that a
// repeated name belongs to.
func (s *JSONBody) Object(member func(name jsonscan.Literal) bool, field func(name jsonscan.Literal) string) bool {
	if field == nil {
		return s.Scanner.Object(member, nil)
	}
	return s.Scanner.Object(member, func(name jsonscan.Literal) { s.field = field(name) })
}
