package inbox

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// age moves everything that has happened some days into the past.
func (q *inboxTest) age(t testing.TB, days int64) {
	t.Helper()
	past := days * retentionDay
	q.exec(t, `UPDATE messages SET received_at = received_at - $1, sent_at = sent_at - $1`, past)
	q.exec(t, `UPDATE turns SET created_at = created_at - $1, updated_at = updated_at - $1`, past)
	q.exec(t, `UPDATE outbound_messages SET created_at = created_at - $1, updated_at = updated_at - $1`, past)
	q.exec(t, `UPDATE conversations SET created_at = created_at - $1, updated_at = updated_at - $1, last_customer_at = last_customer_at - $1,
		unsent_since = unsent_since - $1`, past)
}

func (q *inboxTest) retain(t testing.TB, orgID string, days int64) {
	t.Helper()
	require.NoError(t, q.db.Organizations.SetRetention(context.Background(), "usr_1", orgID, days))
}

func (q *inboxTest) sweep(t testing.TB) Swept {
	t.Helper()
	swept, err := SweepRetention(context.Background(), q.db)
	require.NoError(t, err)
	q.healthy(t)
	again, err := SweepRetention(context.Background(), q.db)
	require.NoError(t, err)
	require.Zero(t, again, "a sweep leaves nothing for the next one")
	return swept
}

// tables are how many rows the conversations, messages, turns and outbound messages of an organization have.
func (q *inboxTest) tables(t testing.TB, orgID string) (rows [4]string) {
	t.Helper()
	for i, table := range []string{"conversations", "messages", "turns", "outbound_messages"} {
		rows[i] = q.value(t, `SELECT count(*) FROM `+table+` WHERE org_id = $1`, orgID)
	}
	return rows
}

func TestSweepRetention(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		other := q.channel(t, "org_2", "chn_2")
		q.arrive(t, textOf("ann", "1", "one"), Item{Kind: platforms.Event, CustomerRef: "ann", MessageID: "2", Text: "image"})
		q.reply(t, "a", "p1")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{other, []Item{textOf("bob", "1", "one")}}}))
		q.reply(t, "a", "p1")
		before := q.tables(t, "org_1")
		require.Equal(t, [4]string{"1", "2", "1", "1"}, before)
		q.age(t, 29)

		require.Zero(t, q.sweep(t), "who says nothing keeps everything")
		q.retain(t, "org_1", 30)
		require.Zero(t, q.sweep(t), "what is younger is kept")
		require.Equal(t, before, q.tables(t, "org_1"))

		q.arrive(t, textOf("ann", "3", "new"), textOf("cat", "4", "new"))
		q.reply(t, "b", "p2")
		q.reply(t, "b", "p3")
		q.age(t, 2)
		require.Equal(t, Swept{Messages: 3, Turns: 1}, q.sweep(t))
		require.Equal(t, [4]string{"2", "2", "2", "2"}, q.tables(t, "org_1"), "what is new stays, and with it the conversation")
		require.Equal(t, [4]string{"1", "1", "1", "1"}, q.tables(t, "org_2"), "nobody else's is deleted")
		require.Equal(t, "0 conversations and 3 messages older than 30 days",
			q.value(t, `SELECT detail FROM audit_log WHERE action = 'conversation.forget' AND actor = 'retention' AND org_id = 'org_1'`))

		q.age(t, 30)
		require.Equal(t, Swept{Conversations: 2, Messages: 4, Turns: 2}, q.sweep(t))
		require.Equal(t, [4]string{"0", "0", "0", "0"}, q.tables(t, "org_1"))
		require.Equal(t, [4]string{"1", "1", "1", "1"}, q.tables(t, "org_2"))
		q.arrive(t, textOf("ann", "1", "again"))
		require.Equal(t, []string{"again"}, textsOf(q.open(t, q.take(t)).Waiting), "its ids are swept, too")
	})
}

// What waits stays, however old it is: a worker that comes back finds its work.
func TestRetentionKeepsWhatWaits(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, q *inboxTest){
		"a text that nobody looked at": func(t *testing.T, q *inboxTest) { q.arrive(t, textOf("ann", "1", "one")) },
		"a turn that runs": func(t *testing.T, q *inboxTest) {
			q.arrive(t, textOf("ann", "1", "one"))
			lease := q.take(t)
			q.begin(t, lease)
			require.NoError(t, q.Release(t.Context(), lease))
		},
		"an answer that was not sent": func(t *testing.T, q *inboxTest) {
			q.arrive(t, textOf("ann", "1", "one"))
			lease := q.take(t)
			_, err := q.Answer(t.Context(), lease, q.begin(t, lease), []string{"a"}, false)
			require.NoError(t, err)
			require.NoError(t, q.Release(t.Context(), lease))
		},
		"what a human wrote and nobody sent": func(t *testing.T, q *inboxTest) {
			q.arrive(t, textOf("ann", "1", "one"))
			q.reply(t, "a", "p1")
			id := q.value(t, `SELECT id FROM conversations`)
			_, err := q.SendAsHuman(t.Context(), "usr_1", "org_1", id, []string{"b"})
			require.NoError(t, err)
			q.exec(t, `DELETE FROM outbound_messages WHERE turn_id IS NOT NULL`)
			q.exec(t, `DELETE FROM messages`)
			q.exec(t, `DELETE FROM turns`)
		},
		"a conversation that a worker has": func(t *testing.T, q *inboxTest) {
			q.arrive(t, Item{Kind: platforms.Event, CustomerRef: "ann", MessageID: "1", Text: "image"}, textOf("ann", "2", "one"))
			q.take(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				prepare(t, q)
				q.retain(t, "org_1", store.MinRetentionDays)
				before := q.tables(t, "org_1")
				q.age(t, 1000)
				require.Zero(t, q.sweep(t))
				require.Equal(t, before, q.tables(t, "org_1"))
			})
		})
	}
}

