package archive_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/archive"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// oddText has what JSON, SQL and terminals trip over.
const oddText = "Hà Nội 😀 \"quoted\" <b>&amp;</b> \\ \u2028 \t\r\n\x01 ''"

// allBytes has every byte once.
func allBytes() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// fillEveryTable puts rows with the extremes of every type into every table, NULL and empty values among them.
func fillEveryTable(t testing.TB, db *store.DB) {
	t.Helper()
	hash := bytes.Repeat([]byte{0xff}, 32)
	for _, row := range []struct {
		text   string
		values []any
	}{
		{`INSERT INTO organizations VALUES ($1, $2, 'free', $3, NULL, 30, 0, 0, 15, $2, 'free', '', '', 'UTC', $3), ('org_2', '', '', 0, 1, 0, $3, $3, 0, NULL, '', $2, $2, $2, 0)`, []any{"org_1", oddText, int64(math.MaxInt64)}},
		{`INSERT INTO users (id, org_id, email, role, password, created_at, updated_at, reset_by, reset_at) VALUES ('usr_1', 'org_1', $1, 'owner', 'p', 1, 2, '', 0), ('usr_2', 'org_2', $1, 'member', '$argon2id$', 1, 2, 'usr_1', 3)`, []any{oddText}},
		{`INSERT INTO user_links (hash, user_id, org_id, created_at, expires_at, created_by) VALUES ($1, 'usr_1', 'org_1', 1, $2, 'cli:root')`, []any{hash, int64(math.MaxInt64)}},
		{`INSERT INTO invitations VALUES ('usr_3', 'org_1', $1, 'owner', $2, 1, 2, $3), ('usr_4', 'org_2', $1, 'member', NULL, 1, 2, 3)`, []any{oddText, hash, int64(math.MaxInt64)}},
		{`INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at, expires_at, revoked_at, created_by, models, requests_per_minute, max_concurrent) VALUES ($1, 'org_1', 'live', '', 'chat:write', $2, 'ck_…', 1, NULL,NULL, '', NULL,NULL, NULL), ('key_2', 'org_1', 'test', 'n', '', $3, '', 1, 2, 3, 'key_1', '', 1, $4)`, []any{"key_1", hash, make([]byte, 32), int64(math.MaxInt64)}},
		{`INSERT INTO second_factors VALUES ('', 'opr_1', $1, $2, '', 1), ('org_1', 'usr_1', $3, 0, $4, 1)`, []any{allBytes(), int64(math.MaxInt64), []byte{}, oddText}},
		{`INSERT INTO operators VALUES ('opr_1', $1, 'viewer', 'p', NULL, $2, $3, 'dark', 1, 2), ('opr_2', 'a', 'administrator', '', 1, NULL, 0, '', 1, 2)`, []any{oddText, hash, int64(math.MaxInt64)}},
		{`INSERT INTO operator_keys VALUES ('opk_1', $1, 'wallet:read', $2, '', 'cli:lan', 1, NULL,NULL, NULL), ('opk_2', 'n', '', $3, 'ck_…', '', 1, 2, 3, $4)`, []any{oddText, hash, make([]byte, 32), int64(math.MaxInt64)}},
		{`INSERT INTO operator_requests VALUES ($1, $1, 201, 5, $2), ($3, $1, 0, 5, NULL)`, []any{hash, allBytes(), make([]byte, 32)}},
		{`INSERT INTO provider_keys VALUES ('org_1', 'openai', $1, 'h', 1), ('org_1', 'empty', $2, '', 1)`, []any{allBytes(), []byte{}}},
		{`INSERT INTO org_models VALUES ('org_1', 'a/b', $1), ('org_1', 'c/d', $2)`, []any{true, false}},
		{`INSERT INTO audit_log VALUES ('aud_1', $1, $2, 'a', 'b', '', '')`, []any{int64(math.MinInt64), oddText}},
		{`INSERT INTO rate_windows VALUES ('org_1', 60000, 0)`, nil},
		{`INSERT INTO wallets VALUES ('org_1', 'live', $1, 5, 2, $1, 3, 4, 6), ('org_1', 'test', 0, 0, 0, 0, 0, 0, 0)`, []any{int64(math.MaxInt64)}},
		{`INSERT INTO holds VALUES ('org_1', 'live', 'call_1', 5, $1, '1 2'), ('org_1', 'test', 'call_4', $1, 2, '')`, []any{int64(math.MaxInt64)}},
		{`INSERT INTO tranches VALUES ('org_1', 'live', 'trc_1', 'own_1', $1, $2, 1, '3'), ('org_1', 'test', 'trc_2', '', 0, $3, $1, '')`, []any{int64(math.MaxInt64), true, false}},
		{`INSERT INTO budgets VALUES ('bud_1', 'org_1', 'live', 'organization', '', $1, 'day', 0, '50 80', 1, NULL), ('bud_2', 'org_1', 'test', 'api_key', 'key_2', 'n', 'total', $2, '', 1, 2)`, []any{oddText, int64(math.MaxInt64)}},
		{`INSERT INTO budget_rises VALUES ('rise_1', 'org_1', 'bud_1', 5, $2, $1, $1, 1, $3), ('rise_2', 'org_1', 'bud_1', $2, 1, 'r', '', 1, $4)`, []any{oddText, int64(math.MaxInt64), true, false}},
		{`INSERT INTO budget_spend VALUES ('org_1', 'live', 1, 'bud_1', 1, 0, 2, 3, $1, 50, 1, 2, 4), ('org_1', 'test', 1, 'bud_2', 1, $1, 0, $1, $1, 100, 0, $1, 0)`, []any{int64(math.MaxInt64)}},
		{`INSERT INTO prices VALUES (1, $1, 'p', $1, $1, 0, 1, $2, $2, 0, '[]', '[]'), ($2, '', '', '', '', $2, 0, 0, 0, $2, '', '')`, []any{oddText, int64(math.MaxInt64)}},
		{`INSERT INTO ledger_tx VALUES ('txn_1', 'org_1', 'live', 1, 'topup', 'sys:cash', 'r', $1, $2, 5, 1, 'aud_1', ''), ('txn_2', 'org_1', 'live', 3, 'adjust', 'sys:loss', 'r', '', $3, 0, 1, '', 'txn_1')`, []any{oddText, int64(math.MaxInt64), int64(math.MinInt64)}},
		{`INSERT INTO calls VALUES ('call_2', 'req_1', 'org_1', 'live', 'key_1', 'a/b', 'openai', $1, $1, 'completed', 1, 2, 0, 'provider', 8, 9, 1, 6, 5, 0, 2, 7, $3, NULL, 1, $3, '1 2'),
			('call_3', 'req_2', 'org_1', 'live', 'key_1', 'a/b', 'openai', $2, $2, 'completed', 1, 2, 0, 'none', 1, 9, NULL, 0, 0, $3, NULL,NULL, 1, $3, 2, NULL, NULL)`, []any{false, true, int64(math.MaxInt64)}},
		{`INSERT INTO statements VALUES ('org_1', 'live', '2026-10', $1, 0, $2, 1, 0, 0, $2, 0, $2, $3, $3, 0, 0, $1, $4)`, []any{oddText, int64(math.MaxInt64), int64(math.MinInt64), hash}},
		{`INSERT INTO usage_segments VALUES (1, 'org_1', 'live', 0, $1)`, []any{int64(math.MaxInt64)}},
		{`INSERT INTO usage_days VALUES ('org_1', 'live', 20000, 'm', 'p', $1, 'key_1', 1, 2, 3, 4, 5, 6, $2, 8, 9, 10)`, []any{oddText, int64(math.MaxInt64)}},
		{`INSERT INTO usage_totals VALUES ('live', 20000, 'm', 'p', $1, 1, 2, 3, 4, 5, 6, $2, 8, 9, 10)`, []any{oddText, int64(math.MaxInt64)}},
		{`INSERT INTO usage_minutes VALUES (1, 2)`, nil},
		{`INSERT INTO usage_wallets VALUES ('org_1', 'live', 1, 2, 3, 4)`, nil},
		{`INSERT INTO usage_progress VALUES (1, $1, 2, $2)`, []any{oddText, int64(math.MaxInt64)}},
		{`INSERT INTO attempts VALUES ('org_1', 'call_2', 1, 'p', $1, 'timeout', 0, 0, NULL), ('org_1', 'call_2', 2, '', '', '', $2, $2, $2)`, []any{oddText, int64(math.MaxInt64)}},
		{`INSERT INTO running_keys VALUES ('org_1', 'live', $1, $2, 'call_1', 7, 1, '4')`, []any{hash, make([]byte, 32)}},
		{`INSERT INTO idempotency_keys VALUES ('org_1', 'live', $2, $1, 'call_2', 256, 3)`, []any{hash, make([]byte, 32)}},
		{`INSERT INTO kept_answers VALUES ('org_1', 'live', 'call_2', $1), ('org_2', 'test', 'call_9', $2)`, []any{allBytes(), []byte{}}},
		{`INSERT INTO agents (id, org_id, name, model, instructions, use_byok, max_tokens, temperature_milli, debounce_ms, debounce_max_ms, supersede, pause_ms, created_at, updated_at, handover, handover_words, handover_reply, typing) VALUES ('agt_1', 'org_1', 'one', 'a/b', $1, $2, 0, NULL, 0, 0, $3, 0, 1, 1, $3, '', '', $2), ('agt_2', 'org_1', 'two', 'a/b', '', $3, 9, 2000, 1, 2, $2, 3, 1, 1, $2, 'a person', 'soon', $3)`, []any{oddText, true, false}},
		{`INSERT INTO knowledge_bases VALUES ('kb_1', 'org_1', $1, '', 1, 2), ('kb_2', 'org_2', 'x', $1, 1, 2)`, []any{oddText}},
		{`INSERT INTO agent_knowledge_bases VALUES ('org_1', 'agt_1', 'kb_1'), ('org_1', 'agt_2', 'kb_1')`, nil},
		{`INSERT INTO documents VALUES ('doc_1', 'org_1', 'kb_1', $1, 'text/html', 9, 'ready', 2, 2, '', 1, 2), ('doc_2', 'org_1', 'kb_1', 'f', 'text/plain', 0, 'failed', 0, 5, 'x', 1, 2)`, []any{oddText}},
		{`INSERT INTO chunks (org_id, document_id, position, text, words) VALUES ('org_1', 'doc_1', 0, $1, 'b1 one'), ('org_1', 'doc_1', 1, '', ''), ('org_1', 'doc_2', 0, 'x', 'b1 two')`, []any{oddText}},
		{`INSERT INTO channels (id, org_id, type, name, external_id, agent_id, state, credentials, credentials_version, created_at, updated_at, lost_external_id, expiry_told, max_age_minutes, drafts, opening_hours, time_zone, closed_notice, media_notice) VALUES ('chn_1', 'org_1', 'bot', 'one', '', NULL, 'active', NULL, 0, 1, 1, '', 0, 0, $2, '', '', '', ''), ('chn_2', 'org_1', 'fax_of_a_guest', 'two', 'x', 'agt_1', 'pending', $1, 7, 1, 1, 'y', 9, 10080, $3, $4, 'UTC', $4, $4)`, []any{allBytes(), false, true, oddText}},
		{`INSERT INTO widget_settings (org_id, channel_id, origins, daily_spend_micros, requests_per_minute) VALUES ('org_1', 'chn_1', '[]', NULL, 1), ('org_1', 'chn_2', $1, 0, 9)`, []any{oddText}},
		{`INSERT INTO channel_paces VALUES ('org_1', 'chn_1', 0, 1, $1)`, []any{int64(math.MaxInt64)}},
		{`INSERT INTO id_keys VALUES (0, $1), ($3, $2)`, []any{allBytes(), []byte{}, int64(math.MaxInt64)}},
		{`INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, customer_name, state, attention, run_at, waiting_since, lease_until, lease_token, attempts, paused_until, last_customer_at, created_at, updated_at, blocked_at, unanswered_since, waiting_told, attention_told, handover_reason, paced_until, retried_at, closed_until, doubt_since, turn_id, unsent_since) VALUES ('cnv_1', 'org_1', 'chn_1', 'c', '', $1, 'assistant', '', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, '', '', 11, 12, 13, 14, '', 15), ('cnv_2', 'org_1', 'chn_1', $2, '', NULL, 'human', 'x', NULL,NULL, 0, 0, 0, 0, 0, 0, 0, 0, 8, 9, $2, $2, 0, 0, 0, 0, $2, 0)`, []any{[]byte{}, oddText}},
		{`INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id, author, kind, body, turn_id, handled, sent_at, received_at, edited) VALUES ('msg_1', 'org_1', 'chn_1', 'cnv_1', 'p', 'customer', 'text', $1, 'trn_1', $2, 1, 2, $2), ('msg_2', 'org_1', 'chn_1', 'cnv_1', 'q', 'human', 'event', $3, NULL, $4, 1, 2, $4)`, []any{allBytes(), true, []byte{}, false}},
		{`INSERT INTO media (id, org_id, channel_id, message_id, position, kind, state, code, about, media_type, bytes, pieces, attempts, run_at, created_at, updated_at, conversation_id) VALUES ('med_1', 'org_1', 'chn_1', 'msg_1', 0, 'image', 'stored', '', $1, 'image/png', 5, 2, 1, 1, 1, 2, 'cnv_1'), ('med_2', 'org_1', 'chn_1', NULL, 9, 'file', 'failed', $2, $3, '', 0, 0, 3, $4, 1, 2, '')`, []any{allBytes(), oddText, []byte{}, int64(math.MaxInt64)}},
		{`INSERT INTO media_pieces VALUES ('org_1', 'med_1', 0, $1), ('org_1', 'med_1', 1, $2)`, []any{allBytes(), []byte{}}},
		{`INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, request, code, balance_micros, attempts, created_at, updated_at, draft, call_id, widget_id) VALUES ('trn_1', 'org_1', 'chn_1', 'cnv_1', 'agt_1', 'awaiting', $1, '', NULL, 0, 1, 1, NULL, 'call_1', NULL), ('trn_2', 'org_1', 'chn_1', 'cnv_1', '', 'dead', NULL, 'x', 0, 3, 1, 1, $1, '', 'chn_1')`, []any{allBytes()}},
		{`INSERT INTO outbound_messages (id, org_id, channel_id, conversation_id, turn_id, part, author, body, state, code, platform_message_id, attempts, created_at, updated_at, resends, template, file_id) VALUES ('out_1', 'org_1', 'chn_1', 'cnv_1', 'trn_1', 0, 'assistant', $1, 'delivery_unknown', 'x', '', 1, 1, 1, 2, NULL, NULL), ('out_2', 'org_1', 'chn_1', 'cnv_1', NULL, 0, 'human', $2, 'sent', '', 'p', 0, 1, 1, 0, $1, 'fil_1')`, []any{allBytes(), []byte{}}},
		{`INSERT INTO sent_files VALUES ('fil_1', 'org_1', 'out_2', 'image', $1, 'image/png', 5, 2, 0, 1), ('fil_2', 'org_1', NULL, $2, $3, $2, 1, 1, $4, 1)`, []any{allBytes(), oddText, []byte{}, int64(math.MaxInt64)}},
		{`INSERT INTO sent_file_pieces VALUES ('org_1', 'fil_1', 0, $1), ('org_1', 'fil_1', 1, $2)`, []any{allBytes(), []byte{}}},
		{`INSERT INTO message_keys VALUES ('org_1', $1, $2, 'out_2', $3)`, []any{hash, make([]byte, 32), int64(math.MaxInt64)}},
		{`INSERT INTO message_tombstones VALUES ($1, 'org_1', 1)`, []any{hash}},
		{`INSERT INTO customer_aliases VALUES ('org_1', 'chn_1', $1, 'cnv_2')`, []any{oddText}},
		{`INSERT INTO event_endpoints VALUES ('evt_1', 'org_1', $1, ' a b ', $2, NULL, 0, 'active', '', 0, 1, 2, 0), ('evt_2', 'org_2', 'x', '', $3, $2, 5, 'disabled', $1, 4, 1, 2, 7)`, []any{oddText, allBytes(), []byte{}}},
		{`INSERT INTO event_deliveries (event_id, endpoint_id, org_id, type, payload, state, attempts, run_at, outcome, status, created_at, updated_at) VALUES ('msg_1', 'ep_1', 'org_1', 'a', $1, 'pending', 0, 1, '', 0, 1, 2), ('msg_1', 'ep_2', 'org_1', 'a', '', 'failed', 9, 0, $1, 500, 1, 2)`, []any{oddText}},
		{`INSERT INTO payment_codes VALUES ('BS7K2Q04A', 'org_1', 0, 'VND', $1, 1), ('BS7K2Q05B', 'org_2', $2, '', '', 2)`, []any{oddText, int64(math.MaxInt64)}},
		{`INSERT INTO payments VALUES ('sepay', '1', 'pay_1', '', 'unmatched', $1, 1, 'VND', $2, '', '', 1, 2, 3, 0, '{}', 0, '', '', '', $1), ('sepay', '2', 'pay_2', 'org_1', 'credited', '', $2, 'VND', 5, 'r', 'a', 1, 2, 3, 4, '{"d":1}', 5, 'txn_1', $1, $1, '')`, []any{oddText, int64(math.MaxInt64)}},
		{`INSERT INTO deleted_turns VALUES ('trn_3', 'org_1', 'chn_1', $1, 'call_3')`, []any{int64(math.MaxInt64)}},
	} {
		require.NoError(t, tryWrite(db, row.text, row.values...), row.text)
	}
}

