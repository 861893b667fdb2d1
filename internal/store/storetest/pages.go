package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Pages returns a function that reads everything that the disk holds of a database: all of its files, with those of the catalogue and the
// statistics, and the write-ahead log since the call of Pages. It sees what others have committed, and what they deleted if the bytes are still there.
func Pages(t testing.TB, db *store.DB) (read func() []byte) {
	t.Helper()
	if db.Engine() == store.SQLite {
		return func() (all []byte) {
			for _, suffix := range []string{"", "-wal"} {
				content, err := os.ReadFile(db.Location().DSN + suffix)
				if !errors.Is(err, fs.ErrNotExist) {
					require.NoError(t, err)
				}
				all = append(all, content...)
			}
			return all
		}
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, db.Location().DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	// The slot keeps the log, whose files checkpoints would give other names.
	slot := "svc_test_" + strings.ToLower(rand.Text())
	var begun string
	_, err = conn.Exec(ctx, `SELECT pg_create_physical_replication_slot($1, TRUE, TRUE)`, slot)
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(ctx, `SELECT pg_walfile_name(pg_current_wal_lsn())`).Scan(&begun))
	return func() (all []byte) {
		_, err := conn.Exec(ctx, `CHECKPOINT`)
		require.NoError(t, err)
		rows, err := conn.Query(ctx, `SELECT pg_read_binary_file(name) FROM (
				SELECT folder || '/' || pg_ls_dir(folder) AS name
					FROM (SELECT 'base/' || oid AS folder FROM pg_database WHERE datname = current_database()) AS here
				UNION ALL SELECT 'pg_wal/' || name FROM pg_ls_waldir()
					WHERE name >= $1 AND name <= pg_walfile_name(pg_current_wal_lsn())
			) AS files`, begun)
		require.NoError(t, err)
		files, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		require.NoError(t, err)
		for _, content := range files {
			all = append(all, content...)
		}
		return all
	}
}
