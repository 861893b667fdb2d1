package inbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// textAt is a text with a platform's time.
func textAt(customer, id string, sentAt int64) Item {
	item := textOf(customer, id, "text "+id)
	item.SentAt = sentAt
	return item
}

// waitsSince returns when the first text of the only conversation arrived to which nothing was sent.
func (q *inboxTest) waitsSince(t testing.TB) string {
	t.Helper()
	return q.value(t, `SELECT unanswered_since FROM conversations`)
}

// arrivedAt returns when a text arrived.
func (q *inboxTest) arrivedAt(t testing.TB, id string) string {
	t.Helper()
	return q.value(t, `SELECT received_at FROM messages WHERE platform_message_id = $1`, q.messageID(id))
}

// listed reports whether the only conversation is among those that wait for people.
func (q *inboxTest) listed(t testing.TB) bool {
	t.Helper()
	list, err := q.Conversations(t.Context(), "org_1", ConversationFilter{Waiting: true}, pageAll)
	require.NoError(t, err)
	count, err := q.WaitingForPeople(t.Context(), "org_1")
	require.NoError(t, err)
	require.Len(t, list, count)
	return count == 1
}

// A hand-back answers in one reply what came after the last message that people sent; what had come before is answered.
func TestHandBackAnswersWhatIsOpen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		id := q.value(t, `SELECT id FROM conversations`)
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
		q.arrive(t, textOf("ann", "2", "two"))
		require.NoError(t, q.Release(ctx, q.take(t)))
		q.idle(t)
		_, err := q.SendAsHuman(ctx, "usr_1", "org_1", id, []string{"a person", "writes"})
		require.NoError(t, err)
		q.sendAll(t)
		q.idle(t)
		require.Equal(t, "0", q.waitsSince(t))
		q.arrive(t, textOf("ann", "3", "three"), textOf("ann", "4", "four"))
		q.idle(t)
		require.Equal(t, q.arrivedAt(t, "3"), q.waitsSince(t))
		require.True(t, q.listed(t))

		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", id))
		require.Equal(t, q.arrivedAt(t, "3"), q.waitsSince(t), "nobody has answered")
		work := q.open(t, q.take(t))
		require.Equal(t, []string{"three", "four"}, textsOf(work.Waiting))
		require.Equal(t, []string{"one", "two", "a person", "writes"}, textsOf(work.History))
		q.healthy(t)
	})
}

// A hand-back doesn't answer what a person has answered a moment before, whether the platform has that already or not; nor a customer who is
// blocked, or whose conversation nobody has.
func TestHandBackAnswersNothingTwice(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]string{"pending": OutboundPending, "sending": OutboundSending} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				ctx := t.Context()
				q.arrive(t, textOf("ann", "1", "one"))
				id := q.value(t, `SELECT id FROM conversations`)
				require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
				sent, err := q.SendAsHuman(ctx, "usr_1", "org_1", id, []string{"a person"})
				require.NoError(t, err)
				lease := q.take(t)
				if state == OutboundSending {
					require.NoError(t, q.Sending(ctx, lease, sent[0].ID))
				}
				require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", id))
				require.Empty(t, q.open(t, lease).Waiting)
				require.Equal(t, q.arrivedAt(t, "1"), q.waitsSince(t), "the platform doesn't have it")
				if state == OutboundPending {
					require.NoError(t, q.Sending(ctx, lease, sent[0].ID))
				}
				require.NoError(t, q.Sent(ctx, lease, sent[0].ID, "p1", ""))
				require.NoError(t, q.Release(ctx, lease))
				q.idle(t)
				require.Equal(t, "0", q.waitsSince(t))
				q.healthy(t)
			})
		})
	}
	t.Run("blocked", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, q *inboxTest) {
			ctx := t.Context()
			q.arrive(t, textOf("ann", "1", "one"))
			id := q.value(t, `SELECT id FROM conversations`)
			require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
			q.arrive(t, textOf("ann", "2", "two"))
			require.NoError(t, q.Block(ctx, "usr_1", "org_1", id))
			q.arrive(t, textOf("ann", "3", "three"))
			require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", id))
			require.NoError(t, q.Unblock(ctx, "usr_1", "org_1", id))
			require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", id))
			require.NoError(t, q.Release(ctx, q.take(t)))
			q.idle(t)
			require.Equal(t, "0", q.waitsSince(t))
			q.healthy(t)
		})
	})
}

