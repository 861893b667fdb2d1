// Package repeat runs a task at intervals and pauses between tries. A pause ends early with its context, and intervals are
// jittered, so that several processes that do the same drift apart. The tasks themselves belong to its callers.
package repeat

import (
	"context"
	"math/rand/v2"
	"time"
)

// Task is a function that runs at intervals on a goroutine of its own, until [Task.Stop].
type Task struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start runs the function immediately, and later as [Every] does.
func Start(interval time.Duration, run func(ctx context.Context)) *Task {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		Every(ctx, interval, run)
	}()
	return t
}

// Stop ends the context of a run, waits until the run returns, and allows no other. It may be called again, and for a nil Task.
func (t *Task) Stop() {
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// Every runs the function immediately, and about interval after the end of each run, an eighth more or less, until ctx ends.
func Every(ctx context.Context, interval time.Duration, run func(ctx context.Context)) {
	for ctx.Err() == nil {
		run(ctx)
		_ = Pause(ctx, eighth(interval))
	}
}

// EveryChange is [Every] for a function that returns whether there may be something to do without a change. After false it waits longer
// than interval, until the channel is closed that change returned before the run, or about most has passed. If that channel is nil,
// changes can't be told, and it never waits longer.
func EveryChange(ctx context.Context, interval, most time.Duration, change func() <-chan struct{}, run func(ctx context.Context) (again bool)) {
	for ctx.Err() == nil {
		changed := change()
		again := run(ctx)
		pause := eighth(interval)
		_ = Pause(ctx, pause)
		if again || changed == nil {
			continue
		}
		late := time.NewTimer(eighth(most) - pause)
		select {
		case <-changed:
		case <-late.C:
		case <-ctx.Done():
		}
		late.Stop()
	}
}

// eighth returns d, up to an eighth longer or shorter at random.
func eighth(d time.Duration) time.Duration { return d - d/8 + Jitter(d/4) }

// Pause waits; 0 or less doesn't wait. It returns early with the cause when ctx ends.
func Pause(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Around returns d, up to a quarter longer or shorter at random.
func Around(d time.Duration) time.Duration { return d - d/4 + Jitter(d/2) }

// Jitter returns a random duration from 0 to most, which must not be negative.
func Jitter(most time.Duration) time.Duration {
	return rand.N(most + 1) //nolint:gosec // jitter is no secret
}
