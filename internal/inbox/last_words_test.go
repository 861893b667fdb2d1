package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// The assistant's answer that hands a conversation over is still sent, although the same commit gives the conversation to a person. The
// customer keeps waiting for that person, and the assistant answers no further texts.
func TestLastWords(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.endpoint(t)
		q.arrive(t, textOf("ann", "1", "hello, a person please"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		q.arrive(t, textOf("ann", "2", "hello?"))
		since := q.value(t, `SELECT unanswered_since FROM conversations`)
		_, err := q.AnswerAndHandOver(ctx, lease, turnID, "", []string{"x"}, true)
		require.ErrorIs(t, err, ErrInvalid)
		parts, err := q.AnswerAndHandOver(ctx, lease, turnID, HandoverAssistant, []string{"a colleague", "answers", "soon"}, true)
		require.NoError(t, err)
		require.Equal(t, OutboundSending, parts[0].State)
		require.Equal(t, []string{"conversation.handover assistant"}, q.told(t))
		require.Equal(t, since, q.value(t, `SELECT unanswered_since FROM conversations`), "no person has answered")
		require.Empty(t, q.open(t, lease).Waiting, "the second text is the person's")
		_, err = q.AnswerAndHandOver(ctx, lease, turnID, HandoverAssistant, []string{"x"}, true)
		require.ErrorIs(t, err, ErrEnded)
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p1", parts[1].ID))
		q.crash(t) // the worker dies while it sends the second part
		lease = q.take(t)
		require.Equal(t, []string{OutboundSending, OutboundPending}, []string{
			q.open(t, lease).Outbound[0].State, q.open(t, lease).Outbound[1].State,
		})
		require.NoError(t, q.SendFailed(ctx, lease, parts[1].ID, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{}))
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID), "it is handed over already")
		require.NoError(t, q.Sending(ctx, lease, parts[2].ID))
		require.NoError(t, q.SentAndRelease(ctx, lease, parts[2].ID, "p3"))
		q.idle(t)
		conversation, err := q.Conversation(ctx, "org_1", lease.ConversationID)
		require.NoError(t, err)
		require.Equal(t, StateHuman, conversation.State)
		require.Equal(t, HandoverAssistant, conversation.HandoverReason)
		waiting, err := q.WaitingForPeople(ctx, "org_1")
		require.NoError(t, err)
		require.Equal(t, 1, waiting)
		require.Len(t, q.told(t), 2, "the handover, and the part whose delivery is unknown")

		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID))
		require.Equal(t, "0", q.waitsSince(t), "nobody else will answer what the last words have answered")
		q.arrive(t, textOf("ann", "3", "three"))
		require.Equal(t, []string{"three"}, textsOf(q.open(t, q.take(t)).Waiting))
		q.healthy(t)
	})
}

// Without words the turn is discarded, and the customer waits for a person all the same.
func TestHandOverWithoutWords(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		parts, err := q.AnswerAndHandOver(ctx, lease, turnID, HandoverWords, nil, true)
		require.NoError(t, err)
		require.Empty(t, parts)
		require.Equal(t, "discarded", q.value(t, `SELECT state FROM turns`))
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)
		waiting, err := q.WaitingForPeople(ctx, "org_1")
		require.NoError(t, err)
		require.Equal(t, 1, waiting)
		q.healthy(t)
	})
}

// The last words are not said any more when a person has written, blocked the customer, or taken the conversation back and over; nor are
// other parts sent because of them.
func TestLastWordsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, q *inboxTest, id string){
		"a person wrote": func(t *testing.T, q *inboxTest, id string) {
			t.Helper()
			_, err := q.SendAsHuman(t.Context(), "usr_1", "org_1", id, []string{"here I am"})
			require.NoError(t, err)
		},
		"a person wrote from the app": func(t *testing.T, q *inboxTest, _ string) { t.Helper(); q.arrive(t, echoOf("ann", "h1")) },
		"a person blocked the customer": func(t *testing.T, q *inboxTest, id string) {
			t.Helper()
			require.NoError(t, q.Block(t.Context(), "usr_1", "org_1", id))
		},
		"the customer blocked the channel": func(t *testing.T, q *inboxTest, _ string) {
			t.Helper()
			q.arrive(t, Item{Kind: platforms.Blocked, CustomerRef: "ann"})
		},
		"a person took it over again": func(t *testing.T, q *inboxTest, id string) {
			t.Helper()
			require.NoError(t, q.HandBack(t.Context(), "usr_1", "org_1", id))
			require.NoError(t, q.HandOver(t.Context(), "usr_1", "org_1", id))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				ctx := t.Context()
				q.arrive(t, textOf("ann", "1", "one"))
				lease := q.take(t)
				parts, err := q.AnswerAndHandOver(ctx, lease, q.begin(t, lease), HandoverAssistant, []string{"a", "b"}, true)
				require.NoError(t, err)
				end(t, q, lease.ConversationID)
				require.ErrorIs(t, q.Sent(ctx, lease, parts[0].ID, "p1", parts[1].ID), ErrHandedOver)
				require.Equal(t, "discarded", q.value(t, `SELECT state FROM outbound_messages WHERE id = $1`, parts[1].ID))
				q.healthy(t)
			})
		})
	}
}

// While a person has the conversation nobody else hands it over, and nothing is said.
func TestLastWordsOfASilentAssistant(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		_, err := q.AnswerAndHandOver(ctx, lease, turnID, HandoverAssistant, []string{"a"}, true)
		require.ErrorIs(t, err, ErrHandedOver)
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM outbound_messages`))
		conversation, err := q.Conversation(ctx, "org_1", lease.ConversationID)
		require.NoError(t, err)
		require.Equal(t, HandoverPerson, conversation.HandoverReason)
		q.healthy(t)
	})
}
