package dashboard

import (
	"io"
	"net/http"
)

// Bodies bounds the bytes of request bodies that are in memory at once, over all requests, as handlers.ByteBudget does.
type Bodies interface {
	// Take charges bytes and reports true, or charges nothing when they don't fit.
	Take(bytes int64) bool
	// Give returns bytes that were taken.
	Give(bytes int64)
}

// heldBody charges what is read of a body, as it arrives: headers alone take nothing.
type heldBody struct {
	io.ReadCloser

	bodies Bodies
	held   int64
}

// Read fails with a fault when there is no room for what came.
func (b *heldBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if n > 0 && !b.bodies.Take(int64(n)) {
		return 0, &fault{
			Status: http.StatusInternalServerError, Code: codeInternal, RetryAfter: 1,
			Message: "The service has too much to do at the moment. Try again shortly.",
		}
	}
	b.held += int64(n)
	return n, err //nolint:wrapcheck // io.EOF is compared
}

// bound lets at most limit bytes of the body be read, and charges them until [visit.release].
func (v *visit) bound(limit int64) {
	if v.d.config.Bodies != nil {
		v.held = &heldBody{ReadCloser: v.r.Body, bodies: v.d.config.Bodies}
		v.r.Body = v.held
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, limit)
}

// release gives back what the body took. Nothing refers to it any more.
func (v *visit) release() {
	if v.held != nil {
		v.held.bodies.Give(v.held.held)
		v.held = nil
	}
}
