package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestPartsWaitForTheirChannel: what can't be sent because the platform refuses the channel's token waits, in order, and goes out within
// seconds of the reconnect, unless the platform's window or a day is over.
func TestPartsWaitForTheirChannel(t *testing.T) {
	t.Parallel()
	const channel = "chn_tested"
	for name, test := range map[string]struct {
		kind    platforms.Type
		silence time.Duration // of the customer, until the reconnect
		code    string        // of parts that fail
	}{
		"at once":                       {kind: social.Messenger},
		"within the window":             {kind: social.Messenger, silence: 23 * time.Hour},
		"after the window":              {kind: social.Messenger, silence: 25 * time.Hour, code: "service_window_expired"},
		"within a day, without windows": {kind: botType, silence: 23 * time.Hour},
		"after a day, without windows":  {kind: botType, silence: 25 * time.Hour, code: "channel_needs_reauth"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, h *fixture) {
				h.vendor.reply = func(context.Context, int, []string) (string, error) { return strings.Repeat("word ", 1500), nil }
				old := h.channel(t, acme, channel, test.kind, helper)
				if test.kind == botType {
					h.exec(t, `UPDATE channels SET credentials = NULL WHERE id = $1`, channel)
				} else {
					h.platform.Expire(old[platforms.AccessToken])
				}
				h.say(t, channel, "lan", "hello")
				w := h.worker(func(c *Config) { c.Queue = h.queue })
				h.drain(t, w)
				if test.code == "" {
					h.write(t, "lan", "by hand")
					h.drain(t, w)
				}
				lines := h.lines(t, acme, "lan")
				require.GreaterOrEqual(t, len(lines), 3)
				for _, line := range lines[1:] {
					require.Regexp(t, `\(pending( channel_needs_reauth)?\)$`, line)
				}
				require.Equal(t, "channel_needs_reauth", h.conversation(t, acme, "lan").Attention)
				resumeStanding(t, w)
				require.Zero(t, h.drain(t, w), "nothing is tried while the channel isn't connected")

				ago := test.silence.Milliseconds()
				h.exec(t, `UPDATE outbound_messages SET created_at = created_at - $1`, ago)
				h.exec(t, `UPDATE conversations SET last_customer_at = last_customer_at - $1`, ago)
				if test.code == "" {
					active := store.ChannelActive
					require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, channel, store.ChannelChange{
						Credentials: h.sealed(t, acme, channel, h.platform.Account(test.kind, h.external(t, channel))), State: &active,
					}))
					resumeStanding(t, w)
				} else {
					h.hurry(t)
				}
				h.drain(t, w)
				for _, line := range h.lines(t, acme, "lan") {
					switch {
					case strings.HasPrefix(line, "customer"):
					case test.code == "":
						require.Regexp(t, `\(sent\)$`, line)
					default:
						require.True(t, strings.HasSuffix(line, "(failed "+test.code+")"), line)
					}
				}
				if test.code == "" {
					require.Len(t, h.texts(), len(h.lines(t, acme, "lan"))-1)
					require.Empty(t, h.conversation(t, acme, "lan").Attention)
				}
				h.leaseless(t)
				require.EqualValues(t, answerCost, h.spent(t, acme))
			})
		})
	}
}

// external is the channel's account at its platform.
func (h *fixture) external(t *testing.T, channel string) string {
	t.Helper()
	row, err := h.db.Channels.ByID(t.Context(), acme, channel)
	require.NoError(t, err)
	return row.ExternalID
}