// Texts stay open that had an answer which was taken back before anything of it was sent; of a part that was under way, too, when the
// platform has not taken it.
func TestAnswersThatWereTakenBack(t *testing.T) {
	t.Parallel()
	for name, sending := range map[string]bool{"pending": false, "sending": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				ctx := t.Context()
				q.arrive(t, textOf("ann", "1", "one"))
				lease := q.take(t)
				parts, err := q.Answer(ctx, lease, q.begin(t, lease), []string{"a", "b"}, sending)
				require.NoError(t, err)
				require.Equal(t, q.arrivedAt(t, "1"), q.waitsSince(t), "the answer isn't sent")
				require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
				q.healthy(t)
				if sending {
					require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundPending, "", SendFailure{}))
					require.ErrorIs(t, q.Sending(ctx, lease, parts[0].ID), ErrHandedOver)
				}
				require.Empty(t, q.open(t, lease).Outbound)
				require.NoError(t, q.Release(ctx, lease))
				q.idle(t)
				require.True(t, q.listed(t))
				require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID))
				require.Equal(t, []string{"one"}, textsOf(q.open(t, q.take(t)).Waiting))
				q.healthy(t)
			})
		})
	}
}

// What people answer only a day later, the assistant doesn't answer by itself: it stands, and is answered with the customer's next text or when
// a person has it tried again.
func TestHandBackOfOldTexts(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]time.Duration{"a day": 24 * time.Hour, "more": 24*time.Hour + time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClocked(t)
			ctx := t.Context()
			c.arrive(t, textOf("ann", "1", "one"))
			id := c.value(t, `SELECT id FROM conversations`)
			require.NoError(t, c.HandOver(ctx, "usr_1", "org_1", id))
			require.NoError(t, c.Release(ctx, c.take(t)))
			c.pass(late)
			require.NoError(t, c.HandBack(ctx, "usr_1", "org_1", id))
			c.healthy(t)
			if late > 24*time.Hour {
				c.idle(t)
				require.Equal(t, codes.TooOld, c.value(t, `SELECT attention FROM conversations`))
				require.Equal(t, c.arrivedAt(t, "1"), c.waitsSince(t))
				require.NoError(t, c.RetryStanding(ctx, "usr_1", "org_1", id, ""))
			}
			require.Equal(t, []string{"one"}, textsOf(c.open(t, c.take(t)).Waiting))
			c.healthy(t)
		})
	}
}

// A pause keeps texts open: they are due at its end, also when it is prolonged, and until then wait for a person.
func TestPauseKeepsTextsOpen(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.route.PauseMS = 60_000
	c.arrive(t, textOf("ann", "1", "one"), echoOf("ann", "h1"))
	require.False(t, c.listed(t), "the person has answered")
	c.arrive(t, textOf("ann", "2", "two"))
	require.True(t, c.listed(t))
	require.Equal(t, c.arrivedAt(t, "2"), c.waitsSince(t))
	c.healthy(t)
	c.pass(30 * time.Second)
	before := c.ms.Load() - 15_000
	c.arrive(t, echoSaying("ann", "h2", "An answer to the first", before), textAt("ann", "3", before-1))
	c.pass(30 * time.Second)
	require.NoError(t, c.Release(t.Context(), c.take(t)))
	c.pass(14*time.Second + 999*time.Millisecond)
	c.idle(t)
	require.True(t, c.listed(t))
	c.pass(time.Millisecond)
	require.False(t, c.listed(t), "the assistant answers now")
	work := c.open(t, c.take(t))
	require.Equal(t, []string{"text 3"}, textsOf(work.Waiting), "the second person's message is younger than the second text")
	c.healthy(t)
}

