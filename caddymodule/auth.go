package caddymodule

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Auth passes on requests with a valid API key that has the needed scopes, in `Authorization: Bearer` or `X-Api-Key`. Others
// end with 401 `unauthenticated`, `invalid_api_key` or `api_key_revoked`, 402 `organization_suspended`, or 403
// `insufficient_scope`.
//
// It sets two placeholders: `{http.auth.user.id}` is the id of the organization, which is also `user_id` in access logs,
// and `{http.svc.key_id}` is the id of the API key.
//
// Syntax:
//
//	svc_auth [<matcher>] <scope...>
type Auth struct {
	// The scopes that the key must have, all of them. At least one.
	Scopes []identity.Scope `json:"scopes,omitempty"`

	inApp

	// counting is set when svc_rate_limit follows and counts in the store, see [App.countWithKeys].
	counting *identity.Authenticator
}

// CaddyModule returns the Caddy module information.
func (*Auth) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_auth", New: func() caddy.Module { return new(Auth) }}
}

// UnmarshalCaddyfile reads the directive.
func (h *Auth) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	for _, name := range d.RemainingArgs() {
		h.Scopes = append(h.Scopes, identity.Scope(name))
	}
	if err := h.scopeFault(); err != nil {
		return d.WrapErr(err)
	}
	return noBlock(d, "svc_auth", "")
}

func (h *Auth) scopeFault() error {
	if len(h.Scopes) == 0 {
		return fmt.Errorf("svc_auth needs at least one scope; allowed: %s", config.Listed(identity.AllScopes()))
	}
	for _, scope := range h.Scopes {
		if !scope.Known() {
			return fmt.Errorf("svc_auth: %s is not a scope; allowed: %s", config.Quoted(string(scope)), config.Listed(identity.AllScopes()))
		}
	}
	return nil
}

// Provision finds the app.
func (h *Auth) Provision(ctx caddy.Context) error {
	if err := h.scopeFault(); err != nil {
		return err
	}
	return h.inApp.Provision(ctx)
}

// ServeHTTP checks the key and passes the request on.
func (h *Auth) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	passed := r
	err := h.handle(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) (err error) {
		auth := handlers.Auth{Authenticator: cmp.Or(h.counting, rt.auth), Scopes: h.Scopes}
		passed, err = auth.Serve(w, r)
		return err
	})
	if err != nil {
		return err
	}
	// The placeholders for the organization and the key.
	principal, authenticated := handlers.PrincipalFrom(passed.Context())
	if repl, ok := passed.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok && authenticated {
		repl.Set(orgPlaceholder, principal.OrgID)
		repl.Set(keyPlaceholder, principal.KeyID)
	}
	return next.ServeHTTP(w, passed)
}

// countWithKeys makes each svc_auth of a's configuration that svc_rate_limit directly follows count the request in the round trip
// that reads the key. Any other svc_rate_limit counts in a round trip of its own.
func (a *App) countWithKeys(windows *limit.Windows, keys limit.KeyReader) error {
	ctx, ok := a.ctx.(caddy.Context)
	if !ok {
		return nil
	}
	httpApp, err := configured[caddyhttp.App](ctx, "http")
	if err != nil {
		return fmt.Errorf("finding the routes: %w", err)
	}
	if httpApp == nil {
		return nil
	}
	for _, server := range httpApp.Servers {
		routes := slices.Clone(server.Routes)
		for _, named := range server.NamedRoutes {
			routes = append(routes, *named)
		}
		a.countInRoutes(routes, windows, keys)
	}
	return nil
}

func (a *App) countInRoutes(routes caddyhttp.RouteList, windows *limit.Windows, keys limit.KeyReader) {
	for _, route := range routes {
		for i, handler := range route.Handlers {
			if within, ok := handler.(*caddyhttp.Subroute); ok {
				a.countInRoutes(within.Routes, windows, keys)
			}
			auth, ok := handler.(*Auth)
			if !ok || auth.app != a || i+1 == len(route.Handlers) {
				continue
			}
			if limiter, ok := route.Handlers[i+1].(*RateLimit); ok {
				auth.counting = identity.NewAuthenticator(windows.Keys(keys, a.keyTerms(auth.Scopes)))
				limiter.counted = true
			}
		}
	}
}

// keyTerms returns the conditions under which the store counts a request: the scopes that its key must have, and the
// limits of the plans.
func (a *App) keyTerms(scopes []identity.Scope) *store.KeyTerms {
	terms := &store.KeyTerms{Scopes: store.Column(scopes, func(scope identity.Scope) string { return string(scope) })}
	for _, plan := range a.Plans {
		terms.Plans = append(terms.Plans, plan.Name)
		terms.PerMinute = append(terms.PerMinute, a.RequestsPerMinute(plan.Name))
	}
	return terms
}

// The placeholders that svc_auth sets.
const (
	orgPlaceholder = "http.auth.user.id"
	keyPlaceholder = "http.svc.key_id"
)

// RateLimit counts requests against the requests per minute of the organization's plan, in windows of one minute by the clock. It
// needs svc_auth before it. Requests beyond the limit end with 429 `rate_limited`; responses within it have
// `x-ratelimit-limit-requests`, `-remaining-requests` and `-reset-requests`. A request that a later handler refuses because the
// store is overloaded doesn't count, unless it was counted in Redis. Directly after svc_auth it needs no round trip of its own to
// PostgreSQL.
//
// Syntax:
//
//	svc_rate_limit [<matcher>]
type RateLimit struct {
	keyed

	// counted is set when the svc_auth directly before counts in the store, see [App.countWithKeys].
	counted bool
}

// CaddyModule returns the Caddy module information.
func (*RateLimit) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_rate_limit", New: func() caddy.Module { return new(RateLimit) }}
}

// ServeHTTP counts the request and passes it on.
func (h *RateLimit) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	var permit handlers.Permit
	err := h.handle(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) (err error) {
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
