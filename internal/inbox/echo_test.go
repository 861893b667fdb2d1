package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

func echoSaying(customer, id, text string, sentAt int64) Item {
	return Item{Kind: platforms.HumanEcho, CustomerRef: customer, MessageID: id, Text: text, SentAt: sentAt}
}

// unmarked is an echo of a platform that doesn't tell people from automatic replies.
func unmarked(item Item) Item {
	item.Kind = platforms.UnmarkedEcho
	return item
}

// paused reports whether the assistant is silent in a customer's conversation.
func (q *inboxTest) paused(t *testing.T, customer string) bool {
	t.Helper()
	c, err := q.ConversationOf(t.Context(), "org_1", "chn_1", customer)
	require.NoError(t, err)
	return c.PausedUntil > 0
}

// Our own parts never pause the assistant, whatever id and form the platform repeats them in, and the echo of one whose delivery was
// unknown is the proof that it arrived.
func TestEchoesOfOurParts(t *testing.T) {
	t.Parallel()
	const answer = "Yes, we have *it* in red.\nSize 42?"
	for name, test := range map[string]struct {
		kind  platforms.Kind
		end   func(q *inboxTest, lease Lease, part string) error
		text  string
		state string
	}{
		"sending": {
			end: func(*inboxTest, Lease, string) error { return nil }, text: answer, state: OutboundSending,
		},
		"sent under another id": {
			end: func(q *inboxTest, lease Lease, part string) error {
				return q.Sent(t.Context(), lease, part, "p1", "")
			},
			text: answer, state: OutboundSent,
		},
		"of unknown delivery": {
			end: func(q *inboxTest, lease Lease, part string) error {
				return q.SendFailed(t.Context(), lease, part, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{})
			},
			text: answer, state: OutboundSent,
		},
		"of unknown delivery, in another form": {
			end: func(q *inboxTest, lease Lease, part string) error {
				return q.SendFailed(t.Context(), lease, part, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{})
			},
			text: " Yes, we have it in red. Size 42? ", state: OutboundSent,
		},
		"of unknown delivery, with a mark": {
			kind: platforms.AutomaticEcho,
			end: func(q *inboxTest, lease Lease, part string) error {
				return q.SendFailed(t.Context(), lease, part, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{})
			},
			text: answer, state: OutboundSent,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				ctx := t.Context()
				q.arrive(t, textOf("ann", "1", "hello"))
				lease, parts := q.answering(t, answer)
				require.NoError(t, test.end(q, lease, parts[0].ID))
				echo := echoSaying("ann", "e1", test.text, 0)
				if test.kind != 0 {
					echo.Kind = test.kind
				}
				q.arrive(t, echo)
				q.arrive(t, echo)
				require.False(t, q.paused(t, "ann"))
				require.Equal(t, test.state, q.value(t, `SELECT state FROM outbound_messages`))
				require.Empty(t, q.open(t, lease).Conversation.Attention)
				require.Equal(t, "1", q.value(t, `SELECT count(*) FROM messages`), "an echo of ours is no message")
				require.NoError(t, q.Release(ctx, lease))

				q.arrive(t, echoSaying("ann", "h1", "A person here.", 0))
				require.True(t, q.paused(t, "ann"))
				q.healthy(t)
			})
		})
	}
}

// A person who writes while a part is being sent pauses the assistant, too.
func TestPersonWritesWhileAPartIsSent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "hello"))
		lease := q.take(t)
		_, err := q.Answer(t.Context(), lease, q.begin(t, lease), []string{"one", "two"}, true)
		require.NoError(t, err)
		q.arrive(t, echoSaying("ann", "h1", "I am here", 0))
		require.True(t, q.paused(t, "ann"))
		require.Equal(t, []string{"one"}, partsOf(q.open(t, lease)), "what was not sent yet is not sent any more")
	})
}

func partsOf(work Work) (texts []string) {
	for _, part := range work.Outbound {
		texts = append(texts, part.Text)
	}
	return texts
}

// Automatic replies that their platform doesn't mark are known by their speed, and later by their text, in all conversations of the
// channel; they are shown and don't pause the assistant.
func TestAutomaticReplies(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		const away, short = "Thank you for writing! We are back at nine.", "Hello!"
		now, err := q.db.Now(t.Context())
		require.NoError(t, err)
		wrote := now - 60_000
		text := func(customer, id string) {
			item := textOf(customer, id, "hello")
			item.SentAt = wrote
			q.arrive(t, item)
		}
		text("ann", "1")
		q.arrive(t, unmarked(echoSaying("ann", "e1", away, wrote+2000)), unmarked(echoSaying("ann", "e2", short, wrote+1)))
		require.False(t, q.paused(t, "ann"))
		messages, err := q.Messages(t.Context(), "org_1", q.value(t, `SELECT id FROM conversations`), pageAll)
		require.NoError(t, err)
		require.Equal(t, []string{"hello", away, short}, textsOf(messages))

		text("bob", "2")
		q.arrive(t, unmarked(echoSaying("bob", "e3", " "+away, wrote+30_000)))
		require.False(t, q.paused(t, "bob"), "it was automatic before")
		q.arrive(t, unmarked(echoSaying("bob", "e4", short, wrote+30_000)))
		require.True(t, q.paused(t, "bob"), "a person may write a few words at any time")

		text("cai", "3")
		q.arrive(t, unmarked(echoSaying("cai", "e5", "A person here, how can I help you?", wrote+2001)))
		require.True(t, q.paused(t, "cai"))

		second := q.channel(t, "org_1", "chn_2")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{second, []Item{textOf("dan", "4", "hello"), unmarked(echoSaying("dan", "e6", away, 0))}}}))
		c, err := q.ConversationOf(t.Context(), "org_1", "chn_2", "dan")
		require.NoError(t, err)
		require.NotZero(t, c.PausedUntil, "another channel has other automatic replies")
	})
}

// An agent that never pauses goes on after a person's message.
func TestNoPause(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.route.PauseMS = store.NoPause
		q.arrive(t, textOf("ann", "1", "hello"), echoSaying("ann", "h1", "A person here.", 0))
		require.False(t, q.paused(t, "ann"))
		require.Equal(t, []string{"hello"}, textsOf(q.open(t, q.take(t)).Waiting))
	})
}

// A colleague's picture is an event with a file, as a customer's is, and no text "image", in the conversation as in the prompt. It is no
// repetition of a part of ours that has that text.
func TestColleaguesPicture(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		q.reply(t, "image", "p-1")
		picture := echoSaying("ann", "h-1", "", 0)
		picture.Media, picture.Files = "image", []platforms.Attachment{{Kind: "image", Reference: "https://cdn.example/1"}}
		captioned := echoSaying("ann", "h-2", "This one", 0)
		captioned.Files = picture.Files
		q.arrive(t, picture, captioned)
		c, err := q.ConversationOf(t.Context(), "org_1", "chn_1", "ann")
		require.NoError(t, err)
		listed, err := q.Messages(t.Context(), "org_1", c.ID, pageAll)
		require.NoError(t, err)
		require.Len(t, listed, 4)
		for i, kind := range []string{KindEvent, KindText} {
			message := listed[2+i]
			require.Equal(t, AuthorHuman, message.Author)
			require.Equal(t, kind, message.Kind)
			require.Len(t, message.Files, 1)
			require.Equal(t, media.Waiting, message.Files[0].State)
		}
		require.Equal(t, "image", listed[2].Text)
		q.healthy(t)
	})
}
