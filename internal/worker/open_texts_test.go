package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
	"github.com/caddy-svc/caddy-svc/providers"
)

// TestOpenTextsAreAnswered guarantees, on each type of channel, that the end of a pause and a hand-back answer with one call what came since a
// person's last message, and nothing that the person has answered.
func TestOpenTextsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, kind := range []platforms.Type{botType, social.Messenger, social.PhotoDM, social.ChatApp, localchat.Type, marketa.Type, marketb.Type} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			h := open(t)
			h.channel(t, acme, "chn_open", kind, helper)
			w := h.worker()
			const lan = "71"
			write := func(kind platforms.Kind, texts ...string) {
				for _, text := range texts {
					h.deliver(t, "chn_open", inbox.Item{Kind: kind, CustomerRef: lan, Address: lan, MessageID: text, Text: text})
				}
			}
			write(platforms.Text, "not for the assistant")
			write(platforms.HumanEcho, "A person here.")
			write(platforms.Text, "one", "two")
			h.drain(t, w)
			require.Empty(t, h.vendor.calls())
			h.exec(t, `UPDATE conversations SET paused_until = 1`)
			h.hurry(t)
			h.drain(t, w)
			require.Equal(t, []string{"You said: one and two"}, h.texts())
			require.Zero(t, h.conversation(t, acme, lan).UnansweredSince)

			id := h.conversation(t, acme, lan).ID
			require.NoError(t, h.queue.HandOver(t.Context(), "test", acme, id))
			write(platforms.Text, "three")
			_, err := h.queue.SendAsHuman(t.Context(), "test", acme, id, []string{"It is three."})
			require.NoError(t, err)
			h.drain(t, w)
			write(platforms.Text, "four", "five")
			h.drain(t, w)
			require.Len(t, h.vendor.calls(), 1)
			require.NoError(t, h.queue.HandBack(t.Context(), "test", acme, id))
			h.drain(t, w)
			require.Equal(t, []string{"You said: one and two", "It is three.", "You said: four and five"}, h.texts())
			require.EqualValues(t, 2*answerCost, h.spent(t, acme))
			h.leaseless(t)
		})
	}
}

// TestTakenBackBesideACall guarantees that one call answers a question while old messages are taken back one by one, and that a try after it
// doesn't know them.
func TestTakenBackBesideACall(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"answered": false, "tried again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, h *fixture) {
				old := []string{"secret 1", "secret 2", "secret 3", "secret 4", "secret 5"}
				for _, text := range old {
					h.deliver(t, bot, inbox.Item{Kind: platforms.Text, CustomerRef: "lan", Address: "to-lan", MessageID: "m " + text, Text: text})
				}
				h.drain(t, h.worker())
				h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
					for _, text := range old {
						h.deliver(t, bot, inbox.Item{Kind: platforms.Unsent, CustomerRef: "lan", MessageID: "m " + text})
					}
					if fails && n == 2 {
						return "", broken(providers.FailureOverloaded)
					}
					return echo(asked), nil
				}
				h.say(t, bot, "lan", "when do you open?")
				h.drain(t, h.worker())
				calls := 2
				if fails {
					h.hurry(t)
					h.drain(t, h.worker())
					calls = 3
				}
				require.Len(t, h.vendor.calls(), calls)
				require.Equal(t, "You said: when do you open?", h.texts()[1])
				require.EqualValues(t, 2*answerCost, h.spent(t, acme))
				if fails {
					last := strings.Join(h.vendor.calls()[2], "\n")
					require.Contains(t, last, inbox.WithdrawnText)
					require.NotContains(t, strings.ReplaceAll(last, "assistant: You said: "+strings.Join(old, " and "), ""), "secret")
				}
				h.leaseless(t)
			})
		})
	}
}
