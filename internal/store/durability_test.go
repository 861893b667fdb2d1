package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// Every connection that writes to a SQLite file syncs each commit before it is acknowledged: the write-ahead log with
// synchronous = FULL (2). So does the one that replaces a connection after a fault.
func TestCommitsAreSynced(t *testing.T) {
	t.Parallel()
	db, _, _ := openItems(t)
	settings := func() (journal string, synchronous int) {
		require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			return errors.Join(
				tx.Query(ctx, func(row store.Row) error { return row.Scan(&journal) }, `PRAGMA journal_mode`),
				tx.Query(ctx, func(row store.Row) error { return row.Scan(&synchronous) }, `PRAGMA synchronous`))
		}))
		return journal, synchronous
	}
	requireSynced := func() {
		t.Helper()
		journal, synchronous := settings()
		require.Equal(t, "wal", journal)
		require.Equal(t, 2, synchronous)
	}
	requireSynced()
	err := db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		err := tx.Query(ctx, func(store.Row) error { return nil }, `PRAGMA max_page_count = 1`)
		tx.Queue(1, `INSERT INTO items (id, owner) VALUES (1, hex(zeroblob(1000000)))`)
		return errors.Join(err, tx.Flush(ctx))
	})
	require.ErrorContains(t, err, "full")
	requireSynced()
}

// PostgreSQL's own synchronous_commit is left as the operator has it: no connection that writes turns it off.
func TestCommitsAreSyncedByPostgres(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.Postgres)
	var setting, source string
	require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		return tx.Query(ctx, func(row store.Row) error { return row.Scan(&setting, &source) },
			`SELECT setting, source FROM pg_settings WHERE name = 'synchronous_commit'`)
	}))
	require.Equal(t, "on", setting)
	require.Equal(t, "default", source)
}
