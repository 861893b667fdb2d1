package dashboard

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// Bodies bounds the memory of request bodies, and how many are decoded at a time, over all requests, as handlers.ByteBudget
// does.
type Bodies interface {
	// Meter returns the body of r. Its bytes are charged as they are read, to the organization, or to the client's address when
	// orgID is empty, and must arrive in time. release returns them. An error of Read may be a [Refusal].
	Meter(w http.ResponseWriter, r *http.Request, orgID string) (body io.ReadCloser, release func())
	// Decoding waits until a body of that many bytes may be decoded; done ends it. The error is a [Refusal].
	Decoding(ctx context.Context, size int) (done func(), err error)
}

// Refusal is an error with the status and body of its response.
type Refusal interface {
	error

	Refusal() (status int, code, message string, retryAfterSeconds int64)
}

// bound limits the body to limit bytes and charges them until [pageRequest.release].
func (req *pageRequest) bound(limit int64) {
	if req.d.config.Bodies != nil {
		orgID := ""
		if req.session != nil {
			orgID = req.session.Organization.ID
		}
		req.release()
		req.r.Body, req.releaseBody = req.d.config.Bodies.Meter(req.w, req.r, orgID)
	}
	req.r.Body = http.MaxBytesReader(req.w, req.r.Body, limit)
}

// release returns the body's memory, which must not be referred to any more.
func (req *pageRequest) release() {
	if req.releaseBody != nil {
		req.releaseBody()
		req.releaseBody = nil
	}
}

// bodyError returns the response to a body that could not be read; broken is its message when the error has none.
func bodyError(err error, broken string) *apiError {
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		broken = "What you sent is too large."
	}
	if why, ok := errors.AsType[Refusal](err); ok {
		status, code, message, retryAfter := why.Refusal()
		return &apiError{Status: status, Code: code, Message: message, RetryAfter: retryAfter}
	}
	return &apiError{Status: http.StatusBadRequest, Code: codeInvalidRequest, Message: broken}
}
