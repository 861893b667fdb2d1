package limit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func asked(t *testing.T, w *Windows, org string, limit int64) Decision {
	t.Helper()
	d, err := w.Take(t.Context(), org, limit)
	require.NoError(t, err)
	return clientPart(d)
}

// atClock is a counter in a fresh SQLite database whose clock, and the counter's own, is the test's.
func atClock(t *testing.T, clock *wall) (*Windows, *store.DB) {
	t.Helper()
	db := storetest.OpenAt(t, storetest.Location(t, store.SQLite), store.Options{Kinds: []store.Kind{Counter}, Clock: clock.read})
	return newWindows(db, clock.read), db
}

// rows are the windows in the table.
func rows(t *testing.T, db *store.DB) map[string]int64 {
	t.Helper()
	found := make(map[string]int64)
	result, err := db.Reader().QueryContext(t.Context(), `SELECT org_id, window_start, count FROM rate_windows`)
	require.NoError(t, err)
	defer result.Close()
	for result.Next() {
		var org string
		var start, count int64
		require.NoError(t, result.Scan(&org, &start, &count))
		found[fmt.Sprint(org, " ", (start-minute().UnixMilli())/1000)] = count
	}
	require.NoError(t, result.Err())
	return found
}

func TestWindowsAdmitTheLimitAndTellTheRest(t *testing.T) {
	t.Parallel()
	clock := newWall(18.5)
	w, db := atClock(t, clock)
	for _, want := range []Decision{
		{Allowed: true, Limit: 2, Remaining: 1, ResetIn: 41500 * time.Millisecond},
		{Allowed: true, Limit: 2, Remaining: 0, ResetIn: 41500 * time.Millisecond},
		{Allowed: false, Limit: 2, Remaining: 0, ResetIn: 41500 * time.Millisecond},
		{Allowed: false, Limit: 2, Remaining: 0, ResetIn: 41500 * time.Millisecond},
	} {
		require.Equal(t, want, asked(t, w, "org", 2))
	}
	require.True(t, asked(t, w, "other", 2).Allowed)
	require.Equal(t, Decision{Allowed: true}, asked(t, w, "org", 0))
	require.Equal(t, map[string]int64{"org 0": 2, "other 0": 1}, rows(t, db), "refused requests leave no trace")
}

func TestWindowsEdges(t *testing.T) {
	t.Parallel()
	clock := newWall(0)
	w, db := atClock(t, clock)
	require.Equal(t, time.Minute, asked(t, w, "org", 1).ResetIn)
	clock.at(59.999)
	d := asked(t, w, "org", 1)
	require.False(t, d.Allowed)
	require.Equal(t, time.Millisecond, d.ResetIn)
	clock.at(60)
	require.Equal(t, Decision{Allowed: true, Limit: 1, ResetIn: time.Minute}, asked(t, w, "org", 1))
	require.False(t, asked(t, w, "org", 1).Allowed)
	clock.at(119.5)
	require.False(t, asked(t, w, "org", 1).Allowed)
	require.Equal(t, map[string]int64{"org 0": 1, "org 60": 1}, rows(t, db))
	clock.at(120)
	require.True(t, asked(t, w, "org", 1).Allowed)
	require.Equal(t, map[string]int64{"org 60": 1, "org 120": 1}, rows(t, db), "windows before the last are purged")
}

func TestWindowsWaitingResetInIsEnough(t *testing.T) {
	t.Parallel()
	clock := newWall(18.25)
	w, _ := atClock(t, clock)
	for range 5 {
		require.True(t, asked(t, w, "org", 1).Allowed)
		d := asked(t, w, "org", 1)
		require.False(t, d.Allowed)
		clock.set(clock.read().Add(d.ResetIn - time.Millisecond))
		require.False(t, asked(t, w, "org", 1).Allowed)
		clock.set(clock.read().Add(time.Millisecond))
	}
}

func TestWindowsLimitChangesAtOnce(t *testing.T) {
	t.Parallel()
	w, _ := atClock(t, newWall(0))
	for range 2 {
		require.True(t, asked(t, w, "org", 2).Allowed)
	}
	for range 10 {
		require.False(t, asked(t, w, "org", 2).Allowed)
	}
	require.True(t, asked(t, w, "org", 3).Allowed, "a raised limit overrules a remembered refusal, and refusals don't count")
	require.False(t, asked(t, w, "org", 3).Allowed)
	require.False(t, asked(t, w, "org", 1).Allowed)
}

// A refusal must not cost a transaction: clients that ignore Retry-After come again and again.
func TestWindowsRefuseWithoutTheStore(t *testing.T) {
	t.Parallel()
	clock := newWall(0)
	w, db := atClock(t, clock)
	require.True(t, asked(t, w, "org", 1).Allowed)
	require.False(t, asked(t, w, "org", 1).Allowed)
	require.NoError(t, db.Close(context.Background()))
	clock.at(30)
	require.Equal(t, Decision{Limit: 1, ResetIn: 30 * time.Second}, asked(t, w, "org", 1))
	_, err := w.Take(t.Context(), "other", 1)
	require.ErrorIs(t, err, store.ErrClosed)
	clock.at(60)
	_, err = w.Take(t.Context(), "org", 1)
	require.ErrorIs(t, err, store.ErrClosed)
}

