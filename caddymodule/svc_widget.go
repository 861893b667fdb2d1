package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/widget"
	"github.com/caddy-svc/caddy-svc/internal/worker"
)

// Widget serves the web widget of channels of type `widget` at `/widget/{channelId}`: the script that a site embeds, the
// chat in its frame, and the requests of both. It needs no key and accepts the origins that the channel allows. Answers are
// streamed, and charged to the channel's organization. The path must be `/widget`.
//
// Requests are counted per client as well, by Caddy's `{client_ip}`: behind a proxy, set the server's `trusted_proxies`.
//
// Syntax:
//
//	svc_widget [<matcher>]
type Widget struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*Widget) CaddyModule() caddy.ModuleInfo { return moduleInfo[Widget]("svc_widget") }

// ServeHTTP answers the request; no handler after it runs.
func (h *Widget) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.app.serve("svc_widget", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.widget.Serve(w, withClientAddress(r))
	})
}

// newWidget builds the widget of a runtime; it does no I/O. This process answers waiting visitors with a worker
// that takes no other conversations.
func (a *App) newWidget(rt *runtime) *widget.Widget {
	live := a.workerConfig(rt)
	live.Exit = drained.Done()
	return widget.New(rt.api, widget.Deps{
		DB: rt.shared.db, Inbox: rt.queue, Live: worker.New(live), Ring: rt.shared.ring, Limiter: rt.limiter,
		Streams: new(v1.Streams), Bodies: rt.shared.bodies, Logger: a.log,
	})
}
