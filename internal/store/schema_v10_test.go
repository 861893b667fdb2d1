package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// versionNine opens a database of version 9, with channels, and rows that refer to them.
func versionNine(t *testing.T, engine store.Engine) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), storetest.Location(t, engine), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close(context.Background()) })
	require.NoError(t, db.MigrateTo(t.Context(), 9))
	queueRows(t, db)
	createChannel(t, db, store.Channel{ID: "chn_2", OrgID: "org_1", Type: "widget", Credentials: []byte{1}, Widget: &store.WidgetSettings{
		Origins: []string{"https://shop.example.com"}, RequestsPerMinute: 5,
	}})
	return db
}

// structure is what a database's tables are made of, as text: columns, constraints, indexes and triggers of all of them, but
// for the rule for the type of channels.
func structure(t *testing.T, db *store.DB) map[string][]string {
	t.Helper()
	queries := map[string]string{
		"columns": `SELECT concat_ws(' ', table_name, ordinal_position, column_name, data_type, is_nullable, column_default)
			FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY 1`,
		"constraints": `SELECT concat_ws(' ', conrelid::regclass, conname, convalidated, pg_get_constraintdef(oid)) FROM pg_constraint
			WHERE connamespace = current_schema()::regnamespace AND conname <> 'channels_type_check' ORDER BY 1`,
		"indexes":  `SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1`,
		"triggers": `SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1`,
		"tables":   `SELECT concat_ws(' ', relname, reloptions) FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY 1`,
	}
	if db.Engine() == store.SQLite {
		queries = map[string]string{
			"columns": `SELECT concat_ws(' ', m.name, c.cid, c.name, c.type, c."notnull", c.dflt_value, c.pk, c.hidden)
				FROM sqlite_schema m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' ORDER BY 1`,
			"indexes": `SELECT concat_ws(' ', m.name, i.name, i."unique", i.origin, i.partial, c.seqno, c.cid, c.name, c."desc", c.coll, c.key)
				FROM sqlite_schema m, pragma_index_list(m.name) i, pragma_index_xinfo(i.name) c WHERE m.type = 'table' ORDER BY 1`,
			"references": `SELECT concat_ws(' ', m.name, f.id, f.seq, f."table", f."from", f."to", f.on_update, f.on_delete, f.match)
				FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table' ORDER BY 1`,
			"tables": `SELECT concat_ws(' ', name, type, ncol, wr, strict) FROM pragma_table_list WHERE schema = 'main' ORDER BY 1`,
			"texts":  `SELECT concat_ws(' ', type, name, tbl_name, sql) FROM sqlite_schema ORDER BY type, name`,
		}
	}
	typeRule := regexp.MustCompile(` CHECK \((type IN \([^)]*\)|length\(type\).*? = '')\)`)
	all := map[string][]string{}
	for name, query := range queries {
		for _, text := range texts(t, db, query) {
			text = strings.Join(strings.Fields(text), " ")
			all[name] = append(all[name], typeRule.ReplaceAllString(strings.ReplaceAll(text, `"channels"`, "channels"), ""))
		}
		require.NotEmpty(t, all[name], name)
	}
	return all
}

// The rows of all tables are the same before and after version 10, and so is everything that the tables are made of but the rule for types. A
// process of the version before goes on reading and writing, with statements that it prepared before.
func TestChannelTypesAreFreed(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			testChannelTypesAreFreed(t, versionNine(t, engine))
		})
	}
}

func testChannelTypesAreFreed(t *testing.T, old *store.DB) {
	t.Helper()
	ctx := t.Context()
	write(t, old, `CREATE INDEX channels_own ON channels (updated_at) WHERE state = 'active'`) // an operator's own
	require.Error(t, tryWrite(old, `UPDATE channels SET type = 'fax' WHERE id = 'chn_1'`))
	columns, made := storetest.Columns(t, old.Reader(), old.Engine()), structure(t, old)
	held := storetest.Contents(t, old.Reader(), columns)
	require.Len(t, held["conversations"], 2)
	require.Len(t, held["widget_settings"], 1)

	require.NoError(t, old.MigrateTo(ctx, 10))
	require.Equal(t, columns, storetest.Columns(t, old.Reader(), old.Engine()))
	require.Equal(t, held, storetest.Contents(t, old.Reader(), columns))
	require.Equal(t, made, structure(t, old))
	db := storetest.OpenAt(t, old.Location(), store.Options{})
	require.NoError(t, db.Migrate(ctx), "again")
	require.Equal(t, held, storetest.Contents(t, db.Reader(), columns))

	createChannel(t, old, store.Channel{ID: "chn_3", OrgID: "org_1", Type: "market_a", ExternalID: "shop"})
	_, found, err := old.Routes.ByID(ctx, "chn_1")
	require.NoError(t, err)
	require.True(t, found)
	createChannel(t, db, store.Channel{ID: "chn_4", OrgID: "org_1", Type: "fax", ExternalID: "shop"})
	for _, each := range []*store.DB{old, db} {
		routes, err := each.Routes.ByKeys(ctx, []store.RouteKey{{Type: "fax", ExternalID: "shop"}, {Type: "market_a", ExternalID: "shop"}})
		require.NoError(t, err)
		require.Len(t, routes, 2)
		require.Error(t, tryWrite(each, `DELETE FROM channels WHERE id = 'chn_1'`), "it has conversations")
		require.Error(t, tryWrite(each, `UPDATE channels SET org_id = 'org_none' WHERE id = 'chn_4'`))
		require.Error(t, tryWrite(each, `UPDATE channels SET type = 'market_a' WHERE id = 'chn_4'`), "the external id")
	}
	write(t, old, `DELETE FROM channels WHERE id = 'chn_2'`)
	require.Empty(t, texts(t, db, `SELECT channel_id FROM widget_settings`), "they go with their channel")
	require.NoError(t, db.Channels.Delete(ctx, "cli", "org_1", "chn_1"))
}

