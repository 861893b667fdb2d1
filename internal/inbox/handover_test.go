package inbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

func timeOf(ms int64) time.Time { return time.UnixMilli(ms) }

func storeChange(agentID *string) store.ChannelChange { return store.ChannelChange{AgentID: agentID} }

func echoOf(customer, id string) Item {
	return Item{Kind: platforms.HumanEcho, CustomerRef: customer, MessageID: id, Text: "by hand"}
}

// While a human has a conversation the assistant says nothing: what waits and what comes needs no answer, what runs is
// discarded, what was not sent never is. After the return it answers what comes then.
func TestHandOverAndBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		q.arrive(t, textOf("ann", "2", "two"))
		waiting := idsOf(q.open(t, lease).Waiting)
		require.ErrorIs(t, q.HandOver(ctx, "usr_1", "org_2", lease.ConversationID), store.ErrNotFound)
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		_, err := q.Answer(ctx, lease, turnID, []string{"x"}, true)
		require.ErrorIs(t, err, ErrHandedOver)
		_, err = q.BeginTurn(ctx, lease, "a", waiting, nil)
		require.ErrorIs(t, err, ErrHandedOver)
		require.ErrorIs(t, q.Stand(ctx, lease, Standing{AgentID: "a", MessageIDs: waiting, Code: "no_agent"}), ErrHandedOver)
		require.ErrorIs(t, q.Stand(ctx, lease, Standing{TurnID: turnID, AgentID: "a", Code: "no_agent"}), ErrHandedOver)
		q.arrive(t, textOf("ann", "3", "three"))
		require.Empty(t, q.open(t, lease).Waiting)
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)

		sent, err := q.SendAsHuman(ctx, "usr_1", "org_1", lease.ConversationID, []string{"a human", "writes"})
		require.NoError(t, err)
		require.Equal(t, []string{"a human", "writes"}, textsOf(sent))
		lease = q.take(t)
		work := q.open(t, lease)
		require.Equal(t, AuthorHuman, work.Outbound[0].Author)
		require.Equal(t, sent[0].ID, work.Outbound[0].ID)
		require.NoError(t, q.Sending(ctx, lease, sent[0].ID), "a human's words are sent")
		require.NoError(t, q.Sent(ctx, lease, sent[0].ID, "p1", sent[1].ID))
		require.NoError(t, q.Sent(ctx, lease, sent[1].ID, "p2", ""))
		require.NoError(t, q.Release(ctx, lease))

		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID))
		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID))
		q.idle(t)
		q.arrive(t, textOf("ann", "4", "four"))
		work = q.open(t, q.take(t))
		require.Equal(t, []string{"four"}, textsOf(work.Waiting))
		require.Equal(t, []string{"one", "two", "three", "a human", "writes"}, textsOf(work.History))
		require.Equal(t, "3", q.value(t, `SELECT count(*) FROM audit_log WHERE action LIKE 'conversation.%'`), "hand over, send, hand back")
		q.healthy(t)
	})
}

