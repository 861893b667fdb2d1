package inbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errEnough = errors.New("enough")

// Wait ends at once when work is due.
func TestWaitFindsWork(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		require.NoError(t, q.Wait(t.Context(), life))
		require.NoError(t, q.Wait(t.Context(), life), "nobody has taken it")
	})
}

// Wait is woken by what another process makes due, also out of a lease, and does not miss what came before it began.
func TestWaitIsWoken(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		other := newHandle(t, q)
		woken := make(chan error)
		for n := range 3 {
			go func() { woken <- other.Wait(context.Background(), life) }()
			q.arrive(t, textOf("ann", number(n), "text"))
			require.NoError(t, <-woken)
			q.reply(t, "reply", "p"+number(n))
		}
		q.arrive(t, textOf("ann", "last", "text"))
		lease := q.take(t)
		go func() { woken <- other.Wait(context.Background(), life) }()
		require.NoError(t, q.Release(t.Context(), lease))
		require.NoError(t, <-woken)
	})
}

// Wait ends when a quiet window does, after idle when nothing happens, and with its context.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		require.NoError(t, q.Wait(t.Context(), 30*time.Millisecond))
		q.route.DebounceMS = 200
		q.arrive(t, textOf("ann", "1", "one"))
		require.NoError(t, q.Wait(t.Context(), life))
		q.take(t)

		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- q.Wait(ctx, life) }()
		cancel(errEnough)
		require.ErrorIs(t, <-ended, errEnough)
		require.ErrorIs(t, q.Wait(ctx, life), errEnough)
		require.NoError(t, q.Wait(t.Context(), 30*time.Millisecond), "the connection is as before")
	})
}

// Depth counts what is due, since when, and what is leased.
func TestDepth(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.arrive(t, textOf("ann", "1", "one"))
	c.pass(2 * time.Second)
	c.arrive(t, textOf("bob", "2", "two"), textOf("cid", "3", "three"))
	c.take(t)
	c.pass(time.Second)
	depth, err := c.Depth(t.Context())
	require.NoError(t, err)
	require.Equal(t, Depth{Due: 2, Leased: 1, OldestDue: time.Second}, depth)
}

// Conversations of channels whose platform a program doesn't contain are neither leased by it nor do they end its Wait. They stay due
// as they were, for a program that contains it.
func TestSkippedTypes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		added, err := q.SkipUnknown(ctx, func(string) bool { return true })
		require.NoError(t, err)
		require.Empty(t, added)
		next, err := q.next(ctx)
		require.NoError(t, err)
		require.Zero(t, next)

		unknown := func(string) bool { return false }
		added, err = q.SkipUnknown(ctx, unknown)
		require.NoError(t, err)
		require.Equal(t, []string{"bot"}, added)
		added, err = q.SkipUnknown(ctx, unknown)
		require.NoError(t, err)
		require.Empty(t, added, "it is left out already")
		leases, err := q.Lease(ctx, Places{Free: 10}, life)
		require.NoError(t, err)
		require.Empty(t, leases)
		leases, err = q.Lease(ctx, Places{Free: 10, Most: 2, Taken: map[string]int{"org_9": 1, "org_8": 2}}, life)
		require.NoError(t, err)
		require.Empty(t, leases)
		next, err = q.next(ctx)
		require.NoError(t, err)
		require.Equal(t, farAway, next, "nothing is due for it")

		other := newHandle(t, q)
		require.NoError(t, other.Wait(ctx, life))
		leases, err = other.Lease(ctx, Places{Free: 10}, life)
		require.NoError(t, err)
		require.Len(t, leases, 1)
		require.Zero(t, leases[0].Attempts)
	})
}
