package caddymodule

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/dashboard"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// Dashboard serves the pages for people at `/dashboard`: keys, assistants, channels, conversations, the wallet and members. It
// calls the endpoints of svc_api inside this process, so it doesn't need svc_api beside it. It sets its own security headers,
// such as a strict Content-Security-Policy.
//
// People sign in over https, or over plain http on this machine (http://localhost). `caddy svc user invite` makes their first
// one-time link. Failed logins are counted per client, by Caddy's `{client_ip}`: behind a proxy, set the server's
// `trusted_proxies`. The path must be `/dashboard`, because one-time links lead there.
//
// Syntax:
//
//	svc_dashboard [<matcher>]
type Dashboard struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*Dashboard) CaddyModule() caddy.ModuleInfo { return moduleInfo[Dashboard]("svc_dashboard") }

// ServeHTTP answers the request; no handler after it runs.
func (h *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.app.serve("svc_dashboard", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		r, _ = handlers.EnsureRequestID(w, withClientAddress(r))
		rt.dashboard().ServeHTTP(w, r)
		return nil
	})
}

// newDashboard builds the dashboard over api, whose errors are counted and logged as by svc_error.
func (a *App) newDashboard(
	api *endpoint.Server, catalog *messaging.Catalog, sessions *handlers.Sessions, bodies *handlers.ByteBudget,
) *dashboard.Dashboard {
	return dashboard.New(dashboard.Config{
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := api.Serve(w, r); err != nil {
				answer := publicError(err)
				a.logFailure(r, answer)
				countFailure(answer)
				handlers.WriteError(w, r, answer, "")
			}
		}),
		BaseURL: a.BaseURL, ChannelTypes: catalog.Declared(),
		Providers: a.ProviderNames(),
		SignInRefusal: func(r *http.Request) string {
			if refusal, ok := errors.AsType[*handlers.Error](sessions.Allowed(r)); ok {
				return refusal.Message
			}
			return ""
		},
		Bodies: bodies,
		Logger: a.log,
	})
}

// logFailure logs an error that the dashboard shows, as svc_error does, with the page's request id.
func (a *App) logFailure(r *http.Request, answer *handlers.Error) {
	attrs := append([]slog.Attr{
		slog.String("request_id", handlers.RequestIDFrom(r.Context())), slog.String("code", string(answer.Code)),
		slog.Int("status", answer.Code.Status()), slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("error", answer),
	}, callerFields(answer.Caller)...)
	a.log.LogAttrs(r.Context(), failureLevel(r, answer, answer.Caller), "request failed", attrs...)
}
