package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestUpgradeKeepsOlderBuildsWorking guarantees that nodes can be updated one after the other: after this build has migrated
// the database of an older one, PostgreSQL still accepts each statement of the older build, and rows that the older build
// writes, without the columns that it doesn't know, break no rule of the tables. Both engines have their tables from one text.
func TestUpgradeKeepsOlderBuildsWorking(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(upgradeFolder, "*", "statements.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		build := filepath.Base(filepath.Dir(file))
		t.Run(build, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			statements := strings.Split(strings.TrimSuffix(string(text), ";\n"), ";\n")
			require.Greater(t, len(statements), 100)

			location := storetest.Location(t, store.Postgres)
			restore(t, build, location)
			conn, err := pgx.Connect(t.Context(), location.DSN)
			require.NoError(t, err)
			defer conn.Close(t.Context())
			requirePlans(t, conn, statements)
			before := readRules(t, conn)
			storetest.OpenAt(t, location, store.Options{})
			requirePlans(t, conn, statements)
			before.requireNoStricter(t, readRules(t, conn))
		})
	}
}

// requirePlans requires that the server can plan each statement, whatever its parameters are.
func requirePlans(t *testing.T, conn *pgx.Conn, statements []string) {
	t.Helper()
	run := func(text, statement string) {
		t.Helper()
		_, err := conn.PgConn().Exec(t.Context(), text).ReadAll()
		require.NoError(t, err, statement)
	}
	run("SET plan_cache_mode = force_generic_plan", "")
	for _, statement := range statements {
		prepared, err := conn.PgConn().Prepare(t.Context(), "older", statement, nil)
		require.NoError(t, err, statement)
		parameters := strings.Join(slices.Repeat([]string{"NULL"}, len(prepared.ParamOIDs)), ", ")
		if parameters != "" {
			parameters = "(" + parameters + ")"
		}
		run("EXPLAIN EXECUTE older"+parameters, statement)
		run("DEALLOCATE older", statement)
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
func readRules(t *testing.T, conn *pgx.Conn) tableRules {
	t.Helper()
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

// looserRules are rules that a later version put in the place of stricter ones: what the old one allows, the new one allows.
var looserRules = map[string]string{
	"channels: CHECK ((((length(type) >= 1) AND (length(type) <= 32)) AND " +
		"(ltrim(type, 'abcdefghijklmnopqrstuvwxyz0123456789_-'::text) = ''::text)))": "channels: CHECK ((type = ANY (ARRAY[" +
		"'bot'::text, 'social_messenger'::text, 'photo_dm'::text, 'chat_app'::text, 'localchat'::text, 'market_a'::text, " +
		"'market_b'::text, 'widget'::text])))",
}

// rulesOfCharges refuse what no build does: to change or delete the row of a charged call, or to empty the table.
var rulesOfCharges = []string{
	"calls: CREATE TRIGGER calls_append_only BEFORE DELETE OR UPDATE ON public.calls FOR EACH ROW WHEN ((old.charged_at IS NOT NULL)) " +
		"EXECUTE FUNCTION refuse_change()",
	"calls: CREATE TRIGGER calls_no_truncate BEFORE TRUNCATE ON public.calls FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
}

// requireNoStricter requires that rows that r allows are allowed by later, too.
func (r tableRules) requireNoStricter(t *testing.T, later tableRules) {
	t.Helper()
	tables := map[string]bool{}
	for column, kind := range r.types {
		require.Equal(t, kind, later.types[column], "the type of %s", column)
		table, _, _ := strings.Cut(column, ".")
		tables[table] = true
	}
	for column := range later.required {
		if table, _, _ := strings.Cut(column, "."); tables[table] {
			require.True(t, r.required[column], "%s is new and must be named: give it a default", column)
		}
	}
	for bound, columns := range later.bounds {
		if _, same := r.bounds[bound]; same {
			continue
		}
		if _, looser := r.bounds[looserRules[bound]]; looser || slices.Contains(rulesOfCharges, bound) {
			continue
		}
		for _, column := range columns {
			require.NotContains(t, r.types, column, "%s is a new rule for a column that older builds write", bound)
		}
	}
}
