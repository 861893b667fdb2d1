package tests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestNeedsAttention guarantees that a message of a customer isn't lost while nothing can answer it: it is kept and queued, the
// conversation says what is wrong, and the model isn't asked again and again; once the cause is resolved the message is answered
// without any action.
func TestNeedsAttention(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		attention := func(c *connectedProduct, b *business, l *line, code string) {
			t := c.t
			t.Helper()
			c.await("the conversation to need attention", patience, func() bool {
				all := b.conversations(t, l)
				return len(all) == 1 && all[0].Attention != ""
			})
			require.Equal(t, code, b.conversation(t, l).Attention)
			require.Empty(t, c.sentTo(l.from(1)))
			require.Empty(t, b.Model.Calls())
		}
		answered := func(c *connectedProduct, b *business, l *line) {
			t := c.t
			t.Helper()
			c.await("the message to be answered", 2*patience, func() bool { return len(c.sentTo(l.from(1))) == 1 })
			by, _ := c.requireDelivered(b, l, 1)
			require.Len(t, by, 1)
			require.Empty(t, b.conversation(t, l).Attention)
			b.awaitCalls(t, 1)
			c.svc(t, "doctor")
		}
		t.Run("out of funds", func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			b := c.business(t, 0, c.up.script(replying), nil)
			l := b.line(t, bot.Type)
			requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
			attention(c, b, l, "insufficient_credits")
			b.credit(t, store.Live, 100_000)
			answered(c, b, l)
			require.EqualValues(t, 100_000-usualCharge, b.wallet(t).BalanceMicros)
		})
		t.Run("suspended", func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			b := c.business(t, 100_000, c.up.script(replying), nil)
			l := b.line(t, social.ChatApp)
			c.svc(t, "org", "suspend", b.OrgID, "--reason", "unpaid")
			requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
			requireError(t, b.ask(t, http.MethodGet, "/conversations", nil), "organization_suspended")
			// Another message on the same worker is answered: this one has had its turn.
			other := c.business(t, 100_000, c.up.script(replying), nil)
			next := other.line(t, social.ChatApp)
			requireQueued(t, c.deliver(t, next.from(1).says("hello")), 1)
			c.awaitSent(next.from(1), 1)
			require.Empty(t, b.Model.Calls())
			c.svc(t, "org", "resume", b.OrgID)
			answered(c, b, l)
		})
		t.Run("without an assistant", func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			b := c.business(t, 100_000, c.up.script(replying), nil)
			l := b.lineTo(t, localchat.Type, "")
			requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
			attention(c, b, l, "no_agent")
			b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"agentId": b.AgentID}, http.StatusOK)
			answered(c, b, l)
		})
	})
}

// TestHandover guarantees that the assistant is silent while a person has the conversation: an answer
// that was on its way is dropped, what the customer writes is kept and not answered, what the person writes is sent;
// handed back, the assistant answers what comes next.
func TestHandover(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		model := c.hold()
		b := c.business(t, 1_000_000, model.script, nil)
		l := b.line(t, social.Messenger)
		customer := l.from(1)
		requireQueued(t, c.deliver(t, customer.says("one?")), 1)
		c.awaitAsked(model.script, 1)
		path := "/conversations/" + b.conversation(t, l).ID
		b.post(t, path+"/handover", nil, http.StatusOK)
		require.Equal(t, "human", b.conversation(t, l).State)
		model.gate.open()
		b.post(t, path+"/messages", map[string]string{"text": "A person here."}, http.StatusCreated)
		require.Equal(t, []string{"A person here."}, c.awaitSent(customer, 1))
		requireQueued(t, c.deliver(t, customer.says("two?")), 1)
		b.post(t, path+"/messages", map[string]string{"text": "Still me."}, http.StatusCreated)
		require.Equal(t, []string{"A person here.", "Still me."}, c.awaitSent(customer, 2))
		b.post(t, path+"/handback", nil, http.StatusOK)
		requireQueued(t, c.deliver(t, customer.says("three?")), 1)
		require.Equal(t, "Re: three?", c.awaitSent(customer, 3)[2])

		calls := model.Calls()
		require.Len(t, calls, 2)
		require.Contains(t, calls[1].Raw, "Still me.", "the assistant is told what the person said")
		require.Contains(t, calls[1].Raw, "two?", "and what the customer did")
		c.requireDelivered(b, l, 3)
		by, to := written(b.messages(t, b.conversation(t, l).ID))
		require.Len(t, by, 3)
		authors := make([]string, 0, 3)
		for _, m := range to {
			if m.State == "sent" {
				authors = append(authors, m.Author)
			}
		}
		require.Equal(t, []string{"human", "human", "assistant"}, authors)
		c.svc(t, "doctor")
	})
}

