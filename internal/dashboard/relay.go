package dashboard

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// requestIDHeader is where the service says a request's id.
const requestIDHeader = "X-Request-Id"

// relay asks the API and hands its answer to the browser as it comes.
func (v *visit) relay(l *relay) {
	defer v.release()
	if err := v.enter(); err != nil {
		v.refuseRelay(l, err)
		return
	}
	v.bound(cmp.Or(l.maxBody, maxForm))
	ask, err := l.ask(v)
	if err != nil {
		v.refuseRelay(l, err)
		return
	}
	r, err := v.request(ask)
	if err != nil {
		v.refuseRelay(l, err)
		return
	}
	v.d.config.API.ServeHTTP(v.w, r)
}

// refuseRelay answers a script in the API's way, and a person with a page.
func (v *visit) refuseRelay(l *relay, err error) {
	if l.method == http.MethodGet {
		v.turnAway(err)
		return
	}
	f := *v.d.faultOf(err)
	h := v.w.Header()
	if f.RequestID == "" {
		f.RequestID = v.requestID()
	}
	h.Set(requestIDHeader, f.RequestID)
	if f.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(f.RetryAfter, 10))
	}
	if f.Status != http.StatusTooManyRequests && f.Status != http.StatusServiceUnavailable {
		f.RetryAfter = 0 // those two only have it in the body (spec §7.1)
	}
	text, err := json.Marshal(object{"error": f})
	if err != nil {
		text = nil // texts and numbers can't fail
	}
	h.Set("Content-Type", "application/json")
	v.w.WriteHeader(f.Status)
	_, _ = v.w.Write(text) // the browser may be gone
}

// requestID is the id that the service gave the request before it came here. Without the service around it, it is a new one.
func (v *visit) requestID() string {
	if id := v.w.Header().Get(requestIDHeader); id != "" {
		return id
	}
	return "req_" + strings.ToLower(rand.Text())
}
