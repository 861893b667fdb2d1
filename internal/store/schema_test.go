package store_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// Several processes may start at once on an empty database: all of them find it migrated. On SQLite that doesn't hang
// on the write lock, which only keeps them from meeting.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]store.Engine{"sqlite": store.SQLite, "sqlite without turns": store.SQLite, "postgres": store.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			if name == "sqlite without turns" {
				release, err := store.HoldTurn(location.DSN)
				require.NoError(t, err)
				defer release() // a lock file
			}
			const n = 5
			errs := make(chan error, n)
			for range n {
				go func() {
					db, err := store.Open(t.Context(), location, store.Options{})
					if err != nil {
						errs <- err
						return
					}
					err = db.Migrate(t.Context())
					if closed := db.Close(t.Context()); err == nil {
						err = closed
					}
					errs <- err
				}()
			}
			for range n {
				require.NoError(t, <-errs)
			}
			db := storetest.OpenAt(t, location, store.Options{}) // and once more on a migrated one
			require.NoError(t, db.Ping(t.Context()))
		})
	}
}

// A store that a newer program has migrated is refused, by its name, and so is one from before the first release; neither is changed.
func TestForeignStores(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		require.NoError(t, db.Check(t.Context()))
		require.NoError(t, db.MigrateWith(t.Context(), `CREATE TABLE later (id TEXT NOT NULL PRIMARY KEY) {table}`))
		for _, use := range []func(context.Context) error{db.Migrate, db.Check} {
			err := use(t.Context())
			require.ErrorIs(t, err, store.ErrNewer)
			require.ErrorContains(t, err, "version 2, this program's 1")
		}
		write(t, db, `CREATE TABLE schema_versions (version_id INTEGER)`)
		require.ErrorIs(t, db.Migrate(t.Context()), store.ErrUnreleased)
		require.ErrorIs(t, db.Check(t.Context()), store.ErrUnreleased)
	})
}

// An empty database is used only after it was migrated.
func TestEmptyStore(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			db, err := store.Open(t.Context(), storetest.Location(t, engine), store.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { db.Close(context.Background()) })
			err = db.Check(t.Context())
			require.ErrorIs(t, err, store.ErrOlder)
			require.ErrorContains(t, err, "caddy svc migrate")
			require.NoError(t, db.Migrate(t.Context()))
			require.NoError(t, db.Check(t.Context()))
		})
	}
}

// A version is applied once, whole or not at all, and a migration that stopped at one goes on there. A running process of an older version
// goes on working.
func TestNextVersion(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		const second, third = `ALTER TABLE organizations ADD COLUMN note TEXT NOT NULL DEFAULT 'none'`, `CREATE TABLE later (id BIGINT NOT NULL PRIMARY KEY) {table}; `
		createOrganization(t, db, "org_1")
		err := db.MigrateWith(t.Context(), second, third+`INSERT INTO nowhere VALUES (1)`)
		require.ErrorContains(t, err, "version 3")
		require.Equal(t, []string{"0", "1", "2"}, texts(t, db, `SELECT version_id FROM schema_migrations ORDER BY version_id`))
		require.Empty(t, texts(t, db, `SELECT name FROM organizations WHERE note <> 'none'`))
		createOrganization(t, db, "org_2")
		for range 2 {
			require.NoError(t, db.MigrateWith(t.Context(), second, third+`INSERT INTO later VALUES (1)`))
		}
		require.Equal(t, []string{"1"}, texts(t, db, `SELECT id FROM later`))
	})
}

// texts are the rows of a query with one column.
func texts(t *testing.T, db *store.DB, query string) (found []string) {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		found = append(found, text)
	}
	require.NoError(t, rows.Err())
	return found
}

// global are the tables without an organization, with the reason.
var global = map[string]string{
	"organizations": "an organization is its row",
	"login_windows": "logins are counted by addresses before the organization is known",
	"id_keys":       "keys of the program",
	"operator_keys": "operators of the service belong to no organization",
	"processes":     "processes serve all organizations",
	"conditions":    "the operator's view of the whole service",
	"doctor_runs":   "the doctor checks the whole store",
	"marks":         "moments that processes share",
	"prices":        "a price is the same for all organizations",

	"operators":         "operators of the service belong to no organization",
	"operator_sessions": "the same",
	"operator_requests": "the same",

	"usage_totals":   "the sums of all organizations",
	"usage_minutes":  "the same",
	"usage_progress": "one process counts for all organizations",
}

