package store

import (
	"context"
	"runtime"
	"sync"
)

// maxRound bounds the different keys that wait for one round of a coalescer.
const maxRound = 8192

// coalescer lets one fetch serve all who asked for something before it began: natural batching for reads. The zero
// value with fetch set is ready.
type coalescer[K comparable, V any] struct {
	// fetch answers the values of some keys, and leaves out those that don't exist. It bounds its own time.
	fetch func(keys []K) (map[K]V, error)

	mu      sync.Mutex
	next    *round[K, V] // gathers keys while a fetch runs
	running bool
	closed  bool
	fetches sync.WaitGroup
}

// round is one fetch and those who wait for it.
type round[K comparable, V any] struct {
	wanted map[K]struct{}
	done   chan struct{}
	found  map[K]V
	err    error
}

// get answers the value of a key as it was after get began, and false when there is none. When ctx ends first, it
// returns the context's cause and the fetch goes on for the others.
func (c *coalescer[K, V]) get(ctx context.Context, key K) (value V, ok bool, err error) {
	found, err := c.wait(ctx, key)
	value, ok = found[key]
	return value, ok, err
}

// getAll is get for up to maxRound keys, which one fetch answers; they may repeat. The values are shared with others
// who asked for them.
func (c *coalescer[K, V]) getAll(ctx context.Context, keys []K) (map[K]V, error) {
	found, err := c.wait(ctx, keys...)
	if err != nil {
		return nil, err
	}
	mine := make(map[K]V, len(keys))
	for _, key := range keys {
		if value, ok := found[key]; ok {
			mine[key] = value
		}
	}
	return mine, nil
}

// wait answers what a round found that fetched the keys, and maybe others.
func (c *coalescer[K, V]) wait(ctx context.Context, keys ...K) (map[K]V, error) {
	mine, err := c.join(keys...)
	if err != nil {
		return nil, err
	}
	select {
	case <-mine.done:
		return mine.found, mine.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// join puts the keys into the next round, and starts a goroutine for it when none fetches.
func (c *coalescer[K, V]) join(keys ...K) (*round[K, V], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.next == nil {
		c.next = &round[K, V]{wanted: map[K]struct{}{}, done: make(chan struct{})}
	}
	if len(c.next.wanted)+len(keys) > maxRound {
		return nil, ErrBusy
	}
	for _, key := range keys {
		c.next.wanted[key] = struct{}{}
	}
	if !c.running {
		c.running = true
		c.fetches.Go(c.run)
	}
	return c.next, nil
}

// run fetches round after round until nobody waits.
func (c *coalescer[K, V]) run() {
	for {
		runtime.Gosched() // whoever is ready to ask does so before the fetch begins, and shares it
		c.mu.Lock()
		current := c.next
		c.next = nil
		c.running = current != nil
		c.mu.Unlock()
		if current == nil {
			return
		}
		keys := make([]K, 0, len(current.wanted))
		for key := range current.wanted {
			keys = append(keys, key)
		}
		current.found, current.err = c.fetch(keys)
		close(current.done)
	}
}

// close refuses new keys and waits for those who were asked for.
func (c *coalescer[K, V]) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.fetches.Wait()
}
