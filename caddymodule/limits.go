package caddymodule

import (
	"log/slog"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/gcfloor"
)

// Plan is a named set of limits for organizations. An organization gets the first plan of the list if its creation
// names none. A limit that is not given has its default.
type Plan struct {
	// The name by which organizations refer to the plan: 1 to 64 letters, digits, dots, hyphens and underscores, the
	// first one a letter or digit. Required, unique.
	Name string `json:"name,omitempty"`

	// How many authenticated requests to `/v1` an organization may make within one minute of the clock, from 1 to
	// 1,000,000,000. Beyond it they get 429 `rate_limited`. Default: unlimited.
	RequestsPerMinute *int64 `json:"requests_per_minute,omitempty"`

	// How many messaging channels an organization may have, from 1 to 1,000,000. One more gets 402
	// `plan_limit_exceeded`; the operator's `caddy svc channel create` may go beyond it. Default: 1000.
	Channels *int64 `json:"channels,omitempty"`

	// How many bytes the documents of all knowledge bases of an organization may have together, from 0 to 1 PiB. More
	// get 402 `plan_limit_exceeded`. Default: 1GiB.
	KnowledgeBytes *int64 `json:"knowledge_bytes,omitempty"`
}

var blockName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// isBlockName reports whether a plan or a provider can have the name; blockNameForm says it in words.
func isBlockName(name string) bool { return len(name) <= 64 && blockName.MatchString(name) }

const blockNameForm = "1 to 64 letters, digits, dots, hyphens and underscores, beginning with a letter or digit"

// Named implements the list of plans.
func (p *Plan) Named() *string { return &p.Name }

// Rules are the options of a plan.
func (p *Plan) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Integer("requests_per_minute", &p.RequestsPerMinute, 1, 1_000_000_000),
		caddyfile.Integer("channels", &p.Channels, 1, 1_000_000).Or(1000),
		caddyfile.Size("knowledge_bytes", &p.KnowledgeBytes, 0, 1<<50).Or(1 << 30),
	}
}

func (p *Plan) faults(fs *config.Faults, path string) {
	if !isBlockName(p.Name) {
		fs.Addf(path, "the name must be %s", blockNameForm)
	}
}

// Limits bounds the resources that all requests together may use.
type Limits struct {
	// How many bytes of request bodies may be in memory over all requests of this process, from 1 to 1 TiB. Half of it is for
	// organizations, with the deliveries of their bots, a quarter for requests without a key or a session, an eighth for other
	// webhook deliveries up to 256 KiB and an eighth for larger ones. One organization, or one address, may hold as much of
	// its share as is still free. Beyond that a request with a key or a session gets 429 `rate_limited` with a `retryAfter` of
	// 1, any other one 500 `internal_error` with `Retry-After`. One body may have up to 32 MiB. Default: 268435456 (256 MiB).
	BufferedBytes *int64 `json:"buffered_bytes,omitempty"`

	// How long a request body may take before it must arrive at `body_rate`. A slower one gets 400 `invalid_request`, and its
	// connection is closed. More than 0, up to 24h. Default: `10s`.
	BodyGrace caddy.Duration `json:"body_grace,omitempty"`

	// As `body_grace`, for requests with an API key or a session. More than 0, up to 24h. Default: `30s`.
	BodyGraceWithKey caddy.Duration `json:"body_grace_with_key,omitempty"`

	// How many bytes of a request body must arrive per second after the grace, from 1 to 1 TiB: after t seconds
	// (t - grace) · rate bytes must be there. Webhook deliveries must be there whole after 10 s. Default: 65536 (64 KiB).
	BodyRate *int64 `json:"body_rate,omitempty"`

	// How many streams an organization may have open at a time on this process, from 1 to 1,000,000. One more gets
	// 429 `rate_limited` with a `retryAfter` of 1. Default: 1000.
	Streams *int64 `json:"streams,omitempty"`

	// How many model calls of an organization may run at a time in this process, streams among them, from 1 to 1,000,000.
	// One more gets 429 `rate_limited` with a `retryAfter` of 1; a worker lets its customer wait. When there are several
	// providers, calls to one of them are limited to three quarters of the number, and one more gets 503
	// `provider_overloaded`: a provider that hangs leaves room for calls to the others. Default: 1000.
	Calls *int64 `json:"calls,omitempty"`

	// How many bytes of answers are kept for the `Idempotency-Key`s of an organization, in each environment, from 1 to 1 TiB. An answer
	// beyond it is charged and not kept: a request that is sent again gets 409 `conflict`. Default: 67108864 (64 MiB).
	KeptAnswers *int64 `json:"kept_answers,omitempty"`
}

// Rules are the options of the block limits.
func (l *Limits) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Size("buffered_bytes", &l.BufferedBytes, 1, 1<<40).Or(defaultBufferedBytes),
		caddyfile.Duration("body_grace", &l.BodyGrace, handlers.DefaultPace.Grace),
		caddyfile.Duration("body_grace_with_key", &l.BodyGraceWithKey, handlers.DefaultPace.GraceWithKey),
		caddyfile.Size("body_rate", &l.BodyRate, 1, 1<<40).Or(handlers.DefaultPace.Rate),
		caddyfile.Integer("streams", &l.Streams, 1, 1_000_000).Or(1000),
		caddyfile.Integer("calls", &l.Calls, 1, 1_000_000).Or(1000),
		caddyfile.Size("kept_answers", &l.KeptAnswers, 1, 1<<40).Or(billing.DefaultKeptBytes),
	}
}

