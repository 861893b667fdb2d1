package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Models serves `GET /v1/models`, the models that are enabled for the organization, and `GET /v1/models/{id}`, one of them.
// It needs svc_auth before it. Other requests end with 404 `not_found`.
//
// Syntax:
//
//	svc_models [<matcher>]
type Models struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*Models) CaddyModule() caddy.ModuleInfo { return moduleInfo[Models]("svc_models") }

// ServeHTTP answers the request; no handler after it runs.
func (h *Models) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.app.serve("svc_models", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.models.Serve(w, r)
	})
}
