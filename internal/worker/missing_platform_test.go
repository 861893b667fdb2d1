package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// without are the platforms of a program that doesn't contain the one of a channel type.
type without struct {
	Platforms
	channelType string
}

func (w without) Find(channelType string) (messaging.ChannelType, bool) {
	if channelType == w.channelType {
		return messaging.ChannelType{}, false
	}
	return w.Platforms.Find(channelType)
}

// TestAMissingPlatformStandsStill guarantees that a worker whose program doesn't contain a channel's platform calls no model, charges nothing, fails
// nothing and says so once, however many messages come; that it answers other channels meanwhile; and that a worker with the platform
// goes on where it stood: with a turn that was begun, a part that was not sent, and what has come since.
func TestAMissingPlatformStandsStill(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		const site = "chn_local"
		h.channel(t, acme, site, "localchat", helper)
		lacking := func(c *Config) {
			c.Queue = later{inbox.New(h.db, h.ring)} // of a process of its own
			c.Platforms = without{h.client, "bot"}
		}
		begun := make(chan struct{})
		h.vendor.reply = func(ctx context.Context, n int, said []string) (string, error) {
			if n == 1 {
				close(begun)
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return echo(said), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		h.say(t, bot, "lan", "hello")
		go func() { done <- h.worker().Run(ctx, 0) }()
		<-begun // its program is replaced by one without the platform
		cancel()
		require.NoError(t, <-done)
		before := h.lines(t, acme, "lan")

		seen := observe()
		ctx, cancel = context.WithCancel(t.Context())
		go func() { done <- h.worker(lacking, func(c *Config) { c.Observer = seen }).Run(ctx, 0) }()
		h.say(t, bot, "minh", "anybody?")
		h.say(t, site, "hoa", "good morning")
		h.platform.WaitSent(t, 1)
		h.say(t, bot, "lan", "still there?")
		h.say(t, site, "hoa", "and now?")
		h.platform.WaitSent(t, 2)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []string{"You said: good morning", "You said: and now?"}, h.texts())
		require.Equal(t, 2, seen.all()["leased"])
		require.Equal(t, append(before, "customer: still there?"), h.lines(t, acme, "lan"))
		require.Equal(t, []string{"awaiting"}, h.turns(t, acme)[:1])
		for _, customer := range []string{"lan", "minh"} {
			require.Empty(t, h.conversation(t, acme, customer).Attention)
		}
		require.Equal(t, 1, strings.Count(h.log.String(), "doesn't contain the platform"))
		require.Contains(t, h.log.String(), "type=bot")

		h.hurry(t)
		h.drain(t, h.worker())
		require.ElementsMatch(t, []string{"You said: hello", "You said: still there?", "You said: anybody?"}, h.texts()[2:])
		require.EqualValues(t, 5*answerCost, h.spent(t, acme))
	})
}

// TestAMissingPlatformIsMet guarantees the same for a channel that another program made after the worker's start.
func TestAMissingPlatformIsMet(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		w := h.worker(func(c *Config) {
			c.Queue = later{inbox.New(h.db, h.ring)}
			c.Platforms = without{h.client, "bot"}
		})
		h.say(t, bot, "lan", "hello")
		h.say(t, bot, "minh", "hello")
		for range 3 {
			require.LessOrEqual(t, h.drain(t, w), 2)
			h.hurry(t)
		}
		require.Empty(t, h.vendor.calls())
		require.Empty(t, h.turns(t, acme))
		require.Zero(t, h.spent(t, acme))
		require.Zero(t, h.conversation(t, acme, "lan").Attempts)
		h.leaseless(t)
		require.Equal(t, 1, strings.Count(h.log.String(), "doesn't contain the platform"))
		require.Zero(t, h.drain(t, w))

		h.drain(t, h.worker())
		require.Equal(t, []string{"You said: hello", "You said: hello"}, h.texts())
	})
}
