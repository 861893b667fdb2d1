package archive_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/archive"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// A store that moves to PostgreSQL and back is the same, row for row and byte for byte.
func TestArchiveRoundTrip(t *testing.T) {
	t.Parallel()
	packed, source := exported(t)
	names, _ := archive.ArchivedTables()
	want := everything(t, source)
	for _, table := range names {
		require.NotEmpty(t, want[table], "the test must fill %s", table)
	}
	at := source
	for _, engine := range []store.Engine{store.Postgres, store.SQLite, store.SQLite, store.Postgres} {
		var stream bytes.Buffer
		written, err := archive.Export(t.Context(), at, &stream, archive.ExportOptions{})
		require.NoError(t, err)
		require.Equal(t, archivedRows(t, packed), archivedRows(t, stream.Bytes()), "an archive doesn't show where it comes from")
		to := storetest.Open(t, engine)
		read, err := archive.Import(t.Context(), to, &stream, archive.ImportOptions{})
		require.NoError(t, err)
		require.Equal(t, written, read)
		require.Equal(t, want, everything(t, to), "on %s", engine)
		require.NoError(t, to.Migrate(t.Context()), "the store is whole")
		require.Zero(t, to.Queued())
		at = to
	}
	// NULL and an empty value stay apart, as the database itself sees them.
	for text, rows := range map[string]int{
		`SELECT count(*) FROM conversations WHERE customer_name IS NULL`:      1,
		`SELECT count(*) FROM conversations WHERE length(customer_name) = 0`:  1,
		`SELECT count(*) FROM ledger_tx WHERE amount_micros < -1`:             1,
		`SELECT count(*) FROM org_models WHERE enabled`:                       1,
		`SELECT count(*) FROM provider_keys WHERE length(sealed) = 256`:       1,
		`SELECT count(*) FROM organizations WHERE name = '' AND id = 'org_2'`: 1,
	} {
		var found int
		require.NoError(t, at.Reader().QueryRowContext(t.Context(), text).Scan(&found), text)
		require.Equal(t, rows, found, text)
	}
	require.Error(t, tryWrite(at, `DELETE FROM ledger_tx`), "the books stay append-only")
}

// An archive is of one moment: what is committed while it is written is not in it. The store stays in use, and nothing is
// left beside it.
func TestExportIsOfOneMoment(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		fillAudit(t, db, 2*archive.BlockRows)
		blocks := 0
		var stream bytes.Buffer
		summary, err := archive.Export(t.Context(), db, &stream, archive.ExportOptions{Progress: func(progress archive.Progress) {
			require.Equal(t, "audit_log", progress.Table)
			if blocks++; blocks == 1 {
				createOrganization(t, db, "org_late")
				require.NoError(t, tryWrite(db, `INSERT INTO wallets (org_id, env, balance_micros) VALUES ('org_late', 'live', 1)`))
			}
		}})
		require.NoError(t, err)
		require.Equal(t, 2, blocks)
		require.EqualValues(t, 2*archive.BlockRows, summary.Total())
		require.NotContains(t, stream.String(), "org_late")
		if db.Engine() == store.SQLite {
			left, err := filepath.Glob(db.Location().DSN + ".export-*")
			require.NoError(t, err)
			require.Empty(t, left)
		}
	})
}