// An echo answers what the customer had sent before, by the platform's clock, to the millisecond, however late it comes; it stops the
// assistant, and drops no younger text.
func TestEchoesAnswerWhatIsOlder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		late   time.Duration // the echo, behind the text
		answer func(q *inboxTest, lease Lease)
		open   []string
	}{
		"a text that waits":                   {0, nil, []string{"text 2", "text 3"}},
		"a text that is asked about":          {0, func(q *inboxTest, lease Lease) { q.begin(t, lease) }, []string{"text 2", "text 3"}},
		"of a person who is gone":             {time.Hour, nil, []string{"text 2", "text 3"}},
		"of one who is gone, when it's asked": {time.Hour, func(q *inboxTest, lease Lease) { q.begin(t, lease) }, []string{"text 2", "text 3"}},
		"an answer that isn't sent": {0, func(q *inboxTest, lease Lease) {
			_, err := q.Answer(t.Context(), lease, q.begin(t, lease), []string{"a"}, false)
			require.NoError(t, err)
		}, []string{"text 2", "text 3"}},
		"a turn that stands": {0, func(q *inboxTest, lease Lease) {
			require.NoError(t, q.Stand(t.Context(), lease, Standing{TurnID: q.begin(t, lease), Code: codes.NoAgent}))
		}, []string{"text 2", "text 3"}},
		"an answer that was sent": {0, func(q *inboxTest, lease Lease) {
			parts, err := q.Answer(t.Context(), lease, q.begin(t, lease), []string{"a"}, true)
			require.NoError(t, err)
			require.NoError(t, q.Sent(t.Context(), lease, parts[0].ID, "p1", ""))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				now, err := q.db.Now(t.Context())
				require.NoError(t, err)
				wrote := now - test.late.Milliseconds() - 10_000
				q.arrive(t, textAt("ann", "1", wrote-1), textAt("ann", "2", wrote), textAt("ann", "3", wrote+1))
				lease := q.take(t)
				if test.answer != nil {
					test.answer(q, lease)
				}
				q.arrive(t, echoSaying("ann", "h1", "A person here.", wrote))
				require.Equal(t, test.late == 0, q.paused(t, "ann"))
				require.NoError(t, q.Release(t.Context(), lease))
				q.healthy(t)
				if test.open == nil {
					require.Equal(t, "0", q.waitsSince(t))
				} else {
					require.Equal(t, q.arrivedAt(t, "2"), q.waitsSince(t))
				}
				require.Empty(t, q.value(t, `SELECT attention FROM conversations`))
				if test.late == 0 {
					q.idle(t)
					require.NoError(t, q.HandBack(t.Context(), "usr_1", "org_1", lease.ConversationID))
				}
				if test.open == nil {
					q.idle(t)
					return
				}
				require.Equal(t, test.open, textsOf(q.open(t, q.take(t)).Waiting))
				q.healthy(t)
			})
		})
	}
}

// TestEchoesInOneDelivery guarantees the same for texts that come with the echo: only those that are older are answered.
func TestEchoesInOneDelivery(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		now, err := q.db.Now(t.Context())
		require.NoError(t, err)
		wrote := now - 10_000
		q.arrive(t, textAt("ann", "1", wrote-1), textAt("ann", "2", wrote), echoSaying("ann", "h1", "A person here.", wrote))
		require.True(t, q.paused(t, "ann"))
		require.Equal(t, q.arrivedAt(t, "2"), q.waitsSince(t))
		lease := q.take(t)
		require.Empty(t, q.open(t, lease).Waiting)
		require.NoError(t, q.HandBack(t.Context(), "usr_1", "org_1", lease.ConversationID))
		require.Equal(t, []string{"text 2"}, textsOf(q.open(t, lease).Waiting))
		q.healthy(t)
	})
}

// An agent that never pauses answers what waits, too, and knows what the person wrote; the customer counts as answered.
func TestEchoesWithoutAPause(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.route.PauseMS = store.NoPause
		now, err := q.db.Now(t.Context())
		require.NoError(t, err)
		q.arrive(t, textAt("ann", "1", now-2000))
		q.arrive(t, echoSaying("ann", "h1", "A person here.", now-1000))
		require.Equal(t, "0", q.waitsSince(t))
		q.arrive(t, textAt("ann", "2", now-500), echoSaying("ann", "h2", "And again.", now-900))
		require.Equal(t, q.arrivedAt(t, "2"), q.waitsSince(t))
		require.Equal(t, []string{"text 1", "text 2"}, textsOf(q.open(t, q.take(t)).Waiting))
	})
}

// What platforms mark is believed: a person who is quick, or writes what an automatic reply says, is a person.
func TestMarkedEchoesAreBelieved(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		const away = "Thank you for writing! We are back at nine."
		now, err := q.db.Now(t.Context())
		require.NoError(t, err)
		q.arrive(t, textAt("ann", "1", now-5000))
		q.arrive(t, unmarked(echoSaying("ann", "e1", away, now-5000+automaticWithin)))
		require.False(t, q.paused(t, "ann"))
		q.arrive(t, echoSaying("ann", "e2", away, now-1000))
		require.True(t, q.paused(t, "ann"))
		q.arrive(t, textAt("bob", "2", now-5000))
		q.arrive(t, echoSaying("bob", "e3", "Yes, we have it in red and in blue.", now-4000))
		require.True(t, q.paused(t, "bob"))
		q.arrive(t, textAt("cai", "3", now-5000))
		q.arrive(t, unmarked(echoSaying("cai", "e4", "Yes, we have it in red and in blue.", now-1000)))
		require.True(t, q.paused(t, "cai"), "nothing was learned from a person")
	})
}

