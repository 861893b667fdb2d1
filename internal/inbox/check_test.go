package inbox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Check finds each fault that is planted into a healthy queue, and names the row.
func TestCheckFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		faults := map[string]struct{ fault, detail string }{
			"a lost turn":        {`UPDATE messages SET turn_id = 'trn_x' WHERE platform_message_id = '` + q.messageID("1") + `'`, "names the turn trn_x, which is not of its conversation"},
			"a foreign turn":     {`UPDATE messages SET turn_id = (SELECT id FROM turns WHERE state = 'answered') WHERE platform_message_id = '` + q.messageID("2") + `'`, "is not of its conversation"},
			"a superseded turn":  {`UPDATE turns SET state = 'superseded' WHERE state = 'awaiting'`, "which was superseded"},
			"a person's message": {`UPDATE messages SET author = 'human' WHERE turn_id IS NOT NULL`, "is no customer's message"},
			"a forgotten text":   {`UPDATE conversations SET run_at = NULL WHERE customer_ref = '` + q.ref("cid") + `'`, "waits in a conversation that is never due"},
			"no parts":           {`DELETE FROM outbound_messages WHERE state = 'sent'`, "is answered and has no parts"},
			"parts of a running turn": {
				`UPDATE turns SET state = 'dead' WHERE state = 'answered'`, "is dead and has parts",
			},
			"an empty turn":     {`UPDATE messages SET turn_id = NULL, handled = TRUE WHERE platform_message_id = '` + q.messageID("2") + `'`, "is awaiting and answers no message"},
			"a forgotten turn":  {`UPDATE conversations SET run_at = NULL WHERE customer_ref = '` + q.ref("bob") + `'`, "is awaiting an answer in a conversation that is never due"},
			"an unnamed turn":   {`UPDATE conversations SET turn_id = 'another' WHERE customer_ref = '` + q.ref("bob") + `'`, "its conversation does not name it"},
			"silent attention":  {`UPDATE turns SET state = 'needs_attention' WHERE state = 'awaiting'`, "needs attention, and its conversation does not say so"},
			"an old part":       {`UPDATE conversations SET unsent_since = 9000000000000 WHERE customer_ref = '` + q.ref("dan") + `'`, "older than what its conversation sends"},
			"a stray part":      {`UPDATE outbound_messages SET turn_id = 'trn_x' WHERE state = 'sent'`, "belongs to the turn trn_x"},
			"a forgotten part":  {`UPDATE conversations SET run_at = NULL WHERE customer_ref = '` + q.ref("dan") + `'`, "pending in a conversation that is never due"},
			"a stuck part":      {`UPDATE outbound_messages SET state = 'sending', updated_at = 1 WHERE part = 0 AND state = 'pending'`, "no worker has its conversation"},
			"two parts at once": {`UPDATE outbound_messages SET state = 'sending' WHERE state = 'pending'`, "2 parts of"},
		}
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "answered"))
		q.reply(t, "reply", "p1")
		q.arrive(t, textOf("bob", "2", "awaiting"))
		q.begin(t, q.take(t))
		q.arrive(t, textOf("cid", "3", "waiting"), Item{Kind: platforms.Event, CustomerRef: "dan", MessageID: "4"})
		list, err := q.Conversations(ctx, "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		dan := list[len(list)-1]
		if dan.CustomerRef != "dan" {
			dan = list[len(list)-2]
		}
		_, err = q.SendAsHuman(ctx, "usr_1", "org_1", dan.ID, []string{"a", "b"})
		require.NoError(t, err)
		q.crash(t)
		q.healthy(t)

		for name, c := range faults {
			for _, table := range []string{"conversations", "messages", "turns", "outbound_messages"} {
				q.exec(t, `DROP TABLE IF EXISTS saved_`+table)
				q.exec(t, `CREATE TABLE saved_`+table+` AS SELECT * FROM `+table) //nolint:unqueryvet // a copy of whatever there is
			}
			q.exec(t, c.fault)
			findings, err := CheckSince(ctx, q.db, 0)
			require.NoError(t, err)
			require.NotEmpty(t, findings, name)
			var details []string
			for _, finding := range findings {
				require.NotEmpty(t, finding.Subject)
				details = append(details, finding.Detail)
			}
			require.Condition(t, func() bool { return anyContains(details, c.detail) }, "%s: %q", name, details)
			for _, table := range []string{"outbound_messages", "messages", "turns", "conversations"} {
				q.exec(t, `DELETE FROM `+table)
			}
			for _, table := range []string{"conversations", "messages", "turns", "outbound_messages"} {
				q.exec(t, `INSERT INTO `+table+` SELECT * FROM saved_`+table) //nolint:unqueryvet // as above
			}
			q.healthy(t)
		}
	})
}

func anyContains(texts []string, part string) bool {
	for _, text := range texts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// A broken queue of any size is reported with a bounded list.
func TestCheckIsBounded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		var items []Item
		for n := range 50 {
			items = append(items, textOf("c"+number(n), number(n), "text"))
		}
		q.arrive(t, items...)
		q.exec(t, `UPDATE conversations SET run_at = NULL`)
		findings, err := CheckSince(t.Context(), q.db, 0)
		require.NoError(t, err)
		require.Len(t, findings, store.MostFindings)
	})
}
