package worker

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

const chat = "chn_chat"

// stored is a channel as it is now, with its opened credentials.
func (h *fixture) stored(t *testing.T, id string) (store.Channel, platforms.Credentials) {
	t.Helper()
	channel, err := h.db.Channels.ByID(t.Context(), acme, id)
	require.NoError(t, err)
	plain, err := h.ring.Open(channel.Credentials, vault.ChannelCredentials(acme, id))
	require.NoError(t, err)
	var c platforms.Credentials
	require.NoError(t, json.Unmarshal(plain, &c))
	return channel, c
}

func TestAnExpiredTokenIsRefreshedOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []platforms.Type{localchat.Type, marketa.Type, marketb.Type} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			h := open(t)
			old := h.channel(t, acme, chat, kind, helper)
			h.platform.Expire(old[platforms.AccessToken])
			say := func(text string) { // the marketplace's customers have numbers
				h.deliver(t, chat, inbox.Item{Kind: platforms.Text, CustomerRef: "7", Address: "8001", MessageID: text, Text: text})
			}
			say("hello")
			h.drain(t, h.worker())
			require.Equal(t, []string{"You said: hello"}, h.texts())
			require.Equal(t, 2, h.platform.Attempts("hello"))
			channel, fresh := h.stored(t, chat)
			require.Equal(t, store.ChannelActive, channel.State)
			require.EqualValues(t, 2, channel.CredentialsVersion)
			require.NotEqual(t, old[platforms.AccessToken], fresh[platforms.AccessToken])
			require.NotEqual(t, old[platforms.RefreshToken], fresh[platforms.RefreshToken])

			say("again")
			h.drain(t, h.worker())
			require.Equal(t, 1, h.platform.Attempts("again"), "the stored token is used")
		})
	}
}

// TestARevokedTokenNeedsReauth: of many conversations that learn it at once, one asks the platform for a new token.
func TestARevokedTokenNeedsReauth(t *testing.T) {
	t.Parallel()
	h := open(t)
	old := h.channel(t, acme, chat, localchat.Type, helper)
	h.platform.Revoke(old[platforms.AccessToken])
	refreshes := &refresher{Platforms: h.client}
	w := h.worker(func(c *Config) { c.Platforms = refreshes })
	customers := []string{"a", "b", "c", "d"}
	for _, customer := range customers {
		h.say(t, chat, customer, "hello")
	}
	leases, err := h.queue.Lease(t.Context(), inbox.Places{Free: len(customers)}, time.Minute)
	require.NoError(t, err)
	var running sync.WaitGroup
	for _, lease := range leases {
		running.Go(func() { w.converse(t.Context(), lease, nil) })
	}
	running.Wait()
	require.EqualValues(t, 1, refreshes.times.Load())
	require.Empty(t, h.texts())
	for _, customer := range customers {
		require.Equal(t, "assistant: You said: hello (pending channel_needs_reauth)", h.lines(t, acme, customer)[1])
	}
	channel, kept := h.stored(t, chat)
	require.Equal(t, store.ChannelNeedsReauth, channel.State)
	require.Equal(t, old, kept)
}

// TestATokenIsRefreshedBeforeItEnds: without a refused request.
func TestATokenIsRefreshedBeforeItEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		left    time.Duration
		version int64
	}{
		"soon":  {left: refreshAhead - time.Minute, version: 3},
		"later": {left: refreshAhead + time.Minute, version: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			credentials := h.channel(t, acme, chat, localchat.Type, helper)
			credentials[platforms.ExpiresAt] = strconv.FormatInt(time.Now().Add(test.left).UnixMilli(), 10)
			require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, chat, store.ChannelChange{
				Credentials: h.sealed(t, acme, chat, credentials),
			}))
			h.say(t, chat, "lan", "hello")
			h.drain(t, h.worker())
			require.Equal(t, 1, h.platform.Attempts("hello"))
			channel, _ := h.stored(t, chat)
			require.Equal(t, test.version, channel.CredentialsVersion)
		})
	}
}

// TestTwoWorkersRefreshAtOnce: the refresh token is good for one use; the one that comes second finds what the first has
// stored, and the channel stays well.
func TestTwoWorkersRefreshAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		old := h.channel(t, acme, chat, localchat.Type, helper)
		h.platform.Expire(old[platforms.AccessToken])
		customers := []string{"a", "b", "c", "d", "e", "f"}
		for _, customer := range customers {
			h.say(t, chat, customer, "hello")
		}
		leases, err := h.queue.Lease(t.Context(), inbox.Places{Free: len(customers)}, time.Minute)
		require.NoError(t, err)
		require.Len(t, leases, len(customers))
		workers := []*Worker{h.worker(), h.worker()}
		var running sync.WaitGroup
		for i, lease := range leases {
			running.Go(func() { workers[i%2].converse(t.Context(), lease, nil) })
		}
		running.Wait()
		require.Len(t, h.texts(), len(customers))
		channel, _ := h.stored(t, chat)
		require.Equal(t, store.ChannelActive, channel.State)
		h.leaseless(t)
	})
}

