package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// waitingFor counts the sessions of this database that wait for a lock on a table.
const waitingFor = `SELECT count(*) FROM pg_locks WHERE relation = 'organizations'::regclass AND NOT granted`

// A migration that must wait for a table, because a long transaction reads it, doesn't block the writers of the table: it gives up
// soon, tries again, and is done when the reader is.
func TestMigrationDoesNotBlockWriters(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	db := storetest.OpenAt(t, location, store.Options{})
	witness := storetest.OpenAt(t, location, store.Options{})
	createOrganization(t, db, "org_0")

	reading, err := witness.Reader().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer reading.Rollback() // committed below
	_, err = reading.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`)
	require.NoError(t, err)
	read := func() {
		var n int
		require.NoError(t, reading.QueryRowContext(t.Context(), `SELECT count(*) FROM organizations`).Scan(&n))
	}
	read()
	migrated := make(chan error, 1)
	go func() { migrated <- db.MigrateWith(t.Context(), `ALTER TABLE organizations ADD COLUMN note TEXT`) }()
	for n := range 3 {
		require.Eventually(t, func() bool {
			read()
			var waiting int
			require.NoError(t, witness.Reader().QueryRowContext(t.Context(), waitingFor).Scan(&waiting))
			return waiting > 0
		}, time.Minute, 10*time.Millisecond, "the migration waits for the table")
		createOrganization(t, db, fmt.Sprint("org_", n+1))
	}
	select {
	case err := <-migrated:
		t.Fatal("the table was not held: ", err)
	default:
	}
	require.NoError(t, reading.Commit())
	require.NoError(t, <-migrated)
	write(t, db, `UPDATE organizations SET note = 'there'`)
}

// A migration beside writers, or beside a migration of another process, disturbs neither.
func TestMigrationWhileOldNodesServe(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	old := storetest.OpenAt(t, location, store.Options{})
	createOrganization(t, old, "org_0")

	stop, written := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				written <- nil
				return
			default:
			}
			err := old.Exec(context.Background(), func(_ context.Context, tx store.Tx) error {
				id := fmt.Sprint("call_", n)
				tx.Queue(1, `UPDATE organizations SET plan = $1`, id)
				tx.Queue(1, `INSERT INTO rate_windows (org_id, window_start, count) VALUES ($1, 1, 1)`, id)
				tx.Queue(1, `DELETE FROM rate_windows WHERE org_id = $1`, id)
				return nil
			})
			if err != nil {
				written <- err
				return
			}
		}
	}()
	migrated := make(chan error, 3)
	for range cap(migrated) {
		go func() {
			db, err := store.Open(t.Context(), location, store.Options{})
			if err == nil {
				err = db.MigrateWith(t.Context(), `ALTER TABLE organizations ADD COLUMN note TEXT; ALTER TABLE rate_windows ADD COLUMN note TEXT`,
					`CREATE TABLE later (id BIGINT NOT NULL PRIMARY KEY)`)
				db.Close(context.Background())
			}
			migrated <- err
		}()
	}
	for range cap(migrated) {
		require.NoError(t, <-migrated)
	}
	close(stop)
	require.NoError(t, <-written)
}

// A migration waits for another process that migrates.
func TestMigrationWaitsForAnother(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	db, err := store.Open(t.Context(), location, store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close(context.Background()) })
	other, err := db.Reader().Conn(t.Context())
	require.NoError(t, err)
	defer other.Close() // it only held a lock
	_, err = other.ExecContext(t.Context(), `SELECT pg_advisory_lock($1)`, lock.DefaultLockID)
	require.NoError(t, err)
	migrated := make(chan error, 1)
	go func() { migrated <- db.Migrate(t.Context()) }()
	require.Eventually(t, func() bool {
		var asked int
		require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE '%pg_try_advisory_lock%' AND pid <> pg_backend_pid()`).Scan(&asked))
		return asked > 0
	}, time.Minute, 10*time.Millisecond)
	require.Error(t, db.Ping(t.Context()), "nothing was migrated")
	_, err = other.ExecContext(t.Context(), `SELECT pg_advisory_unlock($1)`, lock.DefaultLockID)
	require.NoError(t, err)
	require.NoError(t, <-migrated)
	require.NoError(t, db.Ping(t.Context()))
}

// A direct address of another database is refused before anything is migrated there.
func TestDirectAddressOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	other := storetest.Location(t, store.Postgres)
	location, err := storetest.Location(t, store.Postgres).WithDirect(other.DSN)
	require.NoError(t, err)
	db, err := store.Open(t.Context(), location, store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close(context.Background()) })
	require.ErrorContains(t, db.Migrate(t.Context()), "another database")
	require.Error(t, db.Ping(t.Context()), "nothing was migrated")
}
