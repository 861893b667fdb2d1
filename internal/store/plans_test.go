package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// Whatever requests, the sweeper, the doctor and the management groups run is planned with indexes, on both engines,
// once the tables have rows enough for an index to pay. The statements are those that were really run: nothing is
// listed here but what may read a whole table, with the reason. (What workers run: internal/inbox.)
func TestStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			options := store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}}
			// The readers' texts are heard on the wire to PostgreSQL. On SQLite they are the same.
			wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
			heard := storetest.OpenAt(t, wire.Location, options)
			runEverything(t, heard)
			texts := uncounted(wire.Statements())
			db := heard
			if engine == store.SQLite {
				db = storetest.OpenAt(t, storetest.Location(t, store.SQLite), options)
				runEverything(t, db)
				prepared := db.Statements()
				requireAnnounced(t, db, prepared)
				texts = append(ofSQLite(texts), slices.Collect(maps.Keys(prepared))...)
			}
			fillTables(t, db)
			plan := planner(t, db)
			explained := 0
			for _, text := range texts {
				if !strings.HasPrefix(text, "SELECT") && !strings.Contains(text, "rate_windows") && !strings.Contains(text, "event_") && !strings.HasPrefix(text, "UPDATE") && !strings.HasPrefix(text, "DELETE") ||
					slices.ContainsFunc(readWhole, func(part string) bool { return strings.Contains(text, part) }) {
					continue
				}
				steps := plan(text)
				for line := range strings.Lines(steps) {
					line = strings.TrimSpace(line)
					if wholeTable[engine].MatchString(line) && !slices.Contains(searched, line) {
						t.Errorf("%s\n%s", text, steps)
					}
				}
				explained++
			}
			require.Greater(t, explained, 60)
		})
	}
}

// requireAnnounced requires that those statements announce a change that open a table of the hot look-ups for writing, as SQLite
// itself says, and no others.
func requireAnnounced(t *testing.T, db *store.DB, prepared map[string]bool) {
	t.Helper()
	remembered := map[int64]bool{} // by the table's first page
	pages, err := db.Reader().QueryContext(t.Context(), `SELECT rootpage FROM sqlite_schema WHERE type = 'table'
		AND name IN ('api_keys', 'organizations', 'org_models', 'provider_keys', 'channels', 'agents')`)
	require.NoError(t, err)
	defer pages.Close()
	for pages.Next() {
		var page int64
		require.NoError(t, pages.Scan(&page))
		remembered[page] = true
	}
	require.NoError(t, pages.Err())
	require.Len(t, remembered, 6)
	announced := 0
	for text, announces := range prepared {
		writes := slices.ContainsFunc(opened(t, db, text), func(page int64) bool { return remembered[page] })
		require.Equal(t, writes, announces, text)
		if announces {
			announced++
		}
	}
	require.Greater(t, announced, 10)
}

// opened are the first pages of the tables and indexes that a statement opens for writing.
func opened(t *testing.T, db *store.DB, text string) (pages []int64) {
	t.Helper()
	steps, err := db.Reader().QueryContext(t.Context(), "EXPLAIN "+text, make([]any, parameters(text))...)
	require.NoError(t, err, text)
	defer steps.Close()
	for steps.Next() {
		var opcode string
		var p2 sql.NullInt64
		var others any
		require.NoError(t, steps.Scan(&others, &opcode, &others, &p2, &others, &others, &others, &others), text)
		if opcode == "OpenWrite" {
			pages = append(pages, p2.Int64)
		}
	}
	require.NoError(t, steps.Err(), text)
	return pages
}

// A new installation has small tables and no statistics, and grows while connections keep their plans.
func TestIndexesOfSmallTables(t *testing.T) {
	t.Parallel()
	wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
	db := storetest.OpenAt(t, wire.Location, store.Options{})
	requireIndexInSmallTable(t, db)
	runWindows(t, db.Windows())
	_, _, err := db.APIKeys.ByHash(t.Context(), [32]byte{1})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(unnesting(wire.Statements())) == 4 }, time.Minute, time.Millisecond)
	plan := planner(t, db)
	for _, text := range unnesting(wire.Statements()) {
		explained := plan(text)
		require.NotContains(t, explained, "rate_windows_start", "in which all names of a minute are one value")
		steps := strings.Split(explained, "\n")
		for i, step := range steps {
			if strings.Contains(step, "Scan using") || strings.Contains(step, "Seq Scan on") {
				require.Contains(t, steps[i+1], "Index Cond", text)
			}
		}
	}
}

