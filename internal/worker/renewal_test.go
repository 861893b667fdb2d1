package worker

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestTokensAreRenewedInTheBackground guarantees that tokens are refreshed before they end although no customer writes; that one whose
// end is unknown is exchanged once it is a day old; and that those which don't end soon, can't be refreshed, or belong to a channel
// that waits for its owner are left alone.
func TestTokensAreRenewedInTheBackground(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		kind    platforms.Type
		left    time.Duration // of the token; 0 is unknown
		age     time.Duration // of the channel
		state   string
		renewed bool
	}{
		"60 days, half of them over": {social.PhotoDM, 29 * day, 31 * day, store.ChannelActive, true},
		"60 days, some of them over": {social.PhotoDM, 31 * day, 29 * day, store.ChannelActive, false},
		"pasted today":               {social.PhotoDM, 0, 23 * time.Hour, store.ChannelActive, false},
		"pasted yesterday":           {social.PhotoDM, 0, 25 * time.Hour, store.ChannelActive, true},
		"refused":                    {social.PhotoDM, 5 * day, 31 * day, store.ChannelNeedsReauth, false},
		"a page's":                   {social.Messenger, 0, 31 * day, store.ChannelActive, false},
		"a day, nearly over":         {localchat.Type, time.Hour, day, store.ChannelActive, true},
		"a day, over":                {localchat.Type, -10 * day, 11 * day, store.ChannelActive, true},
		"a day, just begun":          {localchat.Type, 20 * time.Hour, 5 * time.Hour, store.ChannelActive, false},
		"a day, pasted today":        {localchat.Type, 0, 23 * time.Hour, store.ChannelActive, false},
		"a day, pasted yesterday":    {localchat.Type, 0, 25 * time.Hour, store.ChannelActive, true},
		"pasted, nobody writes":      {marketa.Type, 0, 29 * day, store.ChannelActive, true},
		"pasted, refused":            {marketb.Type, 0, 29 * day, store.ChannelNeedsReauth, false},
		"four hours":                 {marketa.Type, time.Hour, 3 * time.Hour, store.ChannelActive, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			old := h.channel(t, acme, "1001", test.kind, helper)
			h.setEnd(t, "1001", old, test.left, test.age, test.state)
			before, _ := h.stored(t, "1001")
			require.NoError(t, h.worker().renewTokens(t.Context(), t.Context()))
			after, fresh := h.stored(t, "1001")
			require.Equal(t, test.renewed, after.CredentialsVersion > before.CredentialsVersion)
			require.Equal(t, test.renewed, fresh[platforms.AccessToken] != old[platforms.AccessToken])
			if test.renewed {
				require.Greater(t, fresh.Expiry(), time.Now().UnixMilli(), "its end is known now")
			}
			require.Equal(t, test.state, after.State)
			require.NoError(t, h.worker().renewTokens(t.Context(), t.Context()))
			again, _ := h.stored(t, "1001")
			require.Equal(t, after.CredentialsVersion, again.CredentialsVersion, "once is enough")
		})
	}
}

// setEnd sets how long a channel's token still lasts, how long ago the channel was changed, and its state.
func (h *fixture) setEnd(t *testing.T, id string, credentials platforms.Credentials, left, age time.Duration, state string) {
	t.Helper()
	if left != 0 {
		credentials[platforms.ExpiresAt] = strconv.FormatInt(time.Now().Add(left).UnixMilli(), 10)
	}
	require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, id, store.ChannelChange{
		Credentials: h.sealed(t, acme, id, credentials), State: &state,
	}))
	h.exec(t, `UPDATE channels SET updated_at = `+strconv.FormatInt(time.Now().Add(-age).UnixMilli(), 10))
}

