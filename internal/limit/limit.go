// Package limit counts requests of organizations and API keys in fixed windows of one minute (docs/contract.md#rate-limits): in memory for
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
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
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

// Windows counts in a PostgreSQL, for the processes that share it. Requests that arrive together share a round trip; a refused one
// costs nothing until the window ends, because this process remembers the refusal. It is safe for concurrent use.
type Windows struct {
	counter store.Windows
	clock   func() time.Time
	refused *refusals
	plain   plainKeys
}

// NewStore returns a counter in a database, see [store.DB.Windows].
func NewStore(counter store.Windows) *Windows { return newWindows(counter, time.Now) }

func newWindows(counter store.Windows, clock func() time.Time) *Windows {
	return &Windows{counter: counter, clock: clock, refused: newRefusals()}
}

// Take implements [Limiter]. The window is that of the database's clock.
func (w *Windows) Take(ctx context.Context, orgID string, limit int64) (Decision, error) {
	if limit <= 0 {
		return unlimited(), nil
	}
	asked := w.clock()
	if d, ok := w.refused.remembered(orgID, limit, asked); ok {
		return d, nil
	}
	permit, err := w.counter.Take(ctx, orgID, limit)
	if err != nil {
		return Decision{}, fmt.Errorf("counting a request: %w", err)
	}
	d := Permitted(permit, limit)
	w.refused.remember(orgID, d, asked)
	return d, nil
}

// Return implements [Returner].
func (w *Windows) Return(orgID string, decision Decision) {
	if decision.window == 0 {
		return
	}
	w.refused.mu.Lock()
	delete(w.refused.byOrg, orgID)
	w.refused.mu.Unlock()
	// A permit that can't be returned stays counted.
	_ = w.counter.Return(orgID, decision.window)
}

// Permitted returns the decision on a request that the store was asked for under a limit above 0.
func Permitted(permit store.Permit, limit int64) Decision {
	d := decide(permit.Before, limit, time.Duration(permit.Window+window.Milliseconds()-permit.NowMS)*time.Millisecond)
	if d.Allowed {
		d.window = permit.Window
	}
	return d
}

// KeyReader reads a key by its hash, as [store.APIKeys] does.
type KeyReader interface {
	ByHash(ctx context.Context, hash [32]byte) (store.KeyRecord, bool, error)
}

// Keys returns a reader that counts the request of each key it reads, in the same round trip, by terms. A record without a permit wasn't
// counted, so [Windows.Take] decides: of keys that may not be used, and for a minute of keys without a limit, which don't wait for the
// commits of others, and of refused keys.
func (w *Windows) Keys(keys KeyReader, terms *store.KeyTerms) KeyReader {
	return countedKeys{w, keys, terms}
}

type countedKeys struct {
	windows *Windows
	keys    KeyReader
	terms   *store.KeyTerms
}

// ByHash implements [KeyReader].
func (k countedKeys) ByHash(ctx context.Context, hash [32]byte) (store.KeyRecord, bool, error) {
	w, asked := k.windows, k.windows.clock()
	if w.plain.has(hash, asked) {
		return k.keys.ByHash(ctx, hash)
	}
	record, found, err := w.counter.Key(ctx, hash, k.terms)
	if err != nil || !found {
		return record, found, err
	}
	name, limit := k.terms.Window(&record)
	if limit <= 0 {
		w.plain.add(hash, asked.Add(window))
		return record, true, nil
	}
	if record.Permit.Window == 0 {
		return record, true, nil
	}
	if d := Permitted(record.Permit, limit); !d.Allowed {
		w.refused.remember(name, d, asked)
		w.plain.add(hash, asked.Add(d.ResetIn))
	}
	return record, true, nil
}

// plainKeys are keys that need not be counted with the look-up for some time. The zero value is empty.
type plainKeys struct {
	mu     sync.Mutex
	byHash map[[32]byte]time.Time
}

// maxPlainKeys bounds the keys that are remembered; others are only looked up a little more dearly.
const maxPlainKeys = 8192

func (p *plainKeys) has(hash [32]byte, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.byHash[hash]
	if ok && !now.Before(until) {
		delete(p.byHash, hash)
		return false
	}
	return ok
}

func (p *plainKeys) add(hash [32]byte, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byHash == nil || len(p.byHash) >= maxPlainKeys {
		p.byHash = make(map[[32]byte]time.Time)
	}
	p.byHash[hash] = until
}

// Limiter counts the requests of organizations, and of keys with a bound of their own, in windows of one minute: [Memory], [Windows] or [Redis].
type Limiter interface {
	// Take counts one request of the organization under the limit of requests per window, if it is admitted; a limit of 0 or
	// less is none. An error is a fault of the counter or the end of ctx, after which the request may have been counted.
	Take(ctx context.Context, orgID string, limit int64) (Decision, error)
}

// Returner is a [Limiter] to which a permit can be returned, for a request that was admitted and then refused because of the
// service's own load. [Memory] and [Windows] implement it; Redis isn't asked again for a request that has failed.
type Returner interface {
	// Return uncounts the request that decision admitted, unless its window is over. It doesn't wait, and may fail silently:
	// then the request stays counted.
	Return(orgID string, decision Decision)
}

var (
	_ Returner = (*Memory)(nil)
	_ Returner = (*Windows)(nil)
)