// fillAudit adds rows to a table without rules, so that an archive has several blocks.
func fillAudit(t testing.TB, db *store.DB, rows int) {
	t.Helper()
	require.NoError(t, tryWrite(db, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		INSERT INTO audit_log SELECT 'aud_x' || i, 1, 'cli', 'test.fill', 'x', '', '' FROM n`, rows))
}

// everything is the rows of every table that an archive holds, sorted, as the database itself gives them.
func everything(t testing.TB, db *store.DB) map[string][]string {
	t.Helper()
	names, _ := archive.ArchivedTables()
	found := map[string][]string{}
	for _, name := range names {
		found[name] = rowsAsText(t, db, name)
	}
	return found
}

// rowsAsText are the rows of a table with the names, types and values of their columns, sorted.
func rowsAsText(t testing.TB, db *store.DB, table string) (found []string) {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), `SELECT * FROM `+table) //nolint:unqueryvet // whatever it has
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		require.NoError(t, rows.Scan(into...))
		row := ""
		for i, value := range values {
			switch is := value.(type) {
			case bool: // SQLite has numbers
				value = map[bool]int64{true: 1}[is]
			case []byte: // one driver says nil for no bytes
				value = append([]byte{}, is...)
			}
			row += fmt.Sprintf("%s=%T:%q ", columns[i], value, fmt.Sprint(value))
		}
		found = append(found, row)
	}
	require.NoError(t, rows.Err())
	slices.Sort(found)
	return found
}

// archivedRows are the row lines of an archive by their table line, sorted.
func archivedRows(t testing.TB, packed []byte) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	table := ""
	for line := range bytes.Lines(packed) {
		switch {
		case bytes.HasPrefix(line, []byte(`{"table"`)):
			table = string(line)
			rows[table] = []string{}
		case line[0] == '[':
			rows[table] = append(rows[table], string(line))
		}
	}
	for _, of := range rows {
		slices.Sort(of)
	}
	require.NotEmpty(t, rows)
	return rows
}

// exported is an archive of everything, with several blocks.
func exported(t testing.TB) (packed []byte, source *store.DB) {
	t.Helper()
	source = storetest.Open(t, store.SQLite)
	fillEveryTable(t, source)
	fillAudit(t, source, 3*archive.BlockRows)
	var stream bytes.Buffer
	_, err := archive.Export(t.Context(), source, &stream, archive.ExportOptions{Probes: [][]byte{{1}, {2}}})
	require.NoError(t, err)
	return stream.Bytes(), source
}
