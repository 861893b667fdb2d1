package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

func leases(org string, n int) (list []inbox.Lease) {
	for i := range n {
		list = append(list, inbox.Lease{OrgID: org, ConversationID: fmt.Sprintf("%s-%d", org, i), Token: 1})
	}
	return list
}

// running starts a worker in a synctest bubble and returns what stops it and waits for its end.
func running(
	ctx context.Context, q *fakeQueue, places int, grace time.Duration, run func(ctx context.Context, org string),
) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- New(Config{Queue: q, Gateway: &fakeGateway{run: run}, Concurrency: places, Lease: time.Minute}).Run(ctx, grace)
	}()
	return func() {
		cancel()
		<-done
	}
}

// TestNoOrganizationTakesMoreThanHalf: one organization with a thousand conversations that never end leaves half of the
// places to the others.
func TestNoOrganizationTakesMoreThanHalf(t *testing.T) {
	t.Parallel()
	for places, orgCap := range map[int]int{1: 1, 2: 1, 3: 1, 8: 4, 32: 16} {
		synctest.Test(t, func(t *testing.T) {
			var most, now, small atomic.Int64
			q := newFakeQueue(leases("big", 1000)...)
			stop := running(t.Context(), q, places, 0, func(ctx context.Context, org string) {
				if org != "big" {
					small.Add(1)
					return
				}
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				_ = repeat.Pause(ctx, time.Second)
			})
			synctest.Wait()
			require.EqualValues(t, orgCap, now.Load(), "places %d", places)

			q.add(leases("small", 3)...)
			_ = repeat.Pause(t.Context(), 100*time.Millisecond) // of the bubble's clock: none of the big one's has ended
			if places > 1 {
				_ = repeat.Pause(t.Context(), 200*time.Millisecond)
				require.EqualValues(t, 3, small.Load(), "places %d", places)
			}
			_ = repeat.Pause(t.Context(), 20*time.Second)
			stop()
			require.EqualValues(t, orgCap, most.Load(), "places %d", places)
			ended, _ := q.seen()
			require.GreaterOrEqual(t, len(ended), 20*orgCap-orgCap, "places %d: places that get free are taken at once", places)
		})
	}
}

// TestAllPlacesAreUsed: two organizations suffice to take all places, and more of them take all, too.
func TestAllPlacesAreUsed(t *testing.T) {
	t.Parallel()
	for organizations, each := range map[int]int{2: 70, 7: 20, 40: 5} {
		synctest.Test(t, func(t *testing.T) {
			var due []inbox.Lease
			for org := range organizations {
				due = append(due, leases(fmt.Sprint("org", org), each)...)
			}
			q := newFakeQueue(due...)
			var now, most atomic.Int64
			stop := running(t.Context(), q, 32, 0, func(ctx context.Context, _ string) {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				_ = repeat.Pause(ctx, time.Second)
			})
			synctest.Wait()
			require.EqualValues(t, 32, now.Load())
			_ = repeat.Pause(t.Context(), 20*time.Second)
			stop()
			require.EqualValues(t, 32, most.Load())
			ended, _ := q.seen()
			require.Len(t, ended, len(due))
		})
	}
}

func TestNewWorkIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue()
		opened := make(chan struct{}, 1)
		stop := running(t.Context(), q, 4, 0, func(context.Context, string) { opened <- struct{}{} })
		defer stop()
		for range 3 {
			_ = repeat.Pause(t.Context(), 7*time.Second)
			start := time.Now()
			q.add(leases("a", 1)...)
			<-opened
			require.Less(t, time.Since(start), 2*emptyPause)
		}
	})
}

// TestStop: nothing new is leased, running conversations end within the grace, and no goroutine is left behind.
func TestStop(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		work, grace time.Duration
		ends        time.Duration
		cause       error
	}{
		"within the grace": {work: 3 * time.Second, grace: 5 * time.Second, ends: 3 * time.Second},
		"after the grace":  {work: time.Hour, grace: 5 * time.Second, ends: 5 * time.Second, cause: errStopping},
		"without grace":    {work: time.Hour, grace: 0, ends: 0, cause: errStopping},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(leases("a", 1)...)
				var mu sync.Mutex
				var cause error
				stop := running(t.Context(), q, 1, test.grace, func(ctx context.Context, _ string) {
					_ = repeat.Pause(ctx, test.work)
					mu.Lock()
					defer mu.Unlock()
					cause = context.Cause(ctx)
				})
				synctest.Wait()
				start := time.Now()
				q.add(leases("b", 5)...)
				stop()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, test.ends, time.Since(start))
				require.Equal(t, test.cause, cause)
				ended, put := q.seen()
				require.Equal(t, []string{"a-0"}, ended, "its lease was given back, and nothing else was leased")
				require.Equal(t, test.cause != nil, len(put) == 0, "what was cut is due at once")
			})
		})
	}
}

// TestAPanicEndsOnlyItsConversation: it is tried again later, and the others go on.
func TestAPanicEndsOnlyItsConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(append(leases("bad", 1), leases("good", 1)...)...)
		stop := running(t.Context(), q, 4, 0, func(_ context.Context, org string) {
			if org == "bad" {
				panic("nil map")
			}
		})
		_ = repeat.Pause(t.Context(), time.Second)
		stop()
		ended, put := q.seen()
		require.ElementsMatch(t, []string{"bad-0", "good-0"}, ended)
		require.Len(t, put, 2, "both calls failed, one way or another")
	})
}
