package caddymodule

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
)

// Limits bounds the resources that all requests together may use.
type Limits struct {
	// How many bytes of request bodies may be in memory over all requests of this process, from 1 to 1 TiB. Half of it is for
	// organizations, with the deliveries of their bots, a quarter for requests without a key or a session, an eighth for
	// other webhook deliveries up to 256 KiB and an eighth for larger ones. One organization, or one address, may hold as much
	// of its share as is still free. Beyond that a request with a key or a session gets 429 `rate_limited` with a `retryAfter`
	// of 1, any other one 500 `internal_error` with `Retry-After`. One body is at most 32 MiB. Default: 268435456 (256 MiB).
	BufferedBytes *int64 `json:"buffered_bytes,omitempty"`

	// How long a request body may take before it must arrive at `body_rate`. A slower one gets 400 `invalid_request`, and its
	// connection is closed. More than 0, at most 24h. Default: `10s`.
	BodyGrace caddy.Duration `json:"body_grace,omitempty"`

	// As `body_grace`, for requests with an API key or a session. More than 0, at most 24h. Default: `30s`.
	BodyGraceWithKey caddy.Duration `json:"body_grace_with_key,omitempty"`

	// How many bytes of a request body must arrive per second after the grace, from 1 to 1 TiB: after t seconds
	// (t - grace) · rate bytes must be there. Webhook deliveries must be there whole after 10 s. Default: 65536 (64 KiB).
	BodyRate *int64 `json:"body_rate,omitempty"`

	// How many streams an organization may have open at a time on this process, from 1 to 1,000,000. One more gets
	// 429 `rate_limited` with a `retryAfter` of 1. Default: 1000.
	Streams *int64 `json:"streams,omitempty"`

	// How many model calls of an organization may run at a time in this process, streams among them, from 1 to 1,000,000.
	// One more gets 429 `rate_limited` with a `retryAfter` of 1; a worker lets its customer wait. When there are several
	// providers, calls to one of them take three quarters of the number at most, and one more gets 503
	// `provider_overloaded`: a provider that hangs leaves room for calls to the others. Default: 1000.
	Calls *int64 `json:"calls,omitempty"`

	// How many bytes of answers are kept for the `Idempotency-Key`s of an organization, in each environment, from 1 to 1 TiB. An answer
	// beyond it is charged and not kept: a request that is sent again gets 409 `conflict`. Default: 67108864 (64 MiB).
	KeptAnswers *int64 `json:"kept_answers,omitempty"`
}

// The defaults of [Limits].
const (
	DefaultBufferedBytes int64 = 256 << 20
	DefaultStreams       int64 = 1000
	DefaultCalls         int64 = 1000
	DefaultKeptAnswers   int64 = billing.DefaultKeptBytes
)

func (l *Limits) faults(fs *config.Faults) {
	if l == nil {
		return
	}
	fs.OptionalBetween("svc.limits.buffered_bytes", l.BufferedBytes, 1, 1<<40)
	fs.Duration("svc.limits.body_grace", l.BodyGrace)
	fs.Duration("svc.limits.body_grace_with_key", l.BodyGraceWithKey)
	fs.OptionalBetween("svc.limits.body_rate", l.BodyRate, 1, 1<<40)
	fs.OptionalBetween("svc.limits.streams", l.Streams, 1, 1_000_000)
	fs.OptionalBetween("svc.limits.calls", l.Calls, 1, 1_000_000)
	fs.OptionalBetween("svc.limits.kept_answers", l.KeptAnswers, 1, 1<<40)
}

// bodyPace returns how fast bodies must arrive; l may be nil.
func (l *Limits) bodyPace() handlers.Pace {
	pace, limits := handlers.DefaultPace, valueOr(l, Limits{})
	pace.Grace = orDefault(limits.BodyGrace, pace.Grace)
	pace.GraceWithKey = orDefault(limits.BodyGraceWithKey, pace.GraceWithKey)
	pace.Rate = valueOr(limits.BodyRate, pace.Rate)
	return pace
}

// readLimits reads `limits { … }`; [App.UnmarshalCaddyfile] has the syntax.
func (a *App) readLimits(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		limits := new(Limits)
		r.NoArguments(path, o)
		r.Block(path, o, []caddyfile.Rule{
			{Word: "buffered_bytes", Read: r.Size(&limits.BufferedBytes)},
			{Word: "body_grace", Read: r.Duration(&limits.BodyGrace)},
			{Word: "body_grace_with_key", Read: r.Duration(&limits.BodyGraceWithKey)},
			{Word: "body_rate", Read: r.Size(&limits.BodyRate)},
			{Word: "streams", Read: r.Integer(&limits.Streams)},
			{Word: "calls", Read: r.Integer(&limits.Calls)},
			{Word: "kept_answers", Read: r.Size(&limits.KeptAnswers)},
		})
		caddyfile.Set(r, path, o, &a.Limits, limits)
	}
}