// A channel's type is the name of a type, whichever it is.
func TestConstraintOfChannelTypes(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		queueRows(t, db)
		for _, name := range []string{"bot", "fax", "x", "fax_2-b", strings.Repeat("a", 32)} {
			require.NoError(t, tryWrite(db, `UPDATE channels SET type = $1`, name), name)
		}
		for _, name := range []any{"", "Fax", "a b", "a\n", "ä", "a.b", strings.Repeat("a", 33), nil} {
			require.Error(t, tryWrite(db, `UPDATE channels SET type = $1`, name), name)
		}
	})
}

// A version that can't be applied leaves the database as it was.
func TestFailedRebuildChangesNothing(t *testing.T) {
	t.Parallel()
	const insert = `INSERT INTO channels (id, org_id, type, name, external_id, state, credentials_version, created_at, updated_at)
		VALUES ('chn_9', 'org_1', 'No Name', 'nine', '', 'active', 1, 1, 1)`
	for name, test := range map[string]struct {
		engine  store.Engine
		damages []string
	}{
		"sqlite, a type that is no name":             {store.SQLite, []string{`PRAGMA ignore_check_constraints = 1`, insert}},
		"sqlite, a row without the one it refers to": {store.SQLite, []string{`UPDATE channels SET org_id = 'org_none' WHERE id = 'chn_2'`}},
		"postgres, a type that is no name": {store.Postgres, []string{
			`ALTER TABLE channels DROP CONSTRAINT channels_type_check`, insert,
			`ALTER TABLE channels ADD CONSTRAINT channels_type_check CHECK (type IN ('bot')) NOT VALID`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := versionNine(t, test.engine)
			damage(t, db, test.damages)
			columns, made := storetest.Columns(t, db.Reader(), db.Engine()), structure(t, db)
			held := storetest.Contents(t, db.Reader(), columns)
			require.ErrorContains(t, db.MigrateTo(t.Context(), 10), "version 10")
			require.Equal(t, held, storetest.Contents(t, db.Reader(), columns))
			require.Equal(t, made, structure(t, db))
			require.EqualValues(t, 9, newest(t, db))

			write(t, db, `UPDATE channels SET type = 'bot', org_id = 'org_1'`)
			require.NoError(t, db.MigrateTo(t.Context(), 10))
			require.EqualValues(t, 10, newest(t, db))
		})
	}
}

// damage runs statements on one connection that keeps no rule it doesn't have to.
func damage(t *testing.T, db *store.DB, statements []string) {
	t.Helper()
	engine := "pgx"
	if db.Engine() == store.SQLite {
		engine = "sqlite"
	}
	pool, err := sql.Open(engine, db.Location().DSN)
	require.NoError(t, err)
	defer pool.Close()
	conn, err := pool.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for _, statement := range statements {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// newest is the version of the tables.
func newest(t *testing.T, db *store.DB) (version int64) {
	t.Helper()
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT max(version_id) FROM schema_versions`).Scan(&version))
	return version
}

// Where foreign keys are enforced no table is rebuilt: its rows, and with them what refers to them, would be deleted.
func TestRebuildNeedsForeignKeysOff(t *testing.T) {
	t.Parallel()
	db := versionNine(t, store.SQLite)
	write(t, db, `DELETE FROM conversations`) // they would end the version; settings of widgets would just be gone
	columns := storetest.Columns(t, db.Reader(), db.Engine())
	held := storetest.Contents(t, db.Reader(), columns)
	require.Len(t, held["widget_settings"], 1)
	pool, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=foreign_keys(1)&_txlock=immediate", db.Location().DSN))
	require.NoError(t, err)
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	err = schema.Migrate(t.Context(), db.Engine(), pool, schema.Versions(db.Engine()), nil)
	require.ErrorContains(t, err, "enforces foreign keys")
	require.Equal(t, held, storetest.Contents(t, db.Reader(), columns))
	require.EqualValues(t, 9, newest(t, db))
}
