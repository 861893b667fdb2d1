package tests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestTyping guarantees that customers see, while the model writes, that their message was read and that an answer is being written: on
// platforms that can show it, and only if the assistant's typing is on.
func TestTyping(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	model := c.hold()
	b := c.business(t, 1_000_000, model.script, assistantSettings{"typing": true})
	want := map[platforms.Type][]string{bot.Type: {"typing"}, social.Messenger: {"read", "typing"}, social.ChatApp: {"read typing"}}
	var lines []*line
	count := 0
	for kind, shown := range want {
		l := b.line(t, kind)
		requireQueued(t, c.deliver(t, l.from(1).message("501", "hello")), 1)
		lines, count = append(lines, l), count+len(shown)
	}
	c.await("what customers are shown", patience, func() bool { return len(c.platform.Signals()) >= count })
	model.gate.open()
	for _, l := range lines {
		require.Equal(t, []string{"Re: hello"}, c.awaitSent(l.from(1), 1))
		c.requireDelivered(b, l, 1)
		require.Equal(t, want[l.Type], c.shownOn(l)[:len(want[l.Type])], l.Type)
	}

	silent := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := silent.line(t, social.ChatApp)
	before := len(c.shownOn(l))
	requireQueued(t, c.deliver(t, l.from(1).message("502", "hello")), 1)
	c.awaitSent(l.from(1), 1)
	require.Len(t, c.shownOn(l), before)
	c.svc(t, "doctor")
}

// shownOn is what customers of the line's type were shown.
func (c *connectedProduct) shownOn(l *line) (shown []string) {
	for _, signal := range c.platform.Signals() {
		if signal.Type == l.Type {
			shown = append(shown, signal.Shown)
		}
	}
	return shown
}
