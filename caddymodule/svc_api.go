package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// API serves `/api-keys`, `/provider-keys`, `/agents`, `/knowledge-bases`, `/channels`, `/conversations`, `/wallet` and
// `/event-endpoints`, and for people `/session`, `/members`, `/organization` and `/audit-log`. It needs no svc_auth before it: it checks the key or
// the login session itself, because every endpoint has its own scope and role. Unknown paths and methods end with 404
// `not_found`.
//
// Failed logins are counted against Caddy's `{client_ip}`: behind a proxy name it in the server's `trusted_proxies`.
//
// Syntax:
//
//	svc_api [<matcher>]
type API struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*API) CaddyModule() caddy.ModuleInfo { return moduleInfo[API]("svc_api") }

// ServeHTTP answers the request; no handler after it runs.
func (h *API) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.app.serve("svc_api", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.api.Serve(w, withClientAddress(r))
	})
}