// foundWithout are the unique keys of tables with an organization that don't begin with it, with the reason.
var foundWithout = map[string]string{
	"sessions (hash)":                   "a cookie names no organization",
	"user_links (hash)":                 "a link names no organization",
	"invitations (hash)":                "a link names no organization",
	"api_keys (hash)":                   "a key names no organization",
	"channels (type, external_id)":      "a platform names its account, and an account has one organization",
	"message_tombstones (hash)":         "a hash over the id of a channel",
	"chunks (seq)":                      "the number in the index of words",
	"outbound_messages (turn_id, part)": "an id of this program",
	"usage_segments (number)":           "an order of all organizations",

	"payment_codes (code)":                  "a transfer names no organization",
	"payments (provider, id)":               "a delivery names no organization",
	"payments (pay_id)":                     "an operator names no organization",
	"payments (reference, account, amount)": "nor does a transfer",
	"attempts (call_id, number)":            "an id of this program",
}

// TestKeysBeginWithTheOrganization guarantees that tables can be spread over several databases by organization, on both engines: each row of
// an organization names it, and each unique key begins with it, or is an id that this program makes, or is listed above.
func TestKeysBeginWithTheOrganization(t *testing.T) {
	t.Parallel()
	columns := map[store.Engine]string{
		store.SQLite: `SELECT t.name || ' ' || c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c
			WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND (c."notnull" OR c.name <> 'org_id')`,
		store.Postgres: `SELECT table_name || ' ' || column_name FROM information_schema.columns
			WHERE table_schema = current_schema() AND (is_nullable = 'NO' OR column_name <> 'org_id')`,
	}
	keys := map[store.Engine]string{
		store.SQLite: `SELECT name || ' (' || group_concat(key, ', ') || ')' FROM (
				SELECT t.name, l.seq, i.name AS key FROM pragma_table_list t JOIN pragma_index_list(t.name) l JOIN pragma_index_info(l.name) i
				WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND l."unique" ORDER BY t.name, l.seq, i.seqno
			) GROUP BY name, seq
			UNION ALL SELECT t.name || ' (' || c.name || ')' FROM pragma_table_list t JOIN pragma_table_info(t.name) c
			WHERE t.schema = 'main' AND t.type = 'table' AND NOT t.wr AND c.pk = 1 AND c.type = 'INTEGER'`,
		store.Postgres: `SELECT c.relname || ' (' || string_agg(a.attname, ', ' ORDER BY k.place) || ')'
			FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid AND c.relnamespace = current_schema()::regnamespace
			CROSS JOIN unnest(x.indkey::smallint[]) WITH ORDINALITY AS k (number, place)
			JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
			WHERE x.indisunique GROUP BY c.relname, x.indexrelid`,
	}
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		tables := map[string]bool{} // whether they name the organization
		for _, column := range texts(t, db, columns[db.Engine()]) {
			table, name, _ := strings.Cut(column, " ")
			if table != schema.VersionTable && !strings.HasPrefix(table, "chunk_words") { // which is an index
				tables[table] = tables[table] || name == "org_id"
			}
		}
		for table, names := range tables {
			require.Equal(t, names, global[table] == "", "%s has no org_id that is never null, or is listed without need", table)
		}
		for table := range global {
			require.Contains(t, tables, table)
		}
		found := texts(t, db, keys[db.Engine()])
		for _, key := range found {
			table, rest, _ := strings.Cut(key, " ")
			if tables[table] && rest != "(id)" && !strings.HasPrefix(rest, "(org_id,") {
				require.Contains(t, foundWithout, key)
			}
		}
		require.Subset(t, found, slices.Collect(maps.Keys(foundWithout)))
	})
}

