package dispatch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// looked is a queue whose looks a test counts.
type looked struct {
	mu        sync.Mutex
	looks     []time.Duration // since the beginning
	began     time.Time
	waiting   bool          // something waits for later
	committed chan struct{} // nil: the store doesn't tell
}

// run runs the queue until the test's bubble ends.
func (l *looked) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	l.began = time.Now()
	go func() {
		defer close(ended)
		Queue[int]{
			Places: 1, OrgPlaces: 1,
			Due: func(context.Context, string) ([]string, string, bool, error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.looks = append(l.looks, time.Since(l.began))
				return nil, "", !l.waiting, nil
			},
			Committed: func() <-chan struct{} {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.committed
			},
		}.Run(ctx)
	}()
}

// commit lets a bubble's time pass and then commits.
func (l *looked) commit(after time.Duration) {
	time.Sleep(after) //nolint:forbidigo // on the fake clock
	synctest.Wait()
	l.mu.Lock()
	close(l.committed)
	l.committed = make(chan struct{})
	l.mu.Unlock()
	synctest.Wait()
}

// seen returns the looks so far.
func (l *looked) seen() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.looks)
}

// TestAnEmptyQueueWaitsForACommit: it is looked at immediately after a commit, but not more than about once a second, and seldom without one.
func TestAnEmptyQueueWaitsForACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &looked{committed: make(chan struct{})}
		l.run(t)
		l.commit(5 * time.Second)
		require.Equal(t, []time.Duration{0, 5 * time.Second}, l.seen())
		l.commit(0)
		require.Len(t, l.seen(), 2)
		l.commit(2 * lookPause)
		time.Sleep(2 * lookPause) //nolint:forbidigo // on the fake clock
		synctest.Wait()
		require.Len(t, l.seen(), 4, "of the commit right after the look, and of this one")
		require.Less(t, l.seen()[2]-l.seen()[1], 2*lookPause)
		require.GreaterOrEqual(t, l.seen()[2]-l.seen()[1], lookPause/2)
		l.commit(10 * emptyPause)
		require.GreaterOrEqual(t, len(l.seen()), 13)
		require.LessOrEqual(t, len(l.seen()), 16)
	})
}

// TestAQueueIsLookedAtEachSecond: what waits may become due by time alone, and a store that doesn't tell of commits has to be asked.
func TestAQueueIsLookedAtEachSecond(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*looked{"something waits": {waiting: true}, "the store tells nothing": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if l.waiting {
					l.committed = make(chan struct{})
				}
				l.run(t)
				time.Sleep(time.Minute) //nolint:forbidigo // on the fake clock
				synctest.Wait()
				require.Greater(t, len(l.seen()), 45)
				require.Less(t, len(l.seen()), 85)
			})
		})
	}
}