// echo is the delivery by which a platform reports a message that was written in the business's own app, or by us.
func (s sender) echo(id, text string) delivery {
	return s.sign(fmt.Sprintf(`{"object":"page","entry":[{"id":"%[1]s","time":%[3]d,"messaging":[{"sender":{"id":"%[1]s"},"recipient":{"id":"%[2]s"},`+
		`"timestamp":%[3]d,"message":{"is_echo":true,"mid":"%[4]s","text":%[5]s}}]}]}`, s.External, s.Customer, time.Now().UnixMilli(), id, quoted(text)))
}

// TestEchoes guarantees that an echo of our own reply changes nothing, while an echo of a message that a person wrote in the
// platform's app silences the assistant for the pause, and no longer.
func TestEchoes(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	const pause = 10 * time.Minute // longer than any machine needs for two deliveries
	b := c.business(t, 1_000_000, c.up.script(replying), assistantSettings{"pauseMinutes": pause.Minutes()})
	l := b.line(t, social.Messenger)
	customer := l.from(1)
	requireQueued(t, c.deliver(t, customer.says("one?")), 1)
	c.awaitSent(customer, 1)
	c.requireDelivered(b, l, 1)
	requireQueued(t, c.deliver(t, customer.echo(c.platform.Sent()[0].MessageID, "Re: one?")), 0)
	requireQueued(t, c.deliver(t, customer.says("two?")), 1)
	require.Equal(t, "Re: two?", c.awaitSent(customer, 2)[1])
	c.requireDelivered(b, l, 2) // else we are sending, and an echo may be our own

	c.pass(t, "last_customer_at", time.Minute) // else it could be an automatic reply of the platform
	requireQueued(t, c.deliver(t, customer.echo("m_of_a_person", "A person here.")), 0)
	requireQueued(t, c.deliver(t, customer.says("not for the assistant")), 1)
	c.pass(t, "paused_until", pause-time.Second)
	c.await("the assistant to answer again", patience, func() bool {
		requireQueued(t, c.deliver(t, customer.says("still there?")), 1)
		return len(c.sentTo(customer)) > 2
	})
	require.NotContains(t, c.sentTo(customer), "Re: not for the assistant")
	messages := b.messages(t, b.conversation(t, l).ID)
	at := slices.IndexFunc(messages, func(m message) bool { return m.Text == "A person here." })
	require.GreaterOrEqual(t, at, 0)
	require.Equal(t, "human", messages[at].Author)
}

// TestDebounce guarantees that an assistant with a quiet window answers messages that follow each other by one call and
// one reply, also when the worker comes only later.
func TestDebounce(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		const window = 60 * time.Second // longer than three deliveries take
		b := c.business(t, 1_000_000, c.up.script(replying), assistantSettings{"debounceSeconds": window.Seconds(), "debounceMaxSeconds": 300})
		l := b.line(t, bot.Type)
		customer := l.from(1)
		for _, text := range []string{"hi", "do you have", "size M?"} {
			requireQueued(t, c.deliver(t, customer.says(text)), 1)
		}
		require.Empty(t, b.Model.Calls())
		c.worker.kill() // the window outlives the worker
		c.pass(t, "run_at", window-time.Second)
		c.worker.start()
		c.awaitSent(customer, 1)
		by, to := c.requireDelivered(b, l, 1)
		require.Len(t, by, 3)
		for _, m := range by {
			require.Equal(t, to[0].TurnID, m.TurnID)
		}
		asked := b.Model.only(t)
		for _, text := range []string{"hi", "do you have", "size M?"} {
			require.Contains(t, asked.Raw, text)
		}
		b.awaitCalls(t, 1)
	})
}

// pass lets the time of the only conversation that stands in a column come earlier.
func (c *connectedProduct) pass(t *testing.T, column string, d time.Duration) {
	t.Helper()
	require.NoError(t, storetest.Insist(func() error {
		return c.operator().db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `UPDATE conversations SET `+column+` = `+column+` - $1`, d.Milliseconds())
			return nil
		})
	}))
}

// TestSupersede guarantees that an assistant with supersede doesn't send an answer that a newer message has overtaken: it
// asks again with both, and sends one reply (both calls are charged).
func TestSupersede(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		model := c.hold()
		b := c.business(t, 1_000_000, model.script, assistantSettings{"supersede": true})
		l := b.line(t, social.PhotoDM)
		customer := l.from(1)
		requireQueued(t, c.deliver(t, customer.says("red please")), 1)
		c.awaitAsked(model.script, 1)
		requireQueued(t, c.deliver(t, customer.says("no, blue")), 1)
		model.gate.open()
		texts := c.awaitSent(customer, 1)
		require.Contains(t, texts[0], "no, blue")
		by, to := c.requireDelivered(b, l, 1)
		require.Equal(t, []string{to[0].TurnID, to[0].TurnID}, []string{by[0].TurnID, by[1].TurnID})
		calls := model.Calls()
		require.Len(t, calls, 2)
		require.Contains(t, calls[1].Raw, "red please")
		require.NotContains(t, calls[1].Raw, "Re: red please", "what wasn't sent isn't history")
		b.awaitCalls(t, 2)
		require.EqualValues(t, 1_000_000-2*usualCharge, b.wallet(t).BalanceMicros)
	})
}