// TestARefusedRenewal guarantees that a channel works as long as its token does, and needs its owner when it has ended; and that people
// are told, once.
func TestARefusedRenewal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		left  time.Duration
		fault platformfake.Fault
		state string
		told  store.EventType
	}{
		"still good":      {5 * 24 * time.Hour, platformfake.Unauthorized, store.ChannelActive, store.EventChannelExpiring},
		"over":            {-time.Hour, platformfake.Unauthorized, store.ChannelNeedsReauth, store.EventChannelReauth},
		"over, an outage": {-time.Hour, platformfake.Temporary, store.ChannelActive, store.EventChannelExpiring},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			old := h.channel(t, acme, "1001", social.PhotoDM, helper)
			h.setEnd(t, "1001", old, test.left, 31*24*time.Hour, store.ChannelActive)
			h.platform.Script(old[platforms.AccessToken], test.fault)
			require.NoError(t, h.db.EventEndpoints.Create(t.Context(), "test", &store.EventEndpoint{
				ID: "evep_1", OrgID: acme, URL: "https://example.com", Events: store.EventTypes(), Secret: []byte("sealed"),
			}))
			require.NoError(t, h.worker().renewTokens(t.Context(), t.Context()))
			channel, kept := h.stored(t, "1001")
			require.Equal(t, test.state, channel.State)
			require.Equal(t, old, kept)
			told, err := h.db.EventDeliveries.OfEndpoint(t.Context(), acme, "evep_1", store.Page{})
			require.NoError(t, err)
			require.Len(t, told, 1)
			require.Equal(t, test.told, told[0].Type)
		})
	}
}

// closedPlatform refuses the first sends because of the time of the day.
type closedPlatform struct {
	Platforms
	refusals int
}

func (c *closedPlatform) Send(ctx context.Context, out platforms.Outgoing) (string, error) {
	if c.refusals--; c.refusals >= 0 {
		return "", platforms.ClosedFor(8*time.Hour, errStopping)
	}
	return c.Platforms.Send(ctx, out)
}

// TestAPlatformThatIsClosedIsWaitedFor guarantees that no try counts while a platform takes no messages, and that the next one is
// when it takes some again.
func TestAPlatformThatIsClosedIsWaitedFor(t *testing.T) {
	t.Parallel()
	h := open(t)
	closed := &closedPlatform{h.client, maxTries + 3}
	w := h.worker(func(c *Config) { c.Platforms, c.Queue = closed, h.queue })
	h.say(t, bot, "lan", "hello")
	for range maxTries + 3 {
		begun := time.Now()
		h.drain(t, w)
		require.Equal(t, "assistant: You said: hello (pending)", h.lines(t, acme, "lan")[1])
		var runAt, attempts int64
		require.NoError(t, h.db.Reader().QueryRowContext(t.Context(), `SELECT c.run_at, o.attempts FROM conversations c
			JOIN outbound_messages o ON o.conversation_id = c.id`).Scan(&runAt, &attempts))
		require.Zero(t, attempts)
		require.Greater(t, time.UnixMilli(runAt).Sub(begun), 7*time.Hour)
		h.hurry(t)
	}
	h.drain(t, w)
	require.Equal(t, []string{"You said: hello"}, h.texts())
}

// uncounted is a queue that can't count what is unanswered.
type uncounted struct{ Queue }

func (uncounted) Unanswered(context.Context, inbox.Lease) (int, error) { return 0, errStopping }

// TestUnansweredMessages guarantees that no more messages are sent in a row than the marketplace takes, those of people included, and that
// the customer's next message begins anew.
func TestUnansweredMessages(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.channel(t, acme, "1001", marketa.Type, helper)
	write := func(text string) {
		h.deliver(t, "1001", inbox.Item{Kind: platforms.Text, CustomerRef: "7", Address: "8001", MessageID: text, Text: text})
	}
	write("hello")
	h.exec(t, `UPDATE messages SET received_at = received_at - 10`) // before the answer, also by a clock of milliseconds
	w := h.worker()
	h.drain(t, w)
	id := h.conversation(t, acme, "7").ID
	_, err := h.queue.SendAsHuman(t.Context(), "test", acme, id, []string{"2", "3", "4", "5", "6"})
	require.NoError(t, err)
	h.drain(t, w)
	require.Equal(t, []string{"You said: hello", "2", "3", "4", "5"}, h.texts())
	lines := h.lines(t, acme, "7")
	require.Equal(t, "human: 6 (failed service_window_expired)", lines[len(lines)-1])
	require.Zero(t, h.platform.Attempts("6"))
	h.exec(t, `UPDATE outbound_messages SET created_at = 1`) // before what the customer writes now
	write("again")
	h.drain(t, w)
	require.Len(t, h.texts(), 6)

	h.exec(t, `UPDATE messages SET received_at = 1`)
	_, err = h.queue.SendAsHuman(t.Context(), "test", acme, id, []string{"8", "9", "10", "11", "12"})
	require.NoError(t, err)
	h.drain(t, h.worker(func(c *Config) { c.Queue = uncounted{h.queue} }))
	require.Equal(t, []string{"8", "9", "10", "11", "12"}, h.texts()[6:], "the platform refuses by itself")
}
