package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// RateLimit counts the request against the requests per minute of the organization's plan, in windows of one minute of
// the clock (spec §8). It stands behind svc_auth. Beyond the limit requests end with 429 `rate_limited`; within it the
// answer carries `x-ratelimit-limit-requests`, `-remaining-requests` and `-reset-requests`. A request that a later handler
// refuses because the store has too much to do doesn't count, unless it was counted in Redis.
//
// Syntax:
//
//	svc_rate_limit [<matcher>]
type RateLimit struct{ bare }

// CaddyModule returns the Caddy module information.
func (*RateLimit) CaddyModule() caddy.ModuleInfo { return moduleInfo[RateLimit]("svc_rate_limit") }

// Provision finds the app.
func (h *RateLimit) Provision(ctx caddy.Context) (err error) {
	h.app, err = configuredApp(ctx, "svc_rate_limit")
	return err
}

// ServeHTTP counts the request and passes it on.
func (h *RateLimit) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	var permit handlers.Permit
	err := h.app.check("svc_rate_limit", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) (err error) {
		limit := handlers.RateLimit{Limiter: rt.limiter, Plans: h.app}
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

var _ caddy.Provisioner = (*RateLimit)(nil)
