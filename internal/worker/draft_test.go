package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// setDrafts lets people send what the assistant proposes on a channel, or takes that back.
func (h *fixture) setDrafts(t *testing.T, channel string, drafts bool) {
	t.Helper()
	require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, channel, store.ChannelChange{Answers: &store.AnswerRules{Drafts: drafts}}))
}

// draft is the only one that waits in a customer's conversation.
func (h *fixture) draft(t *testing.T, customer string) (conversationID string, draft inbox.Draft) {
	t.Helper()
	c := h.conversation(t, acme, customer)
	require.Equal(t, codes.Draft, c.Attention)
	drafts, err := h.queue.Drafts(t.Context(), acme, c.ID)
	require.NoError(t, err)
	require.Len(t, drafts, 1)
	return c.ID, drafts[0]
}

// TestDrafts: the model is asked and charged as usual, and what it says goes out when a person sends it. The next text is answered with
// knowledge of that.
func TestDrafts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.setDrafts(t, bot, true)
		seen := observe()
		w := h.worker(func(c *Config) { c.Observer = seen })
		h.say(t, bot, "lan", "hello")
		h.drain(t, w)
		_, draft := h.draft(t, "lan")
		require.Equal(t, "You said: hello", draft.Text())
		require.Empty(t, h.texts())
		require.EqualValues(t, answerCost, h.spent(t, acme))
		require.Equal(t, 1, seen.all()["turn attention_draft_waiting"])
		resumeStanding(t, w)
		h.hurry(t)
		require.Zero(t, h.drain(t, w))

		h.say(t, bot, "lan", "with tea?")
		h.drain(t, w)
		id, draft := h.draft(t, "lan")
		require.Equal(t, "You said: hello and with tea?", draft.Text())
		_, _, err := h.queue.SendDraft(t.Context(), "usr_1", acme, id, draft.ID, []string{"Tea, yes."}, true, nil)
		require.NoError(t, err)
		h.drain(t, w)
		require.Equal(t, []string{"Tea, yes."}, h.texts())
		require.Empty(t, h.conversation(t, acme, "lan").Attention)
		h.say(t, bot, "lan", "thanks")
		h.drain(t, w)
		require.Contains(t, h.vendor.calls()[2], "assistant: Tea, yes.")
		require.EqualValues(t, 3*answerCost, h.spent(t, acme))
		h.leaseless(t)
	})
}

// TestDraftModeDuringACall: from the moment at which a channel's answers are drafts, no answer goes out by itself, not even one that a model
// is making.
func TestDraftModeDuringACall(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.handsOver(t)
		for customer, answer := range map[string]string{"lan": "Good day.", "mai": "I'll get a colleague. " + handoverMark} {
			h.setDrafts(t, bot, false)
			h.vendor.reply = func(context.Context, int, []string) (string, error) {
				h.setDrafts(t, bot, true)
				return answer, nil
			}
			h.say(t, bot, customer, "hello")
			h.drain(t, h.worker())
			require.Empty(t, h.texts())
		}
		_, draft := h.draft(t, "lan")
		require.Equal(t, "Good day.", draft.Text())
		require.Equal(t, inbox.StateHuman, h.conversation(t, acme, "mai").State)
		require.EqualValues(t, 2*answerCost, h.spent(t, acme))
		h.leaseless(t)
	})
}

// proposals is a queue whose drafts a test stores.
type proposals struct {
	Queue

	propose func(next func() error) error
}

func (q *proposals) Propose(ctx context.Context, lease inbox.Lease, turnID string, parts []string) error {
	return q.propose(func() error { return q.Queue.Propose(ctx, lease, turnID, parts) })
}

// TestAWorkerDiesBeforeItsDraftIsStored, or after, when it is unknown: there is one draft, and one charge.
func TestAWorkerDiesBeforeItsDraftIsStored(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("stored %t", stored), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, h *fixture) {
				h.setDrafts(t, bot, true)
				tries := 0
				w := h.worker(func(c *Config) {
					c.Queue = &proposals{c.Queue, func(next func() error) error {
						if tries++; tries > 1 {
							return next()
						}
						if stored {
							require.NoError(t, next())
						}
						return errDoubt
					}}
				})
				h.say(t, bot, "lan", "hello")
				h.drain(t, w)
				h.hurry(t)
				h.drain(t, w)
				_, draft := h.draft(t, "lan")
				require.Equal(t, "You said: hello", draft.Text())
				require.Len(t, h.vendor.calls(), 1)
				require.EqualValues(t, answerCost, h.spent(t, acme))
			})
		})
	}
}

// TestADraftOutlivesItsMode: what waits for people stays with them when the channel's answers become automatic; the customer's next text
// is answered by itself, together with what the draft was about.
func TestADraftOutlivesItsMode(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.setDrafts(t, bot, true)
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	h.setDrafts(t, bot, false)
	h.pass(t, 48*time.Hour)
	resumeStanding(t, h.worker())
	h.hurry(t)
	require.Zero(t, h.drain(t, h.worker()))
	h.draft(t, "lan")
	require.Empty(t, h.texts())
	h.say(t, bot, "lan", "anybody there?")
	h.drain(t, h.worker())
	require.Equal(t, []string{"You said: hello and anybody there?"}, h.texts())
	require.Empty(t, h.conversation(t, acme, "lan").Attention)
}

// TestDraftsOfABot: a customer who writes without end doesn't cause calls without end.
func TestDraftsOfABot(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.setDrafts(t, bot, true)
	for range maxRecentReplies + 3 {
		h.say(t, bot, "bot", "thanks!")
		h.drain(t, h.worker())
	}
	require.Len(t, h.vendor.calls(), maxRecentReplies)
	require.Equal(t, codes.LoopGuard, h.conversation(t, acme, "bot").Attention)
	require.Empty(t, h.texts())
}

// TestAVisitorSeesNoDraft: not while it is made, and not afterwards.
func TestAVisitorSeesNoDraft(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		const site = "chn_site"
		h.widget(t, site)
		h.setDrafts(t, site, true)
		h.visit(t, site, "ann", "m1", "hello")
		shown := &reader{}
		reply, err := h.worker().AnswerNow(t.Context(), acme, site, "m1", shown)
		require.NoError(t, err)
		require.False(t, reply.Waits())
		require.Empty(t, reply.Text)
		require.Zero(t, shown.begun)
		require.Empty(t, shown.text.String())

		id, draft := h.draft(t, "ann")
		_, _, err = h.queue.SendDraft(t.Context(), "usr_1", acme, id, draft.ID, draft.Parts, false, nil)
		require.NoError(t, err)
		h.drain(t, h.worker())
		require.Contains(t, h.lines(t, acme, "ann"), "human: You said: hello (sent)")
	})
}

// TestHandoverWithDrafts: an assistant that only proposes hands over without a word.
func TestHandoverWithDrafts(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.setDrafts(t, bot, true)
	h.handsOver(t)
	h.saying("I'll get a colleague. " + handoverMark)
	h.say(t, bot, "ann", "hello")
	h.say(t, bot, "bob", "the manager, please")
	h.drain(t, h.worker())
	for _, customer := range []string{"ann", "bob"} {
		c := h.conversation(t, acme, customer)
		require.Equal(t, inbox.StateHuman, c.State)
		require.Positive(t, c.UnansweredSince)
	}
	require.Empty(t, h.texts())
	require.EqualValues(t, answerCost, h.spent(t, acme))
}
