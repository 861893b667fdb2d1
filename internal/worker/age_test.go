package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/providers"
)

const hourOfAge = 60 // minutes, the rule of these tests

func (h *fixture) setMaxAge(t *testing.T, minutes int64) {
	t.Helper()
	require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, bot, store.ChannelChange{
		Answers: &store.AnswerRules{MaxAgeMinutes: minutes},
	}))
}

// sayBefore delivers a text that the customer wrote some time ago.
func (h *fixture) sayBefore(t *testing.T, customer, text string, ago time.Duration) {
	t.Helper()
	h.deliver(t, bot, inbox.Item{
		Kind: platforms.Text, CustomerRef: customer, Address: "to-" + customer, MessageID: store.NewID("m"), Text: text,
		SentAt: time.Now().Add(-ago).UnixMilli(),
	})
}

// pass lets time pass for all conversations.
func (h *fixture) pass(t *testing.T, d time.Duration) {
	t.Helper()
	h.exec(t, `UPDATE conversations SET last_customer_at = last_customer_at - $1, retried_at = retried_at - $1`, d.Milliseconds())
}

// TestTooOldMessages: a message that the platform delivers late, or that has waited for a worker, stands with a code of its own and costs
// nothing; the customer's next text is answered together with it.
func TestTooOldMessages(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.sayBefore(t, "early", "long ago", 48*time.Hour)
		h.drain(t, h.worker())
		require.Equal(t, []string{"You said: long ago"}, h.texts(), "by default messages of any age are answered")

		h.setMaxAge(t, hourOfAge)
		h.sayBefore(t, "tuan", "just now", 50*time.Minute)
		h.drain(t, h.worker())
		require.Len(t, h.texts(), 2)

		h.sayBefore(t, "lan", "hello", 61*time.Minute)
		h.drain(t, h.worker())
		require.Equal(t, "needs_attention message_too_old", h.turns(t, acme)[2])
		require.Equal(t, codes.TooOld, h.conversation(t, acme, "lan").Attention)
		resumeStanding(t, h.worker())
		require.Zero(t, h.drain(t, h.worker()))
		require.Len(t, h.vendor.calls(), 2)

		h.say(t, bot, "lan", "anybody there?")
		h.drain(t, h.worker())
		require.Equal(t, "You said: hello and anybody there?", h.texts()[2])
		require.Empty(t, h.conversation(t, acme, "lan").Attention)
		require.EqualValues(t, 3*answerCost, h.spent(t, acme))
		h.leaseless(t)
	})
}

// TestAPersonWantsAnOldMessageAnswered: then it is, and its age counts anew.
func TestAPersonWantsAnOldMessageAnswered(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.setMaxAge(t, hourOfAge)
		h.sayBefore(t, "lan", "hello", 2*time.Hour)
		h.drain(t, h.worker())
		id := h.conversation(t, acme, "lan").ID
		require.NoError(t, h.queue.RetryStanding(t.Context(), "usr_1", acme, id, ""))
		h.pass(t, 2*time.Hour)
		h.drain(t, h.worker())
		require.Equal(t, codes.TooOld, h.conversation(t, acme, "lan").Attention, "nobody came to answer it in time")
		require.NoError(t, h.queue.RetryStanding(t.Context(), "usr_1", acme, id, codes.TooOld))
		h.drain(t, h.worker())
		require.Equal(t, []string{"You said: hello"}, h.texts())
		require.EqualValues(t, answerCost, h.spent(t, acme))
	})
}

// TestATurnBecomesTooOld: one that a dead worker or a failing vendor has left is ended like a message that waits, and goes on where it
// stood when a person wants it.
func TestATurnBecomesTooOld(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.setMaxAge(t, hourOfAge)
	h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
		if n == 1 {
			return "", broken(providers.FailureOverloaded)
		}
		return echo(asked), nil
	}
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.Equal(t, []string{"awaiting"}, h.turns(t, acme))
	h.pass(t, 2*time.Hour)
	h.hurry(t)
	h.drain(t, h.worker())
	require.Equal(t, []string{"needs_attention message_too_old"}, h.turns(t, acme))
	require.Len(t, h.vendor.calls(), 1)
	require.NoError(t, h.queue.RetryStanding(t.Context(), "usr_1", acme, h.conversation(t, acme, "lan").ID, ""))
	h.drain(t, h.worker())
	require.Equal(t, []string{"answered"}, h.turns(t, acme))
	require.Equal(t, []string{"You said: hello"}, h.texts())
}

// TestAnAnswerBecomesTooOld: one that could not be sent in time isn't sent late, unless a person sends it.
func TestAnAnswerBecomesTooOld(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.setMaxAge(t, hourOfAge)
		h.platform.Script("hello", platformfake.TooMany)
		h.say(t, bot, "lan", "hello")
		h.drain(t, h.worker())
		require.Equal(t, "assistant: You said: hello (pending)", h.lines(t, acme, "lan")[1])
		h.pass(t, 2*time.Hour)
		h.hurry(t)
		h.drain(t, h.worker())
		require.Equal(t, "assistant: You said: hello (failed message_too_old)", h.lines(t, acme, "lan")[1])
		c := h.conversation(t, acme, "lan")
		require.Equal(t, codes.TooOld, c.Attention)
		messages, err := h.queue.Messages(t.Context(), acme, c.ID, store.Page{Limit: 10})
		require.NoError(t, err)
		require.NoError(t, h.queue.Resend(t.Context(), "usr_1", acme, c.ID, messages[1].ID, false))
		h.drain(t, h.worker())
		require.Equal(t, []string{"You said: hello"}, h.texts())
		require.EqualValues(t, answerCost, h.spent(t, acme))
	})
}