// A part that waits for 15 minutes, for no pause that the platform has asked for, is shown until it is sent. The customer counts as
// unanswered until then.
func TestOutagesAreShown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		waited  time.Duration
		failure SendFailure
		held    time.Duration // since the end of a pause that the platform asked for before; 0 for none
		shown   bool
	}{
		"seconds":                 {waited: 15*time.Minute - time.Millisecond},
		"15 minutes":              {waited: 15 * time.Minute, shown: true},
		"a pause of the channel":  {waited: time.Hour, failure: SendFailure{HoldChannel: time.Minute}},
		"a pause of the customer": {waited: time.Hour, failure: SendFailure{HoldCustomer: time.Minute}},
		"the platform's night":    {waited: time.Hour, failure: SendFailure{Uncounted: true, HoldChannel: time.Minute}},
		"seconds after a pause":   {waited: time.Hour, held: 15*time.Minute - time.Millisecond},
		"minutes after a pause":   {waited: time.Hour, held: 15 * time.Minute, shown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClocked(t)
			ctx := t.Context()
			c.endpoint(t)
			c.arrive(t, textOf("ann", "1", "hello"))
			lease := c.take(t)
			parts, err := c.Answer(ctx, lease, c.begin(t, lease), []string{"a"}, true)
			require.NoError(t, err)
			if test.held > 0 {
				c.pass(test.waited - test.held - time.Minute)
				require.NoError(t, c.SendFailed(ctx, lease, parts[0].ID, OutboundPending, "", SendFailure{HoldChannel: time.Minute}))
				c.pass(time.Minute + test.held)
				c.renew(t, lease)
				require.NoError(t, c.Sending(ctx, lease, parts[0].ID))
			} else {
				c.pass(test.waited)
			}
			require.NoError(t, c.SendFailed(ctx, lease, parts[0].ID, OutboundPending, "", test.failure))
			require.Equal(t, test.shown, c.listed(t))
			require.Equal(t, c.arrivedAt(t, "1"), c.waitsSince(t))
			if !test.shown {
				require.Empty(t, c.told(t))
				return
			}
			require.Equal(t, []string{"conversation.attention send_failed"}, c.told(t))
			c.pass(time.Minute)
			c.renew(t, lease)
			require.NoError(t, c.Sending(ctx, lease, parts[0].ID))
			require.NoError(t, c.SendFailed(ctx, lease, parts[0].ID, OutboundPending, "", SendFailure{HoldChannel: time.Minute}))
			require.True(t, c.listed(t), "it was shown before")
			require.Equal(t, "pending send_failed", c.value(t, `SELECT state || ' ' || code FROM outbound_messages`))
			c.pass(time.Hour)
			c.renew(t, lease)
			require.NoError(t, c.Sending(ctx, lease, parts[0].ID))
			require.NoError(t, c.SentAndRelease(ctx, lease, parts[0].ID, "p1"))
			require.False(t, c.listed(t))
			require.Equal(t, "0", c.waitsSince(t))
			require.Equal(t, "sent ", c.value(t, `SELECT state || ' ' || code FROM outbound_messages`))
			require.Len(t, c.told(t), 1)
			c.healthy(t)
		})
	}
}

// A message that was given up stays something to look at when another one is sent.
func TestASentMessageHidesNoFailedOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "hello"))
		lease, parts := q.answering(t, "a")
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundFailed, codes.SendFailed, SendFailure{}))
		require.NoError(t, q.Release(ctx, lease))
		require.NotEqual(t, "0", q.waitsSince(t))
		_, err := q.SendAsHuman(ctx, "usr_1", "org_1", lease.ConversationID, []string{"b"})
		require.NoError(t, err)
		q.sendAll(t)
		require.Equal(t, codes.SendFailed, q.value(t, `SELECT attention FROM conversations`))
		require.Equal(t, "0", q.waitsSince(t))
	})
}

