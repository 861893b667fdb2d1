package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// stand lets everything that waits end as a dead turn, or with needs as one that needs attention, for a reason.
func (q *inboxTest) stand(t testing.TB, code string, needs bool) (conversationID, turnID string) {
	t.Helper()
	lease := q.take(t)
	turnID = q.begin(t, lease)
	require.NoError(t, q.Stand(t.Context(), lease, Standing{TurnID: turnID, Code: code, Final: !needs}))
	require.NoError(t, q.Release(t.Context(), lease))
	return lease.ConversationID, turnID
}

func (q *inboxTest) attention(t testing.TB, id string) string {
	t.Helper()
	c, err := q.Conversation(t.Context(), "org_1", id)
	require.NoError(t, err)
	return c.Attention
}

// A person retries what stands in a conversation: the texts of all its turns are answered, in order.
func TestRetryStanding(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		id, first := q.stand(t, "provider_error", false)
		q.arrive(t, textOf("ann", "2", "two"))
		q.stand(t, "insufficient_credits", true)

		require.ErrorIs(t, q.RetryStanding(ctx, "usr_2", "org_2", id, ""), store.ErrNotFound)
		require.ErrorIs(t, q.RetryStanding(ctx, "usr_1", "org_1", id, "no_agent"), ErrEnded, "nothing stands for that reason")
		require.NoError(t, q.RetryStanding(ctx, "usr_1", "org_1", id, ""))
		require.Empty(t, q.attention(t, id))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE action = 'conversation.retry' AND target = $1 AND actor = 'usr_1'`, id))
		require.ErrorIs(t, q.RetryStanding(ctx, "usr_1", "org_1", id, ""), ErrEnded)
		q.healthy(t)
		lease := q.take(t)
		work := q.open(t, lease)
		require.Nil(t, work.Turn, "both are answered together: %s", first)
		require.Equal(t, []string{"one", "two"}, textsOf(work.Waiting))
		q.answer(t, lease, "to both")
		q.healthy(t)
	})
}

// One reason is retried; what stands for another stays, and the conversation shows it.
func TestRetryStandingForOneReason(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		id, dead := q.stand(t, "provider_error", false)
		q.arrive(t, textOf("ann", "2", "two"))
		_, needs := q.stand(t, "no_agent", true)
		require.NoError(t, q.RetryStanding(t.Context(), "usr_1", "org_1", id, "no_agent"))
		require.Equal(t, TurnDead, q.value(t, `SELECT state FROM turns WHERE id = $1`, dead))
		require.Equal(t, needs, q.open(t, q.take(t)).Turn.ID)
		q.healthy(t)
	})
}

// While a person has the conversation the assistant answers nothing again.
func TestRetryStandingOfAPerson(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		id, _ := q.stand(t, "provider_error", false)
		q.exec(t, `UPDATE conversations SET state = 'human' WHERE id = $1`, id)
		require.ErrorIs(t, q.RetryStanding(t.Context(), "usr_1", "org_1", id, ""), ErrHandedOver)
	})
}

// What was dismissed needs nobody any more: not in lists, not for the worker, not for the doctor.
func TestDismiss(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		id, dead := q.stand(t, "provider_error", false)
		q.arrive(t, textOf("ann", "2", "two"))
		_, needs := q.stand(t, "no_agent", true)
		require.ErrorIs(t, q.Dismiss(ctx, "usr_2", "org_2", id, ""), store.ErrNotFound)
		require.ErrorIs(t, q.Dismiss(ctx, "usr_1", "org_1", id, "loop_guard"), ErrEnded)

		require.NoError(t, q.Dismiss(ctx, "usr_1", "org_1", id, "no_agent"))
		require.Equal(t, "provider_error", q.attention(t, id), "the other reason is shown again")
		require.NoError(t, q.Dismiss(ctx, "usr_1", "org_1", id, ""))
		require.Empty(t, q.attention(t, id))
		require.ErrorIs(t, q.Dismiss(ctx, "usr_1", "org_1", id, ""), ErrEnded)
		for _, turn := range []string{dead, needs} {
			require.Equal(t, "discarded dismissed", q.value(t, `SELECT state || ' ' || code FROM turns WHERE id = $1`, turn))
			require.ErrorIs(t, q.Retry(ctx, "cli", turn), ErrEnded)
		}
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM audit_log WHERE action = 'conversation.dismiss' AND target = $1`, id))
		q.idle(t)
		q.arrive(t, textOf("ann", "3", "three"))
		require.Equal(t, []string{"three"}, textsOf(q.open(t, q.take(t)).Waiting))
		q.healthy(t)
	})
}

