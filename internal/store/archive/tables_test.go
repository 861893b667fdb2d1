package archive_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/archive"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const (
	// catalogueOf names every column of every table in the engine's own words.
	catalogueOfSQLite = `SELECT t.name, c.name, c.type FROM pragma_table_list t JOIN pragma_table_info(t.name) c
		WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite_%'`
	catalogueOfPostgres = `SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = current_schema()`
)

// ownTables are tables that an archive doesn't hold because each store has its own. chunk_words is SQLite's full text, which triggers make
// with each row of chunks.
var ownTables = []string{schema.VersionTable, "chunk_words", "chunk_words_config", "chunk_words_data", "chunk_words_docsize", "chunk_words_idx"}

// leftOutColumns are columns, by table, that an archive doesn't hold, because the database counts them up by itself
// and nothing else in it refers to them.
var leftOutColumns = map[string]string{"chunks": "seq"}

// Every table and column of the schema is in the archive, or in the list of exceptions with the reason.
func TestArchivesHoldTheWholeSchema(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		catalogue, typeOf := catalogueOfPostgres, map[string]string{"TEXT": "text", "BIGINT": "bigint", "BOOLEAN": "boolean", "BYTEA": "bytea"}
		if db.Engine() == store.SQLite {
			catalogue, typeOf = catalogueOfSQLite, map[string]string{"TEXT": "TEXT", "BIGINT": "INTEGER", "BOOLEAN": "INTEGER", "BYTEA": "BLOB"}
		}
		found := map[string]map[string]string{}
		rows, err := db.Reader().QueryContext(t.Context(), catalogue)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var table, column, kind string
			require.NoError(t, rows.Scan(&table, &column, &kind))
			if slices.Contains(archive.LeftOut, table) || slices.Contains(ownTables, table) || leftOutColumns[table] == column {
				continue
			}
			if found[table] == nil {
				found[table] = map[string]string{}
			}
			found[table][column] = kind
		}
		require.NoError(t, rows.Err())
		_, want := archive.ArchivedTables()
		for _, columns := range want {
			for column, kind := range columns {
				columns[column] = typeOf[kind]
			}
		}
		require.Equal(t, want, found, "an archive has every table and column, except for leftOut")
	})
}

// The order of an archive's tables lets every row find what it refers to, and a number that the database counts up by itself
// is in no archive: after an import it would begin anew.
func TestOrderOfArchivedTables(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.Postgres)
	names, _ := archive.ArchivedTables()
	rows, err := db.Reader().QueryContext(t.Context(), `SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint WHERE contype = 'f'`)
	require.NoError(t, err)
	defer rows.Close()
	references := 0
	for ; rows.Next(); references++ {
		var from, to string
		require.NoError(t, rows.Scan(&from, &to))
		if slices.Contains(archive.LeftOut, from) {
			continue
		}
		require.Less(t, slices.Index(names, to), slices.Index(names, from), "%s refers to %s", from, to)
	}
	require.NoError(t, rows.Err())
	require.NotZero(t, references)

	counting := map[string]string{}
	columns, err := db.Reader().QueryContext(t.Context(), `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name = ANY ($1) AND (is_identity = 'YES' OR column_default LIKE 'nextval%')`, names)
	require.NoError(t, err)
	defer columns.Close()
	for columns.Next() {
		var table, column string
		require.NoError(t, columns.Scan(&table, &column))
		counting[table] = column
	}
	require.NoError(t, columns.Err())
	require.Equal(t, leftOutColumns, counting, "an import must set the sequence behind the column, or leave it to count anew")
}