// The books only grow: a change, a deletion and a replacement are refused by the database itself.
func TestLedgerIsAppendOnly(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		const tx = `INSERT INTO ledger_tx (id, org_id, env, wallet_seq, kind, account, ref, reason, amount_micros, balance_micros, created_at, audit_id) `
		const call = `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens,
			cached_tokens, usage_source, ended_at, duration_ms, reserved_micros, charged_micros, shortfall_micros, wallet_seq, balance_micros)
			SELECT id, 'req', 'org_1', 'live', 'key', 'm', 'p', FALSE, TRUE, 'completed', 1, 1, 0, 'provider', 1, 1, 5, charged, 0, seq, left_micros `
		write(t, db, tx+`VALUES ('txn_1', 'org_1', 'live', 1, 'topup', 'sys:cash', 'r', '', 5, 5, 1, 'aud_1')`)
		write(t, db, call+`FROM (SELECT 'call_1' AS id, 3 AS charged, 2 AS seq, 2 AS left_micros) AS one`)
		write(t, db, call+`FROM (SELECT 'call_2' AS id, 0 AS charged, CAST(NULL AS BIGINT) AS seq, CAST(NULL AS BIGINT) AS left_micros) AS one`)
		statements := []string{
			`UPDATE ledger_tx SET amount_micros = 6`,
			`DELETE FROM ledger_tx WHERE id = 'txn_1'`,
			`UPDATE calls SET charged_micros = 4 WHERE id = 'call_1'`,
			`DELETE FROM calls`,
		}
		if db.Engine() == store.SQLite {
			statements = append(
				statements, strings.Replace(tx, "INSERT", "REPLACE", 1)+`VALUES ('txn_1', 'org_1', 'live', 1, 'topup', 'sys:cash', 'r', '', 500, 500, 1, 'aud_1')`,
				strings.Replace(call, "INSERT", "REPLACE", 1)+`FROM (SELECT 'call_1' AS id, 1 AS charged, 2 AS seq, 4 AS left_micros) AS one`,
			)
		} else {
			statements = append(statements, `TRUNCATE ledger_tx`, `TRUNCATE calls`)
		}
		for _, statement := range statements {
			require.ErrorContains(t, tryWrite(db, statement), "append-only", statement)
		}
		var amount, charged int64
		require.NoError(t, db.Reader().QueryRow(`SELECT amount_micros, (SELECT charged_micros FROM calls WHERE id = 'call_1') FROM ledger_tx`).Scan(&amount, &charged))
		require.Equal(t, []int64{5, 3}, []int64{amount, charged})
		write(t, db, `DELETE FROM calls WHERE id = 'call_2'`) // it was no charge
	})
}

