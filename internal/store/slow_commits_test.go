package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// A server whose commits take 1.2 s is slow and nothing worse: what more is asked of it than it can do is refused, every
// other write is known to have happened, none has an unknown outcome, and the service is ready all the while.
func TestSlowCommits(t *testing.T) {
	t.Parallel()
	const callers, rounds = 600, 2
	kind := &items{name: "items"}
	wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
	seen := &batches{}
	db := storetest.OpenAt(t, wire.Location, store.Options{Kinds: []store.Kind{kind}, Observer: seen})
	createItems(t, db)
	require.NoError(t, db.Ping(t.Context()))
	wire.SlowCommits(1200 * time.Millisecond)
	var mu sync.Mutex
	var asking sync.WaitGroup
	written, refused := 0, 0
	for caller := range int64(callers) {
		asking.Go(func() {
			for round := range int64(rounds) {
				err := db.Do(context.Background(), kind, &insert{ID: caller*rounds + round})
				mu.Lock()
				switch {
				case err == nil:
					written++
				case errors.Is(err, store.ErrBusy):
					refused++
				default:
					t.Errorf("%d: %v", caller, err)
				}
				mu.Unlock()
			}
		})
	}
	require.NoError(t, db.Ping(t.Context()))
	asking.Wait()
	require.Equal(t, written, countItems(t, db))
	require.Equal(t, callers*rounds, written+refused)
	require.GreaterOrEqual(t, written, 256, "a full transaction at least")

	wire.SlowCommits(0)
	for id := int64(callers * rounds); id < callers*rounds+100; id++ {
		require.NoError(t, db.Do(t.Context(), kind, &insert{ID: id}))
	}
	told := 0
	for _, batch := range seen.all() {
		told += batch.Refused + batch.Failed
	}
	require.Equal(t, refused, told, "refusals that the observer heard of")
}
