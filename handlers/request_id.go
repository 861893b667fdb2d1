package handlers

import (
	"context"
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// RequestIDHeader is the header with the id of the request, on every answer.
const RequestIDHeader = "X-Request-Id"

type requestIDKey struct{}

// EnsureRequestID gives the request its id: "req_" and a sortable unique id, in the request's context and as the
// response header X-Request-Id, the only place where official clients look for it.
//
// It may be called any number of times and the id stays the same. When the context was lost, as on the way to Caddy's error
// routes, the id is taken from the response header. An inbound X-Request-Id is ignored.
func EnsureRequestID(w http.ResponseWriter, r *http.Request) (*http.Request, string) {
	ctx, id, has := ensureRequestID(r.Context(), w)
	if has {
		return r, id
	}
	return r.WithContext(ctx), id
}

// ensureRequestID returns ctx with the request's id, which it may have already: who puts more into it copies the request once.
func ensureRequestID(ctx context.Context, w http.ResponseWriter) (_ context.Context, id string, has bool) {
	h := w.Header()
	if id = RequestIDFrom(ctx); id != "" {
		h[RequestIDHeader] = []string{id}
		return ctx, id, true
	}
	id = h.Get(RequestIDHeader)
	if !wellFormedRequestID(id) {
		id = store.NewID("req")
		h[RequestIDHeader] = []string{id}
	}
	return context.WithValue(ctx, requestIDKey{}, id), id, false
}

// RequestIDFrom returns the id that [EnsureRequestID] put into the context, or "".
func RequestIDFrom(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// wellFormedRequestID reports whether EnsureRequestID could have made the id: a proxied answer may bring another one in the same
// header.
func wellFormedRequestID(id string) bool {
	rest, ok := strings.CutPrefix(id, "req_")
	if !ok || len(rest) < 26 || len(rest) > 32 {
		return false
	}
	for _, c := range []byte(rest) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// WellFormedID reports whether the text could be the id of a row ([store.NewID]). Other texts must not be looked up: no engine
// accepts NUL.
func WellFormedID(text string) bool {
	const longest = 64
	notOfIDs := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_'
	}
	return text != "" && len(text) <= longest && !strings.ContainsFunc(text, notOfIDs)
}