// unnesting are the statements that look up many keys, or count for many names, at once.
func unnesting(texts []string) (found []string) {
	for _, text := range texts {
		if strings.Contains(text, "rate_windows") && strings.Contains(text, "unnest") || strings.Contains(text, "unnest($1::bytea[])") {
			found = append(found, text)
		}
	}
	return found
}

// readWhole are parts of the statements that may read a whole table.
var readWhole = []string{
	"schema_migrations", "pg_tables", "information_schema", // migrations, once at start
	"FROM organizations ORDER BY",                          // the operator's list of all
	"FROM audit_log ORDER BY id DESC LIMIT",                // SQLite calls the walk from the end a scan
	"FROM wallets WHERE held_micros < 0",                   // doctor L5: looks at each wallet
	"AS reservations GROUP BY org_id",                      // doctor L4: the same, and all that is reserved
	"'a hold that expired at '", "'it has ended and has a", // doctor L6 and L10: rows of running calls
	"FROM holds WHERE expires_at < $1", "(SELECT count(*) FROM holds)", // the sweeper and a metric: the same
	"FROM running_keys WHERE expires_at < $1",             // the sweeper: rows of running calls
	"FROM tranches WHERE lease_until < $1",                // the sweeper: a few rows for each process
	"LEFT JOIN prices p ON p.id = c.price_id AND p.model", // doctor P1: a page of calls with the prices, which are few
	"SELECT 1 FROM organizations LIMIT 1",                 // ping: one row
	"UPDATE usage_progress", "FROM usage_progress",        // one row
	"count(suspended_at) FROM organizations",          // the operator's overview: looks at each organization
	"o.plan = $1 AND o.suspended_at IS NOT NULL",      // the operator's list: the same
	"ORDER BY coalesce(w.balance_micros, 0) * 1.0",    // the operator's overview: looks at each wallet
	"answering_model, vendor_price, coalesce(p.input", // doctor P9: the prices, which are few
}

// searched are the steps of SQLite that look at all rows of a subquery, which has found them by an index: in users and invitations, of
// a wallet's transactions and charges, in the few organizations with pending events that one look visits, in the bits of a number, and in the
// environments, and in the bounded parts of the operator's searches.
var searched = []string{
	"SCAN people", "SCAN booked", "SCAN charged", "SCAN uncharged", "SCAN history", "SCAN beginning", "SCAN walk", "SCAN numbers", "SCAN search", "SCAN e",
	"SCAN named", "SCAN hinted", "SCAN corrected", "SCAN queued", "SCAN unanswered", "SCAN waiting", "SCAN paged",
}

// wholeTable is how the engines' plans say that all rows of a table are looked at.
var wholeTable = map[store.Engine]*regexp.Regexp{
	store.SQLite:   regexp.MustCompile(`^SCAN \w+( USING PRIMARY KEY)?$`),
	store.Postgres: regexp.MustCompile(`Seq Scan on \w+`),
}

// uncounted takes off what the driver of PostgreSQL puts around statements whose rows are counted.
func uncounted(texts []string) (plain []string) {
	counted := regexp.MustCompile(`(?s)^WITH done AS \((.*) RETURNING 1\) SELECT .* FROM done$`)
	for _, text := range texts {
		plain = append(plain, counted.ReplaceAllString(text, "$1"))
	}
	return plain
}

// ofSQLite are the statements, heard on the wire to PostgreSQL, that SQLite runs, too, in its words.
func ofSQLite(texts []string) (shared []string) {
	locks := regexp.MustCompile(` FOR UPDATE( SKIP LOCKED)?`)
	for _, text := range texts {
		text = strings.ReplaceAll(locks.ReplaceAllString(text, ""), store.PostgresClock, "0")
		if regexp.MustCompile(`ANY\(|unnest|pg_|to_reg|set_config|information_schema|current_database`).MatchString(text) {
			continue
		}
		shared = append(shared, text)
	}
	return shared
}