// A large table takes long to read: no bound that is set for everyday statements ends an export.
func TestExportHasNoTimeout(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.Postgres)
	fillAudit(t, db, 20*archive.BlockRows)
	var name string
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT current_database()`).Scan(&name))
	write(t, db, `ALTER DATABASE `+name+` SET statement_timeout = 20`)
	summary, err := archive.Export(t.Context(), db, io.Discard, archive.ExportOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 20*archive.BlockRows, summary.Total())
}

// failingWriter takes some bytes and then no more, as a full disk.
type failingWriter struct{ left int }

var errFull = errors.New("no space left")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestExportThatFails(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		fillAudit(t, db, 10*archive.BlockRows)
		_, err := archive.Export(t.Context(), db, &failingWriter{300_000}, archive.ExportOptions{})
		require.ErrorIs(t, err, errFull)

		ctx, cancel := context.WithCancel(t.Context())
		_, err = archive.Export(ctx, db, io.Discard, archive.ExportOptions{Progress: func(archive.Progress) { cancel() }})
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, db.Ping(t.Context()))
		if db.Engine() == store.SQLite {
			entries, err := os.ReadDir(filepath.Dir(db.Location().DSN))
			require.NoError(t, err)
			for _, entry := range entries {
				require.NotContains(t, entry.Name(), "export")
			}
			require.NoError(t, tryWrite(db, `INSERT INTO organizations (id, name, plan, created_at) VALUES ($1, 'n', 'free', 1)`, "org_1"))
		}

		write(t, db, `INSERT INTO schema_migrations (version_id, is_applied) VALUES (99, $1)`, true)
		_, err = archive.Export(t.Context(), db, io.Discard, archive.ExportOptions{})
		require.ErrorIs(t, err, store.ErrNewer, "the store may have tables we don't know")
		_, err = archive.Import(t.Context(), db, strings.NewReader(header("1", "1")), archive.ImportOptions{})
		require.ErrorIs(t, err, store.ErrNewer)
	})
}

// TestImportStartsOver guarantees that an import which is interrupted after any of its blocks, or cut before the archive's end, leaves an
// empty store, and that the next one imports every row.
func TestImportStartsOver(t *testing.T) {
	t.Parallel()
	packed, _ := exported(t)
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		empty := everything(t, db)
		blocks := bytes.Count(packed, []byte(`{"block"`))
		require.GreaterOrEqual(t, blocks, 4)
		for last := range blocks {
			ctx, cancel := context.WithCancel(t.Context())
			done := 0
			_, err := archive.Import(ctx, db, bytes.NewReader(packed), archive.ImportOptions{Progress: func(archive.Progress) {
				if done++; done > last {
					cancel()
				}
			}})
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, empty, everything(t, db))
		}
		_, err := archive.Import(t.Context(), db, bytes.NewReader(packed[:bytes.LastIndex(packed, []byte(`{"end"`))]), archive.ImportOptions{})
		require.ErrorIs(t, err, archive.ErrDamaged)
		require.ErrorContains(t, err, "the archive is cut")
		require.Equal(t, empty, everything(t, db))

		_, err = archive.Import(t.Context(), db, bytes.NewReader(packed), archive.ImportOptions{})
		require.NoError(t, err)
		whole := everything(t, db)
		var again bytes.Buffer
		_, err = archive.Export(t.Context(), db, &again, archive.ExportOptions{})
		require.NoError(t, err)
		require.Equal(t, archivedRows(t, packed), archivedRows(t, again.Bytes()))
		_, err = archive.Import(t.Context(), db, bytes.NewReader(packed), archive.ImportOptions{})
		require.ErrorIs(t, err, archive.ErrNotEmpty)
		require.Equal(t, whole, everything(t, db), "a refused import leaves the store as it was")
	})
}

// TestNothingIsWrittenDuringAnImport guarantees that rows of a server, or of another import, can't come between those of an archive.
func TestNothingIsWrittenDuringAnImport(t *testing.T) {
	t.Parallel()
	packed, source := exported(t)
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		other := storetest.OpenAt(t, db.Location(), store.Options{})
		tried := false
		_, err := archive.Import(t.Context(), db, bytes.NewReader(packed), archive.ImportOptions{Progress: func(archive.Progress) {
			if tried {
				return
			}
			tried = true
			_, err := archive.Import(t.Context(), other, bytes.NewReader(packed), archive.ImportOptions{})
			require.ErrorIs(t, err, store.ErrBusy)
			if db.Engine() == store.SQLite {
				return // the same lock keeps out every write
			}
			require.ErrorIs(t, tryWrite(other, `INSERT INTO organizations (id, name, plan, created_at) VALUES ($1, 'n', 'free', 1)`, "org_9"), store.ErrBusy)
		}})
		require.NoError(t, err)
		require.True(t, tried)
		require.Equal(t, everything(t, source), everything(t, db))
	})
}

// TestImportWaitsForAutovacuum guarantees that an import of PostgreSQL is not refused because the server vacuums a table of the empty store:
// autovacuum releases a table for another session only after that session has waited for deadlock_timeout, a second.
func TestImportWaitsForAutovacuum(t *testing.T) {
	t.Parallel()
	packed, _ := exported(t)
	db := storetest.Open(t, store.Postgres)
	vacuum, err := db.Reader().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer vacuum.Rollback() // it has ended below
	for _, text := range []string{"SET LOCAL idle_in_transaction_session_timeout = 0", "LOCK TABLE organizations IN SHARE UPDATE EXCLUSIVE MODE"} {
		_, err = vacuum.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	imported := make(chan error, 1)
	go func() {
		_, err := archive.Import(t.Context(), db, bytes.NewReader(packed), archive.ImportOptions{})
		imported <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, vacuum.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'organizations'::regclass
			AND NOT granted AND waitstart < clock_timestamp() - INTERVAL '1.2 s')`).Scan(&waits))
		return waits || len(imported) > 0
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, vacuum.Rollback())
	require.NoError(t, <-imported)
}

// A store with anything in it is not filled.
func TestImportIntoAStoreWithRows(t *testing.T) {
	t.Parallel()
	packed, _ := exported(t)
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		write(t, db, `INSERT INTO rate_windows VALUES ('org_1', 1, 1)`)
		before := everything(t, db)
		_, err := archive.Import(t.Context(), db, bytes.NewReader(packed), archive.ImportOptions{})
		require.ErrorIs(t, err, archive.ErrNotEmpty)
		require.ErrorContains(t, err, "table rate_windows has rows")
		require.Equal(t, before, everything(t, db))
	})
}

// The caller sees the header before anything happens, and may refuse the archive.
func TestImportThatIsNotAdmitted(t *testing.T) {
	t.Parallel()
	packed, _ := exported(t)
	db := storetest.Open(t, store.SQLite)
	foreign := errors.New("another master key")
	_, err := archive.Import(t.Context(), db, bytes.NewReader(packed), archive.ImportOptions{Admit: func(header archive.Header) error {
		require.Equal(t, [][]byte{{1}, {2}}, header.Probes)
		require.Equal(t, store.SQLite, header.Engine)
		require.Equal(t, schema.Newest(store.SQLite), header.Schema)
		return foreign
	}})
	require.ErrorIs(t, err, foreign)
	require.NoError(t, db.Migrate(t.Context()))
}

// header is the first line of an archive.
func header(version, schema string) string {
	return `{"format":"caddy-svc archive","version":` + version + `,"id":"arc_1","schema":` + schema + `,"engine":"sqlite","createdAt":1}` + "\n"
}

// An archive says by the store's clock when it was made.
func TestExportIsDatedByTheStore(t *testing.T) {
	t.Parallel()
	made := time.UnixMilli(1_795_219_200_000)
	db := storetest.OpenAt(t, storetest.Location(t, store.SQLite), store.Options{Clock: func() time.Time { return made }})
	var exported strings.Builder
	_, err := archive.Export(t.Context(), db, &exported, archive.ExportOptions{})
	require.NoError(t, err)
	require.Contains(t, exported.String(), `"createdAt":1795219200000`)
}
