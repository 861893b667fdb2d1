package inbox

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A flood of texts is one turn's, so that a reason that stands lets all of them stand.
func TestAFloodIsOneTurn(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"begun": true, "not begun": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				ctx := t.Context()
				var flood []Item
				for i := range maxWaiting + 70 {
					flood = append(flood, textOf("ann", fmt.Sprintf("m%04d", i), fmt.Sprintf("text %04d", i)))
				}
				q.arrive(t, flood...)
				lease := q.take(t)
				work := q.open(t, lease)
				require.Len(t, work.Waiting, maxWaiting)
				require.Equal(t, flood[len(flood)-1].Text, work.Waiting[maxWaiting-1].Text, "the newest are read")
				turnID := ""
				if begun {
					turnID = q.begin(t, lease)
				}
				require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turnID, MessageIDs: idsOf(work.Waiting), Code: "insufficient_credits"}))
				require.NoError(t, q.Release(ctx, lease))
				require.Len(t, q.attentions(t), 1)
				q.idle(t)
				q.healthy(t)
			})
		})
	}
}

func TestSentMayBeRepeated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a", "b")
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p1", parts[1].ID))
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p1", parts[1].ID), "the first commit was not heard of")
		require.NoError(t, q.Sent(ctx, lease, parts[1].ID, "p2", ""))
	})
}

func TestAnAnswerDoesNotHideAnUnclearOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a")
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{}))
		require.NoError(t, q.Release(ctx, lease))
		q.arrive(t, textOf("ann", "2", "two"))
		lease = q.take(t)
		_, err := q.Answer(ctx, lease, q.begin(t, lease), []string{"b"}, true)
		require.NoError(t, err)
		require.Equal(t, "delivery_unknown", q.open(t, lease).Conversation.Attention)
	})
}

// A waiting worker learns of a quiet window that begins; otherwise it would sleep past its end.
func TestWaitHearsOfAQuietWindow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		other := newHandle(t, q)
		q.route.DebounceMS = 100
		woken := make(chan error)
		for n := range 3 {
			go func() { woken <- other.Wait(context.Background(), life) }()
			q.arrive(t, textOf("ann", number(n), "text"))
			require.NoError(t, <-woken)
			require.NoError(t, q.Wait(t.Context(), life), "until the window is over")
			q.reply(t, "reply", "p"+number(n))
		}
	})
}
