package worker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/providers"
)

func TestOneMessageOneReply(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		heard := observe()
		h.say(t, bot, "lan", "hello")
		h.drain(t, h.worker(func(c *Config) { c.Observer = heard }))

		sent := h.platform.Sent()
		require.Len(t, sent, 1)
		require.Equal(t, "You said: hello", sent[0].Text)
		require.Equal(t, "to-lan", sent[0].Address)
		require.Equal(t, []string{"customer: hello", "assistant: You said: hello (sent)"}, h.lines(t, acme, "lan"))
		require.Equal(t, [][]string{{"system: Be kind.", "user: hello"}}, h.vendor.calls())
		require.EqualValues(t, answerCost, h.spent(t, acme))
		require.Equal(t, []string{"answered"}, h.turns(t, acme))
		require.Equal(t, map[string]int{"turn answered": 1, "bot sent": 1}, heard.all())
		h.leaseless(t)
		require.Zero(t, h.drain(t, h.worker()), "nothing is left to do")
	})
}

// TestHowLongCustomersWait: waits are counted from the oldest text of an answer, by the clock of the store, also by a worker that
// goes on with another one's turn.
func TestHowLongCustomersWait(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
			if n == 1 {
				return "", broken(providers.FailureUnreachable)
			}
			return echo(asked), nil
		}
		h.say(t, bot, "lan", "hello")
		h.exec(t, `UPDATE messages SET received_at = received_at - 5400000`)
		h.say(t, bot, "lan", "anybody there?")
		heard := observe()
		h.drain(t, h.worker(func(c *Config) { c.Observer = heard }))
		h.hurry(t)
		h.drain(t, h.worker(func(c *Config) { c.Observer = heard }))
		require.Equal(t, []string{"bot began after 1 h", "bot answered after 1 h"}, heard.waits)
	})
}

// TestTheSameDeliveryFiftyTimesAtOnce: one task, one model call, one charge, one reply.
func TestTheSameDeliveryFiftyTimesAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() { h.worker().Run(ctx, patience) })
		}
		item := inbox.Item{Kind: platforms.Text, CustomerRef: "lan", Address: "to-lan", MessageID: "m1", Text: "hello"}
		var deliveries sync.WaitGroup
		for range 50 {
			deliveries.Go(func() { h.deliver(t, bot, item) })
		}
		deliveries.Wait()
		h.platform.WaitSent(t, 1)
		cancel()
		running.Wait()
		h.drain(t, h.worker())
		require.Equal(t, []string{"You said: hello"}, h.texts())
		require.Len(t, h.vendor.calls(), 1)
		require.EqualValues(t, answerCost, h.spent(t, acme))
		h.leaseless(t)
	})
}

func TestTwoTextsBeforeTheAnswerGetOne(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.say(t, bot, "lan", "size 42?", "in red")
	h.drain(t, h.worker())
	require.Equal(t, []string{"You said: size 42? and in red"}, h.texts())
	require.EqualValues(t, answerCost, h.spent(t, acme))
}

// TestTextsDuringTheCallGetOneMoreReply: later ones are answered together, in order, and with the first exchange as
// their history.
func TestTextsDuringTheCallGetOneMoreReply(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
		if n == 1 {
			h.say(t, bot, "lan", "second", "third")
		}
		return echo(asked), nil
	}
	h.say(t, bot, "lan", "first")
	h.drain(t, h.worker())
	require.Equal(t, []string{"You said: first", "You said: second and third"}, h.texts())
	require.Equal(t, []string{
		"system: Be kind.", "user: first", "assistant: You said: first", "user: second", "user: third",
	}, h.vendor.calls()[1])
	require.EqualValues(t, 2*answerCost, h.spent(t, acme))
}

func TestSupersede(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.changeAgent(t, func(a *store.Agent) { a.Supersede = true })
	h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
		if n <= 2 {
			h.say(t, bot, "lan", "more")
		}
		return echo(asked), nil
	}
	h.say(t, bot, "lan", "first")
	h.drain(t, h.worker())
	require.Equal(t, []string{"You said: first and more", "You said: more"}, h.texts(),
		"a newer message discards one answer; the second is sent, whatever comes")
	require.Equal(t, []string{"superseded", "answered", "answered"}, h.turns(t, acme))
	require.EqualValues(t, 3*answerCost, h.spent(t, acme), "each answer was made, and is paid")
}

func TestWithoutNewerTextsNothingIsSuperseded(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.changeAgent(t, func(a *store.Agent) { a.Supersede = true })
	h.say(t, bot, "lan", "first")
	h.drain(t, h.worker())
	require.Equal(t, []string{"You said: first"}, h.texts())
	require.EqualValues(t, answerCost, h.spent(t, acme))
}

// TestHandedOverDuringTheCall: a handover ends the model's call at once, in whatever process the person works, and nothing is paid.
func TestHandedOverDuringTheCall(t *testing.T) {
	t.Parallel()
	takeOver := map[string]func(t *testing.T, h *fixture){
		"in the dashboard": func(t *testing.T, h *fixture) {
			require.NoError(t, h.queue.HandOver(t.Context(), "test", acme, h.conversation(t, acme, "lan").ID))
		},
		"from the platform's app": func(t *testing.T, h *fixture) {
			h.deliver(t, bot, inbox.Item{Kind: platforms.HumanEcho, CustomerRef: "lan", MessageID: "h1", Text: "I am here"})
		},
		"the customer blocks us": func(t *testing.T, h *fixture) {
			h.deliver(t, bot, inbox.Item{Kind: platforms.Blocked, CustomerRef: "lan", MessageID: "b1"})
		},
	}
	for name, take := range takeOver {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, h *fixture) {
				h.vendor.reply = func(ctx context.Context, _ int, _ []string) (string, error) {
					take(t, h)
					<-ctx.Done()
					return "", ctx.Err()
				}
				h.say(t, bot, "lan", "first")
				h.drain(t, h.worker())
				require.Empty(t, h.texts())
				require.Equal(t, []string{"discarded"}, states(h.turns(t, acme)))
				require.Zero(t, h.spent(t, acme))
				h.leaseless(t)
			})
		})
	}
}