// A late report that the customer has blocked the channel closes the conversation and shows why, unless the customer has written since the
// message that it is about was sent; a question that has come meanwhile is answered.
func TestLateBlocks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arrives func(report Item) []Item
		state   string
	}{
		"nothing since":           {func(report Item) []Item { return []Item{report} }, StateClosed},
		"a question since":        {func(report Item) []Item { return []Item{textOf("ann", "2", "and?"), report} }, StateAssistant},
		"a question and a report": {func(report Item) []Item { return []Item{report, textOf("ann", "2", "and?")} }, StateAssistant},
	} {
		for _, byMark := range []bool{false, true} {
			for _, apart := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					c := newClocked(t)
					ctx := t.Context()
					c.arrive(t, textAt("ann", "1", c.ms.Load()-60_000))
					c.reply(t, "a", "p1")
					report := Item{Kind: platforms.FailedDelivery, CustomerRef: "ann", MessageID: "p1", Code: codes.CustomerBlocked, SentAt: c.ms.Load() + 60_000}
					if byMark {
						report.MessageID = "p2"
						report.Other = &platforms.OtherIDs{Mark: c.value(t, `SELECT id FROM outbound_messages`) + ".0"}
					}
					c.pass(time.Minute)
					for _, item := range test.arrives(report) {
						if apart {
							c.pass(time.Second)
							c.arrive(t, item)
						}
					}
					if !apart {
						c.arrive(t, test.arrives(report)...)
					}
					conversation, err := c.ConversationOf(ctx, "org_1", "chn_1", "ann")
					require.NoError(t, err)
					require.Equal(t, []string{test.state, codes.CustomerBlocked}, []string{conversation.State, conversation.Attention})
					require.True(t, c.listed(t))
					c.healthy(t)
					if test.state == StateClosed {
						c.idle(t)
						return
					}
					require.Equal(t, []string{"and?"}, textsOf(c.open(t, c.take(t)).Waiting))
				})
			}
		}
	}
}

// The answer of the platform that a customer has blocked the channel doesn't drop what the customer wrote while it was asked.
func TestBlockedWhileTheCustomerWrites(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	ctx := t.Context()
	c.arrive(t, textOf("ann", "1", "one"))
	lease := c.take(t)
	parts, err := c.Answer(ctx, lease, c.begin(t, lease), []string{"a", "b"}, true)
	require.NoError(t, err)
	c.pass(time.Second)
	c.arrive(t, textOf("ann", "2", "two"))
	require.NoError(t, c.SendFailed(ctx, lease, parts[0].ID, OutboundFailed, codes.CustomerBlocked, SendFailure{CloseConversation: true, RestOfTurn: true}))
	work := c.open(t, lease)
	require.Equal(t, []string{StateAssistant, codes.CustomerBlocked}, []string{work.Conversation.State, work.Conversation.Attention})
	require.Equal(t, []string{"two"}, textsOf(work.Waiting))
	require.Empty(t, work.Outbound)
	c.healthy(t)
}

// Another message without text within 15 minutes of the notice waits for a person, who is told.
func TestASecondPictureAfterTheNotice(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.endpoint(t)
		q.arrive(t, imageOf("ann", "1"))
		q.due(t)
		require.Len(t, q.notice(t, "Please write."), 1)
		q.arrive(t, imageOf("ann", "2"))
		q.due(t)
		require.Empty(t, q.notice(t, "Please write."))
		require.Equal(t, codes.Media, q.value(t, `SELECT attention FROM conversations`))
		require.Equal(t, []string{"conversation.attention media_message"}, q.told(t))
		require.Equal(t, q.arrivedAt(t, "2"), q.waitsSince(t))
		q.idle(t)
		q.healthy(t)
		q.arrive(t, textOf("ann", "3", "this one"))
		require.Equal(t, []string{"image", "this one"}, textsOf(q.open(t, q.take(t)).Waiting))
	})
}

// Taking back messages that a running turn doesn't answer leaves the turn running, without a stored request; one that it answers ends it.
func TestTakenBackBesideATurn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "old"), textOf("ann", "2", "older"))
		q.reply(t, "yes", "p1")
		q.arrive(t, textOf("ann", "3", "new"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		q.arrive(t, textOf("ann", "4", "newer"))
		q.arrive(t, tookBack("ann", "1"), tookBack("ann", "2"), tookBack("ann", "p1"), tookBack("ann", "4"))
		require.Equal(t, "0", q.requests(t))
		require.NotEqual(t, "0", q.waitsSince(t))
		seen, err := q.Interruptions(ctx, []RunningTurn{{lease.ConversationID, turnID}})
		require.NoError(t, err)
		require.Empty(t, seen, "its call goes on")
		require.NoError(t, q.BeginCall(ctx, lease, Turn{ID: turnID, Request: []byte("shorter")}, nil))
		require.Equal(t, "0", q.requests(t), "it would repeat what was taken back")
		work := q.open(t, lease)
		require.True(t, work.Turn.Forgotten)
		require.Empty(t, work.Waiting)
		parts, err := q.Answer(ctx, lease, turnID, []string{"a"}, true)
		require.NoError(t, err)
		require.NoError(t, q.SentAndRelease(ctx, lease, parts[0].ID, "p2"))
		q.idle(t)
		q.healthy(t)
	})
}
