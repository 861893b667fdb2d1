package storetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, arguments ...any) (*sql.Rows, error)
}

// Columns returns the names of the columns of each table, in their order, but for the table of schema versions and for tables
// in which an index keeps its entries.
func Columns(t testing.TB, conn Querier, engine store.Engine) map[string][]string {
	t.Helper()
	catalog := `SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c
		WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid`
	if engine == store.Postgres {
		catalog = `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()
			ORDER BY table_name, ordinal_position`
	}
	columns := map[string][]string{}
	for _, row := range read(t, conn, catalog) {
		if table := row[0].(string); table != "schema_migrations" {
			columns[table] = append(columns[table], row[1].(string))
		}
	}
	require.NotEmpty(t, columns)
	return columns
}

// Contents returns the rows of tables as text, with these columns, sorted.
func Contents(t testing.TB, conn Querier, columns map[string][]string) map[string][]string {
	t.Helper()
	contents := map[string][]string{}
	for table, names := range columns {
		for _, row := range read(t, conn, `SELECT `+strings.Join(names, ", ")+` FROM `+table) {
			contents[table] = append(contents[table], fmt.Sprintf("%#v", row))
		}
		slices.Sort(contents[table])
	}
	return contents
}

// read returns the rows of a query.
func read(t testing.TB, conn Querier, query string) (all [][]any) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), query)
	require.NoError(t, err, query)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		require.NoError(t, rows.Scan(into...))
		all = append(all, row)
	}
	require.NoError(t, rows.Err())
	return all
}

// Fill runs statements that write many rows. They may take longer than the store allows a statement.
func Fill(t testing.TB, db *store.DB, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	if db.Engine() == store.SQLite {
		for _, text := range statements {
			require.NoError(t, db.Exec(ctx, func(_ context.Context, tx store.Tx) error {
				tx.Queue(store.AnyRows, text)
				return nil
			}), text)
		}
		return
	}
	conn, err := pgx.Connect(ctx, db.Location().DSN)
	require.NoError(t, err)
	defer conn.Close(ctx) // each statement told its own result
	for _, text := range statements {
		_, err := conn.Exec(ctx, text)
		require.NoError(t, err, text)
	}
}

// Pages returns a function that reads everything that the disk holds of a database: all of its files, with those of the catalogue and the
// statistics, and the write-ahead log since the call of Pages. It sees what others have committed, and what they deleted if the bytes are still there.
func Pages(t testing.TB, db *store.DB) (read func() []byte) {
	t.Helper()
	if db.Engine() == store.SQLite {
		return func() (all []byte) {
			for _, suffix := range []string{"-wal", ""} { // a checkpoint between the two moves pages from the first to the second
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
