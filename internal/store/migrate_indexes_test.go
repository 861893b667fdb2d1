package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const (
	insertCall = `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens,
		completion_tokens, cached_tokens, usage_source, charged_micros, extra_micros, shortfall_micros, started_at, duration_ms)
		VALUES ($1, $1, 'org_0', 'live', '', 'm', 'p', false, true, 'ok', 0, 0, 0, 'none', 0, 0, 0, 1, 1)`
	// buildWaits counts the index builds that have waited for others for longer than a migration waits for a table.
	buildWaits = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
		AND query LIKE 'CREATE INDEX CONCURRENTLY calls_turn %' AND clock_timestamp() - query_start > interval '1.5 s'`
	lateIndexes = `SELECT count(*) FROM pg_index WHERE indisvalid
		AND indexrelid IN (to_regclass('audit_log_org'), to_regclass('turns_channel'), to_regclass('calls_turn'))`
	callsIndex = `SELECT indexrelid, indisvalid FROM pg_index WHERE indexrelid = to_regclass('calls_turn')`
)

// oldStore is a store of an older version, such as the third, whose tables version 4 and 6 add indexes to, and a transaction that has
// written to calls and stays open until end is called.
func oldStore(t *testing.T, version int) (db, witness *store.DB, end func()) {
	t.Helper()
	location := storetest.Location(t, store.Postgres)
	open := func() *store.DB {
		db, err := store.Open(t.Context(), location, store.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { db.Close(context.Background()) })
		return db
	}
	db, witness = open(), open()
	require.NoError(t, db.MigrateTo(t.Context(), version))
	write(t, db, insertCall, "call_old")
	writing, err := witness.Reader().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { writing.Rollback() }) // committed by end
	// It is silent from here on, which the server would not bear for long.
	_, err = writing.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`)
	require.NoError(t, err)
	_, err = writing.ExecContext(t.Context(), insertCall, "call_open")
	require.NoError(t, err)
	return db, witness, func() { require.NoError(t, writing.Commit()) }
}

func count(t *testing.T, db *store.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func callsTurn(t *testing.T, db *store.DB) (oid int64, valid bool) {
	t.Helper()
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), callsIndex).Scan(&oid, &valid))
	return oid, valid
}

// An index on a table in use is built beside its writers: the build waits, once, for transactions that began before it, and later
// ones don't wait for the build. Processes that migrate at the same time don't disturb each other.
func TestMigrationBuildsIndexesBesideWriters(t *testing.T) {
	t.Parallel()
	db, witness, end := oldStore(t, 3)
	migrated := make(chan error, 3)
	for range cap(migrated) {
		go func() { migrated <- db.Migrate(t.Context()) }()
	}
	n := 0
	require.Eventually(t, func() bool {
		n++
		write(t, db, insertCall, fmt.Sprint("call_", n))
		return count(t, witness, buildWaits) > 0
	}, time.Minute, 10*time.Millisecond, "the build waits for the open transaction")
	oid, valid := callsTurn(t, witness)
	require.False(t, valid)
	for range 10 {
		n++
		write(t, db, insertCall, fmt.Sprint("call_", n))
	}
	require.Empty(t, migrated, "the transaction is still open")
	end()
	for range cap(migrated) {
		require.NoError(t, <-migrated)
	}
	built, valid := callsTurn(t, witness)
	require.True(t, valid)
	require.Equal(t, oid, built, "the build that waited is the one that ended")
	require.Equal(t, 3, count(t, witness, lateIndexes))
	require.Equal(t, n+2, count(t, witness, `SELECT count(*) FROM calls`))
	require.Zero(t, count(t, witness, `SELECT count(*) FROM (SELECT FROM schema_versions GROUP BY version_id HAVING count(*) > 1) AS twice`))
}

// A build that was interrupted leaves an index that no reader may use; the next migration puts a whole one in its place.
func TestMigrationAfterInterruptedIndex(t *testing.T) {
	t.Parallel()
	db, witness, end := oldStore(t, 3)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	migrated := make(chan error, 1)
	go func() { migrated <- db.Migrate(ctx) }()
	require.Eventually(t, func() bool { return count(t, witness, buildWaits) > 0 }, time.Minute, 10*time.Millisecond)
	interrupt()
	require.Error(t, <-migrated)
	// The server hears of it a little later; until then the build would still go on when the transaction ends.
	require.Eventually(t, func() bool { return count(t, witness, buildWaits) == 0 }, time.Minute, 10*time.Millisecond)
	leftover, valid := callsTurn(t, witness)
	require.False(t, valid)
	end()
	require.NoError(t, db.Migrate(t.Context()))
	oid, valid := callsTurn(t, witness)
	require.True(t, valid)
	require.NotEqual(t, leftover, oid)
	require.Equal(t, 3, count(t, witness, lateIndexes))
	require.NoError(t, db.Migrate(t.Context()))
	again, _ := callsTurn(t, witness)
	require.Equal(t, oid, again, "what is done stays")
}

// The columns of an index that is built beside writers may be as new as the version before it.
func TestMigrationBuildsIndexesOnNewColumns(t *testing.T) {
	t.Parallel()
	const charges = `SELECT count(*) FROM pg_index WHERE indisvalid AND indexrelid = to_regclass('calls_charges')`
	db, witness, end := oldStore(t, 13)
	migrated := make(chan error, 1)
	go func() { migrated <- db.Migrate(t.Context()) }()
	require.Eventually(t, func() bool {
		return count(t, witness, strings.ReplaceAll(buildWaits, "calls_turn", "calls_charges")) > 0
	}, time.Minute, 10*time.Millisecond, "the build waits for the open transaction")
	write(t, db, insertCall, "call_new")
	require.Empty(t, migrated, "the transaction is still open")
	end()
	require.NoError(t, <-migrated)
	require.Equal(t, 1, count(t, witness, charges))

	older, witness, end := oldStore(t, 12)
	end()
	require.NoError(t, older.Migrate(t.Context()))
	require.Equal(t, 1, count(t, witness, charges))
}
