package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// quickly are platforms on which a signal lasts for a moment only.
type quickly struct{ unpaced }

func (q quickly) Find(channelType string) (messaging.ChannelType, bool) {
	found, known := q.unpaced.Find(channelType)
	if found.ChannelType != nil && found.TypingFor > 0 {
		found.TypingFor = time.Millisecond
	}
	return found, known
}

// While the model writes, the customer sees it on each platform that can show it, in the platform's own way; by default nobody does.
func TestSignals(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.say(t, bot, "ann", "hello")
	h.drain(t, h.worker())
	require.Empty(t, h.platform.Signals())

	h.changeAgent(t, func(a *store.Agent) { a.Typing = true })
	for kind, want := range map[platforms.Type][]platformfake.Signal{
		botType:          {{Type: botType, To: "to-7", Shown: "typing"}},
		social.Messenger: {{Type: social.Messenger, To: "to-7", Shown: "read"}, {Type: social.Messenger, To: "to-7", Shown: "typing"}},
		social.PhotoDM:   {{Type: social.PhotoDM, To: "to-7", Shown: "read"}, {Type: social.PhotoDM, To: "to-7", Shown: "typing"}},
		social.ChatApp:   {{Type: social.ChatApp, To: "message", Shown: "read typing"}},
		marketa.Type:     {{Type: marketa.Type, To: "message", Shown: "read"}},
		marketb.Type:     {{Type: marketb.Type, To: "message", Shown: "read"}},
		localchat.Type:   nil,
	} {
		channel := "chn_" + string(kind)
		if kind == botType {
			channel = bot
		} else {
			h.channel(t, acme, channel, kind, helper)
		}
		before := len(h.platform.Signals())
		h.vendor.reply = func(context.Context, int, []string) (string, error) {
			h.platform.WaitSignals(t, before+len(want))
			return "Hello.", nil
		}
		address := "to-7"
		if kind == marketa.Type {
			address = "7"
		}
		h.deliver(t, channel, inbox.Item{Kind: platforms.Text, CustomerRef: "7", Address: address, MessageID: "message", Text: "hello"})
		h.drain(t, h.worker())
		require.Equal(t, want, append([]platformfake.Signal(nil), h.platform.Signals()[before:]...), kind)
	}
	require.Len(t, h.texts(), 8)
	h.spent(t, acme)
}

// Where a person decides what is sent, the assistant shows customers nothing.
func TestNoSignalsOfDrafts(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.changeAgent(t, func(a *store.Agent) { a.Typing = true })
	h.channel(t, acme, "chn_m", social.Messenger, helper)
	h.setDrafts(t, "chn_m", true)
	h.say(t, "chn_m", "ann", "hello")
	w := h.worker()
	h.drain(t, w)
	h.draft(t, "ann")
	w.signals.running.Wait()
	require.Empty(t, h.platform.Signals())
}

// Typing is shown again for as long as the model writes, up to a bound, and read receipts are not.
func TestSignalsAreRepeated(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.changeAgent(t, func(a *store.Agent) { a.Typing = true })
	h.channel(t, acme, "chn_m", social.Messenger, helper)
	w := h.worker(func(c *Config) { c.Platforms = quickly{unpaced{h.client}} })
	h.vendor.reply = func(context.Context, int, []string) (string, error) {
		h.platform.WaitSignals(t, 1+maxSignals)
		w.signals.running.Wait()
		return "Hello.", nil
	}
	h.say(t, "chn_m", "ann", "hello")
	h.drain(t, w)
	shown := h.platform.Signals()
	require.Len(t, shown, 1+maxSignals)
	require.Equal(t, "read", shown[0].Shown)
	for _, one := range shown[1:] {
		require.Equal(t, "typing", one.Shown)
	}
	require.Equal(t, []string{"Hello."}, h.texts())
}

// The answer doesn't wait for a signal that hangs: the signal ends with the model call. After a refusal the channel sends no signals for a
// while. No answer fails because of either.
func TestSignalsHinderNothing(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.changeAgent(t, func(a *store.Agent) { a.Typing = true })
	clock := time.Now()
	w := h.worker(func(c *Config) { c.Now = func() time.Time { return clock } })
	h.platform.Script("signal bot", platformfake.Hang)
	h.vendor.reply = func(context.Context, int, []string) (string, error) {
		h.platform.WaitSignals(t, 1)
		return "Hello.", nil
	}
	h.say(t, bot, "ann", "one")
	h.drain(t, w)
	w.signals.running.Wait()
	require.Equal(t, []string{"Hello."}, h.texts())
	require.False(t, w.signals.rests(bot, clock), "it was cut off, not refused")

	h.platform.Script("signal bot", platformfake.TooManyFor(5*time.Minute))
	h.vendor.reply = func(context.Context, int, []string) (string, error) {
		w.signals.running.Wait()
		return "Hello.", nil
	}
	before := len(h.platform.Signals())
	for _, customer := range []string{"bob", "cid"} {
		h.say(t, bot, customer, "two")
		h.drain(t, w)
	}
	require.Len(t, h.texts(), 3)
	require.Len(t, h.platform.Signals(), before)
	clock = clock.Add(5 * time.Minute)
	h.vendor.reply = func(context.Context, int, []string) (string, error) {
		h.platform.WaitSignals(t, before+1)
		return "Hello.", nil
	}
	h.say(t, bot, "dan", "three")
	h.drain(t, w)
	require.Len(t, h.texts(), 4)
	require.NotContains(t, h.log.String(), "two")
	h.spent(t, acme)
}
