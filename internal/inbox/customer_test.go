package inbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Nothing of a blocked customer is answered, whoever has the conversation: not what waits, not what runs, not what comes.
func TestBlock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turn := q.begin(t, lease)
		q.arrive(t, textOf("ann", "2", "two"))
		id := lease.ConversationID
		require.ErrorIs(t, q.Block(ctx, "usr_2", "org_2", id), store.ErrNotFound)
		require.NoError(t, q.Block(ctx, "usr_1", "org_1", id))
		require.NoError(t, q.Block(ctx, "usr_1", "org_1", id))
		seen, err := q.Interruptions(ctx, []RunningTurn{{id, turn}})
		require.NoError(t, err)
		require.True(t, seen[turn].Ended, "a running call ends")
		_, err = q.Answer(ctx, lease, turn, []string{"x"}, true)
		require.ErrorIs(t, err, ErrHandedOver)
		require.NoError(t, q.Release(ctx, lease))

		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", id))
		q.arrive(t, textOf("ann", "3", "three"), Item{Kind: platforms.Blocked, CustomerRef: "ann"}, textOf("ann", "4", "four"))
		q.idle(t)
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM turns WHERE state IN ('awaiting', 'needs_attention', 'dead')`))
		c, err := q.Conversation(ctx, "org_1", id)
		require.NoError(t, err)
		require.NotZero(t, c.BlockedAt)
		messages, err := q.Messages(ctx, "org_1", id, pageAll)
		require.NoError(t, err)
		require.Equal(t, []string{"one", "two", "three", "four"}, textsOf(messages), "what they write is kept")

		_, err = q.SendAsHuman(ctx, "usr_1", "org_1", id, []string{"by hand"})
		require.NoError(t, err)
		lease = q.take(t)
		require.Len(t, q.open(t, lease).Outbound, 1, "a person may write")
		require.NoError(t, q.Sending(ctx, lease, q.open(t, lease).Outbound[0].ID))
		require.NoError(t, q.Sent(ctx, lease, q.open(t, lease).Outbound[0].ID, "p1", ""))
		require.NoError(t, q.Release(ctx, lease))

		require.ErrorIs(t, q.Unblock(ctx, "usr_2", "org_2", id), store.ErrNotFound)
		require.NoError(t, q.Unblock(ctx, "usr_1", "org_1", id))
		require.NoError(t, q.Unblock(ctx, "usr_1", "org_1", id))
		q.arrive(t, textOf("ann", "5", "five"))
		require.Equal(t, []string{"five"}, textsOf(q.open(t, q.take(t)).Waiting))
		for _, action := range []string{"block", "unblock"} {
			require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE action = $1 AND target = $2`, "conversation."+action, id))
		}
		q.healthy(t)
	})
}

// The export has everything of the customer and nothing of another, also of long conversations.
func TestExport(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		var items []Item
		for n := range 130 {
			items = append(items, textOf("ann", "m"+number(n), "text "+number(n)))
		}
		q.arrive(t, items...)
		q.reply(t, "the <answer>", "p1")
		q.arrive(t, textOf("bob", "other", "SECRET"))
		id := q.value(t, `SELECT id FROM conversations WHERE customer_ref = '`+q.ref("ann")+`'`)
		require.ErrorIs(t, q.Export(ctx, "org_2", id, &bytes.Buffer{}, func() { t.Error("begun") }), store.ErrNotFound)

		var file bytes.Buffer
		begun := 0
		require.NoError(t, q.Export(ctx, "org_1", id, &file, func() { begun++ }))
		require.Equal(t, 1, begun)
		require.NotContains(t, file.String(), "SECRET")
		var exported struct {
			Conversation map[string]any
			Messages     []map[string]any
			Turns        []map[string]any
		}
		require.NoError(t, json.Unmarshal(file.Bytes(), &exported), file.String())
		require.Equal(t, []any{id, "ann", "to ann", "Ms ann"}, []any{
			exported.Conversation["id"], exported.Conversation["customerId"], exported.Conversation["address"], exported.Conversation["customerName"],
		})
		require.Len(t, exported.Messages, 131)
		require.Equal(t, "text 0", exported.Messages[0]["text"])
		last := exported.Messages[130]
		require.Equal(t, []any{"the <answer>", "p1", "sent"}, []any{last["text"], last["platformMessageId"], last["state"]})
		require.Len(t, exported.Turns, 1)
		require.Equal(t, last["turnId"], exported.Turns[0]["id"])

		require.ErrorIs(t, q.Export(ctx, "org_1", id, brokenPipe{}, func() {}), errPipe)
	})
}

var errPipe = errors.New("broken pipe")

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errPipe }

// An erasure meets a worker at each of its steps: the worker stores nothing more, and nothing of the customer is left in any table.
func TestErasureUnderARunningTurn(t *testing.T) {
	t.Parallel()
	steps := []string{"leased", "begun", "answered", "sending", "sent"}
	for upTo := range steps {
		t.Run(steps[upTo], func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				ctx := t.Context()
				q.arrive(t, textOf("ann", "m-1", "SECRET one"))
				lease := q.take(t)
				messageIDs := idsOf(q.open(t, lease).Waiting)
				turn, part := "", ""
				begin := func() (err error) {
					turn, err = q.BeginTurn(ctx, lease, "agt_chn_1", messageIDs, []byte("SECRET request"))
					return err
				}
				answer := func() error {
					parts, err := q.Answer(ctx, lease, turn, []string{"SECRET answer"}, false)
					if err == nil {
						part = parts[0].ID
					}
					return err
				}
				all := []func() error{
					func() error { return nil }, begin, answer,
					func() error { return q.Sending(ctx, lease, part) },
					func() error { return q.SentAndRelease(ctx, lease, part, "p-1") },
				}
				for _, step := range all[:upTo+1] {
					require.NoError(t, step())
				}
				require.NoError(t, q.DeleteConversation(ctx, "usr_1", "org_1", lease.ConversationID))
				for _, step := range all[upTo+1:] {
					require.ErrorIs(t, step(), ErrLeaseLost)
				}
				require.ErrorIs(t, q.Release(ctx, lease), ErrLeaseLost)
				for _, table := range []string{"conversations", "messages", "turns", "outbound_messages"} {
					require.Equal(t, "0", q.value(t, `SELECT count(*) FROM `+table), table)
				}
				require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE action = 'conversation.delete' AND target = $1`, lease.ConversationID))
				q.healthy(t)
			})
		})
	}
}
