package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Unmark makes only the part pending again for which no platform was called, and only under the lease.
func TestUnmark(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "hello"))
		lease, parts := q.answering(t, "one", "two")
		states := func() (states []string) {
			for _, part := range q.open(t, lease).Outbound {
				states = append(states, part.Text+" "+part.State)
			}
			return states
		}
		require.NoError(t, q.Unmark(ctx, lease, parts[0].ID))
		require.Equal(t, []string{"one sending", "two pending"}, states())
		require.NoError(t, q.Unmark(ctx, lease, ""))
		require.NoError(t, q.Unmark(ctx, lease, ""), "it may be repeated")
		require.Equal(t, []string{"one pending", "two pending"}, states())
		require.NoError(t, q.Sending(ctx, lease, parts[0].ID))

		late := lease
		late.Token--
		require.ErrorIs(t, q.Unmark(ctx, late, ""), ErrLeaseLost)
		require.Equal(t, []string{"one sending", "two pending"}, states())
		q.healthy(t)
	})
}

// An unknown delivery waits for a person to look at it, whatever happens in its conversation meanwhile. Its event is sent once.
func TestUnknownDeliveryIsNotForgotten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.endpoint(t)
		id, part := q.failPart(t, OutboundDeliveryUnknown, "delivery_unknown")
		fails := func(text string) {
			q.arrive(t, textOf("ann", text, text))
			q.stand(t, "provider_error", true)
			require.Equal(t, "provider_error", q.attention(t, id))
		}
		fails("two")
		require.NoError(t, q.RetryStanding(ctx, "usr_1", "org_1", id, ""))
		lease := q.take(t)
		parts, err := q.Answer(ctx, lease, q.open(t, lease).Turn.ID, []string{"hello again"}, true)
		require.NoError(t, err)
		require.NoError(t, q.SentAndRelease(ctx, lease, parts[0].ID, "p2"))
		require.Equal(t, OutboundDeliveryUnknown, q.attention(t, id), "the other attention has ended, this one has not")
		require.Equal(t, []string{"conversation.attention delivery_unknown", "conversation.attention provider_error"}, q.told(t))

		fails("three")
		require.NoError(t, q.Dismiss(ctx, "usr_1", "org_1", id, "provider_error"))
		require.Equal(t, OutboundDeliveryUnknown, q.attention(t, id))
		fails("four")
		require.NoError(t, q.Dismiss(ctx, "usr_1", "org_1", id, OutboundDeliveryUnknown))
		require.Equal(t, "provider_error", q.attention(t, id), "only what was hidden is dismissed")
		require.NoError(t, q.Dismiss(ctx, "usr_1", "org_1", id, ""))
		require.Empty(t, q.attention(t, id))

		require.NoError(t, q.Resend(ctx, "usr_1", "org_1", id, part, true))
		lease = q.take(t)
		require.NoError(t, q.Sending(ctx, lease, part))
		require.NoError(t, q.SendFailed(ctx, lease, part, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{}))
		require.NoError(t, q.Release(ctx, lease))
		fails("five")
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", id))
		require.Empty(t, q.attention(t, id), "a person who takes over has looked")
		q.healthy(t)
	})
}

// A person's message interrupts a running turn, whose texts then wait again, and goes before the assistant's.
func TestGiveWay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "hello"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		interruption := func() Interruption {
			running := make([]RunningTurn, 101)
			running[100] = RunningTurn{lease.ConversationID, turnID}
			seen, err := q.Interruptions(ctx, running)
			require.NoError(t, err)
			require.True(t, seen[""].Ended, "there is no such turn")
			return seen[turnID]
		}
		require.Equal(t, Interruption{}, interruption())
		_, err := q.SendAsHuman(ctx, "usr_1", "org_1", lease.ConversationID, []string{"by hand"})
		require.NoError(t, err)
		require.Equal(t, Interruption{Person: true}, interruption())
		require.NoError(t, q.GiveWay(ctx, lease, turnID))
		require.Equal(t, Interruption{Ended: true, Person: true}, interruption())
		require.ErrorIs(t, q.GiveWay(ctx, lease, turnID), ErrEnded)
		require.Equal(t, []string{"hello"}, textsOf(q.open(t, lease).Waiting))
		q.healthy(t)

		turnID = q.begin(t, lease)
		parts, err := q.Answer(ctx, lease, turnID, []string{"answer"}, true)
		require.NoError(t, err)
		require.Equal(t, OutboundPending, parts[0].State, "the person's message goes first")
		require.NoError(t, q.Release(ctx, lease))
		lease = q.take(t)
		var texts []string
		for _, part := range q.open(t, lease).Outbound {
			texts = append(texts, part.Text)
		}
		require.Equal(t, []string{"by hand", "answer"}, texts)
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		require.ErrorIs(t, q.GiveWay(ctx, lease, turnID), ErrEnded)
	})
}
