package tests

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestMarkdownAnswers guarantees that customers read an assistant's Markdown as their platform shows it, and a person's text as it was
// written.
func TestMarkdownAnswers(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	const answer = "## Opening hours\n\n- **Monday**: 9–17\n- see [our page](https://shop.example)"
	b := c.business(t, 1_000_000, c.up.script(func(call *upstreamCall) { call.answer(answer, usualUsage) }), nil)
	for kind, want := range map[platforms.Type]string{
		bot.Type:       "Opening hours\n\n• Monday: 9–17\n• see our page (https://shop.example)",
		marketa.Type:   "Opening hours\n\n• Monday: 9–17\n• see our page (https://shop.example)",
		social.ChatApp: "*Opening hours*\n\n• *Monday*: 9–17\n• see our page (https://shop.example)",
	} {
		l := b.line(t, kind)
		requireQueued(t, c.deliver(t, l.from(1).says("when?")), 1)
		require.Equal(t, []string{want}, c.awaitSent(l.from(1), 1), kind)
		_, to := c.requireDelivered(b, l, 1)
		require.Equal(t, want, to[0].Text)
		b.post(t, "/conversations/"+b.conversation(t, l).ID+"/messages", map[string]string{"text": "**" + string(kind) + "**"}, http.StatusCreated)
		require.Equal(t, "**"+string(kind)+"**", c.awaitSent(l.from(1), 2)[1])
	}
}

// TestAnswerOfAKilledWorker guarantees that an answer during which a worker was killed is sent as the model wrote it, since its rendering may
// have been the reason; the customer's next one is rendered.
func TestAnswerOfAKilledWorker(t *testing.T) {
	t.Parallel()
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) { d.Lease = "2s" })
	c.worker = c.startWorker()
	held := newGate(t)
	model := c.up.script(func(call *upstreamCall) {
		if held.pass(call) {
			call.answer("**Blue**", usualUsage)
		}
	})
	b := c.business(t, 1_000_000, model, nil)
	l := b.line(t, bot.Type)
	requireQueued(t, c.deliver(t, l.from(1).says("which color?")), 1)
	c.awaitAsked(model, 1)
	c.worker.kill()
	held.open()
	c.worker = c.startWorker()
	require.Equal(t, []string{"**Blue**"}, c.awaitSent(l.from(1), 1))
	requireQueued(t, c.deliver(t, l.from(1).says("which color again?")), 1)
	require.Equal(t, []string{"**Blue**", "Blue"}, c.awaitSent(l.from(1), 2))
}
