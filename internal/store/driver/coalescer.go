package driver

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// maxRound bounds the different keys that wait for one round of a coalescer.
const maxRound = 8192

// errLookupSlow ends a round that has taken too long.
var errLookupSlow = errors.New("store: the lookup took too long")

// Coalescer lets one fetch serve all callers that asked before it began: natural batching for reads. The zero
// value with fetch set is ready.
type Coalescer[K comparable, V any] struct {
	// Fetch returns the values of some keys, without the keys that don't exist. The number of each key is that of its callers. Fetch bounds
	// its own time.
	Fetch func(keys map[K]int64) (map[K]V, error)
	// Patience bounds a round from the arrival of its first key, including the wait for the fetch before it. 0 means unlimited. Later
	// callers wait less.
	Patience time.Duration

	mu      sync.Mutex
	next    *round[K, V] // gathers keys while a fetch runs
	running bool
	closed  bool
	fetches sync.WaitGroup
}

// round is one fetch and the callers that wait for it.
type round[K comparable, V any] struct {
	wanted map[K]int64
	ending sync.Once
	done   chan struct{}
	found  map[K]V
	err    error
	late   *time.Timer // nil without patience
}

// end wakes the callers. Only its first call counts.
func (r *round[K, V]) end(found map[K]V, err error) {
	r.ending.Do(func() {
		r.found, r.err = found, err
		close(r.done)
	})
}

// over reports whether the round has ended.
func (r *round[K, V]) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Get returns the value of a key, read after Get began, and false if there is none. When ctx ends first, it returns the context's cause and
// the fetch continues for the other callers.
func (c *Coalescer[K, V]) Get(ctx context.Context, key K) (value V, ok bool, err error) {
	value, _, ok, err = c.GetRanked(ctx, key)
	return value, ok, err
}

// GetRanked is Get for a fetch that decides on each caller: rank is how many callers of the same round asked for the key
// before.
func (c *Coalescer[K, V]) GetRanked(ctx context.Context, key K) (value V, rank int64, ok bool, err error) {
	mine, rank, err := c.join(key)
	if err != nil {
		return value, 0, false, err
	}
	found, err := mine.wait(ctx)
	value, ok = found[key]
	return value, rank, ok, err
}

// Add requests a key and doesn't wait. done is closed after the fetch.
func (c *Coalescer[K, V]) Add(key K) (done <-chan struct{}, err error) {
	joined, _, err := c.join(key)
	if err != nil {
		return nil, err
	}
	return joined.done, nil
}

// getAll is get for up to maxRound keys, which one fetch reads; they may repeat. It adds the values to mine. They are shared with other
// callers.
func (c *Coalescer[K, V]) getAll(ctx context.Context, keys []K, mine map[K]V) error {
	round, _, err := c.join(keys...)
	if err != nil {
		return err
	}
	found, err := round.wait(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if value, ok := found[key]; ok {
			mine[key] = value
		}
	}
	return nil
}

// wait returns the values of the round: of the caller's keys, and maybe of others.
func (r *round[K, V]) wait(ctx context.Context) (map[K]V, error) {
	select {
	case <-r.done:
		return r.found, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// join puts the keys into the next round, and starts a goroutine for it when none fetches. rank is that of the last key, see
// [Coalescer.GetRanked].
func (c *Coalescer[K, V]) join(keys ...K) (joined *round[K, V], rank int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, 0, ErrClosed
	}
	if c.next == nil || c.next.over() {
		r := &round[K, V]{wanted: map[K]int64{}, done: make(chan struct{})}
		if c.Patience > 0 {
			r.late = time.AfterFunc(c.Patience, func() { r.end(nil, errLookupSlow) })
		}
		c.next = r
	}
	if len(c.next.wanted)+len(keys) > maxRound {
		return nil, 0, ErrBusy
	}
	for _, key := range keys {
		rank = c.next.wanted[key]
		c.next.wanted[key] = rank + 1
	}
	if !c.running {
		c.running = true
		c.fetches.Go(c.run)
	}
	return c.next, rank, nil
}

// run fetches round after round until no caller waits.
func (c *Coalescer[K, V]) run() {
	for {
		runtime.Gosched() // callers that are ready join before the fetch begins, and share it
		c.mu.Lock()
		current := c.next
		c.next = nil
		c.running = current != nil
		c.mu.Unlock()
		if current == nil {
			return
		}
		if current.over() {
			continue
		}
		current.end(c.Fetch(current.wanted))
		if current.late != nil {
			current.late.Stop()
		}
	}
}

// Close refuses new keys and waits for the fetches that run.
func (c *Coalescer[K, V]) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.fetches.Wait()
}
