// Package limit counts requests per organization in fixed windows of one minute (docs/contract.md#rate-limits): in memory for
// one process, in the store for several that share a PostgreSQL, in Redis for any number of them.
//
// Invariants:
//   - One window never admits more than the limit, under any concurrency, for all processes that share the counter.
//   - A window is a minute of the counter's clock, not of the caller's. A clock that steps back never reopens a window.
//   - A refused request counts nothing and changes nothing, so that repeating it only waits for the window's end.
//   - The limit is an argument of each request and never stored: another plan holds from the next request on.
//   - A request waits up to 100 ms for Redis. Without Redis every process admits its share of the limit. A change between the
//     two within a window, and a Redis that loses its memory, are the only ways to admit more.
//
// Plans and HTTP belong to its callers. It reports a failing store in the error and doesn't refuse by itself. It doesn't smooth
// the burst of twice the limit that two adjacent windows allow.
package limit

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// window is the length of every window.
const window = time.Minute

// Decision is the result for one request.
type Decision struct {
	Allowed bool
	// Limit is the number of requests that the window admits. 0 means unlimited; the other numbers are also 0.
	Limit int64
	// Remaining is how many more the window would admit.
	Remaining int64
	// ResetIn is the time to the window's end, above 0 and up to a minute.
	ResetIn time.Duration
	// window is the window that counted an admitted request, for [Returner]; 0 where nothing can be returned.
	window int64
}

// decide decides on a request to a window that has admitted count already.
func decide(count, limit int64, resetIn time.Duration) Decision {
	d := Decision{Allowed: count < limit, Limit: limit, ResetIn: min(max(resetIn, 1), window)}
	if d.Allowed {
		count++
	}
	d.Remaining = max(0, limit-count)
	return d
}

// unlimited admits everything.
func unlimited() Decision { return Decision{Allowed: true} }

const (
	// shardCount is a power of two; shards keep requests of different organizations from waiting for each other.
	shardCount = 64
	// keptSize is the largest size of a shard's map that is reused for the next window.
	keptSize = 1024
)

// Memory counts in this process. It starts no goroutine: a shard drops the old window with the first request of the next. It is
// safe for concurrent use and outlives the configurations that use it.
type Memory struct {
	clock func() time.Time
	start time.Time
	seed  maphash.Seed
	shard [shardCount]shard
}

// shard holds the counts of its latest window only.
type shard struct {
	mu     sync.Mutex
	window int64
	counts map[string]int64
	_      [40]byte // to one cache line each
}

// NewMemory returns a counter without counts. Windows are aligned to the minutes that clock (nil means [time.Now]) shows now; from
// then on only monotonic time moves them, so that a corrected wall clock neither ends nor extends a window.
func NewMemory(clock func() time.Time) *Memory {
	if clock == nil {
		clock = time.Now
	}
	return &Memory{clock: clock, start: clock(), seed: maphash.MakeSeed()}
}

// Take implements [Limiter]. It never fails.
func (m *Memory) Take(_ context.Context, orgID string, limit int64) (Decision, error) {
	if limit <= 0 {
		return unlimited(), nil
	}
	now := m.start.UnixNano() + int64(m.clock().Sub(m.start))
	s := &m.shard[maphash.String(m.seed, orgID)%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(now / int64(window))
	count := s.counts[orgID]
	d := decide(count, limit, time.Duration((s.window+1)*int64(window)-now))
	if d.Allowed {
		s.counts[orgID] = count + 1
		d.window = s.window
	}
	return d, nil
}

// Return implements [Returner].
func (m *Memory) Return(orgID string, decision Decision) {
	s := &m.shard[maphash.String(m.seed, orgID)%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	if decision.window != 0 && decision.window == s.window {
		s.counts[orgID]--
	}
}

// enter drops the counts of an older window. A clock without monotonic time may step back: the latest window stays.
func (s *shard) enter(now int64) {
	switch {
	case s.counts != nil && now <= s.window:
		return
	case s.counts != nil && len(s.counts) <= keptSize:
		clear(s.counts)
	default:
		s.counts = make(map[string]int64)
	}
	s.window = now
}

// refusals remembers the organizations that have used up their window, so that clients which ignore Retry-After cost the shared
// counter nothing. It is bounded by the organizations that are refused within two windows.
type refusals struct {
	mu    sync.Mutex
	byOrg map[string]refusal
	// forget is when the last refusal ends.
	forget time.Time
}

// refusal means that the organization's requests are refused until a time, unless their limit is higher than limit.
type refusal struct {
	until time.Time
	limit int64
}

func newRefusals() *refusals { return &refusals{byOrg: make(map[string]refusal)} }

// remembered returns an earlier refusal that decides the request. After a raise of the limit, the counter decides.
func (r *refusals) remembered(orgID string, limit int64, now time.Time) (Decision, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	earlier, ok := r.byOrg[orgID]
	if !ok || !now.Before(earlier.until) || limit > earlier.limit {
		return Decision{}, false
	}
	return decide(limit, limit, earlier.until.Sub(now)), true
}

// forgive drops an organization's refusal, because a permit was returned.
func (r *refusals) forgive(orgID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byOrg, orgID)
}

// remember keeps d if it is a refusal. asked is the time before the counter was asked, so that a refusal ends a little early,
// never late.
func (r *refusals) remember(orgID string, d Decision, asked time.Time) {
	if d.Allowed {
		return
	}
	until := asked.Add(d.ResetIn)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !asked.Before(r.forget) {
		clear(r.byOrg)
	}
	if until.After(r.forget) {
		r.forget = until
	}
	r.byOrg[orgID] = refusal{until: until, limit: d.Limit}
}
