package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// Close refuses what is new, finishes what waits, and can be called again.
func TestCloseFinishesWhatWaits(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{kind}})
			db.Unhurried()
			createItems(t, db)
			atGate := closeGate(t, db)
			var tickets []*store.PendingWrite
			for id := range int64(300) {
				tickets = append(tickets, db.Submit(kind, &insert{ID: id}))
			}
			closed := make(chan error, 2)
			go func() { closed <- db.Close(context.Background()) }()
			go func() { closed <- db.Close(context.Background()) }()
			require.Eventually(t, func() bool {
				return errors.Is(db.Submit(kind, &insert{ID: -1}).Err(), store.ErrClosed)
			}, time.Minute, time.Millisecond)
			require.NoError(t, atGate.open())
			require.NoError(t, <-closed)
			require.NoError(t, <-closed)
			for _, ticket := range tickets {
				<-ticket.Done()
				require.NoError(t, ticket.Err())
			}

			ctx := t.Context()
			require.ErrorIs(t, db.Do(ctx, kind, &insert{}), store.ErrClosed)
			require.ErrorIs(t, db.Organizations.SetPlan(ctx, "cli", "org_1", "pro"), store.ErrClosed)
			_, err := db.Organizations.All(ctx)
			require.ErrorIs(t, err, store.ErrClosed)
			_, _, err = db.APIKeys.ByHash(ctx, [32]byte{})
			require.ErrorIs(t, err, store.ErrClosed)
			_, err = db.Organizations.Models(ctx, "org_1")
			require.ErrorIs(t, err, store.ErrClosed)
			_, _, err = db.Routes.ByID(ctx, "chn_1")
			require.ErrorIs(t, err, store.ErrClosed)
			_, err = db.Routes.ByKeys(ctx, []store.RouteKey{{Type: "photo_dm", ExternalID: "1"}})
			require.ErrorIs(t, err, store.ErrClosed)
			require.Error(t, db.Ping(ctx))

			again := storetest.OpenAt(t, location, store.Options{})
			require.GreaterOrEqual(t, countItems(t, again), 300)
		})
	}
}

// When time is up, what has not begun is refused, and what runs still ends properly.
func TestCloseInAHurry(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	storetest.Each(t, []store.Kind{kind}, func(t *testing.T, db *store.DB) {
		db.Unhurried()
		createItems(t, db)
		atGate := closeGate(t, db)
		ticket := db.Submit(kind, &insert{ID: 1})
		hurry := errors.New("hurry")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(hurry)
		closed := make(chan error, 1)
		go func() { closed <- db.Close(ctx) }()
		require.Eventually(t, func() bool {
			return errors.Is(db.Submit(kind, &insert{ID: 2}).Err(), store.ErrClosed)
		}, time.Minute, time.Millisecond)
		require.Eventually(t, db.Abandoned, time.Minute, time.Millisecond)
		require.NoError(t, atGate.open())
		require.ErrorIs(t, <-closed, hurry)
		<-ticket.Done()
		require.ErrorIs(t, ticket.Err(), store.ErrClosed)
	})
}

// Two pools of one process, as during a reload, write to one database at the same time.
func TestTwoPools(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			kind := &items{name: "items"}
			location := storetest.Location(t, engine)
			pools := []*store.DB{
				storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{kind}}),
				storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{kind}}),
			}
			createItems(t, pools[0])
			const each = 200
			errs := make(chan error, len(pools)*each)
			for i, pool := range pools {
				go func() {
					for id := range int64(each) {
						row := &insert{ID: id + int64(i)*each}
						errs <- storetest.Insist(func() error { return pool.Do(context.Background(), kind, row) })
					}
				}()
			}
			for range len(pools) * each {
				require.NoError(t, <-errs)
			}
			require.Equal(t, len(pools)*each, countItems(t, pools[0]))
		})
	}
}

// A backup made while the database is in use opens as a database with the same rows, for this user only.
func TestBackup(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	createOrganization(t, db, "org_1")
	path := filepath.Join(t.TempDir(), "backup ?#%.db")
	require.NoError(t, db.BackupTo(t.Context(), path))
	about, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), about.Mode().Perm())
	require.Error(t, db.BackupTo(t.Context(), path), "it never overwrites")

	location, err := store.ParseLocation(store.SQLite, path)
	require.NoError(t, err)
	restored := storetest.OpenAt(t, location, store.Options{})
	_, err = restored.Organizations.ByID(t.Context(), "org_1")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	unfinished := filepath.Join(t.TempDir(), "unfinished.db")
	require.Error(t, db.BackupTo(ctx, unfinished))
	require.NoFileExists(t, unfinished)

	require.ErrorIs(t, storetest.Open(t, store.Postgres).BackupTo(t.Context(), path), store.ErrUnsupported)
}

// The files hold secrets' hashes and sealed keys: only their owner may read them.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	location, err := store.ParseLocation(store.SQLite, filepath.Join(directory, "new", "svc.db"))
	require.NoError(t, err)
	db := storetest.OpenAt(t, location, store.Options{})
	createOrganization(t, db, "org_1")
	require.Positive(t, db.WALBytes())
	for _, name := range []string{"svc.db", "svc.db-wal", "svc.db-shm", "svc.db.turn", "svc.db.next"} {
		about, err := os.Stat(filepath.Join(directory, "new", name))
		require.NoError(t, err)
		require.Zero(t, about.Mode().Perm()&0o077, name)
	}
}
