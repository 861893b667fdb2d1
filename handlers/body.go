package handlers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// MaxChatBody is the largest body that /v1 reads (design §6): 32 MiB, room for several messages of 200,000 characters
// that are escaped to 12 bytes each.
const MaxChatBody = 32 << 20

const (
	// firstBuffer is what a body without a declared length starts with.
	firstBuffer = 16 << 10
	// trustedLength is the declared length up to which a buffer is made at once for who has shown a key. Beyond it, and
	// beyond firstBuffer for everybody else, memory follows the bytes that really arrive, so that headers alone can't take
	// the budget: it is shared, and anybody may send to /webhooks.
	trustedLength = 1 << 20
	// budgetRetryAfter is told to clients who come while the budget is used up.
	budgetRetryAfter = time.Second
)

var errBudget = errors.New("the budget of buffered body bytes is used up")

// ReadBody reads the whole body of r, at most limit bytes. The buffer is charged to the budget as it grows; release
// gives it back, may be called more than once, and must be called when nothing refers to the body any more. It is never
// nil. After an error nothing stays charged.
//
// Errors: a Content-Encoding other than identity, a body beyond limit, one that is broken or shorter than declared:
// invalid_request (S10, S11). No room in the budget: internal_error with a hint to come back.
func ReadBody(r *http.Request, limit int64, budget *ByteBudget) (body []byte, release func(), err error) {
	if !plainEncoding(r.Header) {
		discard(r, limit)
		return nil, func() {}, InvalidRequest("", "A compressed request body is not supported. Send it without Content-Encoding.")
	}
	if r.ContentLength > limit {
		discard(r, limit)
		return nil, func() {}, tooLarge(limit)
	}
	b := buffer{budget: budget}
	if err := b.fill(r, limit); err != nil {
		b.release()
		return nil, func() {}, err
	}
	return b.bytes, sync.OnceFunc(b.release), nil
}

// buffer is a body under way and what it has taken from the budget.
type buffer struct {
	bytes   []byte
	budget  *ByteBudget
	charged int64
}

func (b *buffer) release() { b.budget.Give(b.charged) }

func (b *buffer) fill(r *http.Request, limit int64) error {
	declared := r.ContentLength
	if declared == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	size := int64(firstBuffer)
	if _, known := PrincipalFrom(r.Context()); known && declared > 0 {
		size = trustedLength
	}
	if declared > 0 {
		size = min(size, declared)
	}
	if err := b.grow(min(size, limit)); err != nil {
		return err
	}
	for {
		if len(b.bytes) == cap(b.bytes) {
			if more, err := b.full(r, limit); err != nil || !more {
				return err
			}
		}
		n, err := r.Body.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return readFault(err, limit)
		}
	}
}

// full makes room in a full buffer, unless the body ends exactly here.
func (b *buffer) full(r *http.Request, limit int64) (more bool, err error) {
	size := int64(cap(b.bytes))
	if size == r.ContentLength || size == limit {
		end, err := atEnd(r.Body)
		if err != nil {
			return false, readFault(err, limit)
		}
		if end {
			return false, nil
		}
		discard(r, limit)
		return false, tooLarge(limit)
	}
	next := min(2*size, limit)
	if r.ContentLength > 0 {
		next = min(next, r.ContentLength)
	}
	return true, b.grow(next)
}

// grow moves the bytes to a buffer of the given size. For a moment both are held and charged.
func (b *buffer) grow(size int64) error {
	if !b.budget.Take(size) {
		return Busy(budgetRetryAfter, errBudget)
	}
	old := b.charged
	b.bytes = append(make([]byte, 0, size), b.bytes...)
	b.charged = size
	b.budget.Give(old)
	return nil
}

// atEnd reads the end of a body, which also proves that it is whole.
func atEnd(body io.Reader) (bool, error) {
	var one [1]byte
	for {
		n, err := body.Read(one[:])
		if n > 0 {
			return false, nil
		}
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// discard reads on for up to limit bytes without keeping them: most clients read an answer only after they have sent
// their whole body, and would otherwise see a broken connection instead. A client that waits for 100 Continue has sent
// nothing yet and is not asked to.
func discard(r *http.Request, limit int64) {
	if r.Body == nil || r.Header.Get("Expect") != "" {
		return
	}
	// Whether it works makes no difference to the answer.
	_, _ = io.CopyN(io.Discard, r.Body, 2*limit)
}

func tooLarge(limit int64) *Error {
	return InvalidRequest("", "The request body is larger than %d bytes.", limit)
}

// readFault is the answer to a body that could not be read. Who is right is unknown, but the body is not usable.
func readFault(err error, limit int64) *Error {
	if tooMuch, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(min(limit, tooMuch.Limit))
	}
	e := InvalidRequest("", "The request body could not be read to its end.")
	e.Cause = fmt.Errorf("reading the request body: %w", err)
	return e
}

// plainEncoding reports whether every Content-Encoding is identity.
func plainEncoding(h http.Header) bool {
	for _, line := range h["Content-Encoding"] {
		for coding := range strings.SplitSeq(line, ",") {
			coding = strings.TrimSpace(coding)
			if coding != "" && !strings.EqualFold(coding, "identity") {
				return false
			}
		}
	}
	return true
}
