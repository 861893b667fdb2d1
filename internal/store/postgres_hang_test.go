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

// hangBound is far above every bound of the store, and far below a wait that has none.
const hangBound = 30 * time.Second

// While the server hangs every operation fails within the store's bounds, and costs neither a goroutine nor a connection more
// than the pool has. When the server is back, everything works again by itself.
func TestHangingServer(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
	db := storetest.OpenAt(t, wire.Location, store.Options{Kinds: []store.Kind{kind}})
	createItems(t, db)
	asks := map[string]func(id int64) error{
		"key":    func(int64) error { _, _, err := db.APIKeys.ByHash(context.Background(), [32]byte{}); return err },
		"models": func(int64) error { _, err := db.Organizations.Models(context.Background(), "org_1"); return err },
		"route":  func(int64) error { _, _, err := db.Routes.ByID(context.Background(), "chn_1"); return err },
		"routes": func(int64) error {
			_, err := db.Routes.ByKeys(context.Background(), []store.RouteKey{{Type: "photo_dm", ExternalID: "x"}})
			return err
		},
		"window": func(int64) error { _, err := db.Windows().Take(context.Background(), "org_1", 1); return err },
		"key with window": func(int64) error {
			_, _, err := db.Windows().Key(context.Background(), [32]byte{}, new(store.KeyTerms))
			return err
		},
		"write": func(id int64) error { return db.Do(context.Background(), kind, &insert{ID: id}) },
		"page":  func(int64) error { _, err := db.Reader().Exec(`SELECT id FROM items`); return err },
		"clock": func(int64) error { _, err := db.Now(context.Background()); return err },
		"ping":  func(int64) error { return db.Ping(context.Background()) },
	}
	for name, ask := range asks {
		require.NoError(t, ask(1), name)
	}

	wire.Hang()
	watchdog, cancel := context.WithTimeoutCause(context.Background(), hangBound, errors.New("somebody waits without a bound"))
	defer cancel()
	var asking sync.WaitGroup
	for name, ask := range asks {
		for n := range 20 {
			asking.Go(func() {
				for i := range 2 { // the second one meets connections that are known to be broken
					if err := ask(int64(100 + 2*n + i)); err == nil {
						t.Errorf("%s: answered by a server that hangs", name)
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { asking.Wait(); close(done) }()
	select {
	case <-done:
	case <-watchdog.Done():
		wire.Resume()
		<-done
		require.NoError(t, context.Cause(watchdog))
	}
	require.LessOrEqual(t, db.Connections(), int32(16))
	require.Zero(t, db.Queued())

	wire.Resume()
	for name, ask := range asks {
		id := int64(1000)
		require.Eventually(t, func() bool { id++; return ask(id) == nil }, hangBound, 10*time.Millisecond, name)
	}
}

// An operation that waits behind a hanging transaction fails by its own deadline.
func TestDeadlineBehindAHangingTransaction(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
	db := storetest.OpenAt(t, wire.Location, store.Options{Kinds: []store.Kind{kind}})
	createItems(t, db)
	wire.Hang()
	hung := db.Submit(kind, &insert{ID: 1})
	require.Eventually(t, func() bool { return db.Queued() == 0 }, time.Minute, time.Millisecond, "taken")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, db.Do(ctx, kind, &insert{ID: 2}), context.DeadlineExceeded)
	select {
	case <-hung.Done():
		t.Fatal("it waited for the transaction before it")
	default:
	}
	<-hung.Done()
	require.Error(t, hung.Err())
}

// An operation whose transaction could begin only when its time is nearly over is refused, and has not happened.
func TestNoTimeLeftToBegin(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	db := storetest.Open(t, store.Postgres, kind)
	db.Hurried()
	require.ErrorIs(t, db.Do(t.Context(), kind, &insert{ID: 1}), store.ErrBusy)
}

// A restarted server is noticed by the first operation that finds a dead connection; no operation waits for a bound.
func TestRestartedServer(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
	db := storetest.OpenAt(t, wire.Location, store.Options{Kinds: []store.Kind{kind}})
	createItems(t, db)
	for range 3 {
		require.Equal(t, 0, countItems(t, db))
		_, _, err := db.APIKeys.ByHash(t.Context(), [32]byte{})
		require.NoError(t, err)
		wire.Drop()
		_, _, err = db.APIKeys.ByHash(t.Context(), [32]byte{})
		require.NoError(t, err)
		require.Equal(t, 0, countItems(t, db), "the connections of the other pool were as dead")
	}
}

// TestOpenSlowServer guarantees that opening a store outlasts a server that is too busy for its first connections.
func TestOpenSlowServer(t *testing.T) {
	t.Parallel()
	wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
	wire.Hang()
	opened := make(chan error, 1)
	go func() {
		db, err := store.Open(t.Context(), wire.Location, store.Options{})
		if err == nil {
			err = db.Close(t.Context())
		}
		opened <- err
	}()
	require.Eventually(t, func() bool { return wire.Dialled() > 1 }, hangBound, time.Millisecond)
	wire.Resume()
	require.NoError(t, <-opened)
}
