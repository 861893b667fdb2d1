package storetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Pages returns a function that reads everything that the disk holds of a database: the files of its tables and indexes, and the
// write-ahead log since the call of Pages. It sees what others have committed, and what they deleted if the bytes are still there.
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
	var begun string
	require.NoError(t, conn.QueryRow(ctx, `SELECT pg_walfile_name(pg_current_wal_lsn())`).Scan(&begun))
	return func() (all []byte) {
		_, err := conn.Exec(ctx, `CHECKPOINT`)
		require.NoError(t, err)
		rows, err := conn.Query(ctx, `SELECT pg_read_binary_file(pg_relation_filepath(oid)) FROM pg_class
				WHERE relkind IN ('r', 'i', 't') AND relnamespace <> 'pg_catalog'::regnamespace
			UNION ALL SELECT pg_read_binary_file('pg_wal/' || name) FROM pg_ls_waldir()
				WHERE name >= $1 AND name <= pg_walfile_name(pg_current_wal_lsn())`, begun)
		require.NoError(t, err)
		files, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		require.NoError(t, err)
		for _, content := range files {
			all = append(all, content...)
		}
		return all
	}
}