// Of equally old messages of one conversation only those that wait for nothing are deleted.
func TestRetentionAroundWhatWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, Item{Kind: platforms.Event, CustomerRef: "ann", MessageID: "1", Text: "image"}, textOf("ann", "2", "one"))
		q.age(t, 8)
		q.retain(t, "org_1", 7)
		require.Equal(t, Swept{Messages: 1}, q.sweep(t))
		require.Equal(t, []string{"one"}, textsOf(q.open(t, q.take(t)).Waiting))
	})
}

// A conversation needs no attention any more once retention has left nothing in it to look at.
func TestRetentionEndsAttention(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		for n, end := range []func(lease Lease, turnID string) error{
			func(lease Lease, turnID string) error {
				return q.Stand(t.Context(), lease, Standing{TurnID: turnID, Code: "insufficient_credits"})
			},
			func(lease Lease, turnID string) error {
				return q.Stand(t.Context(), lease, Standing{TurnID: turnID, Code: "x", Final: true})
			},
		} {
			q.arrive(t, textOf("c"+number(n), "m"+number(n), "one"))
			lease := q.take(t)
			require.NoError(t, end(lease, q.begin(t, lease)))
			require.NoError(t, q.Release(t.Context(), lease))
		}
		q.age(t, 10)
		q.exec(t, `UPDATE conversations SET last_customer_at = last_customer_at + $1`, int64(9*retentionDay))
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM conversations WHERE attention <> ''`))
		q.retain(t, "org_1", 7)
		require.Equal(t, Swept{Messages: 2, Turns: 2}, q.sweep(t))
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM conversations WHERE attention = ''`))
	})
}

// A part that could not be sent is something to look at for as long as it is kept.
func TestRetentionKeepsAttentionForFailedParts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		q.reply(t, "a", "p1")
		q.age(t, 10)
		q.arrive(t, textOf("ann", "2", "two"))
		lease, parts := q.answering(t, "b")
		require.NoError(t, q.SendFailed(t.Context(), lease, parts[0].ID, OutboundFailed, "template_required", SendFailure{}))
		require.NoError(t, q.Release(t.Context(), lease))
		q.retain(t, "org_1", 7)
		require.Equal(t, Swept{Messages: 2, Turns: 1}, q.sweep(t))
		require.Equal(t, "template_required", q.value(t, `SELECT attention FROM conversations`))
		q.age(t, 10)
		q.exec(t, `UPDATE conversations SET last_customer_at = last_customer_at + $1`, int64(9*retentionDay))
		require.Equal(t, Swept{Messages: 2, Turns: 1}, q.sweep(t))
		require.Empty(t, q.value(t, `SELECT attention FROM conversations`))
	})
}

// More than one transaction takes: every row goes.
func TestRetentionMuch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		var items []Item
		for n := range 2*retentionRows + 7 {
			items = append(items, textOf("ann", "m"+number(n), "text"))
		}
		q.arrive(t, items...)
		require.NoError(t, q.HandOver(t.Context(), "usr_1", "org_1", q.value(t, `SELECT id FROM conversations`)))
		for n := range retentionRows + 3 {
			q.exec(t, `INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, code, attempts, created_at, updated_at)
				SELECT $1, org_id, channel_id, id, '', 'discarded', '', 0, updated_at, updated_at FROM conversations`, "trn_"+number(n))
		}
		q.exec(t, `UPDATE conversations SET run_at = NULL, waiting_since = NULL`)
		q.age(t, 8)
		q.retain(t, "org_1", 7)
		require.Equal(t, Swept{Conversations: 1, Messages: 2*retentionRows + 7, Turns: retentionRows + 3}, q.sweep(t))
		require.Equal(t, [4]string{"0", "0", "0", "0"}, q.tables(t, "org_1"))
	})
}

// Two sweeps at once delete each row once.
func TestRetentionAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		for n := range 20 {
			q.arrive(t, Item{Kind: platforms.Event, CustomerRef: "c" + number(n), MessageID: "m" + number(n), Text: "image"})
		}
		q.age(t, 8)
		q.retain(t, "org_1", 7)
		results := make(chan Swept, 2)
		for range cap(results) {
			go func() {
				swept, _ := SweepRetention(context.Background(), q.db)
				results <- swept
			}()
		}
		all := <-results
		all.add(<-results)
		require.Equal(t, Swept{Conversations: 20, Messages: 20}, all)
	})
}

func TestRetentionSweeper(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		q.reply(t, "a", "p1")
		q.age(t, 8)
		q.retain(t, "org_1", 7)
		sweeper := StartRetention(q.db, slog.New(slog.DiscardHandler))
		require.Eventually(t, func() bool { return q.tables(t, "org_1")[0] == "0" }, time.Minute, time.Millisecond)
		sweeper.Stop()
	})
}
