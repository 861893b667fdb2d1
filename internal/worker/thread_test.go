package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
)

// afterSend does something after each message that was sent.
type afterSend struct {
	Platforms
	do func()
}

func (a *afterSend) Send(ctx context.Context, out platforms.Outgoing) (string, error) {
	defer a.do()
	return a.Platforms.Send(ctx, out)
}

// Marketplace A doesn't report what people of the shop write in its app. They are found before each part of an answer is sent, and the
// assistant doesn't talk over them; what programs wrote doesn't silence it, nor does a list that can't be read.
func TestPeopleAtMarketA(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.channel(t, acme, "chn_shop", marketa.Type, helper)
		shop := h.external(t, "chn_shop")
		asks := func(customer string, change ...func(*Config)) {
			h.deliver(t, "chn_shop", inbox.Item{Kind: platforms.Text, CustomerRef: customer, Address: customer, MessageID: "m" + customer, Text: "Size M?"})
			h.drain(t, h.worker(change...))
		}
		answers := func(text string, meanwhile func()) {
			h.vendor.reply = func(context.Context, int, []string) (string, error) {
				meanwhile()
				return text, nil
			}
		}
		soon := time.Now().Add(10 * time.Second) // not as fast as a program would have answered
		answers("Yes.", func() { h.platform.WriteAtMarketA(shop, "71", "I have it here for you", "ios", soon) })
		asks("71")
		require.Empty(t, h.texts(), "a person has answered")
		conversation := h.conversation(t, acme, "71")
		require.Positive(t, conversation.PausedUntil)
		require.Contains(t, h.lines(t, acme, "71"), "human: I have it here for you")

		answers("Yes.", func() { h.platform.WriteAtMarketA(shop, "72", "Your parcel was sent", "openapi", soon) })
		asks("72")
		require.Equal(t, []string{"Yes."}, h.texts(), "a program has written")

		h.platform.Script("list 73", platformfake.ServerError)
		answers("Still.", func() {})
		asks("73")
		require.Equal(t, []string{"Yes.", "Still."}, h.texts(), "a list that can't be read holds up nothing")

		answers(strings.Repeat("A long answer. ", 100), func() {})
		asks("74", func(c *Config) {
			c.Platforms = &afterSend{c.Platforms, func() { h.platform.WriteAtMarketA(shop, "74", "I take over", "web", soon) }}
		})
		require.Len(t, h.texts(), 3, "the rest of an answer is not sent after a person has written")
	})
}