// planner answers how the engine would run a statement with parameters that it doesn't know yet, a step a line.
func planner(t *testing.T, db *store.DB) func(text string) string {
	t.Helper()
	if db.Engine() == store.SQLite {
		return func(text string) string { return queryPlan(t, db, text, make([]any, parameters(text))...) }
	}
	conn, err := pgx.Connect(t.Context(), db.Location().DSN)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `SET plan_cache_mode = force_generic_plan`)
	require.NoError(t, err)
	return func(text string) string {
		unknown := strings.TrimSuffix(strings.Repeat("NULL,", parameters(text)), ",")
		if unknown != "" {
			unknown = "(" + unknown + ")"
		}
		_, err := conn.Exec(t.Context(), "PREPARE statement AS "+text)
		require.NoError(t, err, text)
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE statement"+unknown, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, text)
		steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, text)
		_, err = conn.Exec(t.Context(), "DEALLOCATE statement")
		require.NoError(t, err)
		return strings.Join(steps, "\n")
	}
}

// parameters is how many parameters a statement has.
func parameters(text string) int {
	numbers := regexp.MustCompile(`\$\d+`).FindAllString(text, -1)
	slices.Sort(numbers)
	return len(slices.Compact(numbers))
}

// fillTables gives every table the rows of a business that has run for a while, and the engine its statistics.
func fillTables(t *testing.T, db *store.DB) {
	t.Helper()
	hash := map[store.Engine]string{
		store.SQLite: `CAST(printf('%032d', i) AS BLOB)`, store.Postgres: `convert_to(lpad(i::text, 32, '0'), 'UTF8')`,
	}[db.Engine()]
	from := func(rows int) string {
		return fmt.Sprintf(` FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n) AS n`, rows)
	}
	organizations, calls := 20_000, 20_000
	if db.Engine() == store.SQLite { // which plans by rules first, and is slow under the race detector
		organizations, calls = 1_000, 1_000
	}
	org := fmt.Sprintf(`'org_' || (i %% %d + 1)`, organizations)
	storetest.Fill(t, db,
		`INSERT INTO organizations (id, name, plan, created_at) SELECT 'org_' || i, 'name ' || i, 'free', i`+from(organizations),
		`INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at)
			SELECT 'key_' || i, `+org+`, 'live', 'name ' || i, '', `+hash+`, '', i`+from(2*organizations),
		`INSERT INTO users (id, org_id, email, role, password, created_at, updated_at)
			SELECT 'usr_' || i, `+org+`, i || '@example.com', 'member', 'x', i, i`+from(2*organizations),
		`INSERT INTO invitations (id, org_id, email, role, hash, created_at, updated_at, expires_at)
			SELECT 'inv_' || i, `+org+`, i || '@example.com', 'member', `+hash+`, i, i + 0, 9`+from(2*organizations),
		`INSERT INTO sessions (hash, org_id, user_id, created_at, seen_at, expires_at)
			SELECT `+hash+`, `+org+`, 'usr_' || i, i + 0, i + 1, 9`+from(2*organizations),
		`INSERT INTO user_links (hash, org_id, user_id, created_by, created_at, expires_at)
			SELECT `+hash+`, `+org+`, 'usr_' || i, '', i, 9`+from(2*organizations),
		`INSERT INTO message_tombstones (hash, org_id, expires_at) SELECT `+hash+`, `+org+`, 9`+from(organizations),
		`INSERT INTO deleted_turns (id, org_id, channel_id, created_at, call_id) SELECT 'dtr_' || i, `+org+`, 'chn_' || i, 0 + i, ''`+from(organizations),
		`INSERT INTO event_endpoints (id, org_id, url, events, secret, old_secret_until, state, reason, failing_since, created_at, updated_at)
			SELECT 'evep_' || i, `+org+`, 'https://e.com', ' wallet.low ', `+hash+`, 0, 'active', '', 0, i + 0, i + 0`+from(organizations),
		`INSERT INTO event_deliveries (event_id, endpoint_id, org_id, type, payload, state, attempts, run_at, outcome, status, created_at, updated_at)
			SELECT 'evt_' || i, 'evep_' || i, `+org+`, 'wallet.low', '', 'delivered', 1, i + 0, '', 200, i + 0, i + 0`+from(2*organizations),
		`INSERT INTO provider_keys (org_id, provider, sealed, hint, updated_at) SELECT 'org_' || i, 'openai', `+hash+`, '', i`+from(organizations),
		`INSERT INTO org_models (org_id, model, enabled) SELECT `+org+`, 'model ' || i, FALSE`+from(2*organizations),
		`INSERT INTO audit_log (id, at, actor, action, target, org_id, detail) SELECT 'aud_' || i, 1, '', '-', '', `+org+`, ''`+from(5_000),
		`INSERT INTO rate_windows (org_id, window_start, count) SELECT 'org_' || i, 60000, 1`+from(organizations),
		`INSERT INTO wallets (org_id, env, balance_micros) SELECT 'org_' || i, 'test', 5`+from(organizations),
		`INSERT INTO holds (org_id, env, id, amount_micros, expires_at) SELECT `+org+`, 'test', 'call_' || i, 1, 4000000000000`+from(calls),
		`INSERT INTO tranches (org_id, env, id, owner, left_micros, spare, lease_until)
			SELECT `+org+`, 'test', 'trc_' || i, 'own', 1, FALSE, 4000000000000`+from(calls),
		`INSERT INTO prices SELECT i, 'm ' || i, 'p', '', '', 1, 1, 1, 1, 1, '', ''`+from(calls),
		`INSERT INTO attempts SELECT `+org+`, 'call_' || i, 1, 'p', '', 'timeout', 0, 0, NULL`+from(calls),
		`INSERT INTO ledger_tx (id, org_id, env, wallet_seq, kind, account, ref, reason, amount_micros, balance_micros, created_at, audit_id)
			SELECT 'txn_' || i, `+org+`, 'test', 2 * i, 'topup', 'sys:cash', 'ref ' || i, '', 1, 5, i, 'aud_' || i`+from(calls),
		`INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens,
			cached_tokens, usage_source, ended_at, duration_ms, price_id, reserved_micros, charged_micros, shortfall_micros, wallet_seq,
			balance_micros) SELECT 'call_' || i, 'r', `+org+`, 'test', 'k', 'm', 'p', FALSE, TRUE, 'completed', 1, 1, 0, 'provider', i + 0, 1,
			i + 0, 1, 1, 0, 2 * i + 1, 5`+from(calls),
		`INSERT INTO statements SELECT `+org+`, 'live', CAST(1000000 + i AS TEXT), 'UTC', 1, 2, 1, 1, 5, 0, 0, 0, 0, 0, 5, 0, '[]', `+hash+from(calls),
		`INSERT INTO budgets (id, org_id, env, owner_kind, owner_id, name, period, limit_micros, thresholds, created_at)
			SELECT 'bdg_' || i, `+org+`, 'live', 'api_key', 'key_' || i, 'n', 'day', 5, '', 1`+from(calls),
		`INSERT INTO budget_rises (id, org_id, budget_id, amount_micros, ends_at, reason, created_by, created_at)
			SELECT 'rise_' || i, `+org+`, 'bdg_' || i, 1, i, 'r', '', 1`+from(calls),
		`INSERT INTO budget_spend SELECT `+org+`, 'live', i, 'bdg_' || i, i + 0, 0, 0, 0, 5, 0, 0, 0, 0`+from(calls),
		`INSERT INTO payment_codes SELECT 'SVC' || i, `+org+`, 0, 'VND', '', i`+from(calls),
		`INSERT INTO payments SELECT 'p', 'id ' || i, 'pay_' || i, `+org+`, 'unmatched', '', 5, 'VND', 5, 'ref ' || i, '', i + 0, i + 0, i, 0, '', 0, '', '', '', ''`+from(calls),
		`INSERT INTO usage_segments SELECT i + 1, `+org+`, 'live', i, i + 1`+from(calls),
		`INSERT INTO usage_days SELECT `+org+`, 'live', i % 9, 'm ' || i % 5, 'p', '', 'k', 1, 1, 0, 1, 1, 0, 1, 0, 1, 0`+from(calls),
		`INSERT INTO usage_totals SELECT 'live', i % 99, 'm ' || i, 'p', '', 1, 1, 0, 1, 1, 0, 1, 0, 1, 0`+from(5_000),
		`INSERT INTO usage_minutes SELECT i, 1`+from(5_000),
		`INSERT INTO usage_wallets SELECT 'org_' || i, 'live', 1, 1, i % 9, 5`+from(organizations),
		`INSERT INTO running_keys (org_id, env, key_hash, fingerprint, call_id, reserved_micros, expires_at)
			SELECT `+org+`, 'test', `+hash+`, `+hash+`, 'call_running_' || i, 0, 4000000000000`+from(calls),
		`INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, call_id, kept_bytes, until)
			SELECT `+org+`, 'test', `+hash+`, `+hash+`, 'call_' || i, 32, 4000000000000`+from(calls),
		`INSERT INTO kept_answers (org_id, env, call_id, response) SELECT `+org+`, 'test', 'call_' || i, `+hash+from(calls),
		`INSERT INTO agents (id, org_id, name, model, instructions, use_byok, max_tokens, debounce_ms, debounce_max_ms, supersede, pause_ms,
			created_at, updated_at) SELECT 'agt_' || i, `+org+`, 'name ' || i, 'm', '', FALSE, 0, 0, 0, FALSE, 0, i, i`+from(organizations),
		`INSERT INTO channels (id, org_id, type, name, external_id, agent_id, state, credentials, credentials_version,
			created_at, updated_at) SELECT 'chn_' || i, `+org+`, 'bot', 'name ' || i, 'x' || i, 'agt_' || i, 'active', `+hash+`, 1, i, i`+from(organizations),
		`INSERT INTO channel_paces (channel_id, org_id, paced_until, queued_until, closed_until) SELECT 'chn_' || i, `+org+`, 0, i, 0`+
			from(organizations),
		`INSERT INTO widget_settings (org_id, channel_id, origins, requests_per_minute) SELECT `+org+`, 'chn_' || i, '[]', 1`+from(organizations),
		`INSERT INTO knowledge_bases (id, org_id, name, description, created_at, updated_at)
			SELECT 'kb_' || i, `+org+`, 'name ' || i, '', i, i`+from(organizations),
		`INSERT INTO agent_knowledge_bases (agent_id, knowledge_base_id, org_id) SELECT 'agt_' || i, 'kb_' || i, `+org+from(organizations),
		`INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, state, attention, lease_until, lease_token, attempts,
			paused_until, last_customer_at, created_at, updated_at) SELECT 'cnv_' || i, 'org_' || ((i / 2 + 1) % `+fmt.Sprint(organizations)+` + 1), 'chn_' || (i / 2 + 1), 'c' || i, '',
			'assistant', '', 0, 0, 0, 0, 0, i, i`+from(2*organizations-2),
		`INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id, author, kind, body, turn_id, handled, sent_at,
			received_at) SELECT 'msg_' || i, `+org+`, 'chn_1', 'cnv_' || i, 'p' || i, 'customer', 'text', `+hash+`, 'trn_' || i, FALSE, i, i`+from(2*organizations),
		`INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, code, attempts, created_at, updated_at)
			SELECT 'trn_' || i, `+org+`, 'chn_1', 'cnv_' || i, 'a', 'answered', '', 0, i, i`+from(2*organizations),
		`INSERT INTO outbound_messages (id, org_id, channel_id, conversation_id, turn_id, part, author, body, state, code,
			platform_message_id, attempts, created_at, updated_at) SELECT 'out_' || i, `+org+`, 'chn_1', 'cnv_' || i, 'trn_' || i, 0,
			'assistant', `+hash+`, 'sent', '', 'p' || i, 0, i, i`+from(2*organizations),
		`ANALYZE`,
	)
}