// states are the first words.
func states(lines []string) (first []string) {
	for _, line := range lines {
		word, _, _ := strings.Cut(line, " ")
		first = append(first, word)
	}
	return first
}

// TestHandedOverBetweenTwoParts: what was sent was sent; the rest is not.
func TestHandedOverBetweenTwoParts(t *testing.T) {
	t.Parallel()
	h := open(t)
	long := strings.Repeat("word ", 1500)
	h.vendor.reply = func(context.Context, int, []string) (string, error) { return long, nil }
	h.say(t, bot, "lan", "first")
	h.drain(t, h.worker(func(c *Config) {
		c.Platforms = &interceptor{Platforms: h.client, before: func(n int) {
			if n == 1 {
				require.NoError(t, h.queue.HandOver(t.Context(), "test", acme, h.conversation(t, acme, "lan").ID))
			}
		}}
	}))
	require.Len(t, h.texts(), 1)
	h.leaseless(t)
}

func TestALongAnswerIsSentInOrder(t *testing.T) {
	t.Parallel()
	h := open(t)
	long := strings.Repeat("A sentence of some length. ", 500)
	h.vendor.reply = func(context.Context, int, []string) (string, error) { return long, nil }
	h.say(t, bot, "lan", "tell me a story")
	h.drain(t, h.worker())
	texts := h.texts()
	require.Greater(t, len(texts), 3)
	require.Equal(t, strings.Fields(long), strings.Fields(strings.Join(texts, " ")))
	require.EqualValues(t, answerCost, h.spent(t, acme))
}

func TestEmptyAnswerNeedsAttention(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.vendor.reply = func(context.Context, int, []string) (string, error) { return " \n\t", nil }
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.Empty(t, h.texts())
	require.Equal(t, []string{"needs_attention empty_answer"}, h.turns(t, acme))
	require.Equal(t, "empty_answer", h.conversation(t, acme, "lan").Attention)
}

// TestContextTooLong: half of the history goes, and half of the rest, until the vendor takes it; the request that
// worked is what is stored.
func TestContextTooLong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fits  int // messages
		calls int
		turns []string
	}{
		"some history fits": {fits: 4, calls: 2, turns: []string{"answered", "answered", "answered", "answered"}},
		"nothing fits":      {fits: 0, calls: 4, turns: []string{"answered", "answered", "answered", "needs_attention context_too_long"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			for _, text := range []string{"a", "b", "c"} {
				h.say(t, bot, "lan", text)
				h.drain(t, h.worker())
			}
			before := len(h.vendor.calls())
			h.vendor.reply = func(_ context.Context, _ int, asked []string) (string, error) {
				if len(asked) > test.fits+1 {
					return "", broken(providers.FailureContextTooLong)
				}
				return echo(asked), nil
			}
			h.say(t, bot, "lan", "d")
			h.drain(t, h.worker())
			require.Equal(t, test.turns, h.turns(t, acme))
			calls := h.vendor.calls()[before:]
			require.Len(t, calls, test.calls)
			for _, asked := range calls {
				require.Equal(t, "system: Be kind.", asked[0])
				require.Equal(t, "user: d", asked[len(asked)-1])
			}
			h.spent(t, acme)
		})
	}
}

func TestAnUnknownModelNeedsAttention(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.changeAgent(t, func(a *store.Agent) { a.Model = "vendor/gone" })
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.Equal(t, []string{"needs_attention unsupported_model"}, h.turns(t, acme))
	require.Empty(t, h.vendor.calls())
}

// TestARequestThatTheModelCantHaveNeedsAttention: it isn't sent again, and staff read what to do.
func TestARequestThatTheModelCantHaveNeedsAttention(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.vendor.reply = func(context.Context, int, []string) (string, error) {
		return "", providers.Unwritable("messages", "No.")
	}
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.Equal(t, []string{"needs_attention invalid_request"}, h.turns(t, acme))
	require.Contains(t, codes.All, h.conversation(t, acme, "lan").Attention)
	require.Len(t, h.vendor.calls(), 1)
}

func TestAModelThatTheOrganizationLacksNeedsAttention(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.say(t, bot, "lan", "hello")
		require.NoError(t, h.db.Organizations.SetModel(t.Context(), "test", acme, modelID, false))
		h.drain(t, h.worker())
		require.Equal(t, []string{"needs_attention unsupported_model"}, h.turns(t, acme))
		require.Empty(t, h.vendor.calls())
	})
}

// TestAModelThatIsTakenAwayIsNotCalledAgain: a pass that calls once more reads the organization's models again.
func TestAModelThatIsTakenAwayIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.say(t, bot, "lan", "a")
	h.drain(t, h.worker())
	h.vendor.reply = func(context.Context, int, []string) (string, error) {
		return "", errors.Join(broken(providers.FailureContextTooLong), h.db.Organizations.SetModel(t.Context(), "test", acme, modelID, false))
	}
	h.say(t, bot, "lan", "b")
	h.drain(t, h.worker())
	require.Equal(t, []string{"answered", "needs_attention unsupported_model"}, h.turns(t, acme))
	require.Len(t, h.vendor.calls(), 2)
}
