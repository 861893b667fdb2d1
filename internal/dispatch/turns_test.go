package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var oneAtATime = Bounds{Places: 1, Each: 1, Line: 8, Lines: 32}

// enter starts work that reports when it runs and ends immediately.
func enter(t *testing.T, turns *Turns, owner string, ran func()) {
	t.Helper()
	go func() {
		if turns.Enter(t.Context(), owner) == nil {
			ran()
			turns.Leave(owner)
		}
	}()
	synctest.Wait()
}

func requireIdle(t *testing.T, turns *Turns) {
	t.Helper()
	require.Equal(t, turns.bounds.Places, turns.free)
	require.Zero(t, turns.waiting)
	require.Empty(t, turns.running)
	require.Empty(t, turns.lines)
	require.Empty(t, turns.order)
}

// TestOwnersTakeTurns: an owner with one piece of work waits for one of another that has many, not for all.
func TestOwnersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(oneAtATime)
		require.NoError(t, turns.Enter(t.Context(), "greedy"))
		var mu sync.Mutex
		var order []string
		join := func(owner string, n int) {
			enter(t, turns, owner, func() {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(owner, n))
			})
		}
		for i := range 4 {
			join("greedy", i)
		}
		join("modest", 0)
		join("other", 0)
		join("modest", 1)
		turns.Leave("greedy")
		synctest.Wait()
		require.Equal(t, []string{"greedy0", "modest0", "other0", "greedy1", "modest1", "greedy2", "greedy3"}, order)
		requireIdle(t, turns)
	})
}

// TestOneOwnerLeavesPlaces: an owner gets no more than its places, though others are free, and another owner doesn't wait for it.
func TestOneOwnerLeavesPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(Bounds{Places: 3, Each: 2, Line: 1, Lines: 1})
		require.NoError(t, turns.Enter(t.Context(), "greedy"))
		require.NoError(t, turns.Enter(t.Context(), "greedy"))
		var ran []string
		enter(t, turns, "greedy", func() { ran = append(ran, "greedy") })
		require.Empty(t, ran, "the owner's two places are in use")
		require.ErrorIs(t, turns.Enter(t.Context(), "greedy"), ErrBusy)
		enter(t, turns, "modest", func() { ran = append(ran, "modest") })
		require.Equal(t, []string{"modest"}, ran)
		turns.Leave("greedy")
		synctest.Wait()
		require.Equal(t, []string{"modest", "greedy"}, ran)
		turns.Leave("greedy")
		requireIdle(t, turns)
	})
}

// TestLongWorkLetsOthersGoOn: running work gives its place to another owner's, but not to its own owner's next, and goes on as the
// first of its own.
func TestLongWorkLetsOthersGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(oneAtATime)
		require.NoError(t, turns.Enter(t.Context(), "greedy"))
		var ran []string
		enter(t, turns, "greedy", func() { ran = append(ran, "greedy") })
		require.NoError(t, turns.Pass(t.Context(), "greedy"))
		require.Empty(t, ran, "only its own owner's work waits")
		enter(t, turns, "modest", func() { ran = append(ran, "modest") })
		// greedy's turn is first, because it has waited longest, and its running work is the first of its line.
		require.NoError(t, turns.Pass(t.Context(), "greedy"))
		require.NoError(t, turns.Pass(t.Context(), "greedy"))
		require.Equal(t, []string{"modest"}, ran)
		turns.Leave("greedy")
		synctest.Wait()
		require.Equal(t, []string{"modest", "greedy"}, ran)
		requireIdle(t, turns)
	})
}

// TestLineIsBounded: an owner's line has an end, and so has the line of all.
func TestLineIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(oneAtATime)
		require.NoError(t, turns.Enter(t.Context(), "first"))
		ctx, leave := context.WithCancel(t.Context())
		wait := func(owner string) {
			go func() { _ = turns.Enter(ctx, owner) }()
		}
		for range oneAtATime.Line {
			wait("greedy")
		}
		synctest.Wait()
		require.ErrorIs(t, turns.Enter(ctx, "greedy"), ErrBusy)
		for i := range oneAtATime.Lines - oneAtATime.Line {
			wait(fmt.Sprint("org", i))
		}
		synctest.Wait()
		require.ErrorIs(t, turns.Enter(ctx, "modest"), ErrBusy)
		require.Equal(t, oneAtATime.Lines, turns.waiting)

		leave()
		synctest.Wait()
		turns.Leave("first")
		requireIdle(t, turns)
	})
}

// TestPlacesAreNeverLost: whatever ends first, the wait or the context, every place comes back.
func TestPlacesAreNeverLost(t *testing.T) {
	t.Parallel()
	turns := NewTurns(Bounds{Places: 3, Each: 2, Line: 200, Lines: 200})
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			owner := fmt.Sprint(i % 5)
			for n := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if slices.Contains([]int{3, 7, 11}, n) {
					go cancel()
				}
				if turns.Enter(ctx, owner) == nil && turns.Pass(ctx, owner) == nil {
					turns.Leave(owner)
				}
				cancel()
			}
		})
	}
	group.Wait()
	requireIdle(t, turns)
}
