package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

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
