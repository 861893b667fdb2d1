package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const closedNotice = "We are closed."

// setOpen lets the business of a channel be open today, or in three days only.
func (h *fixture) setOpen(t *testing.T, channel string, open bool, change ...func(*store.AnswerRules)) {
	t.Helper()
	days := 3
	if open {
		days = 0
	}
	// A test may begin before midnight and end after it.
	day := func(n int) string { return strings.ToLower(time.Now().UTC().AddDate(0, 0, n).Weekday().String()[:3]) }
	rules := &store.AnswerRules{
		OpeningHours: day(days) + " 00:00-24:00\n" + day(days+1) + " 00:00-24:00", TimeZone: "UTC", ClosedNotice: closedNotice,
	}
	for _, f := range change {
		f(rules)
	}
	require.NoError(t, h.db.Channels.Update(t.Context(), "test", acme, channel, store.ChannelChange{Answers: rules}))
}

// TestClosedBusiness: a customer who writes while the business is closed gets its notice, once, without a call and without a charge, and
// an answer to everything when it opens.
func TestClosedBusiness(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.setOpen(t, bot, false)
		seen := observe()
		w := h.worker(func(c *Config) { c.Observer, c.Queue = seen, h.queue })
		h.say(t, bot, "lan", "hello")
		h.drain(t, w)
		h.say(t, bot, "lan", "anybody there?")
		h.drain(t, w)
		h.hurry(t)
		h.drain(t, w)
		require.Equal(t, []string{closedNotice}, h.texts())
		require.Empty(t, h.vendor.calls())
		require.Zero(t, h.spent(t, acme))
		c := h.conversation(t, acme, "lan")
		require.Empty(t, c.Attention)
		require.Greater(t, c.UnansweredSince, time.Now().Add(time.Hour).UnixMilli(), "the wait begins when the business opens")
		require.Equal(t, 3, seen.all()["turn closed"])
		var rest int64
		require.NoError(t, h.db.Reader().QueryRowContext(t.Context(), `SELECT run_at FROM conversations`).Scan(&rest))
		require.Less(t, time.Until(time.UnixMilli(rest)), longestClosed+2*time.Minute, "changed hours hold for what waits")
		require.Greater(t, time.Until(time.UnixMilli(rest)), time.Minute)

		h.setOpen(t, bot, true)
		h.hurry(t)
		h.drain(t, w)
		require.Equal(t, []string{closedNotice, "You said: hello and anybody there?"}, h.texts())
		require.Contains(t, h.vendor.calls()[0], "assistant: "+closedNotice)
		require.EqualValues(t, answerCost, h.spent(t, acme))
		h.leaseless(t)
	})
}

// TestNoNoticeInDraftMode: where a person sends what the assistant proposes, no notice goes out by itself either.
func TestNoNoticeInDraftMode(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.setOpen(t, bot, false, func(rules *store.AnswerRules) { rules.Drafts = true })
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.Empty(t, h.texts())
	require.Greater(t, h.conversation(t, acme, "lan").UnansweredSince, time.Now().Add(time.Hour).UnixMilli(), "it waits for the opening")
	require.Empty(t, h.vendor.calls())
}

// TestANoticeThatFails is sent later, and once.
func TestANoticeThatFails(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.setOpen(t, bot, false)
	h.platform.Script("closed", platformfake.TooMany)
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.Empty(t, h.texts())
	for range 2 {
		h.hurry(t)
		h.drain(t, h.worker())
	}
	require.Equal(t, []string{closedNotice}, h.texts())
	require.Empty(t, h.vendor.calls())
}

// TestAgesWhileClosed: only the time since the business opened counts for the age of a message.
func TestAgesWhileClosed(t *testing.T) {
	t.Parallel()
	h := open(t)
	limited := func(rules *store.AnswerRules) { rules.MaxAgeMinutes = 3 * 24 * 60 }
	h.setOpen(t, bot, false, limited)
	h.sayBefore(t, "lan", "hello", 5*24*time.Hour)
	h.drain(t, h.worker())
	require.Equal(t, []string{closedNotice}, h.texts())
	require.Empty(t, h.conversation(t, acme, "lan").Attention)
	h.setOpen(t, bot, true, limited) // since midnight
	h.hurry(t)
	h.drain(t, h.worker())
	require.Equal(t, []string{closedNotice, "You said: hello"}, h.texts())

	h.setOpen(t, bot, true, func(rules *store.AnswerRules) {
		rules.OpeningHours, rules.MaxAgeMinutes = "mon-sun 00:00-24:00", 24*60
	})
	h.sayBefore(t, "mai", "hello?", 25*time.Hour)
	h.drain(t, h.worker())
	require.Equal(t, codes.TooOld, h.conversation(t, acme, "mai").Attention)
}

// TestAVisitorOfAClosedBusiness gets no stream, and finds the notice in the list.
func TestAVisitorOfAClosedBusiness(t *testing.T) {
	t.Parallel()
	h := open(t)
	const site = "chn_site"
	h.widget(t, site)
	h.setOpen(t, site, false)
	h.visit(t, site, "ann", "m1", "hello")
	shown := &reader{}
	reply, err := h.worker().AnswerNow(t.Context(), acme, site, "m1", shown)
	require.NoError(t, err)
	require.True(t, reply.Waits())
	require.Empty(t, reply.Text)
	require.Zero(t, shown.begun)
	require.Equal(t, []string{"customer: hello", "assistant: " + closedNotice + " (sent)"}, h.lines(t, acme, "ann"))
	require.Empty(t, h.vendor.calls())
}