// TestTheLoserOfARefreshWaits: between the winner's refresh and its storing there is a moment in which the refresh token
// is used up and no other is stored.
func TestTheLoserOfARefreshWaits(t *testing.T) {
	t.Parallel()
	h := open(t)
	old := h.channel(t, acme, chat, localchat.Type, helper)
	fresh, err := h.client.Refresh(t.Context(), &platforms.Channel{Type: localchat.Type, ExternalID: chat, Credentials: old})
	require.NoError(t, err)
	h.say(t, chat, "lan", "hello")
	h.drain(t, h.worker(func(c *Config) {
		c.Platforms = &refresher{Platforms: h.client, after: func() {
			replaced, err := h.db.ChannelCredentials.Replace(t.Context(), acme, chat, 1, h.sealed(t, acme, chat, fresh))
			require.NoError(t, err)
			require.True(t, replaced)
		}}
	}))
	require.Equal(t, []string{"You said: hello"}, h.texts())
	channel, kept := h.stored(t, chat)
	require.Equal(t, store.ChannelActive, channel.State)
	require.Equal(t, fresh[platforms.RefreshToken], kept[platforms.RefreshToken])
}

// TestAnOutageOfTheRefreshIsNoReasonToLoseTheChannel: an outage is no refusal of the refresh token.
func TestAnOutageOfTheRefreshIsNoReasonToLoseTheChannel(t *testing.T) {
	t.Parallel()
	for _, outcome := range []platforms.Class{platforms.Retry, platforms.Unknown} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			h := open(t)
			old := h.channel(t, acme, chat, localchat.Type, helper)
			h.platform.Expire(old[platforms.AccessToken])
			refreshes := &refresher{Platforms: h.client, outage: &platforms.Error{Class: outcome}}
			w := h.worker(func(c *Config) { c.Platforms = refreshes })
			h.say(t, chat, "lan", "hello")
			h.drain(t, w)
			channel, _ := h.stored(t, chat)
			require.Equal(t, store.ChannelActive, channel.State)
			require.Equal(t, "assistant: You said: hello (pending)", h.lines(t, acme, "lan")[1])

			refreshes.outage = nil
			h.hurry(t)
			h.drain(t, w)
			require.Equal(t, []string{"You said: hello"}, h.texts())
		})
	}
}

// TestARefreshInTimeEndsAnEarlyVerdict: another process used the same refresh token a moment later, was refused, waited
// for us in vain and marked the channel.
func TestARefreshInTimeEndsAnEarlyVerdict(t *testing.T) {
	t.Parallel()
	h := open(t)
	old := h.channel(t, acme, chat, localchat.Type, helper)
	h.platform.Expire(old[platforms.AccessToken])
	h.say(t, chat, "lan", "hello")
	h.drain(t, h.worker(func(c *Config) {
		c.Platforms = &refresher{Platforms: h.client, after: func() {
			require.NoError(t, h.db.Channels.SetState(t.Context(), "test", acme, chat, store.ChannelNeedsReauth))
		}}
	}))
	require.Equal(t, []string{"You said: hello"}, h.texts())
	channel, _ := h.stored(t, chat)
	require.Equal(t, store.ChannelActive, channel.State)
}

// refresher lets a test act after each refresh, or keep it from the platform.
type refresher struct {
	Platforms
	after  func()
	outage error

	times atomic.Int64
}

func (r *refresher) Refresh(ctx context.Context, channel *platforms.Channel) (platforms.Credentials, error) {
	r.times.Add(1)
	if r.outage != nil {
		return platforms.Credentials{}, r.outage
	}
	fresh, err := r.Platforms.Refresh(ctx, channel)
	if r.after != nil {
		r.after()
	}
	return fresh, err
}

// TestALostCompareAndSet: credentials that were connected anew during a refresh stay.
func TestALostCompareAndSet(t *testing.T) {
	t.Parallel()
	h := open(t)
	old := h.channel(t, acme, chat, localchat.Type, helper)
	h.platform.Expire(old[platforms.AccessToken])
	anew := h.platform.Account(localchat.Type, "4711")
	h.say(t, chat, "lan", "hello")
	h.drain(t, h.worker(func(c *Config) {
		c.Platforms = &refresher{Platforms: h.client, after: func() {
			require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, chat, store.ChannelChange{
				Credentials: h.sealed(t, acme, chat, anew),
			}))
		}}
	}))
	require.Equal(t, anew[platforms.AccessToken], h.platform.Sent()[0].Token)
	_, kept := h.stored(t, chat)
	require.Equal(t, anew, kept)
}

// TestANewTokenDuringTheSendIsTried: for types without a refresh, too.
func TestANewTokenDuringTheSendIsTried(t *testing.T) {
	t.Parallel()
	h := open(t)
	old := h.channel(t, acme, chat, social.Messenger, helper)
	h.platform.Expire(old[platforms.AccessToken])
	anew := h.platform.Account(social.Messenger, "4711")
	h.say(t, chat, "lan", "hello")
	h.drain(t, h.worker(func(c *Config) {
		c.Platforms = &interceptor{Platforms: h.client, before: func(n int) {
			if n == 1 {
				require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, chat, store.ChannelChange{
					Credentials: h.sealed(t, acme, chat, anew),
				}))
			}
		}}
	}))
	require.Equal(t, []string{"You said: hello"}, h.texts())
	channel, _ := h.stored(t, chat)
	require.Equal(t, store.ChannelActive, channel.State)
}

func TestCredentialsOfAnotherKeyAreNoReasonToLoseTheMessage(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.exec(t, `UPDATE channels SET credentials = $1`, []byte("sealed with a key that is gone"))
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.Equal(t, "assistant: You said: hello (pending)", h.lines(t, acme, "lan")[1])
	h.exec(t, `UPDATE channels SET credentials = $1`, h.sealed(t, acme, bot, h.platform.Account(botType, "1")))
	h.hurry(t)
	h.drain(t, h.worker())
	require.Equal(t, []string{"You said: hello"}, h.texts())
}
