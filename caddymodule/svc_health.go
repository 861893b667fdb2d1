package caddymodule

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
)

// The probes of [Health].
const (
	probeLive  = "live"
	probeReady = "ready"
)

// Health serves the probes of an orchestrator or load balancer. It belongs on a private listener, because it needs no key,
// and its bodies are not those of the public interface.
type Health struct {
	// The probe that this handler serves: `live` responds with 200 as long as the process responds at all, `ready` with 200
	// when requests should be sent here, and 503 while the store is not ready or the process is about to end. Default:
	// the last part of the request's path; other paths end with 404.
	Probe string `json:"probe,omitempty"`

	health *handlers.Health
}

// CaddyModule returns the Caddy module information.
func (*Health) CaddyModule() caddy.ModuleInfo { return moduleInfo[Health]("svc_health") }

// UnmarshalCaddyfile reads the directive. Syntax:
//
//	svc_health [<matcher>] [live|ready]
func (h *Health) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		h.Probe = d.Val()
		if h.Probe == "" {
			return d.Errf("svc_health: the probe is empty; allowed: %s, %s", probeLive, probeReady)
		}
	}
	if err := h.probeFault(); err != nil {
		return d.WrapErr(err)
	}
	if d.NextArg() {
		return d.Errf("svc_health takes at most one probe, found %s", config.Quoted(d.Val()))
	}
	for d.NextBlock(0) {
		return d.Errf("svc_health takes no block, found %s", config.Quoted(d.Val()))
	}
	return nil
}

func (h *Health) probeFault() error {
	if !slices.Contains([]string{"", probeLive, probeReady}, h.Probe) {
		return fmt.Errorf("svc_health: %s is not a probe; allowed: %s, %s", config.Quoted(h.Probe), probeLive, probeReady)
	}
	return nil
}

// Provision finds the app.
func (h *Health) Provision(ctx caddy.Context) error {
	if err := h.probeFault(); err != nil {
		return err
	}
	app, err := configuredApp(ctx, "svc_health")
	if err != nil {
		return err
	}
	h.health = &handlers.Health{Store: readiness{app}, ShuttingDown: exiting, Version: Version()}
	return nil
}

// ServeHTTP answers the probe; no handler after it runs.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	switch h.Probe {
	case probeLive:
		return routable(h.health.Live(w, r))
	case probeReady:
		return routable(h.health.Ready(w, r))
	default:
		return routable(h.health.Serve(w, r))
	}
}

var _ caddy.Provisioner = (*Health)(nil)
