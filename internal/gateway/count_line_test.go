package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// runner enters a line and reports when it runs; it leaves when it is let go.
func runner(t *testing.T, l *countLine, orgID string, ran func()) {
	t.Helper()
	go func() {
		if l.enter(t.Context(), orgID) == nil {
			ran()
			l.leave()
		}
	}()
	synctest.Wait()
}

// TestOrganizationsTakeTurns: an organization that has one count waits for one of another that has many, not for all.
func TestOrganizationsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newCountLine(1)
		require.NoError(t, l.enter(t.Context(), "greedy"))
		var mu sync.Mutex
		var order []string
		join := func(orgID string, n int) {
			runner(t, l, orgID, func() {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(orgID, n))
			})
		}
		for i := range 4 {
			join("greedy", i)
		}
		join("modest", 0)
		join("other", 0)
		join("modest", 1)
		l.leave()
		synctest.Wait()
		require.Equal(t, []string{"greedy0", "modest0", "other0", "greedy1", "modest1", "greedy2", "greedy3"}, order)
		require.Equal(t, 1, l.free)
		require.Empty(t, l.lines)
	})
}

// TestLongCountLetsOthersGoOn: a running count gives its place to another organization's, but not to its own
// organization's next, and goes on as the first of its own.
func TestLongCountLetsOthersGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newCountLine(1)
		require.NoError(t, l.enter(t.Context(), "greedy"))
		var ran []string
		runner(t, l, "greedy", func() { ran = append(ran, "greedy") })
		require.NoError(t, l.pass(t.Context(), "greedy"))
		require.Empty(t, ran, "only its own organization waits")
		runner(t, l, "modest", func() { ran = append(ran, "modest") })
		// greedy's turn is first, because it has waited longest, and its running count is the first of its line.
		require.NoError(t, l.pass(t.Context(), "greedy"))
		require.NoError(t, l.pass(t.Context(), "greedy"))
		require.Equal(t, []string{"modest"}, ran)
		l.leave()
		synctest.Wait()
		require.Equal(t, []string{"modest", "greedy"}, ran)
		require.Equal(t, 1, l.free)
	})
}

// TestLineIsBounded: an organization's line has an end, and so has the line of all.
func TestLineIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newCountLine(1)
		require.NoError(t, l.enter(t.Context(), "first"))
		ctx, leave := context.WithCancel(t.Context())
		wait := func(orgID string) {
			go func() { _ = l.enter(ctx, orgID) }()
		}
		for range maxOrgCounts {
			wait("greedy")
		}
		synctest.Wait()
		require.ErrorIs(t, l.enter(ctx, "greedy"), errCountBusy)
		for i := range maxCounts - maxOrgCounts {
			wait(fmt.Sprint("org", i))
		}
		synctest.Wait()
		require.ErrorIs(t, l.enter(ctx, "modest"), errCountBusy)
		require.Equal(t, maxCounts, l.waiting)

		leave()
		synctest.Wait()
		require.Zero(t, l.waiting)
		require.Empty(t, l.turns)
		require.Empty(t, l.lines)
		l.leave()
		require.Equal(t, 1, l.free)
	})
}

// TestPlacesAreNeverLost: whatever ends first, the wait or the context, every place comes back.
func TestPlacesAreNeverLost(t *testing.T) {
	t.Parallel()
	l := newCountLine(2)
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			orgID := fmt.Sprint(i % 5)
			for n := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if slices.Contains([]int{3, 7, 11}, n) {
					go cancel()
				}
				if l.enter(ctx, orgID) == nil && l.pass(ctx, orgID) == nil {
					l.leave()
				}
				cancel()
			}
		})
	}
	group.Wait()
	require.Equal(t, 2, l.free)
	require.Zero(t, l.waiting)
	require.Empty(t, l.lines)
	require.Empty(t, l.turns)
}
