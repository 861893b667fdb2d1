package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
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

// A database that a newer version has migrated still serves an older one, as in a roll-out.
func TestNewerSchemaIsAccepted(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		applied := any(true)
		if db.Engine() == store.SQLite {
			applied = 1
		}
		write(t, db, `INSERT INTO schema_versions (version_id, is_applied) VALUES (99, $1)`, applied)
		require.NoError(t, db.Migrate(t.Context()))
		createOrganization(t, db, "org_1")
	})
}

// The rows of the first version are still there, and its processes go on writing, after a newer one has migrated under
// them; a migration that is done again changes nothing.
func TestUpgradeKeepsTheRows(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			location := storetest.Location(t, engine)
			old, err := store.Open(ctx, location, store.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { old.Close(context.Background()) })
			require.NoError(t, old.MigrateTo(ctx, 1))
			createOrganization(t, old, "org_1")
			hash := [32]byte{1} // as processes of the first version write it
			write(t, old, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at)
				VALUES ('key_1', 'org_1', 'live', '', '', $1, '', 1)`, hash[:])
			require.NoError(t, old.ProviderKeys.Put(ctx, "cli", store.ProviderKey{OrgID: "org_1", Provider: "openai", Sealed: []byte{1}}))
			write(t, old, `INSERT INTO wallets (org_id, env, balance_micros) VALUES ('org_1', 'live', 100)`)
			write(t, old, `INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) VALUES ('txn_1', 'org_1', 'live', 'topup', 'r', '', 100, 1)`)
			before := contents(t, old)
			_, err = old.Channels.List(ctx, "org_1", store.Page{})
			require.Error(t, err, "the first version has no channels")

			db := storetest.OpenAt(t, location, store.Options{})
			require.NoError(t, db.Migrate(ctx))
			require.Equal(t, before, contents(t, db))
			createAgent(t, db, "org_1", "agt_1")
			createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", AgentID: "agt_1"})

			createOrganization(t, old, "org_2")
			_, found, err := old.APIKeys.ByHash(ctx, hash)
			require.NoError(t, err)
			require.True(t, found)
			createChannel(t, db, store.Channel{ID: "chn_2", OrgID: "org_2"})
		})
	}
}

// contents are the rows of some tables of the first version, as text.
func contents(t *testing.T, db *store.DB) (rows []string) {
	t.Helper()
	for _, text := range []string{
		`SELECT id || ' ' || name || ' ' || plan || ' ' || created_at FROM organizations ORDER BY id`,
		`SELECT id || ' ' || org_id || ' ' || env || ' ' || created_at || ' ' || length(hash) FROM api_keys ORDER BY id`,
		`SELECT org_id || ' ' || provider || ' ' || length(sealed) || ' ' || updated_at FROM provider_keys ORDER BY org_id, provider`,
		`SELECT org_id || ' ' || env || ' ' || balance_micros || ' ' || held_micros FROM wallets ORDER BY org_id, env`,
		`SELECT id || ' ' || org_id || ' ' || kind || ' ' || ref || ' ' || balance_micros FROM ledger_tx ORDER BY id`,
		`SELECT id || ' ' || at || ' ' || action || ' ' || target FROM audit_log ORDER BY id`,
	} {
		found := texts(t, db, text)
		require.NotEmpty(t, found, text)
		rows = append(rows, found...)
	}
	return rows
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

// column is what an older binary relies on.
type column struct {
	Type               string
	Required, Supplied bool // NOT NULL; has a default
}

// columns of all tables by "table.column".
func columns(t *testing.T, db *store.DB) map[string]column {
	t.Helper()
	text := `SELECT m.name || '.' || c.name, c.type, c."notnull", c.dflt_value IS NOT NULL
		FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table'`
	if db.Engine() == store.Postgres {
		text = `SELECT table_name || '.' || column_name, data_type, is_nullable = 'NO', column_default IS NOT NULL
			FROM information_schema.columns WHERE table_schema = current_schema()`
	}
	rows, err := db.Reader().QueryContext(t.Context(), text)
	require.NoError(t, err)
	defer rows.Close()
	all := map[string]column{}
	for rows.Next() {
		var name string
		var c column
		require.NoError(t, rows.Scan(&name, &c.Type, &c.Required, &c.Supplied))
		all[name] = c
	}
	require.NoError(t, rows.Err())
	return all
}

// Every version only adds: what an older binary reads stays as it was, and what it writes needs no new column,
// because old and new processes share a database during a roll-out.
func TestVersionsOnlyExpand(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			db, err := store.Open(t.Context(), storetest.Location(t, engine), store.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { db.Close(context.Background()) })
			require.NoError(t, db.MigrateTo(t.Context(), 1))
			was := columns(t, db)
			require.Contains(t, was, "organizations.plan")
			for version := 2; version <= store.Versions(); version++ {
				require.NoError(t, db.MigrateTo(t.Context(), version))
				is := columns(t, db)
				require.GreaterOrEqual(t, len(is), len(was))
				tables := map[string]bool{}
				for name, before := range was {
					require.Equal(t, before, is[name], name)
					table, _, _ := strings.Cut(name, ".")
					tables[table] = true
				}
				for name, c := range is {
					table, _, _ := strings.Cut(name, ".")
					if _, known := was[name]; !known && tables[table] {
						require.True(t, !c.Required || c.Supplied, "an older binary writes nothing to %s", name)
					}
				}
				was = is
			}
		})
	}
}

