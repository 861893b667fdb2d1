package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// Webhook receives the customer messages that a platform delivers. It checks the signature over the raw bytes, puts the
// messages on the queue and responds with 200 and `{"ok":true,"queued":n}`. A wrong signature ends with 401
// `unauthenticated`. A worker answers the customers later.
//
// The request must reach it as the platform sent it: under `/webhooks/…`, with no handler before it that reads or rewrites
// the body.
//
// Syntax:
//
//	svc_webhook [<matcher>] <platform>
type Webhook struct {
	// The platform, by the name of its module in the namespace `svc.platforms`. Platforms with required options must be
	// configured in the app. Required.
	Platform string `json:"platform,omitempty"`

	inApp

	// rewritten: it was logged that deliveries come with another path.
	rewritten sync.Once
}

// CaddyModule returns the Caddy module information.
func (*Webhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_webhook", New: func() caddy.Module { return new(Webhook) }}
}

// UnmarshalCaddyfile reads the directive.
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
	if h.Platform == "" {
		return fmt.Errorf("svc_webhook needs a platform; allowed: %s", config.Listed(messagingPlatforms.names()))
	}
	if fault := unknownPlatform(h.Platform); fault != "" {
		return fmt.Errorf("svc_webhook: %s", fault)
	}
	return nil
}

// unknownPlatform returns what is wrong if this build has no platform of that name, else "".
func unknownPlatform(name string) string {
	if messagingPlatforms.named(name) != nil {
		return ""
	}
	return fmt.Sprintf("there is no platform %s; allowed: %s", config.Quoted(name), config.Listed(messagingPlatforms.names()))
}

// misplaced checks that no handler before this one changes the path of deliveries, and that the platform is configured.
func (h *Webhook) misplaced(at placement) error {
	if fault := cmp.Or(at.site.strips(at.word, h.path()), at.app.unconfiguredPlatform(h.Platform)); fault != "" {
		return errors.New(fault)
	}
	return nil
}

// unconfiguredPlatform returns what is missing if the platform of that name needs a block and has none, else "".
func (a *App) unconfiguredPlatform(name string) string {
	if a.Platforms.configured(messagingPlatforms.named(name).Describe()) {
		return ""
	}
	return fmt.Sprintf("the %s block has no `platform %s`, which holds what its webhooks are checked with", appName, name)
}

// Provision finds the app.
func (h *Webhook) Provision(ctx caddy.Context) error {
	if err := h.platformFault(); err != nil {
		return err
	}
	if err := h.inApp.Provision(ctx); err != nil {
		return err
	}
	if fault := h.app.unconfiguredPlatform(h.Platform); fault != "" {
		return fmt.Errorf("svc_webhook: %s", fault)
	}
	return nil
}

// ServeHTTP answers the request; no handler after it runs.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if h.isRewritten(r) {
		h.rewritten.Do(func() { h.logRewritten(r) })
	}
	err := h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.webhooks[h.Platform](w, r)
	})
	countWebhook(h.Platform, err)
	return err
}

// path returns the path of the platform's webhook; a channel's id follows if it ends with a slash.
func (h *Webhook) path() string {
	return messaging.WebhookPath(messagingPlatforms.named(h.Platform).Describe())
}

// isRewritten reports whether a request came to the webhook's path, and a handler before this one has changed that to one which is
// not_found. No platform tells the operator.
func (h *Webhook) isRewritten(r *http.Request) bool {
	came, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if !ok || came.URL.Path == r.URL.Path {
		return false
	}
	path := h.path()
	ours := func(requested string) bool {
		return requested == path || strings.HasSuffix(path, "/") && strings.HasPrefix(requested, path)
	}
	return ours(came.URL.Path) && !ours(r.URL.Path)
}

func (h *Webhook) logRewritten(r *http.Request) {
	h.app.log.Error("a rewrite or uri before svc_webhook changes the path of deliveries, which all end with not_found; "+
		"exclude the webhooks from it", "platform", h.Platform, "path", loggedPath(r.URL.Path))
}
