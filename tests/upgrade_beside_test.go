package tests

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestRulesOfOlderBuilds guarantees that TestUpgrade finds a version of the tables under which processes of an older build, which know nothing
// of it, can't go on, and lets pass what they don't notice.
func TestRulesOfOlderBuilds(t *testing.T) {
	t.Parallel()
	for change, broken := range map[string]string{
		`ALTER TABLE media ADD COLUMN a TEXT`:                                          "",
		`ALTER TABLE media ADD COLUMN a TEXT NOT NULL DEFAULT ''`:                      "",
		`CREATE TABLE later (id TEXT NOT NULL PRIMARY KEY)`:                            "",
		`CREATE INDEX later ON media (updated_at)`:                                     "",
		`ALTER TABLE media ADD COLUMN a TEXT NOT NULL`:                                 "media.a is new and must be named: give it a default",
		`ALTER TABLE media DROP COLUMN updated_at`:                                     "media.updated_at has another type",
		`ALTER TABLE media ALTER COLUMN updated_at TYPE integer`:                       "media.updated_at has another type",
		`ALTER TABLE media ALTER COLUMN updated_at DROP NOT NULL`:                      "media.updated_at has another type",
		`ALTER TABLE media ADD CHECK (bytes < 9)`:                                      "media: CHECK ((bytes < 9)) is a new rule for media.bytes",
		`CREATE UNIQUE INDEX later ON media (updated_at)`:                              "is a new rule for media.updated_at",
		`DROP INDEX channels_external`:                                                 "an ON CONFLICT may name it",
		`ALTER TABLE message_keys DROP CONSTRAINT message_keys_pkey`:                   "an ON CONFLICT may name it",
		`ALTER TABLE channels DROP CONSTRAINT channels_state_check`:                    "",
		`CREATE TRIGGER later BEFORE UPDATE ON media EXECUTE FUNCTION refuse_change()`: "is a new rule for media.",
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			location := storetest.Migrated(t, store.Postgres)
			before := readRules(t, location)
			conn := connect(t, location)
			_, err := conn.ExecContext(t.Context(), change)
			require.NoError(t, err)
			found := before.broken(readRules(t, location))
			if broken == "" {
				require.Empty(t, found)
				return
			}
			require.Contains(t, strings.Join(found, "\n"), broken)
		})
	}
}

// tableRules are PostgreSQL's rules for the rows of each table.
type tableRules struct {
	// types are those of columns, named table.column, and say which are never null.
	types map[string]string
	// required are the columns that an INSERT must name: without a default, and never null.
	required map[string]bool
	// bounds are the constraints, unique indexes and triggers with their columns.
	bounds map[string][]string
}

// readRules reads the rules of all tables.
func readRules(t *testing.T, location store.Location) tableRules {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), location.DSN)
	require.NoError(t, err)
	defer conn.Close(context.Background()) // it only reads
	rules := tableRules{types: map[string]string{}, required: map[string]bool{}, bounds: map[string][]string{}}
	const columns = `SELECT table_name || '.' || column_name,
			data_type || CASE is_nullable WHEN 'NO' THEN ', never null' ELSE '' END, is_nullable = 'NO' AND column_default IS NULL
		FROM information_schema.columns WHERE table_schema = 'public'`
	rows, err := conn.Query(t.Context(), columns)
	require.NoError(t, err)
	var column, kind string
	var required bool
	_, err = pgx.ForEachRow(rows, []any{&column, &kind, &required}, func() error {
		rules.types[column] = kind
		if required {
			rules.required[column] = true
		}
		return nil
	})
	require.NoError(t, err)
	const bounds = `SELECT b.relid::regclass || ': ' || b.rule,
			ARRAY(SELECT b.relid::regclass || '.' || a.attname FROM pg_attribute a WHERE a.attrelid = b.relid AND a.attnum = ANY (b.columns))
		FROM (SELECT conrelid AS relid, pg_get_constraintdef(oid) AS rule, conkey AS columns FROM pg_constraint
				WHERE contype IN ('c', 'f', 'p', 'u', 'x')
			UNION ALL SELECT indrelid, pg_get_indexdef(indexrelid), indkey::smallint[] FROM pg_index WHERE indisunique
			UNION ALL SELECT tgrelid, pg_get_triggerdef(oid), ARRAY(SELECT attnum FROM pg_attribute WHERE attrelid = tgrelid AND attnum > 0)
				FROM pg_trigger WHERE NOT tgisinternal) AS b
		JOIN pg_class c ON c.oid = b.relid AND c.relnamespace = 'public'::regnamespace`
	rows, err = conn.Query(t.Context(), bounds)
	require.NoError(t, err)
	var bound string
	var of []string
	_, err = pgx.ForEachRow(rows, []any{&bound, &of}, func() error {
		rules.bounds[bound] = of
		return nil
	})
	require.NoError(t, err)
	return rules
}

// broken says why a process of an older build, which knows r, can't go on where later are the rules: for all that it writes and reads there is
// a column of the same type, no rule is new for those columns, and none is gone that an ON CONFLICT may name.
func (r tableRules) broken(later tableRules) (all []string) {
	tables := map[string]bool{}
	for _, column := range slices.Sorted(maps.Keys(r.types)) {
		if later.types[column] != r.types[column] {
			all = append(all, column+" has another type")
		}
		table, _, _ := strings.Cut(column, ".")
		tables[table] = true
	}
	for _, column := range slices.Sorted(maps.Keys(later.required)) {
		if table, _, _ := strings.Cut(column, "."); tables[table] && !r.required[column] {
			all = append(all, column+" is new and must be named: give it a default")
		}
	}
	for _, bound := range slices.Sorted(maps.Keys(later.bounds)) {
		if _, same := r.bounds[bound]; same {
			continue
		}
		for _, column := range later.bounds[bound] {
			if _, known := r.types[column]; known {
				all = append(all, bound+" is a new rule for "+column)
			}
		}
	}
	for _, bound := range slices.Sorted(maps.Keys(r.bounds)) {
		if _, same := later.bounds[bound]; !same && (strings.Contains(bound, " UNIQUE ") || strings.Contains(bound, "PRIMARY KEY")) {
			all = append(all, bound+" is gone: an ON CONFLICT may name it")
		}
	}
	return all
}
