package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// Chat serves `POST /v1/chat/completions`, as one JSON body or as a stream of events, and charges the wallet of the
// organization. It needs svc_auth before it. An error after the first byte of a stream is an event of the stream.
//
// Syntax:
//
//	svc_chat [<matcher>]
type Chat struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*Chat) CaddyModule() caddy.ModuleInfo { return moduleInfo[Chat]("svc_chat") }

// ServeHTTP answers the request; no handler after it runs.
func (h *Chat) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	err := h.app.handle("svc_chat", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.chat.Serve(w, r)
	})
	if err != nil { // else the body was read, with a deadline of its own
		handlers.BoundUnread(w, r, h.app.bodyGrace())
	}
	return err
}
