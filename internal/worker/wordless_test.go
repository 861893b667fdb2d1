package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const mediaNotice = "Please write what you need."

// answerRules sets the rules of a channel.
func (h *fixture) answerRules(t *testing.T, channel string, rules store.AnswerRules) {
	t.Helper()
	require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, channel, store.ChannelChange{Answers: &rules}))
}

// show delivers pictures of a customer without a text, at a time of the platform's.
func (h *fixture) show(t *testing.T, customer string, at time.Time) {
	t.Helper()
	h.deliver(t, bot, inbox.Item{
		Kind: platforms.Media, CustomerRef: customer, Address: "to-" + customer, MessageID: store.NewID("m"), Text: "image", SentAt: at.UnixMilli(),
	})
}

// TestMediaNotice: a picture without a text is answered with the channel's notice, once, without a call and without a charge; the next one
// waits for a person. A text that follows is answered together with the pictures.
func TestMediaNotice(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.answerRules(t, bot, store.AnswerRules{MediaNotice: mediaNotice})
		seen := observe()
		w := h.worker(func(c *Config) { c.Observer = seen })
		for range 2 {
			h.show(t, "lan", time.Now())
			require.Zero(t, h.drain(t, w), "a text may follow")
			h.hurry(t)
			h.drain(t, w)
			require.Equal(t, []string{mediaNotice}, h.texts())
		}
		require.Equal(t, 2, seen.all()["turn notice"])
		require.Empty(t, h.vendor.calls())
		require.Zero(t, h.spent(t, acme))
		require.Equal(t, codes.Media, h.conversation(t, acme, "lan").Attention)

		h.show(t, "lan", time.Now())
		h.say(t, bot, "lan", "what is this?")
		h.drain(t, w)
		require.Equal(t, []string{mediaNotice, "You said: [image] and [image] and what is this?"}, h.texts())
		require.Contains(t, h.vendor.calls()[0], "assistant: "+mediaNotice)
		require.EqualValues(t, answerCost, h.spent(t, acme))
		h.leaseless(t)
	})
}

// TestMediaAttention: without a notice people are told, and the next text is answered together with the picture.
func TestMediaAttention(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.show(t, "lan", time.Now())
		h.hurry(t)
		w := h.worker()
		h.drain(t, w)
		require.Equal(t, codes.Media, h.conversation(t, acme, "lan").Attention)
		require.Empty(t, h.texts())
		resumeStanding(t, w)
		require.Zero(t, h.drain(t, w), "it doesn't end by itself")

		h.say(t, bot, "lan", "what is this?")
		h.drain(t, w)
		require.Equal(t, []string{"You said: [image] and what is this?"}, h.texts())
		require.Empty(t, h.conversation(t, acme, "lan").Attention)

		h.answerRules(t, bot, store.AnswerRules{MediaNotice: mediaNotice, Drafts: true})
		h.show(t, "mai", time.Now())
		h.hurry(t)
		h.drain(t, w)
		require.Equal(t, codes.Media, h.conversation(t, acme, "mai").Attention, "in draft mode nothing is sent by itself")
		require.Len(t, h.texts(), 1)
		require.EqualValues(t, answerCost, h.spent(t, acme))
	})
}

// TestAlbums: pictures of an album whose caption is a text of its own need no notice and nobody; a later one does.
func TestAlbums(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.answerRules(t, bot, store.AnswerRules{MediaNotice: mediaNotice})
	at := time.Now().Add(-time.Minute)
	h.deliver(t, bot, inbox.Item{
		Kind: platforms.Text, CustomerRef: "lan", Address: "to-lan", MessageID: "caption", Text: "these?", SentAt: at.UnixMilli(),
	})
	w := h.worker()
	h.drain(t, w)
	h.show(t, "lan", at.Add(time.Second))
	h.show(t, "lan", at)
	h.hurry(t)
	h.drain(t, w)
	require.Equal(t, []string{"You said: these?"}, h.texts())
	require.Empty(t, h.conversation(t, acme, "lan").Attention)
	require.Zero(t, h.conversation(t, acme, "lan").UnansweredSince)

	h.show(t, "lan", at.Add(belongsWithin+time.Second))
	h.hurry(t)
	h.drain(t, w)
	require.Equal(t, []string{"You said: these?", mediaNotice}, h.texts())
}

// TestMediaMeetObstacles: where the assistant may not answer, people are told of a picture as they are of a text, and when the cause is gone
// it is answered.
func TestMediaMeetObstacles(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.answerRules(t, bot, store.AnswerRules{MediaNotice: mediaNotice})
	require.NoError(t, h.db.Organizations.SetSuspended(t.Context(), "test", acme, true, ""))
	h.show(t, "lan", time.Now())
	h.hurry(t)
	w := h.worker()
	h.drain(t, w)
	require.Equal(t, codes.Suspended, h.conversation(t, acme, "lan").Attention)
	require.NoError(t, h.db.Organizations.SetSuspended(t.Context(), "test", acme, false, ""))
	resumeStanding(t, w)
	h.drain(t, w)
	require.Equal(t, []string{mediaNotice}, h.texts())
	require.Empty(t, h.conversation(t, acme, "lan").Attention)
}

// TestMediaWhileClosed: a picture gets the notice of the closed business, and its own when it opens.
func TestMediaWhileClosed(t *testing.T) {
	t.Parallel()
	h := open(t)
	noticed := func(rules *store.AnswerRules) { rules.MediaNotice = mediaNotice }
	h.setOpen(t, bot, false, noticed)
	h.show(t, "lan", time.Now())
	h.hurry(t)
	w := h.worker()
	h.drain(t, w)
	require.Equal(t, []string{closedNotice}, h.texts())
	h.setOpen(t, bot, true, noticed)
	h.hurry(t)
	h.drain(t, w)
	require.Equal(t, []string{closedNotice, mediaNotice}, h.texts())
	require.Empty(t, h.vendor.calls())
}

// TestAMediaNoticeThatFails is sent later, and once.
func TestAMediaNoticeThatFails(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.answerRules(t, bot, store.AnswerRules{MediaNotice: mediaNotice})
	h.platform.Script("Please", platformfake.TooMany)
	h.show(t, "lan", time.Now())
	h.hurry(t)
	h.drain(t, h.worker())
	require.Empty(t, h.texts())
	for range 2 {
		h.hurry(t)
		h.drain(t, h.worker())
	}
	require.Equal(t, []string{mediaNotice}, h.texts())
}
