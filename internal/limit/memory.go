package limit

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

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

// NewMemory returns a counter without counts. Windows are aligned to the minutes that clock (nil is [time.Now]) shows now; from
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