// A message that failed is dismissed, too; its state stays.
func TestDismissAFailedMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		id, part := q.failPart(t, OutboundDeliveryUnknown, "delivery_unknown")
		require.Equal(t, "delivery_unknown", q.attention(t, id))
		require.NoError(t, q.Dismiss(t.Context(), "usr_1", "org_1", id, "delivery_unknown"))
		require.Empty(t, q.attention(t, id))
		require.Equal(t, OutboundDeliveryUnknown, q.value(t, `SELECT state FROM outbound_messages WHERE id = $1`, part))
		q.idle(t)
		q.healthy(t)
	})
}

// In bulk, page by page: only what the filter selects, and each conversation by itself.
func TestForEachStanding(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		other := q.channel(t, "org_1", "chn_2")
		foreign := q.channel(t, "org_2", "chn_3")
		for _, customer := range []string{"a", "b", "c"} {
			q.arrive(t, textOf(customer, customer, "x"))
			q.stand(t, "provider_error", false)
		}
		q.arrive(t, textOf("d", "d", "x"))
		noAgent, _ := q.stand(t, "no_agent", true)
		for _, route := range []store.Route{other, foreign} {
			require.NoError(t, q.Enqueue(ctx, []Arrival{{route, []Item{textOf("e", "e", "x")}}}))
			q.stand(t, "provider_error", false)
		}
		on := ConversationFilter{ChannelID: "chn_1", Code: "provider_error"}
		changed, last, err := q.ForEachStanding(ctx, "usr_1", "org_1", on, store.Page{Limit: 2}, q.RetryStanding)
		require.NoError(t, err)
		require.Equal(t, 2, changed)
		require.NotEmpty(t, last)
		changed, last, err = q.ForEachStanding(ctx, "usr_1", "org_1", on, store.Page{Limit: 2, After: last}, q.RetryStanding)
		require.NoError(t, err)
		require.Equal(t, 1, changed)
		require.Empty(t, last, "no more")
		require.Equal(t, "3", q.value(t, `SELECT count(*) FROM turns WHERE state = 'awaiting'`))
		require.Equal(t, "no_agent", q.attention(t, noAgent))

		changed, _, err = q.ForEachStanding(ctx, "usr_1", "org_1", ConversationFilter{}, pageAll, q.Dismiss)
		require.NoError(t, err)
		require.Equal(t, 2, changed, "of this organization, on both channels")
		require.Equal(t, "org_2", q.value(t, `SELECT org_id FROM turns WHERE state IN ('dead', 'needs_attention')`))
		q.healthy(t)
	})
}

// failPart answers a new customer with a part whose delivery ends so.
func (q *inboxTest) failPart(t testing.TB, state, code string, more ...string) (conversationID, partID string) {
	t.Helper()
	q.arrive(t, textOf("ann", "1", "one"))
	lease := q.take(t)
	parts, err := q.Answer(t.Context(), lease, q.begin(t, lease), append([]string{"hello"}, more...), true)
	require.NoError(t, err)
	require.NoError(t, q.SendFailed(t.Context(), lease, parts[0].ID, state, code, SendFailure{RestOfTurn: state == OutboundFailed}))
	require.NoError(t, q.Release(t.Context(), lease))
	return lease.ConversationID, parts[0].ID
}

