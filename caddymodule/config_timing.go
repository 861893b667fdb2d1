package caddymodule

import (
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/billing"
)

// Timing tunes what runs in the background, for tests and for unusual machines. The defaults suit everyone else.
type Timing struct {
	// How long a hold on a wallet outlives the longest duration of its call. A call that settles after that is paid
	// by the operator. More than 0, at most 24h. Default: `2m`.
	HoldTTL caddy.Duration `json:"hold_ttl,omitempty"`

	// How often expired holds are looked for and given back. More than 0, at most 24h. Default: `15s`.
	SweepInterval caddy.Duration `json:"sweep_interval,omitempty"`

	// How long a worker has a conversation for itself without a sign of life. A worker renews its leases in time; those
	// of a dead one go to another worker after this long. More than 0, at most 24h. Default: `60s`.
	Lease caddy.Duration `json:"lease,omitempty"`
}

// The defaults of [Timing].
const (
	DefaultHoldTTL       = 2 * time.Minute
	DefaultSweepInterval = billing.DefaultSweepInterval
	DefaultLease         = time.Minute
)

func (t *Timing) faults(fs *faults) {
	if t == nil {
		return
	}
	fs.duration("svc.timing.hold_ttl", t.HoldTTL)
	fs.duration("svc.timing.sweep_interval", t.SweepInterval)
	fs.duration("svc.timing.lease", t.Lease)
}

// holdTTL returns the hold's grace after the longest call; t may be nil.
func (t *Timing) holdTTL() time.Duration {
	if t == nil {
		return DefaultHoldTTL
	}
	return orDefault(t.HoldTTL, DefaultHoldTTL)
}

// sweepInterval returns the pause between two sweeps; t may be nil.
func (t *Timing) sweepInterval() time.Duration {
	if t == nil {
		return DefaultSweepInterval
	}
	return orDefault(t.SweepInterval, DefaultSweepInterval)
}

// lease returns how long a worker has a conversation without a sign of life; t may be nil.
func (t *Timing) lease() time.Duration {
	if t == nil {
		return DefaultLease
	}
	return orDefault(t.Lease, DefaultLease)
}
