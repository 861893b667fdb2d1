package handlers

import (
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// API serves the endpoint groups of spec §4.4. Each route has its own scope, so API checks the key itself: it needs no
// [Auth] before it.
type API struct {
	Authenticator Authenticator
	Wallets       Wallets
}

// route is one endpoint of the groups.
type route struct {
	method, path string
	scope        identity.Scope
	serve        func(*API, http.ResponseWriter, *http.Request) error
}

// routes lists the endpoints that exist so far.
func routes() []route {
	return []route{
		{http.MethodGet, "/wallet", identity.WalletRead, (*API).serveWallet},
	}
}

// Serve finds the route by exact method and path; anything else is not_found, with or without a key.
func (a *API) Serve(w http.ResponseWriter, r *http.Request) error {
	for _, route := range routes() {
		if route.method != r.Method || route.path != r.URL.Path {
			continue
		}
		auth := Auth{Authenticator: a.Authenticator, Scope: route.scope}
		r, err := auth.Serve(w, r)
		if err != nil {
			return err
		}
		return route.serve(a, w, r)
	}
	return ServeNotFound(w, r)
}