// An answer whose parts are not all sent is cut off where a human takes over.
func TestHandOverBetweenParts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a", "b", "c")
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		require.ErrorIs(t, q.Sent(ctx, lease, parts[0].ID, "p1", parts[1].ID), ErrHandedOver)
		require.ErrorIs(t, q.Sending(ctx, lease, parts[2].ID), ErrHandedOver)
		require.Empty(t, q.open(t, lease).Outbound)
		require.Equal(t, "sent", q.value(t, `SELECT state FROM outbound_messages WHERE id = $1`, parts[0].ID), "it was")
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM outbound_messages WHERE state = 'discarded'`))
		waiting, err := q.WaitingForPeople(ctx, "org_1")
		require.NoError(t, err)
		require.Equal(t, 1, waiting, "nobody has told the customer the rest")
		q.healthy(t)
	})
}

// TestHandOverDuringASend guarantees that a part whose send fails after a person took the conversation isn't tried again when it is given
// back: its text is answered anew.
func TestHandOverDuringASend(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a", "b")
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundPending, "refused", SendFailure{}))
		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID))
		work := q.open(t, lease)
		require.Empty(t, work.Outbound)
		require.Equal(t, []string{"one"}, textsOf(work.Waiting))
		require.Empty(t, work.Conversation.Attention, "nothing failed that is still to be sent")
		q.healthy(t)
	})
}

// TestEchoDuringASend guarantees that a text stays closed which a person answered while the assistant's answer was being sent, and that
// answer fails.
func TestEchoDuringASend(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a", "b")
		q.arrive(t, echoOf("ann", "h1"))
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundPending, "", SendFailure{}))
		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID))
		work := q.open(t, lease)
		require.Empty(t, work.Outbound)
		require.Empty(t, work.Waiting)
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)
		q.healthy(t)
	})
}

// The echo of what we sent is ours: by its id, or by its text. Any other is a human's, and pauses the assistant.
func TestEchoes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a")
		q.arrive(t, Item{Kind: platforms.HumanEcho, CustomerRef: "ann", MessageID: "p1", Text: "a"}) // before we know its id
		require.Zero(t, q.open(t, lease).Conversation.PausedUntil)
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p1", ""))
		require.NoError(t, q.Release(ctx, lease))
		q.arrive(t, echoOf("ann", "p1"))
		q.arrive(t, textOf("ann", "2", "two"))
		lease = q.take(t)
		require.Zero(t, q.open(t, lease).Conversation.PausedUntil)

		turnID := q.begin(t, lease)
		q.arrive(t, textOf("ann", "3", "three"), echoOf("ann", "h1"), textOf("ann", "4", "four"))
		_, err := q.Answer(ctx, lease, turnID, []string{"b"}, true)
		require.ErrorIs(t, err, ErrHandedOver)
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)
		conversation, err := q.Conversation(ctx, "org_1", lease.ConversationID)
		require.NoError(t, err)
		now, err := q.db.Now(ctx)
		require.NoError(t, err)
		require.InDelta(t, now+defaultPause.Milliseconds(), conversation.PausedUntil, 60_000)
		require.Equal(t, StateAssistant, conversation.State)
		messages, err := q.Messages(ctx, "org_1", lease.ConversationID, pageAll)
		require.NoError(t, err)
		require.Equal(t, []string{"one", "a", "two", "three", "by hand", "four"}, textsOf(messages))
		require.Equal(t, AuthorHuman, messages[4].Author)
		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID))
		q.arrive(t, echoOf("ann", "h1"), textOf("ann", "5", "five")) // a repeated echo pauses nothing
		require.Equal(t, []string{"four", "five"}, textsOf(q.open(t, q.take(t)).Waiting), "the person wrote before the fourth")
		q.healthy(t)
	})
}

// After a human's echo the assistant is silent for the agent's pause, and then answers what came since, in one reply. A late echo is no answer
// to what is younger.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.route.PauseMS = 60_000
	c.arrive(t, echoOf("ann", "h1"))
	c.arrive(t, textOf("ann", "1", "one"))
	c.idle(t)
	c.pass(59 * time.Second)
	late := echoOf("ann", "h2")
	late.SentAt = c.ms.Load() - 120_000
	c.arrive(t, textOf("ann", "2", "two"), late)
	c.idle(t)
	c.pass(time.Second)
	work := c.open(t, c.take(t))
	require.Equal(t, []string{"one", "two"}, textsOf(work.Waiting))
	require.Len(t, work.History, 2)
}

// TestPauseDelaysNoTakeover guarantees that what a person has on its way is sent at once by another worker when its own died, even if the
// customer has written during a pause meanwhile.
func TestPauseDelaysNoTakeover(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"), echoOf("ann", "h1"))
		list, err := q.Conversations(ctx, "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		parts, err := q.SendAsHuman(ctx, "usr_1", "org_1", list[0].ID, []string{"a", "b"})
		require.NoError(t, err)
		lease := q.take(t)
		require.NoError(t, q.Sending(ctx, lease, parts[0].ID))
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p1", ""))
		q.arrive(t, textOf("ann", "2", "two"))
		q.arrive(t, textOf("ann", "3", "three"))
		q.crash(t)
		q.arrive(t, textOf("ann", "4", "four"))
		require.Equal(t, "b", q.open(t, q.take(t)).Outbound[0].Text)
		q.healthy(t)
	})
}

// A customer who blocks the channel closes the conversation, never the channel, and opens it again by writing.
func TestBlocked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"), textOf("bob", "2", "hi"))
		q.exec(t, `UPDATE conversations SET run_at = run_at - 3600000 WHERE customer_ref = '`+q.ref("ann")+`'`)
		lease := q.take(t)
		turnID := q.begin(t, lease)
		q.arrive(t, Item{Kind: platforms.Blocked, CustomerRef: "ann"})
		_, err := q.Answer(ctx, lease, turnID, []string{"a"}, true)
		require.ErrorIs(t, err, ErrHandedOver)
		require.NoError(t, q.Release(ctx, lease))
		_, err = q.SendAsHuman(ctx, "usr_1", "org_1", lease.ConversationID, []string{"x"})
		require.ErrorIs(t, err, ErrConversationClosed)
		require.ErrorIs(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID), ErrConversationClosed)
		require.ErrorIs(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID), ErrConversationClosed)
		q.reply(t, "hi Bob", "p1")

		q.arrive(t, textOf("ann", "3", "back"))
		lease = q.take(t)
		work := q.open(t, lease)
		require.Equal(t, StateAssistant, work.Conversation.State)
		require.Equal(t, []string{"back"}, textsOf(work.Waiting))
		q.arrive(t, Item{Kind: platforms.Blocked, CustomerRef: "ann", SentAt: 1}) // late: she has written since
		require.Equal(t, StateAssistant, q.open(t, lease).Conversation.State)
		q.healthy(t)
	})
}

// A refused send that says the customer has blocked us closes the conversation, too.
func TestSendFailureClosesConversation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a", "b")
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundFailed, "customer_blocked", SendFailure{CloseConversation: true}))
		conversation, err := q.Conversation(ctx, "org_1", lease.ConversationID)
		require.NoError(t, err)
		require.Equal(t, StateClosed, conversation.State)
		require.Equal(t, "customer_blocked", conversation.Attention)
		require.Empty(t, q.open(t, lease).Outbound)
		require.Equal(t, "discarded", q.value(t, `SELECT state FROM outbound_messages WHERE id = $1`, parts[1].ID))
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)
		q.healthy(t)
	})
}

// What becomes of a part is stored: tried again, failed, failed with the rest, reported later by the platform.
func TestSendFailures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		parts, err := q.Answer(ctx, lease, q.begin(t, lease), []string{"a", "b", "c"}, false)
		require.NoError(t, err)
		state := func(n int) string {
			return q.value(t, `SELECT state || ' ' || code || ' ' || attempts FROM outbound_messages WHERE id = $1`, parts[n].ID)
		}
		require.ErrorIs(t, q.Sent(ctx, lease, parts[0].ID, "p1", ""), ErrEnded, "it isn't sending")
		require.NoError(t, q.Sending(ctx, lease, parts[0].ID))
		require.ErrorIs(t, q.Sending(ctx, lease, parts[0].ID), ErrEnded)
		require.ErrorIs(t, q.Sending(ctx, lease, "msg_unknown"), ErrEnded)
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundPending, "", SendFailure{}))
		require.Equal(t, "pending  1", state(0))
		require.NoError(t, q.Sending(ctx, lease, parts[0].ID))
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p1", ""))
		require.ErrorIs(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundFailed, "x", SendFailure{}), ErrEnded)
		require.ErrorIs(t, q.SendFailed(ctx, lease, parts[1].ID, OutboundSent, "x", SendFailure{}), ErrInvalid)
		require.NoError(t, q.SendFailed(ctx, lease, parts[1].ID, OutboundFailed, "template_required", SendFailure{RestOfTurn: true}))
		require.Equal(t, "failed template_required 1", state(1))
		require.Equal(t, "failed template_required 0", state(2))
		require.Equal(t, "template_required", q.open(t, lease).Conversation.Attention)

		q.arrive(t, Item{Kind: platforms.FailedDelivery, MessageID: "p1", Code: "service_window_expired"})
		require.Equal(t, "failed service_window_expired 1", state(0))
		q.arrive(t, Item{Kind: platforms.FailedDelivery, MessageID: "p1", Code: "again"})
		require.Equal(t, "failed service_window_expired 1", state(0))
		require.Equal(t, "service_window_expired", q.open(t, lease).Conversation.Attention)
		q.healthy(t)
	})
}

// TestLateErrors guarantees that a report of the platform ends the try that it is about, once, even if it is here before the answer to
// the send, or that answer was lost; and that a report of an earlier try, or for another channel's message, changes nothing.
func TestLateErrors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		other := q.channel(t, "org_2", "chn_2")
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "a", "b", "c")
		states := func() (all []string) {
			for i := range parts {
				all = append(all, q.value(t, `SELECT state || ' ' || code || ' ' || attempts FROM outbound_messages WHERE id = $1`, parts[i].ID))
			}
			return all
		}
		report := func(platformID, mark, code string) {
			t.Helper()
			item := Item{Kind: platforms.FailedDelivery, CustomerRef: "ann", MessageID: platformID, Other: &platforms.OtherIDs{Mark: mark}, Code: code}
			q.arrive(t, item, item)
		}
		first := parts[0].Mark()
		require.Equal(t, parts[0].ID+".0", first)

		// The answer says "try again", and so does a report of the same try.
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundPending, "", SendFailure{}))
		report("p1", first, "send_failed")
		require.Equal(t, []string{"pending  1", "pending  0", "pending  0"}, states())
		require.NoError(t, q.Sending(ctx, lease, parts[0].ID))
		report("p1", first, "send_failed")
		require.NoError(t, q.Enqueue(ctx, []Arrival{{other, []Item{
			{Kind: platforms.FailedDelivery, CustomerRef: "ann", MessageID: "p2", Other: &platforms.OtherIDs{Mark: parts[0].ID + ".1"}, Code: "x"},
		}}}))
		report("p2", "no mark", "x")
		require.Equal(t, []string{"sending  1", "pending  0", "pending  0"}, states())

		// The second try's report is faster than its answer.
		report("p2", parts[0].ID+".1", "template_required")
		want := []string{"failed template_required 1", "failed template_required 0", "failed template_required 0"}
		require.Equal(t, want, states())
		require.ErrorIs(t, q.Sent(ctx, lease, parts[0].ID, "p2", parts[1].ID), ErrEnded)
		require.ErrorIs(t, q.Sending(ctx, lease, parts[1].ID), ErrEnded)
		report("p2", parts[0].ID+".1", "again")
		require.Equal(t, want, states())
		require.Equal(t, "template_required", q.open(t, lease).Conversation.Attention)
		require.NoError(t, q.Release(ctx, lease))

		// An answer that was lost: the report says what became of the message.
		q.arrive(t, textOf("bob", "2", "two"))
		lease = q.take(t)
		parts, err := q.Answer(ctx, lease, q.begin(t, lease), []string{"a"}, true)
		require.NoError(t, err)
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{}))
		report("p3", parts[0].Mark(), "send_refused")
		require.Equal(t, []string{"failed send_refused 1"}, states())
		q.healthy(t)
	})
}

// TestUnanswered guarantees that exactly those messages count as unanswered that the platform has certainly taken since the customer's
// last message arrived: none whose delivery is unknown or that is tried again, and none from before, whatever second the platform's
// clock shows.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		requireUnanswered := func(want int, lease Lease) {
			t.Helper()
			q.exec(t, `UPDATE messages SET received_at = received_at - 10`) // the next event is later, also by a clock of milliseconds
			q.exec(t, `UPDATE outbound_messages SET created_at = created_at - 10`)
			sent, err := q.Unanswered(ctx, lease)
			require.NoError(t, err)
			require.Equal(t, want, sent)
		}
		said := func(id string) Item {
			item := textOf("ann", id, id)
			item.SentAt = time.Now().Truncate(time.Hour).UnixMilli() // a coarse clock
			return item
		}
		q.arrive(t, said("1"))
		lease := q.take(t)
		requireUnanswered(0, lease)
		parts, err := q.Answer(ctx, lease, q.begin(t, lease), []string{"a", "b", "c", "d"}, true)
		require.NoError(t, err)
		requireUnanswered(0, lease)
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p0", parts[1].ID))
		requireUnanswered(1, lease)
		require.NoError(t, q.SendFailed(ctx, lease, parts[1].ID, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{}))
		require.NoError(t, q.Sending(ctx, lease, parts[2].ID))
		q.crash(t)
		lease = q.take(t)
		requireUnanswered(1, lease)
		require.NoError(t, q.SendFailed(ctx, lease, parts[2].ID, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{}))
		for range 3 {
			require.NoError(t, q.Sending(ctx, lease, parts[3].ID))
			require.NoError(t, q.SendFailed(ctx, lease, parts[3].ID, OutboundPending, "", SendFailure{}))
		}
		require.NoError(t, q.Backoff(ctx, lease, 0))
		lease = q.take(t)
		require.NoError(t, q.Sending(ctx, lease, parts[3].ID))
		require.NoError(t, q.Sent(ctx, lease, parts[3].ID, "p3", ""))
		requireUnanswered(2, lease)
		require.NoError(t, q.Release(ctx, lease))

		for _, id := range []string{"2", "3", "4", "5", "6", "7", "8"} { // each is answered in the hour of all
			q.arrive(t, said(id))
			lease = q.take(t)
			requireUnanswered(0, lease)
			parts, err := q.Answer(ctx, lease, q.begin(t, lease), []string{id}, true)
			require.NoError(t, err)
			require.NoError(t, q.SentAndRelease(ctx, lease, parts[0].ID, "to "+id))
			requireUnanswered(1, lease)
		}
		q.arrive(t, Item{Kind: platforms.Event, CustomerRef: "ann", MessageID: "9", Text: "image"})
		requireUnanswered(0, lease)
	})
}

// TestAccessRefused guarantees that a platform's report about the account becomes the channel's state.
func TestAccessRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"), Item{Kind: platforms.AccessRefused}, Item{Kind: platforms.AccessRefused})
		require.Equal(t, store.ChannelNeedsReauth, q.value(t, `SELECT state FROM channels WHERE id = 'chn_1'`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM messages`))
		require.NoError(t, q.db.Channels.SetState(t.Context(), "test", "org_1", "chn_1", store.ChannelActive))
		q.arrive(t, Item{Kind: platforms.AccessRefused, SentAt: 1})
		require.Equal(t, store.ChannelActive, q.value(t, `SELECT state FROM channels WHERE id = 'chn_1'`), "it was mended since")
	})
}

// TestPartAfterAWrongClock: a message is sent though the conversation's last one was made by a clock that was days ahead.
func TestPartAfterAWrongClock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "hello"))
		q.reply(t, "good day", "p1")
		q.exec(t, `UPDATE conversations SET updated_at = updated_at + $1, unsent_since = unsent_since + $1`, 3*retentionDay)
		_, err := q.SendAsHuman(t.Context(), "usr_1", "org_1", q.value(t, `SELECT id FROM conversations`), []string{"one"})
		require.NoError(t, err)
		q.healthy(t)
		require.Len(t, q.open(t, q.take(t)).Outbound, 1)
	})
}
