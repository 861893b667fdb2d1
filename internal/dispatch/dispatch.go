// Package dispatch bounds how much work runs at a time and lets organizations take turns, so that one with much or hanging work keeps no
// other waiting. [Queue] starts the work that is due in a queue of the store. [Turns] are for work that a caller waits for. The work itself
// belongs to the callers.
package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

const (
	// lookPause is the default of [Queue.Pause].
	lookPause = time.Second
	// emptyPause is the longest time between two looks at an empty queue, and so the delay by a lost notice of a commit.
	emptyPause = 15 * time.Second
	// faultPause follows a fault of the store.
	faultPause = 5 * time.Second
	// storeWait bounds every wait for the store.
	storeWait = 10 * time.Second
)

// Queue is the work that a dispatcher starts. All fields but Pause are required.
type Queue[T any] struct {
	// Pause is about how long the queue is left alone when nothing was due; 0 means a second.
	Pause time.Duration
	// Places is how many tries run at a time, OrgPlaces how many of them for one organization.
	Places, OrgPlaces int
	// Due returns the organizations after cursor that have something to try now. next is the cursor of the next look. An empty one is the
	// beginning. empty: nothing waits, so that nothing becomes due before something is committed.
	Due func(ctx context.Context, cursor string) (orgs []string, next string, empty bool, err error)
	// Committed returns a channel that is closed after the next commit of any process, or nil if the store doesn't tell.
	Committed func() <-chan struct{}
	// Lease leases up to a number of tries of an organization.
	Lease func(ctx context.Context, org string, atMost int) ([]T, error)
	// Try makes one try. It gets the context of [Queue.Run].
	Try func(ctx context.Context, one *T)
	// Failed is called with each error of Due and Lease. Both are tried again after a pause.
	Failed func(ctx context.Context, err error)
}

// Run starts due work until ctx ends, and returns when the tries that run have ended.
func (q Queue[T]) Run(ctx context.Context) {
	d := &dispatcher[T]{Queue: q, running: map[string]int{}, freed: make(chan struct{}, 1)}
	for cursor := ""; ctx.Err() == nil; {
		committed := d.Committed() // from now on, so that the look misses nothing
		next, empty, err := d.look(ctx, cursor)
		switch {
		case err != nil && ctx.Err() == nil:
			d.Failed(ctx, err)
			d.pause(ctx, faultPause, nil)
		case next == "" || d.full():
			began := time.Now()
			if empty && committed != nil {
				d.pause(ctx, emptyPause, committed)
			}
			d.pause(ctx, repeat.Around(cmp.Or(d.Pause, lookPause))-time.Since(began), nil)
		}
		cursor = next
	}
	d.tries.Wait()
}

// Storing returns the context of one write of the store, which outlives a stop.
func Storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), storeWait, fmt.Errorf("the store took longer than %s", storeWait))
}

// dispatcher is a queue at work.
type dispatcher[T any] struct {
	Queue[T]

	mu      sync.Mutex
	taken   int
	running map[string]int // by organization
	freed   chan struct{}
	tries   sync.WaitGroup
}

// pause waits. It ends early if a place gets free or the channel is closed.
func (d *dispatcher[T]) pause(ctx context.Context, pause time.Duration, committed <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-committed:
	case <-d.freed:
	case <-ctx.Done():
	}
}

// look starts the due work of the organizations after cursor. next is where the next look goes on: the beginning after the last
// organization, or the organization that got the last free place, so that the next place is another's. empty reports whether the queue is
// empty.
func (d *dispatcher[T]) look(ctx context.Context, cursor string) (next string, empty bool, err error) {
	if d.full() {
		return cursor, false, nil
	}
	orgs, next, empty, err := d.Due(ctx, cursor)
	if err != nil {
		return cursor, false, err
	}
	for _, org := range orgs {
		free := d.free(org)
		if free <= 0 {
			continue
		}
		bounded, cancel := Storing(ctx)
		leased, err := d.Lease(bounded, org, free)
		cancel()
		if err != nil {
			return cursor, false, err
		}
		for i := range leased {
			d.start(ctx, org, &leased[i])
		}
		if cursor = org; d.full() {
			return cursor, false, nil
		}
	}
	return next, empty, nil
}

// full reports whether no place is free.
func (d *dispatcher[T]) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken >= d.Places
}

// free returns how many more tries an organization may have.
func (d *dispatcher[T]) free(org string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(d.Places-d.taken, d.OrgPlaces-d.running[org])
}

func (d *dispatcher[T]) start(ctx context.Context, org string, one *T) {
	d.mu.Lock()
	d.taken++
	d.running[org]++
	d.mu.Unlock()
	d.tries.Go(func() {
		defer d.ended(org)
		d.Try(ctx, one)
	})
}

func (d *dispatcher[T]) ended(org string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken--
	if d.running[org]--; d.running[org] == 0 {
		delete(d.running, org)
	}
	select {
	case d.freed <- struct{}{}:
	default:
	}
}
