package dashboard

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

const requestIDHeader = "X-Request-Id"

// relay passes a response of the API to the browser as it arrives.
func (req *pageRequest) relay(l *relay) {
	defer req.release()
	if err := req.enter(); err != nil {
		req.refuseRelay(l, err)
		return
	}
	req.bound(cmp.Or(l.maxBody, maxForm))
	ask, err := l.ask(req)
	if err != nil {
		req.refuseRelay(l, err)
		return
	}
	r, err := req.request(ask)
	if err != nil {
		req.refuseRelay(l, err)
		return
	}
	req.d.config.API.ServeHTTP(req.w, r)
}

// refuseRelay answers a script with the API's error body, and a person with a page.
func (req *pageRequest) refuseRelay(l *relay, err error) {
	if l.method == http.MethodGet {
		req.turnAway(err)
		return
	}
	f := *req.d.apiErrorOf(err)
	h := req.w.Header()
	if f.RequestID == "" {
		f.RequestID = req.requestID()
	}
	h.Set(requestIDHeader, f.RequestID)
	if f.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(f.RetryAfter, 10))
	}
	if f.Status != http.StatusTooManyRequests && f.Status != http.StatusServiceUnavailable {
		f.RetryAfter = 0 // only these two have it in the body
	}
	text, err := json.Marshal(object{"error": f})
	if err != nil {
		text = nil // strings and numbers can't fail
	}
	h.Set("Content-Type", "application/json")
	req.w.WriteHeader(f.Status)
	_, _ = req.w.Write(text) // the browser may be gone
}

// requestID returns the id that the service gave the request, or a new one.
func (req *pageRequest) requestID() string {
	if id := req.w.Header().Get(requestIDHeader); id != "" {
		return id
	}
	return "req_" + strings.ToLower(rand.Text())
}
