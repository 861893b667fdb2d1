package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// withClientAddress tells the plain handlers whom Caddy takes for the client, by its `trusted_proxies`.
func withClientAddress(r *http.Request) *http.Request {
	address, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	if !ok {
		return r
	}
	return handlers.WithClientAddress(r, address)
}