// defaultBufferedBytes is the default of buffered_bytes.
const defaultBufferedBytes = 256 << 20

// bodyPace returns how fast bodies must arrive.
func (l *Limits) bodyPace() handlers.Pace {
	return handlers.Pace{Grace: time.Duration(l.BodyGrace), GraceWithKey: time.Duration(l.BodyGraceWithKey), Rate: *l.BodyRate}
}

// Timing sets intervals of the background work, for tests and for unusual machines and networks.
type Timing struct {
	// How long a hold on a wallet outlives the longest duration of its call. A call that settles after that is paid
	// by the operator. More than 0, up to 24h. Default: `2m`.
	HoldTTL caddy.Duration `json:"hold_ttl,omitempty"`

	// How often expired holds are found and released. More than 0, up to 24h. Default: `15s`.
	SweepInterval caddy.Duration `json:"sweep_interval,omitempty"`

	// How long the lease of a conversation lasts. A worker renews its leases; when it is dead, another worker leases
	// its conversations after this time. More than 0, up to 24h. Default: `60s`.
	Lease caddy.Duration `json:"lease,omitempty"`

	// How long a stream waits for the first text of its model before its status 200 and its first chunk go out, so that no
	// proxy before the service gives up on a slow model. A failure before that has its own status, one after it is an event
	// of the stream. More than 0, up to 24h. Default: `10s`.
	EarlyStatus caddy.Duration `json:"early_status,omitempty"`
}

// Rules are the options of the block timing.
func (t *Timing) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Duration("hold_ttl", &t.HoldTTL, 2*time.Minute),
		caddyfile.Duration("sweep_interval", &t.SweepInterval, billing.DefaultSweepInterval),
		caddyfile.Duration("lease", &t.Lease, time.Minute),
		caddyfile.Duration("early_status", &t.EarlyStatus, gateway.DefaultEarlyStatus),
	}
}

// Worker tunes the companion worker, which replies to the customers (`caddy svc-worker` or the binary svc-worker). A
// server accepts the block and ignores it.
type Worker struct {
	// How many conversations one worker process answers at the same time, from 1 to 10,000. Default: 32.
	Concurrency *int64 `json:"concurrency,omitempty"`

	// The address where the worker serves probes (`/health/live`, `/health/ready`) and `/metrics`: a host and port, or
	// `unix/PATH`. It belongs on a private address. Default: none.
	Listen string `json:"listen,omitempty"`
}

// Rules are the options of the block worker.
func (w *Worker) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Integer("concurrency", &w.Concurrency, 1, 10_000).Or(32),
		caddyfile.Text("listen", &w.Listen, "<address>", "an address with its port, e.g. 127.0.0.1:8082").
			Refuse(w.Listen != "" && !listenAddress(w.Listen),
				"must be one address with its port, e.g. 127.0.0.1:8082, or unix/PATH; placeholders are not filled in"),
	}
}

// listenAddress reports whether Caddy can listen on the address, for HTTP over TCP or a Unix socket.
func listenAddress(text string) bool {
	if strings.ContainsAny(text, "{}") {
		return false
	}
	if !strings.Contains(text, "/") {
		if _, _, err := net.SplitHostPort(text); err != nil {
			return false
		}
	}
	address, err := caddy.ParseNetworkAddress(text)
	if err != nil {
		return false
	}
	if address.IsUnixNetwork() {
		return address.Host != ""
	}
	return strings.HasPrefix(address.Network, "tcp") && address.PortRangeSize() == 1
}

// DefaultGCFloor is the floor of the heap in bytes. docs/operating.md has the price of it, and of more.
const DefaultGCFloor = 32 << 20

// Memory sets how the process uses its memory.
type Memory struct {
	// The size of the heap in bytes below which Go's garbage collector doesn't run, from 4 MiB to 1 TiB. Without a floor a busy server
	// with a small heap collects many times a second; the price is up to that much memory. Above the floor GOGC applies, and a memory limit
	// (GOMEMLIMIT, or that of the container) always does. It is for the whole process. It is ignored, with a warning unless it is the
	// default, where the memory limit is below 256 MiB or four times the floor, or GOGC is off. 4 MiB is as without a floor. Default:
	// 32 MiB.
	GCFloor *int64 `json:"gc_floor,omitempty"`
}

// Rules are the options of the block memory. The floor has no default here, because only a floor that was given is worth a warning.
func (m *Memory) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{caddyfile.Size("gc_floor", &m.GCFloor, gcfloor.Lowest, gcfloor.Highest)}
}

// useFloor sets the floor until release is called; m may be nil.
func (m *Memory) useFloor(log *slog.Logger) (release func()) {
	floor := valueOr(m, Memory{}).GCFloor
	if floor == nil {
		log = slog.New(slog.DiscardHandler) // the default needs no warning
	}
	return gcfloor.Use(valueOr(floor, DefaultGCFloor), log)
}
