package caddymodule

import (
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// Timing sets intervals of the background work, for tests and for unusual machines and networks.
type Timing struct {
	// How long a hold on a wallet outlives the longest duration of its call. A call that settles after that is paid
	// by the operator. More than 0, at most 24h. Default: `2m`.
	HoldTTL caddy.Duration `json:"hold_ttl,omitempty"`

	// How often expired holds are found and released. More than 0, at most 24h. Default: `15s`.
	SweepInterval caddy.Duration `json:"sweep_interval,omitempty"`

	// How long the lease of a conversation lasts. A worker renews its leases; when it is dead, another worker takes its
	// conversations after this time. More than 0, at most 24h. Default: `60s`.
	Lease caddy.Duration `json:"lease,omitempty"`

	// How long a stream waits for the first text of its model before its status 200 and its first chunk go out, so that no
	// proxy before the service gives up on a slow model. A failure before that has its own status, one after it is an event
	// of the stream. More than 0, at most 24h. Default: `10s`.
	EarlyStatus caddy.Duration `json:"early_status,omitempty"`
}

// The defaults of [Timing].
const (
	DefaultHoldTTL       = 2 * time.Minute
	DefaultSweepInterval = billing.DefaultSweepInterval
	DefaultLease         = time.Minute
	DefaultEarlyStatus   = gateway.DefaultEarlyStatus
)

func (t *Timing) faults(fs *config.Faults) {
	if t == nil {
		return
	}
	fs.Duration("svc.timing.hold_ttl", t.HoldTTL)
	fs.Duration("svc.timing.sweep_interval", t.SweepInterval)
	fs.Duration("svc.timing.lease", t.Lease)
	fs.Duration("svc.timing.early_status", t.EarlyStatus)
}

// sweepInterval returns the pause between two sweeps; t may be nil.
func (t *Timing) sweepInterval() time.Duration {
	return orDefault(valueOr(t, Timing{}).SweepInterval, DefaultSweepInterval)
}

// readTiming reads `timing { … }`; [App.UnmarshalCaddyfile] has the syntax.
func (a *App) readTiming(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		timing := new(Timing)
		r.NoArguments(path, o)
		r.Block(path, o, []caddyfile.Rule{
			{Word: "hold_ttl", Read: r.Duration(&timing.HoldTTL)},
			{Word: "sweep_interval", Read: r.Duration(&timing.SweepInterval)},
			{Word: "lease", Read: r.Duration(&timing.Lease)},
			{Word: "early_status", Read: r.Duration(&timing.EarlyStatus)},
		})
		caddyfile.Set(r, path, o, &a.Timing, timing)
	}
}
