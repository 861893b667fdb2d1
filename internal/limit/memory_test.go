package limit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// wall is a clock without monotonic time, which a test sets.
type wall struct{ now atomic.Int64 }

func (w *wall) set(t time.Time) { w.now.Store(t.UnixNano()) }
func (w *wall) read() time.Time { return time.Unix(0, w.now.Load()) }
func (w *wall) at(s float64)    { w.set(minute().Add(time.Duration(s * float64(time.Second)))) }
func minute() time.Time         { return time.Date(2026, 11, 20, 12, 34, 0, 0, time.UTC) }
func newWall(s float64) *wall   { w := &wall{}; w.at(s); return w }
func (w *wall) memory() *Memory { return NewMemory(w.read) }
func taken(t require.TestingT, m *Memory, org string, limit int64) Decision {
	d, err := m.Take(context.Background(), org, limit)
	require.NoError(t, err)
	return clientPart(d)
}

func TestMemoryAdmitsTheLimitAndTellsTheRest(t *testing.T) {
	t.Parallel()
	m := newWall(18.5).memory()
	for _, want := range []Decision{
		{Allowed: true, Limit: 3, Remaining: 2, ResetIn: 41500 * time.Millisecond},
		{Allowed: true, Limit: 3, Remaining: 1, ResetIn: 41500 * time.Millisecond},
		{Allowed: true, Limit: 3, Remaining: 0, ResetIn: 41500 * time.Millisecond},
		{Allowed: false, Limit: 3, Remaining: 0, ResetIn: 41500 * time.Millisecond},
		{Allowed: false, Limit: 3, Remaining: 0, ResetIn: 41500 * time.Millisecond},
	} {
		require.Equal(t, want, taken(t, m, "org", 3))
	}
	require.True(t, taken(t, m, "other", 3).Allowed, "organizations don't share a window")
}

func TestMemoryWithoutALimitAdmitsEverything(t *testing.T) {
	t.Parallel()
	m := newWall(0).memory()
	for range 100 {
		require.Equal(t, Decision{Allowed: true}, taken(t, m, "org", 0))
	}
	require.Equal(t, int64(0), taken(t, m, "org", 1).Remaining, "requests without a limit are not counted")
}

func TestMemoryWindowEdges(t *testing.T) {
	t.Parallel()
	clock := newWall(0)
	m := clock.memory()
	require.Equal(t, time.Minute, taken(t, m, "org", 1).ResetIn)
	clock.at(59.999)
	d := taken(t, m, "org", 1)
	require.False(t, d.Allowed)
	require.Equal(t, time.Millisecond, d.ResetIn)
	clock.at(60)
	d = taken(t, m, "org", 1)
	require.True(t, d.Allowed)
	require.Equal(t, time.Minute, d.ResetIn)
	require.False(t, taken(t, m, "org", 1).Allowed)
	clock.at(600)
	require.True(t, taken(t, m, "org", 1).Allowed)
}

func TestMemoryRepeatingARefusedRequestChangesNothing(t *testing.T) {
	t.Parallel()
	clock := newWall(0)
	m := clock.memory()
	require.True(t, taken(t, m, "org", 1).Allowed)
	for s := range 60 {
		clock.at(float64(s))
		require.False(t, taken(t, m, "org", 1).Allowed)
	}
	require.True(t, taken(t, m, "org", 2).Allowed, "refused requests must not count against a limit that is raised")
	clock.at(60)
	require.True(t, taken(t, m, "org", 1).Allowed)
}

func TestMemoryLimitChangesAtOnce(t *testing.T) {
	t.Parallel()
	m := newWall(0).memory()
	for range 3 {
		require.True(t, taken(t, m, "org", 3).Allowed)
	}
	require.False(t, taken(t, m, "org", 3).Allowed)
	d := taken(t, m, "org", 5)
	require.True(t, d.Allowed)
	require.EqualValues(t, 1, d.Remaining)
	require.Equal(t, Decision{Limit: 2, ResetIn: time.Minute}, taken(t, m, "org", 2), "a lowered limit never leaves a negative rest")
}

func TestMemoryClockThatStepsBackOpensNoWindow(t *testing.T) {
	t.Parallel()
	clock := newWall(120)
	m := clock.memory()
	require.True(t, taken(t, m, "org", 1).Allowed)
	for _, s := range []float64{119.9, 60, -3600} {
		clock.at(s)
		d := taken(t, m, "org", 1)
		require.False(t, d.Allowed)
		require.LessOrEqual(t, d.ResetIn, time.Minute)
		require.Positive(t, d.ResetIn)
	}
	clock.at(180)
	require.True(t, taken(t, m, "org", 1).Allowed)
	clock.at(3600)
	require.True(t, taken(t, m, "org", 1).Allowed)
}

// The process's own clock, whose monotonic time decides.
func TestMemoryWaitingResetInIsEnough(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var passed time.Duration
	m := NewMemory(func() time.Time { return start.Add(passed) })
	require.True(t, taken(t, m, "org", 1).Allowed)
	d := taken(t, m, "org", 1)
	require.False(t, d.Allowed)
	passed = d.ResetIn
	require.True(t, taken(t, m, "org", 1).Allowed)
}

func TestMemoryAdmitsExactlyTheLimitOfManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(nil)
		for range 3 {
			var admitted atomic.Int64
			var wait sync.WaitGroup
			for range 1000 {
				wait.Go(func() {
					if taken(t, m, "org", 60).Allowed {
						admitted.Add(1)
					}
				})
			}
			wait.Wait()
			require.EqualValues(t, 60, admitted.Load())
			time.Sleep(taken(t, m, "org", 60).ResetIn) //nolint:forbidigo // on the fake clock
		}
	})
}

// For any arrivals: no window admits more than its limit, a request after ResetIn is admitted, and none is refused without need.
func TestMemoryProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock := newWall(rapid.Float64Range(0, 60).Draw(t, "start"))
		m := clock.memory()
		limit := rapid.Int64Range(1, 5).Draw(t, "limit")
		admitted := make(map[string]int64)
		now := clock.read()
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 40_000), 1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(step) * time.Millisecond)
			clock.set(now)
			org := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "org")
			key := fmt.Sprint(org, now.Unix()/60)
			d := taken(t, m, org, limit)
			require.Equal(t, admitted[key] < limit, d.Allowed)
			if d.Allowed {
				admitted[key]++
			}
			require.Equal(t, limit-admitted[key], d.Remaining)
			require.Equal(t, now.Truncate(time.Minute).Add(time.Minute), now.Add(d.ResetIn))
		}
	})
}

func TestMemoryForgetsOldWindows(t *testing.T) {
	t.Parallel()
	clock := newWall(0)
	m := clock.memory()
	held := func() (n int) {
		for i := range m.shard {
			n += len(m.shard[i].counts)
		}
		return n
	}
	const organizations = 100_000
	for i := range organizations {
		taken(t, m, fmt.Sprint("org_", i), 1)
	}
	require.Equal(t, organizations, held())
	clock.at(60)
	for i := range 10_000 {
		taken(t, m, fmt.Sprint("new_", i), 1)
	}
	require.Equal(t, 10_000, held())
}