// What must never stand in the tables is refused by them, whatever the code above does.
func TestConstraints(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		const hold = `INSERT INTO holds (org_id, env, id, amount_micros, expires_at) `
		const call = `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens,
			cached_tokens, usage_source, ended_at, duration_ms, reserved_micros, charged_micros, shortfall_micros, wallet_seq, balance_micros) `
		const running = `INSERT INTO running_keys (org_id, env, key_hash, fingerprint, call_id, reserved_micros, expires_at) `
		const key = `INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, call_id, kept_bytes, until) `
		const tx = `INSERT INTO ledger_tx (id, org_id, env, wallet_seq, kind, account, ref, reason, amount_micros, balance_micros, created_at, audit_id) `
		write(t, db, `INSERT INTO organizations (id, name, plan, created_at) VALUES ('org_1', 'one', 'free', 1)`)
		write(t, db, `INSERT INTO wallets (org_id, env, balance_micros, held_micros) VALUES ('org_1', 'live', 100, 100)`)
		write(t, db, hold+`VALUES ('org_1', 'live', 'call_0', 1, 2)`)
		write(t, db, `INSERT INTO tranches VALUES ('org_1', 'live', 'trc_1', 'own_1', 0, FALSE, 1, '')`)
		const told = `'req_1', 'org_1', 'live', 'key_1', 'm', 'p', FALSE, TRUE, 'completed', 1, 1, 0, 'provider', 1, 1`
		write(t, db, call+`VALUES ('call_1', `+told+`, 5, 5, 0, 1, 10)`)
		write(t, db, call+`VALUES ('call_2', `+told+`, 5, 0, 0, NULL, NULL)`) // a void may change
		hash, other := make([]byte, 32), bytes.Repeat([]byte{1}, 32)
		write(t, db, running+`VALUES ('org_1', 'live', $1, $1, 'call_1', 5, 1)`, hash)
		write(t, db, key+`VALUES ('org_1', 'live', $1, $1, 'call_2', 0, 1)`, hash)
		write(t, db, tx+`VALUES ('txn_1', 'org_1', 'live', 2, 'topup', 'sys:cash', 'r', '', 1, 1, 1, 'aud_1')`)
		const budget = `INSERT INTO budgets (id, org_id, env, owner_kind, owner_id, name, period, limit_micros, thresholds, created_at, ended_at) `
		write(t, db, budget+`VALUES ('bud_1', 'org_1', 'live', 'api_key', 'key_1', 'n', 'day', 0, '', 1, NULL)`)
		write(t, db, budget+`VALUES ('bud_2', 'org_1', 'live', 'api_key', 'key_1', 'n', 'day', 0, '', 1, 2)`) // it has ended
		write(t, db, `INSERT INTO budget_spend VALUES ('org_1', 'live', 1, 'bud_1', 1, 0, 2, 3, 5, 0, 0, 0, 0)`)

		for statement, arguments := range map[string][]any{
			`UPDATE wallets SET balance_micros = 99`:                        nil, // below what is held
			`UPDATE wallets SET held_micros = 101`:                          nil,
			`UPDATE wallets SET held_micros = -1`:                           nil,
			`UPDATE wallets SET balance_micros = -1, held_micros = -1`:      nil,
			`UPDATE wallets SET seq = -1`:                                   nil,
			`UPDATE wallets SET kept_bytes = -1`:                            nil,
			`INSERT INTO wallets (org_id, env) VALUES ('org_1', 'live')`:    nil,
			`INSERT INTO wallets (org_id, env) VALUES ('org_1', 'staging')`: nil,
			`INSERT INTO wallets (org_id, env) VALUES ('org_none', 'live')`: nil,
			`UPDATE wallets SET balance_micros = $1`:                        {"lots"},

			`UPDATE holds SET amount_micros = 0`:                 nil,
			hold + `VALUES ('org_1', 'live', 'call_0', 1, 2)`:    nil,
			hold + `VALUES ('org_1', 'staging', 'call_9', 1, 2)`: nil,
			`UPDATE tranches SET left_micros = -1`:               nil,

			`UPDATE calls SET charged_micros = -1 WHERE id = 'call_2'`:                                    nil,
			`UPDATE calls SET shortfall_micros = -1 WHERE id = 'call_2'`:                                  nil,
			`UPDATE calls SET reserved_micros = -1 WHERE id = 'call_2'`:                                   nil,
			`UPDATE calls SET byok = TRUE WHERE id = 'call_2'`:                                            nil, // and something was reserved
			`UPDATE calls SET usage_source = 'guess' WHERE id = 'call_2'`:                                 nil,
			`UPDATE calls SET wallet_seq = 3, balance_micros = 1 WHERE id = 'call_2'`:                     nil, // it wasn't charged
			call + `VALUES ('call_3', ` + told + `, 5, 6, 0, 3, 10)`:                                      nil, // above its reservation
			call + `VALUES ('call_3', ` + told + `, 5, 5, 0, NULL, NULL)`:                                 nil, // a charge without a number
			call + `VALUES ('call_3', ` + told + `, 5, 5, 0, 3, NULL)`:                                    nil, // and without a balance
			call + `VALUES ('call_3', ` + told + `, 5, 5, 0, 3, -1)`:                                      nil,
			call + `VALUES ('call_3', ` + told + `, 5, 5, 0, 1, 10)`:                                      nil, // the number of another charge
			call + `VALUES ('call_1', ` + told + `, 5, 5, 0, 3, 10)`:                                      nil,
			running + `VALUES ('org_1', 'live', $1, $1, 'call_2', 0, 1)`:                                  {hash},
			running + `VALUES ('org_1', 'test', $1, $1, 'call_2', 0, 1)`:                                  {hash[:31]},
			running + `VALUES ('org_1', 'live', $1, $1, '', 0, 1)`:                                        {other},
			running + `VALUES ('org_1', 'live', $1, $1, 'call_2', -1, 1)`:                                 {other},
			key + `VALUES ('org_1', 'live', $1, $1, 'call_1', 0, 1)`:                                      {hash},
			key + `VALUES ('org_1', 'test', $1, $1, 'call_1', 0, 1)`:                                      {hash[:31]},
			key + `VALUES ('org_1', 'live', $1, $1, '', 0, 1)`:                                            {other},
			key + `VALUES ('org_1', 'live', $1, $1, 'call_1', -1, 1)`:                                     {other},
			budget + `VALUES ('bud_3', 'org_1', 'live', 'api_key', 'key_1', 'n', 'day', 1, '', 1, NULL)`:  nil, // a second one
			budget + `VALUES ('bud_3', 'org_1', 'live', 'api_key', '', 'n', 'day', 1, '', 1, NULL)`:       nil,
			budget + `VALUES ('bud_3', 'org_1', 'live', 'organization', 'x', 'n', 'day', 1, '', 1, NULL)`: nil,
			`UPDATE budgets SET limit_micros = -1`:                                                        nil,
			`UPDATE budgets SET period = 'year'`:                                                          nil,
			`UPDATE budget_spend SET reserved_micros = -1`:                                                nil,
			`UPDATE budget_spend SET reserved_micros = 3`:                                                 nil, // above the limit
			`UPDATE budget_spend SET spent_micros = -1`:                                                   nil,
			`UPDATE budget_spend SET spent_micros = 9223372036854775807`:                                  nil,
			`INSERT INTO budget_spend VALUES ('org_1', 'live', 2, 'bud_1', 1, 0, 0, 0, 0, 0, 0, 0, 0)`:    nil, // the same period
			`INSERT INTO budget_rises VALUES ('r', 'org_1', 'bud_1', 0, 1, 'r', '', 1, FALSE)`:            nil,
			`UPDATE calls SET budgets = '' WHERE id = 'call_2'`:                                           nil,
			`INSERT INTO kept_answers VALUES ('org_1', 'staging', 'call_1', $1)`:                          {other},
			`INSERT INTO prices VALUES (1, 'm', 'p', '', '', 1, -1, 1, 1, 1, '', '')`:                     nil,
			`INSERT INTO prices VALUES (1, 'm', 'p', '', '', 1, 1, 1, -1, 1, '', '')`:                     nil,
			`UPDATE calls SET cache_write_tokens = -1 WHERE id = 'call_2'`:                                nil,
			`INSERT INTO attempts VALUES ('org_1', 'call_2', 0, 'p', '', 'timeout', 0, 0, NULL)`:          nil,
			`INSERT INTO attempts VALUES ('org_1', 'call_2', 1, 'p', '', 'timeout', 0, 0, -1)`:            nil,
			tx + `VALUES ('txn_2', 'org_1', 'live', 3, 'topup', 'sys:cash', 'r', '', 1, 1, 1, '')`:        nil, // the reference of another
			tx + `VALUES ('txn_2', 'org_1', 'live', 2, 'topup', 'sys:cash', 's', '', 1, 1, 1, '')`:        nil, // its number
			tx + `VALUES ('txn_2', 'org_1', 'live', 0, 'topup', 'sys:cash', 's', '', 1, 1, 1, '')`:        nil,
			tx + `VALUES ('txn_2', 'org_1', 'live', 3, 'topup', 'sys:cash', '', '', 1, 1, 1, '')`:         nil,
			tx + `VALUES ('txn_2', 'org_1', 'live', 3, 'gift', 'sys:cash', 's', '', 1, 1, 1, '')`:         nil,
			tx + `VALUES ('txn_2', 'org_1', 'live', 3, 'topup', 'sys:other', 's', '', 1, 1, 1, '')`:       nil,
			tx + `VALUES ('txn_2', 'org_1', 'live', 3, 'topup', 'sys:cash', 's', '', 0, 1, 1, '')`:        nil,
			tx + `VALUES ('txn_2', 'org_1', 'live', 3, 'topup', 'sys:cash', 's', '', 1, -1, 1, '')`:       nil,
		} {
			require.Error(t, tryWrite(db, statement, arguments...), statement)
		}
	})
}

