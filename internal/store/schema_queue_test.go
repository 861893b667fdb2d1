package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// queueRows fills the tables of the second version with a row each, and two conversations.
func queueRows(t *testing.T, db *store.DB) {
	t.Helper()
	createOrganization(t, db, "org_1")
	write(t, db, `INSERT INTO agents (id, org_id, name, model, instructions, use_byok, max_tokens, debounce_ms, debounce_max_ms, supersede, pause_ms,
		created_at, updated_at) VALUES ('agt_1', 'org_1', 'one', 'a/b', '', FALSE, 0, 0, 0, FALSE, 0, 1, 1)`)
	createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", Type: "photo_dm", ExternalID: "x", AgentID: "agt_1"})
	fillChannel(t, db, "org_1", "chn_1", 2, 1)
	write(t, db, `UPDATE turns SET state = 'awaiting' WHERE id = 'chn_1/cnv_000/0'`)
}

// What must never stand in the tables of customer messages is refused by them, whatever the code above does.
func TestConstraintsOfTheQueue(t *testing.T) {
	t.Parallel()
	const (
		channel = `INSERT INTO channels (id, org_id, type, name, external_id, state, credentials_version, created_at, updated_at) `
		turn    = `INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, code, attempts, created_at, updated_at) `
		out     = `INSERT INTO outbound_messages (id, org_id, channel_id, conversation_id, turn_id, part, author, body, state, code, platform_message_id, attempts, created_at, updated_at) `
		message = `INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id, author, kind, body, handled, sent_at, received_at) `
	)
	refused := map[string][]any{
		`UPDATE agents SET name = ''`:                                                        nil,
		`UPDATE agents SET max_tokens = -1`:                                                  nil,
		`UPDATE agents SET temperature_milli = 2001`:                                         nil,
		`UPDATE agents SET temperature_milli = -1`:                                           nil,
		`UPDATE agents SET debounce_ms = -1`:                                                 nil,
		`UPDATE agents SET debounce_max_ms = -1`:                                             nil,
		`UPDATE agents SET pause_ms = -1`:                                                    nil,
		`UPDATE agents SET instructions = NULL`:                                              nil,
		`UPDATE agents SET org_id = 'org_none'`:                                              nil,
		`UPDATE channels SET name = ''`:                                                      nil,
		`UPDATE channels SET type = 'No Name'`:                                               nil,
		`UPDATE channels SET state = 'lost'`:                                                 nil,
		`UPDATE channels SET org_id = 'org_none'`:                                            nil,
		channel + `VALUES ('chn_2', 'org_1', 'photo_dm', 'two', 'x', 'active', 1, 1, 1)`:     nil, // the external id
		channel + `VALUES ('chn_2', 'org_1', 'bot', 'name of chn_1', '', 'active', 1, 1, 1)`: nil,
		`DELETE FROM channels`:                                                               nil, // it has conversations
		`UPDATE conversations SET channel_id = 'chn_none'`:                                   nil,
		`UPDATE conversations SET customer_ref = ''`:                                         nil,
		`UPDATE conversations SET customer_ref = 'same'`:                                     nil,
		`UPDATE conversations SET state = 'lost'`:                                            nil,
		`UPDATE conversations SET attempts = -1`:                                             nil,
		message + `VALUES ('msg_2', 'org_1', 'chn_1', 'c', 'chn_1/cnv_000/0', 'customer', 'text', $1, $2, 1, 1)`:           {[]byte("b"), false}, // the task id
		message + `VALUES ('msg_2', 'org_1', 'chn_1', 'c', 'p', 'customer', 'text', $1, $2, 1, 1)`:                         {nil, false},
		`UPDATE messages SET platform_message_id = ''`:                                                                     nil,
		`UPDATE messages SET author = 'assistant'`:                                                                         nil,
		`UPDATE messages SET kind = 'image'`:                                                                               nil,
		`UPDATE turns SET state = 'lost'`:                                                                                  nil,
		`UPDATE turns SET attempts = -1`:                                                                                   nil,
		`UPDATE outbound_messages SET part = -1`:                                                                           nil,
		`UPDATE outbound_messages SET author = 'customer'`:                                                                 nil,
		`UPDATE outbound_messages SET author = 'human'`:                                                                    nil, // with a turn
		`UPDATE outbound_messages SET turn_id = NULL`:                                                                      nil, // of the assistant
		`UPDATE outbound_messages SET state = 'lost'`:                                                                      nil,
		`UPDATE outbound_messages SET code = 'rate_limited'`:                                                               nil, // and sent
		`UPDATE outbound_messages SET attempts = -1`:                                                                       nil,
		out + `VALUES ('msg_3', 'org_1', 'chn_1', 'c', 'chn_1/cnv_000/0', 0, 'assistant', $1, 'pending', '', '', 0, 1, 1)`: {[]byte("b")}, // the part
	}
	accepted := map[string][]any{
		channel + `VALUES ('chn_2', 'org_1', 'chat_app', 'two', 'x', 'pending', 1, 1, 1)`:                              nil,
		channel + `VALUES ('chn_3', 'org_1', 'bot', 'three', '', 'active', 1, 1, 1)`:                                   nil,
		channel + `VALUES ('chn_4', 'org_1', 'bot', 'four', '', 'active', 1, 1, 1)`:                                    nil,
		`UPDATE turns SET state = 'awaiting' WHERE id = 'chn_1/cnv_001/0'`:                                             nil, // of the other conversation
		turn + `VALUES ('trn_2', 'org_1', 'chn_1', 'chn_1/cnv_000', 'a', 'superseded', '', 0, 1, 1)`:                   nil,
		out + `VALUES ('msg_3', 'org_1', 'chn_1', 'c', NULL, 0, 'human', $1, 'failed', 'internal_error', '', 0, 1, 1)`: {[]byte("b")},
		out + `VALUES ('msg_4', 'org_1', 'chn_1', 'c', NULL, 0, 'human', $1, 'pending', '', '', 0, 1, 1)`:              {[]byte("b")},
		message + `VALUES ('msg_2', 'org_1', 'chn_2', 'c', 'chn_1/cnv_000/0', 'human', 'event', $1, $2, 1, 1)`:         {[]byte{}, true},
	}
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		queueRows(t, db)
		for statement, arguments := range refused {
			require.Error(t, tryWrite(db, statement, arguments...), statement)
		}
		for statement, arguments := range accepted {
			require.NoError(t, tryWrite(db, statement, arguments...), statement)
		}
		storesWrongTypesOf(t, db)
	})
}

