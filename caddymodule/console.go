package caddymodule

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/console"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// private is embedded in handlers that belong on a private listener. The listener is private if it is a Unix socket, or an address of this machine
// alone (`bind 127.0.0.1`) or of a private network.
type private struct {
	// Serve it also on a listener that isn't private.
	ConfirmPublic bool `json:"confirm_public,omitempty"`

	inApp

	public bool
}

// UnmarshalCaddyfile reads the directive.
func (h *private) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	name := d.Val()
	if d.NextArg() {
		return d.Errf("%s takes no arguments, found %s", name, config.Quoted(d.Val()))
	}
	for d.NextBlock(0) {
		line := append([]string{d.Val()}, d.RemainingArgs()...)
		if !slices.Equal(line, []string{"confirm", "public"}) {
			return d.Errf("%s: %s is not an option; allowed: confirm public", name, config.Quoted(strings.Join(line, " ")))
		}
		h.ConfirmPublic = true
	}
	return nil
}

// Provision finds the app and refuses a public listener.
func (h *private) Provision(ctx caddy.Context) error {
	address := publicListener(ctx)
	if h.public = address != ""; h.public && !h.ConfirmPublic {
		return fmt.Errorf("other machines may reach %s. Give the site `bind 127.0.0.1` or an address of a private network, or write "+
			"`confirm public` into the directive's block", address)
	}
	return h.inApp.Provision(ctx)
}

// Console serves the pages of the service's operators at `/console`: organizations and their wallets, keys, models, people and channels, the
// queue, vendors and the audit log. It runs the operations of svc_operator inside this process, so it doesn't need svc_operator beside it.
//
// Operators sign in with accounts that `caddy svc operator add` makes, over https or on this machine (http://localhost), with a second factor.
// Like svc_operator it belongs on a private listener, and is refused elsewhere unless its block says `confirm public`. The path must be
// `/console`.
//
// Syntax:
//
//	svc_console [<matcher>] {
//	    confirm public
//	}
type Console struct{ private }

// CaddyModule returns the Caddy module information.
func (*Console) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_console", New: func() caddy.Module { return new(Console) }}
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Console) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		r, _ = handlers.EnsureRequestID(w, withClientAddress(r))
		rt.console().ServeHTTP(w, r)
		return nil
	})
}

// newConsole builds the console over the operations of server. Their errors are counted and logged as by svc_error.
func (a *App) newConsole(
	server *endpoint.Server, deps *api.Deps, operators *handlers.OperatorSessions, bodies *handlers.ByteBudget,
) *console.Console {
	return console.New(console.Config{
		Operators: operators,
		Ask: func(
			w http.ResponseWriter, r *http.Request, by *identity.Principal, orgID string, o api.Operation, in endpoint.Values,
		) (answer any, err error) {
			by, err = deps.Operator(r.Context(), *by, orgID)
			if err == nil {
				answer, err = server.Ask(w, r, by, o.Spec().ID, in)
			}
			if err != nil {
				return nil, a.failedPage(r, err)
			}
			return answer, nil
		},
		Currency: a.Currency, Bodies: bodies, Logger: a.log,
	})
}
