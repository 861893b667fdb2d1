package dashboard

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// Bodies bounds the bytes of request bodies that are in memory at once, and how many are decoded at a time, over all
// requests, as handlers.ByteBudget does.
type Bodies interface {
	// Meter returns the body of r. Its bytes are charged as they are read, to the organization, or to the client's address
	// when orgID is empty, and must arrive in time. release gives them back. An error of Read that is a [Refusal] says how to
	// answer.
	Meter(w http.ResponseWriter, r *http.Request, orgID string) (body io.ReadCloser, release func())
	// Decoding waits until a body of that many bytes may be decoded; done ends it. The error is a [Refusal].
	Decoding(ctx context.Context, size int) (done func(), err error)
}

// Refusal is an error with its answer (spec §7.1).
type Refusal interface {
	error

	Refusal() (status int, code, message string, retryAfterSeconds int64)
}

// bound lets at most limit bytes of the body be read, and charges them until [visit.release].
func (v *visit) bound(limit int64) {
	if v.d.config.Bodies != nil {
		orgID := ""
		if v.session != nil {
			orgID = v.session.Organization.ID
		}
		v.release()
		v.r.Body, v.releaseBody = v.d.config.Bodies.Meter(v.w, v.r, orgID)
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, limit)
}

// release gives back what the body took. Nothing refers to it any more.
func (v *visit) release() {
	if v.releaseBody != nil {
		v.releaseBody()
		v.releaseBody = nil
	}
}

// bodyFault is the answer to a body that could not be read; broken is said when nothing is known but that.
func bodyFault(err error, broken string) *fault {
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		broken = "What you sent is too large."
	}
	if why, ok := errors.AsType[Refusal](err); ok {
		status, code, message, retryAfter := why.Refusal()
		return &fault{Status: status, Code: code, Message: message, RetryAfter: retryAfter}
	}
	return &fault{Status: http.StatusBadRequest, Code: codeInvalidRequest, Message: broken}
}