// storesWrongTypesOf asserts that both engines refuse a value of the wrong type.
func storesWrongTypesOf(t *testing.T, db *store.DB) {
	t.Helper()
	for _, statement := range []string{
		`UPDATE conversations SET run_at = $1`, `UPDATE turns SET balance_micros = $1`, `UPDATE channels SET credentials_version = $1`,
	} {
		require.Error(t, tryWrite(db, statement, "soon"), statement)
	}
}

// The reads of the queue use its indexes, on the engine that plans by rule and not by size.
func TestIndexesOfTheQueue(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	for index, text := range map[string]string{
		"channels_external":          `SELECT id FROM channels WHERE type = 'bot' AND external_id = 'x' AND external_id <> ''`,
		"channels_agent":             `UPDATE channels SET agent_id = NULL WHERE agent_id = 'agt_1' AND org_id = 'org_1'`,
		"conversations_due":          `SELECT id FROM conversations WHERE run_at <= 5 ORDER BY run_at LIMIT 10`,
		"conversations_org":          `SELECT id FROM conversations WHERE org_id = 'org_1' AND id > 'a' AND id > '' ORDER BY id LIMIT 10`,
		"conversations_customer":     `SELECT id FROM conversations WHERE org_id = 'org_1' AND channel_id = 'chn_1' LIMIT 10`,
		"messages_open":              `SELECT id FROM messages WHERE conversation_id = 'c' AND turn_id IS NULL AND NOT handled`,
		"messages_turn":              `SELECT id FROM messages WHERE turn_id = 't'`,
		"messages_conversation":      `SELECT id FROM messages WHERE conversation_id = 'c' ORDER BY received_at, id LIMIT 10`,
		"turns_conversation":         `SELECT id FROM turns WHERE conversation_id = 'c' LIMIT 50`,
		"outbound_messages_platform": `SELECT id FROM outbound_messages WHERE channel_id = 'c' AND platform_message_id = 'p' AND platform_message_id <> ''`,
	} {
		plan := queryPlan(t, db, text)
		require.Contains(t, plan, index, text)
		require.NotContains(t, plan, "TEMP B-TREE", text)
	}
}

// queryPlan is how SQLite would run a statement.
func queryPlan(t *testing.T, db *store.DB, text string, arguments ...any) (plan string) {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+text, arguments...)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &step))
		plan += step + "\n"
	}
	require.NoError(t, rows.Err())
	return plan
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