// Texts compare byte by byte on both engines, in every column. The tests' PostgreSQL has the rules of English.
func TestTextsCompareByteByByte(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		names := []string{"A-1", "B", "a", "a b", "a-2", "ab", "Ä"}
		for i, name := range names {
			write(t, db, `INSERT INTO organizations (id, name, plan, created_at) VALUES ($1, $2, 'free', 1)`, "org_"+strconv.Itoa(i), name)
		}
		require.Equal(t, names, texts(t, db, `SELECT name FROM organizations ORDER BY name`))
		if db.Engine() == store.Postgres {
			require.Empty(t, texts(t, db, `SELECT table_name || ' ' || column_name FROM information_schema.columns
				WHERE table_schema = current_schema() AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'`))
		}
	})
}

// The reader can't write where the engine allows to forbid it.
func TestReaderOfSQLiteIsReadOnly(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	_, err := db.Reader().Exec(`INSERT INTO organizations (id, name, plan, created_at) VALUES ('org_1', 'one', 'free', 1)`)
	require.ErrorContains(t, err, "readonly")
}

// On SQLite, a table whose rows may be many pages long has a rowid, so that a search for a row reads no other.
func TestLongRowsHaveRowids(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	for _, table := range []string{"agents", "chunks", "kept_answers", "media_pieces", "sent_file_pieces"} {
		var without bool
		require.NoError(t, db.Reader().QueryRow(`SELECT wr FROM pragma_table_list WHERE name = $1`, table).Scan(&without))
		require.False(t, without, table)
	}
}
