package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// RateLimit counts requests against the requests per minute of the organization's plan, in windows of one minute by the
// clock. It needs svc_auth before it. Requests beyond the limit end with 429 `rate_limited`; responses within it have
// `x-ratelimit-limit-requests`, `-remaining-requests` and `-reset-requests`. A request that a later handler refuses because
// the store is overloaded doesn't count, unless it was counted in Redis. Directly after svc_auth it takes no round trip of its own
// to PostgreSQL.
//
// Syntax:
//
//	svc_rate_limit [<matcher>]
type RateLimit struct {
	noOptions

	// counted is set when the svc_auth directly before counts in the store, see [App.countWithKeys].
	counted bool
}

// CaddyModule returns the Caddy module information.
func (*RateLimit) CaddyModule() caddy.ModuleInfo { return moduleInfo[RateLimit]("svc_rate_limit") }

// ServeHTTP counts the request and passes it on.
func (h *RateLimit) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	var permit handlers.Permit
	err := h.app.handle("svc_rate_limit", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) (err error) {
		limit := handlers.RateLimit{Limiter: rt.limiter, Plans: h.app, Counted: h.counted}
		permit, err = limit.Serve(w, r)
		return err
	})
	if err != nil {
		return err
	}
	err = next.ServeHTTP(w, r)
	permit.Return(w, r, err)
	return err
}
