package caddymodule

// Limits bounds what all requests together may take of the machine (design §4).
type Limits struct {
	// How many bytes of request bodies may be in memory over all requests of this process, from 1 to 1 TiB. A request
	// beyond it gets 500 `internal_error` with `Retry-After`. One body is at most 32 MiB. Default: 268435456 (256 MiB).
	BufferedBytes *int64 `json:"buffered_bytes,omitempty"`

	// How many streams an organization may have open at a time on this process, from 1 to 1,000,000. One more gets
	// 429 `rate_limited` with a `retryAfter` of 1. Default: 1000.
	Streams *int64 `json:"streams,omitempty"`

	// How many model calls of an organization may run at a time in this process, streams among them, from 1 to 1,000,000.
	// One more gets 429 `rate_limited` with a `retryAfter` of 1; a worker lets its customer wait. When there are several
	// providers, calls to one of them take three quarters of the number at most, and one more gets 503
	// `provider_overloaded`: a provider that hangs leaves room for calls to the others. Default: 1000.
	Calls *int64 `json:"calls,omitempty"`
}

// The defaults of [Limits].
const (
	DefaultBufferedBytes int64 = 256 << 20
	DefaultStreams       int64 = 1000
	DefaultCalls         int64 = 1000
)

func (l *Limits) faults(fs *faults) {
	if l == nil {
		return
	}
	fs.optionalBetween("svc.limits.buffered_bytes", l.BufferedBytes, 1, 1<<40)
	fs.optionalBetween("svc.limits.streams", l.Streams, 1, 1_000_000)
	fs.optionalBetween("svc.limits.calls", l.Calls, 1, 1_000_000)
}

// bufferedBytes returns the budget of body bytes; l may be nil.
func (l *Limits) bufferedBytes() int64 {
	if l == nil || l.BufferedBytes == nil {
		return DefaultBufferedBytes
	}
	return *l.BufferedBytes
}

// streams returns the streams an organization may have; l may be nil.
func (l *Limits) streams() int64 {
	if l == nil || l.Streams == nil {
		return DefaultStreams
	}
	return *l.Streams
}

// calls returns the calls an organization may have running; l may be nil.
func (l *Limits) calls() int64 {
	if l == nil || l.Calls == nil {
		return DefaultCalls
	}
	return *l.Calls
}
