package store

import (
	"context"
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
func (c *coalescer[K, V]) get(ctx context.Context, key K) (value V, found bool, err error) {
	mine, err := c.join(key)
	if err != nil {
		return value, false, err
	}
	select {
	case <-mine.done:
		value, found = mine.found[key]
		return value, found, mine.err
	case <-ctx.Done():
		return value, false, context.Cause(ctx)
	}
}

// join puts the key into the next round, and starts a goroutine for it when none fetches.
func (c *coalescer[K, V]) join(key K) (*round[K, V], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.next == nil {
		c.next = &round[K, V]{wanted: map[K]struct{}{}, done: make(chan struct{})}
	}
	if len(c.next.wanted) >= maxRound {
		return nil, ErrBusy
	}
	c.next.wanted[key] = struct{}{}
	if !c.running {
		c.running = true
		c.fetches.Go(c.run)
	}
	return c.next, nil
}

// run fetches round after round until nobody waits.
func (c *coalescer[K, V]) run() {
	for {
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