// A part that failed is sent again, with those of the same answer that failed with it, in order, and under new marks.
func TestResend(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		id, part := q.failPart(t, OutboundFailed, "send_failed", "and", "bye")
		require.ErrorIs(t, q.Resend(ctx, "usr_2", "org_2", id, part, true), store.ErrNotFound)
		require.ErrorIs(t, q.Resend(ctx, "usr_1", "org_1", id, "msg_unknown", true), store.ErrNotFound)
		require.NoError(t, q.Resend(ctx, "usr_1", "org_1", id, part, false), "the platform has refused it: it can't arrive twice")
		require.ErrorIs(t, q.Resend(ctx, "usr_1", "org_1", id, part, true), ErrEnded, "a second press sends nothing more")
		require.Empty(t, q.attention(t, id))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE action = 'message.resend' AND target = $1 AND detail = $2`, part, id))
		q.healthy(t)

		lease := q.take(t)
		unsent := q.open(t, lease).Outbound
		require.Len(t, unsent, 3)
		require.Equal(t, []string{"hello", "and", "bye"}, []string{unsent[0].Text, unsent[1].Text, unsent[2].Text})
		require.Equal(t, part+".1.0", unsent[0].Mark())
		for i, o := range unsent {
			require.NoError(t, q.Sending(ctx, lease, o.ID))
			require.NoError(t, q.Sent(ctx, lease, o.ID, "p"+number(i), ""))
		}
		require.NoError(t, q.Release(ctx, lease))
		require.ErrorIs(t, q.Resend(ctx, "usr_1", "org_1", id, part, true), ErrEnded, "it was sent")
		q.healthy(t)
	})
}

// A part that perhaps arrived is sent again only for a person who accepts that it arrives twice.
func TestResendOfAnUnknownDelivery(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		id, part := q.failPart(t, OutboundDeliveryUnknown, "delivery_unknown")
		require.ErrorIs(t, q.Resend(ctx, "usr_1", "org_1", id, part, false), ErrMayArriveTwice)
		q.idle(t)
		require.NoError(t, q.Resend(ctx, "usr_1", "org_1", id, part, true))
		lease := q.take(t)
		require.Len(t, q.open(t, lease).Outbound, 1)
		require.NoError(t, q.Sending(ctx, lease, part))

		// The platform reports on the first try, which it had taken: that says nothing about the second.
		q.arrive(t, Item{Kind: platforms.FailedDelivery, MessageID: "late", Other: &platforms.OtherIDs{Mark: part + ".0"}, Code: "customer_blocked"})
		require.NoError(t, q.Sent(ctx, lease, part, "p2", ""))
		require.Equal(t, OutboundSent, q.value(t, `SELECT state FROM outbound_messages WHERE id = $1`, part))
		q.healthy(t)
	})
}

// A late report on a failed try, by the platform's id, doesn't end the next one.
func TestResendForgetsThePlatformsID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		q.reply(t, "hello", "p1")
		failed := Item{Kind: platforms.FailedDelivery, MessageID: "p1", Code: "send_refused"}
		q.arrive(t, failed)
		id := q.value(t, `SELECT id FROM conversations`)
		part := q.value(t, `SELECT id FROM outbound_messages`)
		require.Equal(t, "send_refused", q.attention(t, id))
		require.NoError(t, q.Resend(ctx, "usr_1", "org_1", id, part, false))
		lease := q.take(t)
		require.NoError(t, q.Sending(ctx, lease, part))
		q.arrive(t, failed)
		require.NoError(t, q.Sent(ctx, lease, part, "p2", ""))
		require.NoError(t, q.Release(ctx, lease))
		q.healthy(t)
	})
}

// A person's wish counts while a person has the conversation; a customer who blocks the channel before it is sent gets nothing.
func TestResendWhileAPersonHasTheConversation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		id, part := q.failPart(t, OutboundFailed, "send_failed")
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
		require.NoError(t, q.Resend(ctx, "usr_1", "org_1", id, part, false))
		lease := q.take(t)
		require.NoError(t, q.Sending(ctx, lease, part))
		require.NoError(t, q.SendFailed(ctx, lease, part, OutboundFailed, "send_failed", SendFailure{}))
		require.NoError(t, q.Resend(ctx, "usr_1", "org_1", id, part, false))
		q.arrive(t, Item{Kind: platforms.Blocked, CustomerRef: "ann"})
		require.ErrorIs(t, q.Sending(ctx, lease, part), ErrHandedOver)
		require.ErrorIs(t, q.Resend(ctx, "usr_1", "org_1", id, part, false), ErrEnded)
		q.healthy(t)
	})
}

// In a closed conversation a person may send again what failed, the assistant's or their own: customers unblock a channel without a word. It
// stays closed until the platform takes the message, and then the assistant answers as before.
func TestResendOpensAClosedConversation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a")
		id, part := lease.ConversationID, parts[0].ID
		refuse := func() {
			require.NoError(t, q.SendFailed(ctx, lease, part, OutboundFailed, codes.CustomerBlocked, SendFailure{CloseConversation: true}))
			require.NoError(t, q.Release(ctx, lease))
			require.Equal(t, StateClosed, q.value(t, `SELECT state FROM conversations`))
		}
		again := func() {
			require.NoError(t, q.Resend(ctx, "usr_1", "org_1", id, part, false))
			require.Equal(t, StateClosed, q.value(t, `SELECT state FROM conversations`))
			lease = q.take(t)
			require.NoError(t, q.Sending(ctx, lease, part))
		}
		refuse()
		again()
		refuse()
		again()
		require.NoError(t, q.SentAndRelease(ctx, lease, part, "p1"))
		require.Equal(t, StateAssistant, q.value(t, `SELECT state FROM conversations`))
		q.arrive(t, textOf("ann", "2", "two"))
		q.reply(t, "b", "p2")
		q.healthy(t)
	})
}

// A message that was on its way when the customer blocked the channel opens nothing.
func TestSentOpensNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a")
		q.arrive(t, Item{Kind: platforms.Blocked, CustomerRef: "ann"})
		require.NoError(t, q.Sent(t.Context(), lease, parts[0].ID, "p1", ""))
		require.Equal(t, StateClosed, q.value(t, `SELECT state FROM conversations`))
	})
}

// What stands in the conversation is shown again after the message was taken care of.
func TestResendShowsWhatElseStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		id, part := q.failPart(t, OutboundDeliveryUnknown, "delivery_unknown")
		q.arrive(t, textOf("ann", "2", "two"))
		q.stand(t, "no_agent", true)
		require.NoError(t, q.Resend(t.Context(), "usr_1", "org_1", id, part, true))
		require.Equal(t, "no_agent", q.attention(t, id))
		q.healthy(t)
	})
}
