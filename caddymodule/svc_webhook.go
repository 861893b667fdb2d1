package caddymodule

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// Webhook takes the customer messages that a platform delivers (spec §4.3): it checks the signature over the raw bytes
// (spec §5.3), extracts the messages, puts them on the queue and answers 200 with `{"ok":true,"queued":n}`. A wrong
// signature ends with 401 `unauthenticated`. The worker answers the customers later.
//
// It must see the request as the platform sent it: at the path of spec §4.3, with nothing before it that reads or
// rewrites the body.
type Webhook struct {
	// The platform: `bot`, `social` (with the handshake of its subscription), `localchat`, `market_a` or `market_b`. All
	// but `bot` must be configured in the app. Required.
	Platform string `json:"platform,omitempty"`

	app *App
}

// CaddyModule returns the Caddy module information.
func (*Webhook) CaddyModule() caddy.ModuleInfo { return moduleInfo[Webhook]("svc_webhook") }

// UnmarshalCaddyfile reads the directive. Syntax:
//
//	svc_webhook [<matcher>] bot|social|localchat|market_a|market_b
func (h *Webhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		h.Platform = d.Val()
	}
	if err := h.platformFault(); err != nil {
		return d.WrapErr(err)
	}
	if d.NextArg() {
		return d.Errf("svc_webhook takes one platform, found %s, too", config.Quoted(d.Val()))
	}
	for d.NextBlock(0) {
		return d.Errf("svc_webhook takes no block, found %s; options of a platform stand in the %s block", config.Quoted(d.Val()), appName)
	}
	return nil
}

func (h *Webhook) platformFault() error {
	switch {
	case h.Platform == "":
		return fmt.Errorf("svc_webhook needs a platform; allowed: %s", config.Listed(platformNames))
	case !slices.Contains(platformNames, h.Platform):
		return fmt.Errorf("svc_webhook: there is no platform %s; allowed: %s", config.Quoted(h.Platform), config.Listed(platformNames))
	default:
		return nil
	}
}

// refersTo implements referrer: the platform must be configured.
func (h *Webhook) refersTo(app *App) error {
	if !app.Platforms.configured(h.Platform) {
		return fmt.Errorf("svc_webhook: the %s block has no `platform %s`, which holds what its webhooks are checked with",
			appName, h.Platform)
	}
	return nil
}

// Provision finds the app.
func (h *Webhook) Provision(ctx caddy.Context) (err error) {
	if err := h.platformFault(); err != nil {
		return err
	}
	if h.app, err = configuredApp(ctx, "svc_webhook"); err != nil {
		return err
	}
	return h.refersTo(h.app)
}

// ServeHTTP answers the request; no handler after it runs.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	err := h.app.serve("svc_webhook", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.webhooks[h.Platform](w, r)
	})
	countWebhook(h.Platform, err)
	return err
}

var (
	_ caddy.Provisioner = (*Webhook)(nil)
	_ referrer          = (*Webhook)(nil)
)