// runEverything runs every operation of a node once.
func runEverything(t *testing.T, db *store.DB) {
	t.Helper()
	ctx := t.Context()
	createOrganization(t, db, "org_a")
	require.NoError(t, db.Organizations.SetPlan(ctx, "cli", "org_a", "pro"))
	require.NoError(t, db.Organizations.SetSuspended(ctx, "cli", "org_a", true, ""))
	require.NoError(t, db.Organizations.SetSuspended(ctx, "cli", "org_a", false, ""))
	require.NoError(t, db.Organizations.SetRetention(ctx, "cli", "org_a", store.MinRetentionDays))
	require.NoError(t, db.APIKeys.Create(ctx, "cli", store.APIKey{ID: "key_a", OrgID: "org_a", Env: store.Live, Hash: [32]byte{1}}))
	require.NoError(t, db.Organizations.SetModel(ctx, "cli", "org_a", "m", false))
	require.NoError(t, db.ProviderKeys.Put(ctx, "cli", store.ProviderKey{OrgID: "org_a", Provider: "openai", Sealed: []byte{1}}))
	_, err := db.ProviderKeys.Reseal(ctx, "org_a", "openai", []byte{1}, []byte{2})
	require.NoError(t, err)
	createAgent(t, db, "org_a", "agt_a")
	createChannel(t, db, store.Channel{ID: "chn_a", OrgID: "org_a", Type: "photo_dm", ExternalID: "x", AgentID: "agt_a"})
	require.NoError(t, db.Channels.SetState(ctx, "cli", "org_a", "chn_a", store.ChannelActive))
	_, err = db.ChannelCredentials.Replace(ctx, "org_a", "chn_a", 1, []byte{1})
	require.NoError(t, err)
	contested := store.Channel{ID: "chn_b", OrgID: "org_a", Type: "photo_dm", Name: "b", ExternalID: "y", State: store.ChannelActive}
	_, err = db.Channels.TakeOverPossible(ctx, contested)
	require.NoError(t, err)
	require.NoError(t, db.Channels.TakeOver(ctx, "cli", store.OperatorConfirmed, contested, 0))

	runReads(t, db)
	runMoney(t, db)
	runEvents(t, db)
	require.NoError(t, db.APIKeys.Revoke(ctx, "cli", "org_a", "key_a"))
	require.NoError(t, db.ProviderKeys.Delete(ctx, "cli", "org_a", "openai"))
	fillChannel(t, db, "org_a", "chn_a", 2, 1)
	require.NoError(t, db.Channels.Delete(ctx, "cli", "org_a", "chn_a"))
	require.NoError(t, db.Agents.Delete(ctx, "cli", "org_a", "agt_a"))
	_, err = inbox.CheckSince(ctx, db, 0)
	require.NoError(t, err)
}