func TestWindowsForgetRefusals(t *testing.T) {
	t.Parallel()
	clock := newWall(0)
	w, _ := atClock(t, clock)
	for minute := range 3 {
		clock.at(60 * float64(minute))
		for i := range 20 {
			org := fmt.Sprint("org_", minute, "_", i)
			require.True(t, asked(t, w, org, 1).Allowed)
			require.False(t, asked(t, w, org, 1).Allowed)
		}
		require.Len(t, w.refused.byOrg, 20)
	}
}

// Several processes share one PostgreSQL: each has its own connection, writer and remembered refusals.
func TestWindowsOfSeveralProcessesAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			processes := make([]*Windows, 3)
			for i := range processes {
				processes[i] = NewStore(storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Counter}}))
			}
			admittedIn := func(org string, limit int64) int64 {
				var admitted atomic.Int64
				var wait sync.WaitGroup
				for _, w := range processes {
					for range 100 {
						wait.Go(func() {
							var d Decision
							err := storetest.Insist(func() (err error) {
								d, err = w.Take(t.Context(), org, limit)
								return err
							})
							if err != nil {
								t.Error(err)
							}
							if d.Allowed {
								admitted.Add(1)
							}
						})
					}
				}
				wait.Wait()
				return admitted.Load()
			}
			// The database's clock can't be stopped: a round that fell on the turn of a minute admits two windows' worth.
			for round := 0; ; round++ {
				require.Less(t, round, 5)
				before := windowNow(t, processes[0])
				admitted := admittedIn(fmt.Sprint("org", round), 40)
				if windowNow(t, processes[0]) == before {
					require.EqualValues(t, 40, admitted)
					return
				}
			}
		})
	}
}

// windowNow is the window of the database's clock.
func windowNow(t *testing.T, w *Windows) int64 {
	t.Helper()
	var start int64
	require.NoError(t, w.db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		start = tx.Now() / window.Milliseconds()
		return nil
	}))
	return start
}

// One transaction counts for more organizations than a statement has parameters for in its smallest form.
func TestWindowsOfManyOrganizationsInOneBatch(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{Counter}, func(t *testing.T, db *store.DB) {
		w := NewStore(db)
		for _, n := range []int{1, 2, 4, 5, 17, 64, 65, 256} {
			tickets := make([]*store.PendingWrite, 0, 3*n)
			takes := make([]*take, 0, 3*n)
			before := windowNow(t, w)
			for i := range 3 * n {
				op := &take{orgID: fmt.Sprint(n, "_org_", i%n), limit: 2}
				takes = append(takes, op)
				tickets = append(tickets, db.Submit(Counter, op))
			}
			for _, ticket := range tickets {
				<-ticket.Done()
				require.NoError(t, ticket.Err())
			}
			if windowNow(t, w) != before {
				continue
			}
			for i, op := range takes {
				require.Equal(t, i < 2*n, op.decision.Allowed, "request %d of %d organizations", i, n)
			}
			var sum int64
			require.NoError(t, db.Reader().QueryRowContext(t.Context(),
				`SELECT sum(count) FROM rate_windows WHERE org_id LIKE $1`, fmt.Sprint(n, "_org_%")).Scan(&sum))
			require.EqualValues(t, 2*n, sum)
		}
	})
}

func TestWindowsEndWithTheCaller(t *testing.T) {
	t.Parallel()
	w := NewStore(storetest.Open(t, store.SQLite, Counter))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	_, err := w.Take(ctx, "org", 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCounterRefusesForeignOperations(t *testing.T) {
	t.Parallel()
	for _, err := range Counter.Apply(t.Context(), nil, []store.Op{&take{}, "?"}) {
		require.ErrorContains(t, err, "unexpected operation string")
	}
	require.Equal(t, "limit", Counter.Name())
}

// TestLoneReturn guarantees that a permit is returned although no request is counted in the same transaction: the
// engines check the row that an upsert proposes, too, and no window may have a negative count.
func TestLoneReturn(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location, options := storetest.Location(t, engine), store.Options{Kinds: []store.Kind{Counter}}
			for {
				db := storetest.OpenAt(t, location, options)
				windows, org := NewStore(db), newOrg()
				first, err := windows.Take(t.Context(), org, 5)
				require.NoError(t, err)
				_, err = windows.Take(t.Context(), org, 5)
				require.NoError(t, err)
				windows.Return(org, first)
				require.NoError(t, db.Close(t.Context())) // writes what is in line

				next, err := NewStore(storetest.OpenAt(t, location, options)).Take(t.Context(), org, 5)
				require.NoError(t, err)
				if next.window == first.window { // no minute began meanwhile
					require.EqualValues(t, 3, next.Remaining)
					return
				}
			}
		})
	}
}