// The books only grow: a change, a deletion and a replacement are refused by the database itself.
func TestLedgerIsAppendOnly(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		write(t, db, `INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) VALUES ('txn_1', 'org_1', 'live', 'topup', 'r', '', 1, 1)`)
		write(t, db, `INSERT INTO ledger_entries (tx_id, seq, account, amount_micros) VALUES ('txn_1', 0, 'org:org_1:live', 5), ('txn_1', 1, 'sys:cash', -5)`)
		statements := []string{
			`UPDATE ledger_tx SET reason = 'x'`,
			`DELETE FROM ledger_tx WHERE id = 'txn_1'`,
			`UPDATE ledger_entries SET amount_micros = 6 WHERE seq = 0`,
			`DELETE FROM ledger_entries`,
		}
		if db.Engine() == store.SQLite {
			statements = append(statements, `REPLACE INTO ledger_entries (tx_id, seq, account, amount_micros) VALUES ('txn_1', 0, 'org:org_1:live', 500)`)
		} else {
			statements = append(statements, `TRUNCATE ledger_entries`)
		}
		for _, statement := range statements {
			require.ErrorContains(t, tryWrite(db, statement), "append-only", statement)
		}
		var sum int64
		require.NoError(t, db.Reader().QueryRow(`SELECT amount_micros FROM ledger_entries WHERE seq = 0`).Scan(&sum))
		require.EqualValues(t, 5, sum)
	})
}

// What must never stand in the tables is refused by them, whatever the code above does.
func TestConstraints(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		const hold = `INSERT INTO holds (id, org_id, env, amount_micros, status, model, price_input, price_output, price_cached_input, created_at, expires_at, resolved_at) `
		const call = `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens,
			completion_tokens, cached_tokens, usage_source, charged_micros, extra_micros, shortfall_micros, started_at, duration_ms) `
		const key = `INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, state, call_id, lease_until, created_at, expires_at) `
		write(t, db, `INSERT INTO organizations (id, name, plan, created_at) VALUES ('org_1', 'one', 'free', 1)`)
		write(t, db, `INSERT INTO wallets (org_id, env, balance_micros, held_micros) VALUES ('org_1', 'live', 100, 100)`)
		write(t, db, hold+`VALUES ('call_1', 'org_1', 'live', 1, 'open', 'm', 1, 1, -1, 1, 2, NULL)`)
		write(t, db, call+`VALUES ('call_1', 'req_1', 'org_1', 'live', 'key_1', 'm', 'p', $1, $2, 'complete', 1, 1, 0, 'provider', 1, 0, 0, 1, 1)`, false, true)
		hash := make([]byte, 32)
		write(t, db, key+`VALUES ('org_1', 'live', $1, $1, 'in_progress', 'call_1', 1, 1, 1)`, hash)
		write(t, db, `INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) VALUES ('txn_1', 'org_1', 'live', 'topup', 'r', '', 1, 1)`)

		for statement, arguments := range map[string][]any{
			`UPDATE wallets SET balance_micros = 99`:                            nil, // below what is held
			`UPDATE wallets SET held_micros = 101`:                              nil,
			`UPDATE wallets SET held_micros = -1`:                               nil,
			`UPDATE wallets SET balance_micros = -1, held_micros = -1`:          nil,
			`INSERT INTO wallets (org_id, env) VALUES ('org_1', 'live')`:        nil,
			`INSERT INTO wallets (org_id, env) VALUES ('org_1', 'staging')`:     nil,
			`INSERT INTO wallets (org_id, env) VALUES ('org_none', 'live')`:     nil,
			`UPDATE wallets SET balance_micros = $1`:                            {"lots"},
			`UPDATE holds SET amount_micros = 0`:                                nil,
			`UPDATE holds SET status = 'lost'`:                                  nil,
			`UPDATE holds SET status = 'settled'`:                               nil, // without a time
			`UPDATE holds SET resolved_at = 5`:                                  nil, // open with one
			`UPDATE calls SET charged_micros = -1`:                              nil,
			`UPDATE calls SET byok = $1`:                                        {true}, // and charged
			`UPDATE calls SET usage_source = 'guess'`:                           nil,
			key + `VALUES ('org_1', 'live', $1, $1, 'done', 'call_2', 1, 1, 1)`: {hash},
			key + `VALUES ('org_1', 'test', $1, $1, 'done', 'call_2', 1, 1, 1)`: {hash[:31]},
			`INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) VALUES ('txn_2', 'org_1', 'live', 'topup', 'r', '', 1, 1)`: nil,
			`INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) VALUES ('txn_2', 'org_1', 'live', 'gift', 's', '', 1, 1)`:  nil,
			`INSERT INTO ledger_entries (tx_id, seq, account, amount_micros) VALUES ('txn_1', 0, 'a', 0)`:                                                      nil,
		} {
			require.Error(t, tryWrite(db, statement, arguments...), statement)
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
	for _, table := range []string{"agents", "chunks", "media_pieces", "sent_file_pieces"} {
		var without bool
		require.NoError(t, db.Reader().QueryRow(`SELECT wr FROM pragma_table_list WHERE name = $1`, table).Scan(&without))
		require.False(t, without, table)
	}
}