// missing is nil for a row that isn't there.
func missing(_ store.User, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func runReads(t *testing.T, db *store.DB) {
	t.Helper()
	ctx := t.Context()
	reads := map[string]func() error{
		"key":    func() error { _, _, err := db.APIKeys.ByHash(ctx, [32]byte{1}); return err },
		"models": func() error { _, err := db.Organizations.Models(ctx, "org_a"); return err },
		"route":  func() error { _, _, err := db.Routes.ByID(ctx, "chn_a"); return err },
		"routes": func() error {
			_, err := db.Routes.ByKeys(ctx, []store.RouteKey{{Type: "photo_dm", ExternalID: "x"}})
			return err
		},
		"provider":    func() error { _, _, err := db.ProviderKeys.Sealed(ctx, "org_a", "openai"); return err },
		"providers":   func() error { _, err := db.ProviderKeys.List(ctx, "org_a"); return err },
		"all sealed":  func() error { return db.ProviderKeys.Each(ctx, func(store.ProviderKey) error { return nil }) },
		"pauses":      func() error { _, err := db.Channels.ClosedUntil(ctx, "org_a"); return err },
		"credentials": func() error { return db.ChannelCredentials.Each(ctx, func(store.Channel) error { return nil }) },
		"retentions":  func() error { _, err := db.Organizations.Retentions(ctx, store.Page{}); return err },
		"search": func() error {
			_, err := db.Organizations.Search(ctx, store.OrganizationFilter{Text: "a"}, store.Page{})
			return err
		},
		"all orgs": func() error {
			_, err := db.Organizations.Search(ctx, store.OrganizationFilter{Plan: "a", Suspended: new(true)}, store.Page{})
			return err
		},
		"find":        func() error { _, err := db.Organizations.Find(ctx, "ck_live_abcd", 9); return err },
		"counts":      func() error { _, err := db.Organizations.Counts(ctx, 1); return err },
		"long waits":  func() error { _, err := inbox.New(db, nil).LongWaits(ctx, 1); return err },
		"org":         func() error { _, err := db.Organizations.ByID(ctx, "org_a"); return err },
		"keys":        func() error { _, err := db.APIKeys.All(ctx, "org_a"); return err },
		"key's org":   func() error { _, err := db.OwnerOf(ctx, store.OwnedAPIKeys, "key_a"); return err },
		"agents":      func() error { _, err := db.Agents.List(ctx, "org_a", store.Page{}); return err },
		"agent":       func() error { _, err := db.Agents.ByID(ctx, "org_a", "agt_a"); return err },
		"channels":    func() error { _, err := db.Channels.List(ctx, "org_a", store.Page{}); return err },
		"channel":     func() error { _, err := db.Channels.ByID(ctx, "org_a", "chn_a"); return err },
		"owner":       func() error { _, err := db.OwnerOf(ctx, store.OwnedChannels, "chn_a"); return err },
		"audit":       func() error { _, err := db.AuditLog.List(ctx, "", store.Page{Limit: 10}); return err },
		"ping":        func() error { return db.Ping(ctx) },
		"user":        func() error { return missing(db.Users.ByID(ctx, "org_a", "usr_a")) },
		"user's mail": func() error { return missing(db.Users.ByEmail(ctx, "org_a", "lan@example.com")) },
		"users":       func() error { _, err := db.Users.List(ctx, "org_a", store.Page{}); return err },
		"all users":   func() error { _, err := db.Users.Search(ctx, "", store.Page{}); return err },
		"some users":  func() error { _, err := db.Users.Search(ctx, "ann", store.Page{}); return err },
		"link":        func() error { _, _, err := db.UserLinks.ByHash(ctx, [32]byte{1}); return err },
		"login":       func() error { _, err := db.Logins.ByEmail(ctx, "lan@example.com"); return err },
		"session":     func() error { _, _, err := db.Sessions.ByHash(ctx, [32]byte{1}); return err },
		"sessions":    func() error { _, err := db.Sessions.Live(ctx, "org_a", "usr_a", 1); return err },
	}
	for name, read := range reads {
		require.NoError(t, read(), name)
	}
}

func runWindows(t *testing.T, counter store.Windows) {
	t.Helper()
	permit, err := counter.Take(t.Context(), "org_a", 2)
	require.NoError(t, err)
	_, _, err = counter.Key(t.Context(), [32]byte{1}, new(store.KeyTerms))
	require.NoError(t, err)
	require.NoError(t, counter.Return("org_a", permit.Window))
}

func runMoney(t *testing.T, db *store.DB) {
	t.Helper()
	ctx := t.Context()
	book := billing.NewBook(db)
	wallet := billing.WalletID{OrgID: "org_a", Env: store.Live}
	if counter := db.Windows(); counter != nil {
		runWindows(t, counter)
	}
	credit, err := book.Credit(ctx, "cli", wallet, 100, "r")
	require.NoError(t, err)
	_, err = book.Adjust(ctx, "cli", wallet, -1, "because", "r", credit.ID)
	require.NoError(t, err)
	claim := &billing.Claim{KeyHash: [32]byte{1}, Fingerprint: [32]byte{1}}
	for _, id := range []string{"call_a", "call_b"} { // the second one is replayed
		replay, err := book.Hold(ctx, billing.Hold{CallID: id, Wallet: wallet, AmountMicros: 5, ExpiresIn: time.Hour, Claim: claim})
		require.NoError(t, err)
		require.Equal(t, id == "call_b", replay != nil)
		if replay == nil {
			settlement := costing(id, wallet, 3, 5)
			settlement.Claim, settlement.Keep, settlement.Response = claim, true, []byte("answer")
			_, err = book.Settle(ctx, settlement)
			require.NoError(t, err)
		}
	}
	_, err = book.ClaimBusy(ctx, wallet, claim.KeyHash)
	require.NoError(t, err)
	lost := &billing.Claim{KeyHash: [32]byte{2}, Fingerprint: [32]byte{2}}
	for _, hold := range []billing.Hold{
		{CallID: "call_c", Wallet: wallet, AmountMicros: 5, ExpiresIn: time.Hour},
		{CallID: "call_d", Wallet: wallet, AmountMicros: 5, ExpiresIn: time.Nanosecond, Claim: lost},
	} {
		_, err = book.Hold(ctx, hold)
		require.NoError(t, err)
	}
	free := costing("call_c", wallet, 0, 5)
	free.Void, free.Call.Outcome = true, "client_gone"
	_, err = book.Settle(ctx, free)
	require.NoError(t, err)
	write(t, db, `UPDATE calls SET ended_at = 1 WHERE id = 'call_c'`)
	deleted, err := billing.NewRetention(db).Sweep(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(1), deleted)
	require.Eventually(t, func() bool {
		lost, err := book.Sweep(ctx)
		require.NoError(t, err)
		return len(lost.Calls) > 0
	}, time.Minute, time.Millisecond)
	_, err = book.Refund(ctx, "cli", "call_a", "because")
	require.NoError(t, err)
	_, err = book.Wallet(ctx, wallet)
	require.NoError(t, err)
	_, err = book.Entries(ctx, wallet, billing.Stretch{})
	require.NoError(t, err)
	_, err = book.Calls(ctx, wallet, billing.Stretch{})
	require.NoError(t, err)
	_, err = book.Spend(ctx, wallet, 0, 1)
	require.NoError(t, err)
	_, err = book.Entries(ctx, wallet, billing.Stretch{From: 1, Until: 2})
	require.NoError(t, err)
	_, _, err = db.Widgets.WalletSince(ctx, "org_a", time.UnixMilli(1))
	require.NoError(t, err)
	_, err = book.OpenHolds(ctx)
	require.NoError(t, err)
	require.NoError(t, billing.NewUsageSums(db).Update(ctx))
	for _, by := range []billing.UsageBy{"organization", "model", "vendor", "key", "day"} {
		for _, org := range []string{"", "org_a"} {
			query := billing.UsageQuery{By: by, Wallet: billing.WalletID{OrgID: org, Env: store.Live}, Until: time.Now().UnixMilli(), Rows: 9}
			if org == "" && by == billing.UsageByKey || org != "" && by == billing.UsageByOrganization {
				continue
			}
			_, err = book.Usage(ctx, query)
			require.NoError(t, err)
		}
	}
	_, err = book.CallsByMinute(ctx, 60)
	require.NoError(t, err)
	_, err = book.EndingWallets(ctx, time.Now().UnixMilli(), 7, 9)
	require.NoError(t, err)
	_, err = book.Spending(ctx, "org_a", time.Now().UnixMilli())
	require.NoError(t, err)
	_, err = book.Outcomes(ctx, wallet, 1)
	require.NoError(t, err)
	report, err := billing.Check(ctx, db)
	require.NoError(t, err)
	require.True(t, report.OK(), report)
}

// TestLookUpsKeepTheirPlans guarantees that the server doesn't plan the look-ups of requests each time, which takes longer than they do.
func TestLookUpsKeepTheirPlans(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	location.DSN += " pool_max_conns=2" // one for look-ups and the writer
	db := storetest.OpenAt(t, location, store.Options{})
	keys := createRoutes(t, db, 2)
	lookUps := []func() error{
		func() error { _, err := db.Routes.ByKeys(t.Context(), keys[:1]); return err },
		func() error { _, _, err := db.Routes.ByID(t.Context(), "1"); return err },
		func() error { _, _, err := db.APIKeys.ByHash(t.Context(), [32]byte{1}); return err },
		func() error { _, err := db.Organizations.Models(t.Context(), "org_1"); return err },
		func() error { _, _, err := db.ProviderKeys.Sealed(t.Context(), "org_1", "openai"); return err },
	}
	const rounds, first = 20, 5 // after the first ones the server chooses
	for range rounds {
		for _, lookUp := range lookUps {
			require.NoError(t, lookUp())
		}
	}
	planned := map[string]int{}
	require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		return tx.Query(ctx, func(row store.Row) error {
			var text string
			var custom int
			err := row.Scan(&text, &custom)
			planned[text] = custom
			return err
		}, `SELECT statement, custom_plans FROM pg_prepared_statements WHERE custom_plans + generic_plans = $1`, rounds)
	}))
	require.Len(t, planned, len(lookUps))
	for text, custom := range planned {
		require.LessOrEqual(t, custom, first, text)
	}
}
