package inbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/vault"
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

// Lags names the organizations that wait longest, and how long; those whose conversations a worker has, or that have nothing due, aren't
// among them.
func TestLags(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		lags := func(limit int) (orgs []string) {
			found, err := q.Lags(t.Context(), limit)
			require.NoError(t, err)
			for _, lag := range found {
				require.GreaterOrEqual(t, lag.Due, time.Hour)
				orgs = append(orgs, lag.OrgID)
			}
			return orgs
		}
		require.Empty(t, lags(10))
		for i := range 12 {
			org := "org_" + number(i)
			route := q.channel(t, org, "chn_of_"+number(i))
			require.NoError(t, q.Enqueue(t.Context(), []Arrival{{route, []Item{
				textOf("ann", "1", "hello"), textOf("bob", "2", "hello"),
			}}}))
			q.exec(t, `UPDATE conversations SET run_at = run_at - $2 WHERE org_id = $1`, org, int64(i)*time.Hour.Milliseconds())
		}
		q.exec(t, `UPDATE conversations SET lease_until = 4000000000000 WHERE org_id = 'org_11'`)
		q.exec(t, `UPDATE conversations SET run_at = 4000000000000 WHERE org_id = 'org_10'`)
		q.exec(t, `UPDATE conversations SET run_at = run_at - 864000000 WHERE org_id = 'org_3' AND customer_ref = '`+q.sealedID("bob", vault.CustomerID("org_3"))+`'`)
		require.Equal(t, []string{"org_3", "org_9", "org_8"}, lags(3))
		require.Equal(t, []string{"org_3", "org_9", "org_8", "org_7", "org_6", "org_5", "org_4", "org_2", "org_1"}, lags(9))
	})
}

// StandingByCode counts turns that stand, those of which nobody knows the code, too.
func TestStandingByCode(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		for i, code := range []string{codes.NoAgent, codes.NoAgent, "of_another_version"} {
			q.arrive(t, textOf(number(i), number(i), "hello"))
			lease := q.take(t)
			require.NoError(t, q.Stand(t.Context(), lease, Standing{Code: code, MessageIDs: idsOf(q.open(t, lease).Waiting)}))
			require.NoError(t, q.Release(t.Context(), lease))
		}
		byCode, err := q.StandingByCode(t.Context())
		require.NoError(t, err)
		require.Len(t, byCode, len(codes.All)+1)
		require.EqualValues(t, 2, byCode[codes.NoAgent])
		require.EqualValues(t, 1, byCode["of_another_version"])
		require.Zero(t, byCode[codes.LoopGuard])
	})
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
		require.Equal(t, time.Hour, next, "nothing is due for it")

		other := newHandle(t, q)
		require.NoError(t, other.Wait(ctx, life))
		leases, err = other.Lease(ctx, Places{Free: 10}, life)
		require.NoError(t, err)
		require.Len(t, leases, 1)
		require.Zero(t, leases[0].Attempts)
	})
}
