package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

func imageOf(customer, id string) Item {
	return Item{Kind: platforms.Media, CustomerRef: customer, Address: "to " + customer, MessageID: id, Text: "image"}
}

// due makes what waits for a later time due now.
func (q *inboxTest) due(t testing.TB) {
	t.Helper()
	q.exec(t, `UPDATE conversations SET run_at = 1 WHERE run_at IS NOT NULL`)
}

// notice answers what waits with a notice, and returns what is to be sent.
func (q *inboxTest) notice(t testing.TB, parts ...string) []Outbound {
	t.Helper()
	lease := q.take(t)
	said, err := q.SayNotice(t.Context(), lease, idsOf(q.open(t, lease).Waiting), parts)
	require.NoError(t, err)
	for i := range said {
		require.NoError(t, q.Sending(t.Context(), lease, said[i].ID))
		require.NoError(t, q.Sent(t.Context(), lease, said[i].ID, said[i].ID, ""))
	}
	require.NoError(t, q.Release(t.Context(), lease))
	return said
}

// A message without a text waits some seconds for one, and is then answered by a notice, once in 15 minutes.
func TestSayNotice(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		now, err := q.db.Now(t.Context())
		require.NoError(t, err)
		q.arrive(t, imageOf("ann", "1"), imageOf("ann", "2"))
		q.idle(t)
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM conversations WHERE run_at >= $1 AND run_at < $1 + 60000 AND unanswered_since > 0`,
			now+mediaWindow.Milliseconds()))
		q.due(t)
		said := q.notice(t, "Please", "write.")
		require.Len(t, said, 2)
		require.Equal(t, AuthorAssistant, said[0].Author)
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM messages WHERE turn_id = $1`, said[0].TurnID))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM conversations WHERE unanswered_since > 0 OR run_at IS NOT NULL OR attention <> ''`))
		q.idle(t)
		q.healthy(t)

		q.arrive(t, imageOf("ann", "3"))
		q.due(t)
		require.Empty(t, q.notice(t, "Please", "write."), "once")
		q.idle(t)
		q.arrive(t, imageOf("bob", "4"))
		q.due(t)
		require.Len(t, q.notice(t, "Please write."), 1, "another customer")
		q.exec(t, `UPDATE turns SET created_at = created_at - $1`, noticePause.Milliseconds())
		q.arrive(t, imageOf("ann", "5"))
		q.due(t)
		require.Len(t, q.notice(t, "Please", "write."), 2)
		q.arrive(t, imageOf("ann", "6"))
		q.due(t)
		require.Empty(t, q.notice(t), "without parts nothing is sent")
		q.idle(t)
		q.healthy(t)

		q.arrive(t, textOf("ann", "7", "one"))
		require.Equal(t, []string{"image", "image", "Please", "write."}, textsOf(q.open(t, q.take(t)).History)[:4])
	})
}

// A notice is for messages without text alone: a text that arrives before it waits together with them.
func TestANoticeGivesWayToTexts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, imageOf("ann", "1"))
		q.due(t)
		lease := q.take(t)
		ids := idsOf(q.open(t, lease).Waiting)
		q.arrive(t, textOf("ann", "2", "what is this?"))
		said, err := q.SayNotice(ctx, lease, ids, []string{"Please write."})
		require.NoError(t, err)
		require.Empty(t, said)
		require.NoError(t, q.Release(ctx, lease))
		lease = q.take(t)
		require.Equal(t, []string{"image", "what is this?"}, textsOf(q.open(t, lease).Waiting))
		q.answer(t, lease, "A cup.")
		q.healthy(t)

		q.arrive(t, imageOf("bob", "3"))
		q.idle(t)
		q.arrive(t, textOf("bob", "4", "what is this?"))
		require.Len(t, q.open(t, q.take(t)).Waiting, 2, "a text ends the wait for one")

		q.arrive(t, imageOf("cid", "5"))
		q.due(t)
		lease = q.take(t)
		ids = idsOf(q.open(t, lease).Waiting)
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		_, err = q.SayNotice(ctx, lease, ids, []string{"Please write."})
		require.ErrorIs(t, err, ErrHandedOver)
	})
}

// Without a notice people are told, once, until one of them answers or the customer writes.
func TestMediaAttention(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.endpoint(t)
		q.route.PauseMS = store.NoPause
		n := 0
		show := func() (conversationID string) {
			t.Helper()
			for range 2 {
				n++
				q.arrive(t, imageOf("ann", number(n)))
				q.due(t)
				lease := q.take(t)
				require.NoError(t, q.Stand(ctx, lease, Standing{MessageIDs: idsOf(q.open(t, lease).Waiting), Code: codes.Media}))
				require.NoError(t, q.Release(ctx, lease))
				conversationID = lease.ConversationID
			}
			require.Equal(t, codes.Media, q.attention(t, conversationID))
			q.healthy(t)
			return conversationID
		}
		ended := func(id string) {
			t.Helper()
			require.Empty(t, q.attention(t, id))
			require.Equal(t, "0", q.value(t, `SELECT count(*) FROM turns WHERE state = 'needs_attention'`))
			q.healthy(t)
		}
		answered := func() {
			t.Helper()
			require.Equal(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`))
		}
		id := show()
		require.Equal(t, []string{"conversation.attention media_message"}, q.told(t))
		_, err := q.SendAsHuman(ctx, "usr_1", "org_1", id, []string{"A cup."})
		require.NoError(t, err)
		ended(id)
		lease := q.take(t)
		part := q.open(t, lease).Outbound[0].ID
		require.NoError(t, q.Sending(ctx, lease, part))
		require.NoError(t, q.SentAndRelease(ctx, lease, part, "p1"))
		answered()

		id = show()
		q.arrive(t, echoSaying("ann", "e1", "We look at it.", 0))
		ended(id)
		answered()
		q.idle(t)
		require.Len(t, q.told(t), 2)

		id = show()
		q.arrive(t, textOf("ann", "text", "what is this?"))
		lease = q.take(t)
		require.Equal(t, []string{"image", "image", "what is this?"}, textsOf(q.open(t, lease).Waiting))
		q.answer(t, lease, "A cup.")
		ended(id)

		q.crash(t)
		q.due(t)
		lease = q.take(t)
		for _, part := range q.open(t, lease).Outbound {
			require.NoError(t, q.SendFailed(ctx, lease, part.ID, OutboundPending, "", SendFailure{}))
			require.NoError(t, q.Sending(ctx, lease, part.ID))
			require.NoError(t, q.Sent(ctx, lease, part.ID, "p2", ""))
		}
		answered()
		require.NoError(t, q.Release(ctx, lease))
		id = show()
		require.NoError(t, q.Dismiss(ctx, "usr_1", "org_1", id, codes.Media))
		ended(id)
		answered()
	})
}

// A notice is no answer to what was given up: that goes on needing attention.
func TestANoticeHidesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		id, _ := q.stand(t, "provider_error", false)
		q.arrive(t, imageOf("ann", "2"))
		q.due(t)
		require.Len(t, q.notice(t, "Please write."), 1)
		require.Equal(t, "provider_error", q.attention(t, id))
		q.healthy(t)
	})
}

// While a person has the conversation, a message without text waits for this person as a text does.
func TestMediaForAPerson(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		q.reply(t, "yes", "p1")
		id := q.value(t, `SELECT id FROM conversations`)
		require.NoError(t, q.HandOver(t.Context(), "usr_1", "org_1", id))
		q.arrive(t, imageOf("ann", "2"))
		q.due(t)
		q.idle(t)
		count, err := q.WaitingForPeople(t.Context(), "org_1")
		require.NoError(t, err)
		require.Equal(t, 1, count)
		require.Empty(t, q.attention(t, id))
		q.healthy(t)
	})
}
