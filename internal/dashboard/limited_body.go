package dashboard

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// Bodies bounds the memory of request bodies and pages, and how many bodies are decoded at a time, over all requests, as
// handlers.ByteBudget does.
type Bodies interface {
	// Meter returns the body of r. Its bytes are charged as they are read, to the organization, or to the client's address when
	// orgID is empty, and must arrive in time. release returns them. An error of Read may be a [handlers.Error].
	Meter(w http.ResponseWriter, r *http.Request, orgID string) (body io.ReadCloser, release func())
	// Decoding waits until a body of that many bytes may be decoded; done ends it. The error is a [handlers.Error].
	Decoding(ctx context.Context, size int) (done func(), err error)
	// Page reserves so many bytes for the page that answers r, charged like its body. send writes the page and returns the bytes
	// when the browser has it, or release does. send charges a larger page, too. The error is a [handlers.Error].
	Page(r *http.Request, orgID string, bytes int64) (send SendPage, release func(), err error)
}

// SendPage writes a whole page. It is an alias, so that another package has the method Page without this one.
type SendPage = func(w http.ResponseWriter, status int, contentType string, text []byte)

// usualPage is the size in bytes of a large page. Room for it is reserved before an action, whose page may show a secret that is
// shown only once.
const usualPage = 64 << 10

// orgID is the organization to which the request is charged, "" for the client's address.
func (req *pageRequest) orgID() string {
	if req.session == nil {
		return ""
	}
	return req.session.Organization.ID
}

// reserve makes room for the page until [pageRequest.release]. Its error is that of an action.
func (req *pageRequest) reserve(bytes int) error {
	if req.d.config.Bodies == nil {
		return nil
	}
	send, release, err := req.d.config.Bodies.Page(req.r, req.orgID(), int64(bytes))
	if err != nil {
		return err
	}
	req.sendPage, req.releasePage = send, release
	return nil
}

// writePage writes a whole page, in the room that was reserved for it.
func (req *pageRequest) writePage(status int, text []byte) {
	const contentType = "text/html; charset=utf-8"
	if req.sendPage == nil && req.reserve(len(text)) != nil {
		req.w.Header().Set("Retry-After", "1")
		const full = "The pages that you have not read yet are too large together. Try again."
		http.Error(req.w, full, http.StatusTooManyRequests) //nolint:forbidigo // a page is what has no room
		return
	}
	if req.sendPage != nil {
		req.sendPage(req.w, status, contentType, text)
		return
	}
	req.w.Header().Set("Content-Type", contentType)
	req.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	req.w.WriteHeader(status)
	_, _ = req.w.Write(text) // the browser may be gone
}

// bound limits the body to limit bytes and charges them until [pageRequest.release].
func (req *pageRequest) bound(limit int64) {
	if req.d.config.Bodies != nil {
		if req.releaseBody != nil {
			req.releaseBody()
		}
		req.r.Body, req.releaseBody = req.d.config.Bodies.Meter(req.w, req.r, req.orgID())
	}
	req.r.Body = http.MaxBytesReader(req.w, req.r.Body, limit)
}

// release returns the memory of the body and of the page, which must not be referred to any more.
func (req *pageRequest) release() {
	for _, release := range []*func(){&req.releaseBody, &req.releasePage} {
		if *release != nil {
			(*release)()
			*release = nil
		}
	}
}

// bodyError returns the error of a body that could not be read. broken is the message for errors that are no [handlers.Error].
func bodyError(err error, broken string) *handlers.Error {
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		broken = "What you sent is too large."
	}
	if refused, ok := errors.AsType[*handlers.Error](err); ok {
		return refused
	}
	return refuseField("", broken)
}
