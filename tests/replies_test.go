package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// replying is a model that names what it was asked last: `Re: …`.
func replying(call *upstreamCall) {
	call.answer(replyTo(call), usualUsage)
}

// replyTo names the last message of a request to the model.
func replyTo(call *upstreamCall) string {
	messages := call.Body.Messages
	return "Re: " + messages[len(messages)-1].Content
}

// heldModel is a model that answers when the test lets it.
type heldModel struct {
	*script
	gate *gate
}

// hold makes a model that replies once the gate is open.
func (c *connectedProduct) hold() heldModel {
	m := heldModel{gate: newGate(c.t)}
	m.script = c.up.script(func(call *upstreamCall) {
		if m.gate.pass(call) {
			replying(call)
		}
	})
	return m
}

// awaitAsked waits until n requests are at the model.
func (c *connectedProduct) awaitAsked(s *script, n int) []*upstreamCall {
	c.t.Helper()
	c.await(fmt.Sprintf("%d requests at the model", n), patience, func() bool { return len(s.Calls()) >= n })
	return s.Calls()
}

// sentTo are the texts that the platform delivered to an address.
func (c *connectedProduct) sentTo(s sender) (texts []string) {
	for _, sent := range c.platform.Sent() {
		if sent.Type == s.Type && sent.Address == s.Customer {
			texts = append(texts, sent.Text)
		}
	}
	return texts
}

// awaitSent waits until the platform has delivered n texts to a customer, and requires that there are no more.
func (c *connectedProduct) awaitSent(s sender, n int) []string {
	c.t.Helper()
	c.await(fmt.Sprintf("%d messages to %s", n, s.Customer), patience, func() bool { return len(c.sentTo(s)) >= n })
	texts := c.sentTo(s)
	require.Len(c.t, texts, n, "%q", texts)
	return texts
}

// requireDelivered waits until everything written to the customer is known to have been sent.
func (c *connectedProduct) requireDelivered(b *business, l *line, parts int) (by, to []message) {
	c.t.Helper()
	by, to = c.awaitMessages(b, l, "the replies to be on record as sent", func(_, to []message) bool {
		return len(to) == parts && !slices.ContainsFunc(to, func(m message) bool { return m.State != "sent" })
	})
	for _, m := range to {
		require.Empty(c.t, m.Code)
	}
	return by, to
}

// TestReplies guarantees the way of a message on every platform: delivery, one call of the model, one charge, one reply
// to the customer with the channel's token, and both in the conversation. A repeated delivery is not answered again; the
// customer's next message is, in order, by a model that gets the messages before.
func TestReplies(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		lines := map[platforms.Type]*line{}
		first := map[platforms.Type]delivery{}
		for _, kind := range connected {
			lines[kind] = b.line(t, kind)
			first[kind] = lines[kind].from(1).message("501", "first on "+string(kind))
			requireQueued(t, c.deliver(t, first[kind]), 1)
		}
		for _, kind := range connected {
			customer := lines[kind].from(1)
			require.Equal(t, []string{"Re: first on " + string(kind)}, c.awaitSent(customer, 1))
			requireQueued(t, c.deliver(t, first[kind]), 1)
			requireQueued(t, c.deliver(t, customer.message("502", "second on "+string(kind))), 1)
			require.Equal(t, []string{"Re: first on " + string(kind), "Re: second on " + string(kind)}, c.awaitSent(customer, 2))

			by, to := c.requireDelivered(b, lines[kind], 2)
			require.Len(t, by, 2)
			for i := range by {
				require.Equal(t, by[i].TurnID, to[i].TurnID, "the message names the reply that answers it")
				require.Equal(t, "text", by[i].Kind)
				require.Equal(t, "assistant", to[i].Author)
			}
			require.NotEqual(t, to[0].TurnID, to[1].TurnID)
			require.Equal(t, "active", b.channelState(t, lines[kind]))
			require.Equal(t, "assistant", b.conversation(t, lines[kind]).State)
		}
		for _, sent := range c.platform.Sent() {
			require.Equal(t, lines[sent.Type].Token, sent.Token, sent.Type)
			if sent.Type != bot.Type {
				require.Equal(t, lines[sent.Type].External, sent.ExternalID, sent.Type)
			}
		}
		calls := b.Model.Calls()
		require.Len(t, calls, 2*len(connected))
		for _, call := range calls {
			roles := make([]string, 0, 4)
			for _, m := range call.Body.Messages {
				roles = append(roles, m.Role)
			}
			if last := replyTo(call); strings.Contains(last, "second on ") {
				require.Equal(t, []string{"system", "user", "assistant", "user"}, roles)
				require.Equal(t, strings.Replace(last, "second", "first", 1), call.Body.Messages[2].Content)
			} else {
				require.Equal(t, []string{"system", "user"}, roles)
			}
			require.Equal(t, "Bearer "+operatorKey, call.Header.Get("Authorization"))
		}
		for _, call := range b.awaitCalls(t, 2*len(connected)) {
			require.EqualValues(t, usualCharge, call.Charged)
		}
		require.EqualValues(t, 1_000_000-2*len(connected)*usualCharge, b.wallet(t).BalanceMicros)
		c.svc(t, "doctor")
	})
}

// TestWorkerStops guarantees that a worker which is asked to end loses nothing and ends in order, as its own binary and as
// the server's: what it has begun it finishes within grace_period; beyond that it gives the conversation back, and another
// worker answers it, once and for one charge.
func TestWorkerStops(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		for name, start := range map[string]func(*worker){"svc-worker": (*worker).start, "caddy svc-worker": (*worker).startInCaddy} {
			for _, grace := range []string{"20s", "200ms"} {
				t.Run(name+"/"+grace, func(t *testing.T) {
					t.Parallel()
					c := prepareConnectedWith(t, engine, func(d *deployment) { d.Grace = grace })
					model := c.hold()
					b := c.business(t, 1_000_000, model.script, nil)
					l := b.line(t, bot.Type)
					c.worker = c.prepareWorker()
					start(c.worker)
					requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
					c.awaitAsked(model.script, 1)
					c.worker.terminate()
					within := grace == "20s"
					if within {
						model.gate.open()
					}
					c.worker.wait()
					require.Len(t, c.sentTo(l.from(1)), count(within))
					model.gate.open()
					start(c.worker)
					require.Equal(t, []string{"Re: hello"}, c.awaitSent(l.from(1), 1))
					requireQueued(t, c.deliver(t, l.from(1).says("thanks")), 1)
					require.Equal(t, "Re: thanks", c.awaitSent(l.from(1), 2)[1])
					c.requireDelivered(b, l, 2)
					b.awaitCalls(t, 2+count(!within)) // the one that was cut is on record, and cost nothing
					require.EqualValues(t, 1_000_000-2*usualCharge, b.wallet(t).BalanceMicros)
				})
			}
		}
	})
}

// TestFiftyDeliveriesAtOnce guarantees that a platform which delivers one message fifty times at once makes one task, one
// call of the model, one charge and one reply.
func TestFiftyDeliveriesAtOnce(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		model := c.hold()
		b := c.business(t, 1_000_000, model.script, nil)
		l := b.line(t, social.Messenger)
		customer := l.from(1)
		once := customer.says("hello")
		fifty := func() {
			together(50, func(int) {
				a, err := c.tryDeliver(once)
				if failOn(t, err) && !a.accepted() {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			})
		}
		fifty()
		c.awaitAsked(model.script, 1)
		fifty() // also while it is being answered
		model.gate.open()
		c.awaitSent(customer, 1)
		fifty() // and afterwards

		// When another message is answered, everything before it has had its turn.
		requireQueued(t, c.deliver(t, customer.says("thanks")), 1)
		require.Equal(t, []string{"Re: hello", "Re: thanks"}, c.awaitSent(customer, 2))
		by, to := c.requireDelivered(b, l, 2)
		require.Len(t, by, 2)
		require.Len(t, to, 2)
		require.Len(t, model.Calls(), 2)
		b.awaitCalls(t, 2)
		require.EqualValues(t, 1_000_000-2*usualCharge, b.wallet(t).BalanceMicros)
	})
}

// TestSlowModel guarantees that the webhook never waits for the model: while it is held, deliveries are acknowledged, of
// the same customer and of others. What arrives meanwhile is answered by one more reply, which has seen it all; other
// customers don't wait for this one.
func TestSlowModel(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		slow := newGate(t)
		model := c.up.script(func(call *upstreamCall) {
			if !strings.Contains(replyTo(call), "one?") || slow.pass(call) {
				replying(call)
			}
		})
		b := c.business(t, 1_000_000, model, nil)
		l := b.line(t, localchat.Type)
		waits, other := l.from(1), l.from(2)
		requireQueued(t, c.deliver(t, waits.says("one?")), 1)
		c.awaitAsked(model, 1)
		// The model is held from here on: whatever is acknowledged didn't wait for it.
		requireQueued(t, c.deliver(t, waits.says("two?")), 1)
		requireQueued(t, c.deliver(t, waits.says("three?")), 1)
		requireQueued(t, c.deliver(t, other.says("four?")), 1)
		require.Equal(t, []string{"Re: four?"}, c.awaitSent(other, 1))
		require.Empty(t, c.sentTo(waits))
		slow.open()
		texts := c.awaitSent(waits, 2)
		require.Equal(t, "Re: one?", texts[0])
		require.Contains(t, texts[1], "three?")
		requireQueued(t, c.deliver(t, waits.says("five?")), 1)
		require.Equal(t, "Re: five?", c.awaitSent(waits, 3)[2])

		both := model.Calls()[2].Raw
		require.True(t, strings.Index(both, "two?") > 0 && strings.Index(both, "two?") < strings.Index(both, "three?"), both)
		for _, conversation := range b.conversations(t, l) {
			by, to := written(b.messages(t, conversation.ID))
			if len(by) == 1 {
				continue
			}
			require.Len(t, by, 4)
			require.Len(t, to, 3)
			require.Equal(t, []string{to[0].TurnID, to[1].TurnID, to[1].TurnID, to[2].TurnID},
				[]string{by[0].TurnID, by[1].TurnID, by[2].TurnID, by[3].TurnID})
		}
		b.awaitCalls(t, 4)
		require.EqualValues(t, 1_000_000-4*usualCharge, b.wallet(t).BalanceMicros)
	})
}

// TestLongReplies guarantees that a reply above the platform's limit arrives whole, in parts that each fit, in order.
func TestLongReplies(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	var paragraphs []string
	for i := range 60 {
		paragraphs = append(paragraphs, fmt.Sprintf("Paragraph %d. %s", i, strings.Repeat("Phở 🍜 ngon. ", 12)))
	}
	long := strings.Join(paragraphs, "\n\n")
	model := c.up.script(func(call *upstreamCall) { call.answer(long, usualUsage) })
	b := c.business(t, 1_000_000, model, nil)
	limits := map[platforms.Type]int{
		bot.Type: 4096, social.Messenger: 2000, social.PhotoDM: 1000, social.ChatApp: 4096, localchat.Type: 2000,
	}
	joined := func(texts []string) string { return strings.Join(strings.Fields(strings.Join(texts, " ")), " ") }
	for kind, limit := range limits {
		l := b.line(t, kind)
		customer := l.from(1)
		requireQueued(t, c.deliver(t, customer.says("tell me all")), 1)
		c.await("the whole reply on "+string(kind), patience, func() bool {
			return len(joined(c.sentTo(customer))) >= len(joined([]string{long}))
		})
		texts := c.sentTo(customer)
		require.Equal(t, joined([]string{long}), joined(texts), kind)
		for _, text := range texts {
			length := len([]rune(text))
			if kind == social.PhotoDM {
				length = len(text)
			}
			require.LessOrEqual(t, length, limit, kind)
			require.True(t, strings.HasPrefix(text, "Paragraph "), "%s cut in a paragraph: %.40q", kind, text)
		}
		_, to := c.requireDelivered(b, l, len(texts))
		for i, m := range to {
			require.Equal(t, texts[i], m.Text)
			require.Equal(t, to[0].TurnID, m.TurnID)
		}
	}
	require.Len(t, model.Calls(), len(limits))
}

// TestOwnKey guarantees that an assistant which uses the organization's own provider key costs no credits.
func TestOwnKey(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	b := c.business(t, 0, c.up.script(replying), assistantSettings{"useByok": true})
	b.ownKey(t, "acme", "sk-own")
	l := b.line(t, marketb.Type)
	requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
	require.Equal(t, []string{"Re: hello"}, c.awaitSent(l.from(1), 1))
	require.Equal(t, "Bearer sk-own", b.Model.only(t).Header.Get("Authorization"))
	calls := b.awaitCalls(t, 1)
	require.True(t, calls[0].BYOK)
	require.Zero(t, calls[0].Charged)
}

// TestFairness guarantees that an organization with a long queue doesn't keep another one waiting: its message is
// answered while the long queue still stands.
func TestFairness(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		busy := c.hold()
		many, few := c.business(t, 1_000_000, busy.script, nil), c.business(t, 1_000_000, c.up.script(replying), nil)
		crowd, alone := many.line(t, social.Messenger), few.line(t, bot.Type)
		const n = 200
		var accepted atomic.Int64
		together(20, func(i int) {
			for k := range n / 20 {
				if a, err := c.tryDeliver(crowd.from(i*100 + k).says("hello")); failOn(t, err) && a.accepted() {
					accepted.Add(1)
				}
			}
		})
		require.EqualValues(t, n, accepted.Load())
		c.awaitAsked(busy.script, 1)
		requireQueued(t, c.deliver(t, alone.from(1).says("me too")), 1)
		require.Equal(t, []string{"Re: me too"}, c.awaitSent(alone.from(1), 1))
		require.Less(t, len(busy.Calls()), n, "the long queue stands")
		busy.gate.open()
		c.platform.WaitSent(t, n+1)
	})
}

// TestNobodyIsLeftBehind guarantees that each customer who writes while another organization's vendor hangs is answered within a minute:
// 60 customers at a time, and in make soak 200 times, since one in 840 once was not.
func TestNobodyIsLeftBehind(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		stuck := c.hold()
		hung, quick := c.business(t, 1_000_000_000, stuck.script, nil), c.business(t, 1_000_000_000, c.up.script(replying), nil)
		crowd, alone := hung.line(t, social.Messenger), quick.line(t, bot.Type)
		write := func(l *line, from int) {
			together(10, func(i int) {
				for k := range 6 {
					answer, err := c.tryDeliver(l.from(from + 6*i + k).says("hello"))
					if failOn(t, err) && !answer.accepted() {
						t.Errorf("a delivery was answered %d %s", answer.Status, answer.Body)
					}
				}
			})
		}
		write(crowd, 1)
		c.awaitAsked(stuck.script, 1)
		var slowest time.Duration
		rounds := several(1, 200)
		for round := range rounds {
			first, began := 1+60*round, time.Now()
			write(alone, first)
			c.await(fmt.Sprintf("the answers of round %d", round), patience, func() bool { return len(c.platform.Sent()) >= 60*(round+1) })
			slowest = max(slowest, time.Since(began))
			answered := map[string]int{}
			for _, sent := range c.platform.Sent()[60*round:] {
				answered[sent.Address]++
			}
			for customer := range 60 {
				require.Equal(t, 1, answered[alone.from(first+customer).Customer], "answers to customer %d of round %d", customer, round)
			}
			require.Len(t, answered, 60, "round %d", round)
		}
		t.Logf("%d customers were answered, 60 of them within %s", 60*rounds, slowest)
		stuck.gate.open()
	})
}

// TestPlatformFaults guarantees what becomes of a reply when the platform doesn't take it, and where the business sees
// that: on the message, on the channel, on the conversation.
func TestPlatformFaults(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	for _, tc := range []struct {
		name  string
		kind  platforms.Type
		fault platformfake.Fault
		// state and code are the reply's in the end; channel and conversation the states of those.
		state, code, channel, conversation string
		// delivered: the customer has it.
		delivered bool
		// attempts is how often the platform was asked to send it, 0 for don't care.
		attempts int
	}{
		{"too many requests", bot.Type, platformfake.TooMany, "sent", "", "active", "assistant", true, 2},
		{"too many requests", social.Messenger, platformfake.TooMany, "sent", "", "active", "assistant", true, 2},
		{"for a moment", localchat.Type, platformfake.Temporary, "sent", "", "active", "assistant", true, 2},
		{"for a moment", social.ChatApp, platformfake.Temporary, "sent", "", "active", "assistant", true, 2},
		{"broken before it was read", marketa.Type, platformfake.DropBefore, "", "", "active", "assistant", false, 0},
		{"broken after it was read", bot.Type, platformfake.DropAfter, "delivery_unknown", "", "active", "assistant", true, 1},
		{"broken after it was read", marketb.Type, platformfake.DropAfter, "delivery_unknown", "", "active", "assistant", true, 1},
		{"an answer of a proxy", social.Messenger, platformfake.ServerError, "delivery_unknown", "", "active", "assistant", false, 1},
		{"garbage", social.PhotoDM, platformfake.Garbage, "delivery_unknown", "", "active", "assistant", true, 1},
		{"half an answer", localchat.Type, platformfake.Truncated, "delivery_unknown", "", "active", "assistant", true, 1},
		{"the window is over", social.Messenger, platformfake.WindowExpired, "failed", "service_window_expired", "active", "assistant", false, 1},
		{"the window is over", social.ChatApp, platformfake.WindowExpired, "failed", "template_required", "active", "assistant", false, 1},
		{"the window is over", localchat.Type, platformfake.WindowExpired, "failed", "service_window_expired", "active", "assistant", false, 1},
		{"blocked by the customer", bot.Type, platformfake.CustomerBlocked, "failed", "", "active", "closed", false, 1},
		{"refused", social.ChatApp, platformfake.Rejected, "failed", "", "active", "assistant", false, 1},
	} {
		t.Run(string(tc.kind)+"/"+tc.name, func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			b := c.business(t, 1_000_000, c.up.script(replying), nil)
			l := b.line(t, tc.kind)
			customer := l.from(1)
			text := fmt.Sprintf("fault %s of %s.", tc.name, l.ID)
			c.platform.Script(text, tc.fault)
			requireQueued(t, c.deliver(t, customer.says(text)), 1)
			_, to := c.awaitMessages(b, l, "the reply's end", func(_, to []message) bool {
				return len(to) == 1 && to[0].State != "pending" && to[0].State != "sending"
			})
			if tc.state != "" {
				require.Equal(t, tc.state, to[0].State)
			}
			if tc.code != "" {
				require.Equal(t, tc.code, to[0].Code)
			}
			require.Equal(t, tc.channel, b.channelState(t, l))
			require.Equal(t, tc.conversation, b.conversation(t, l).State)
			if tc.attempts > 0 {
				require.Equal(t, tc.attempts, c.platform.Attempts(text))
			}
			requireQueued(t, c.deliver(t, customer.says("and now?")), 1)
			c.await("the next message to be answered", patience, func() bool {
				return slices.Contains(c.sentTo(customer), "Re: and now?")
			})
			again := 0
			for _, sent := range c.sentTo(customer) {
				again += count(sent == "Re: "+text)
			}
			require.LessOrEqual(t, again, 1, "nobody is answered twice")
			if tc.delivered {
				require.Equal(t, 1, again)
			}
			b.awaitCalls(t, 2)
			require.EqualValues(t, 1_000_000-2*usualCharge, b.wallet(t).BalanceMicros, "one charge for each answer")
		})
	}
}

// TestTokens guarantees what happens when a platform no longer takes a channel's token: where there is a refresh token
// the message is sent with a new one; where there is none, or it is refused too, the channel needs to be connected
// again, the message says so, and so does an attempt to write by hand. With new credentials the channel works again.
func TestTokens(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	for _, kind := range []platforms.Type{localchat.Type, marketa.Type, marketb.Type} {
		t.Run("expired/"+string(kind), func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			b := c.business(t, 1_000_000, c.up.script(replying), nil)
			l := b.line(t, kind)
			c.platform.Expire(l.Token)
			for i := range 2 {
				requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
				c.awaitSent(l.from(1), i+1)
			}
			for _, sent := range c.platform.Sent() {
				require.NotEqual(t, l.Token, sent.Token)
			}
			require.Equal(t, "active", b.channelState(t, l))
			c.requireDelivered(b, l, 2)
		})
	}
	for _, kind := range connected {
		t.Run("revoked/"+string(kind), func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			b := c.business(t, 1_000_000, c.up.script(replying), nil)
			l := b.line(t, kind)
			c.platform.Revoke(l.Token)
			requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
			c.await("the channel to need a new token", patience, func() bool { return b.channelState(t, l) == "needs_reauth" })
			require.Empty(t, c.sentTo(l.from(1)))
			id := b.conversation(t, l).ID
			requireError(t, b.ask(t, http.MethodPost, "/conversations/"+id+"/messages", map[string]string{"text": "by hand"}), "channel_needs_reauth")

			account := l.External
			if account == "" {
				account, _, _ = strings.Cut(l.Token, ":")
			}
			fresh := c.platform.Account(kind, account)
			b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"credentials": fresh}, http.StatusOK)
			c.await("the channel to work again", patience, func() bool { return b.channelState(t, l) == "active" })
			require.Contains(t, c.awaitSent(l.from(1), 1)[0], "hello", "what waited for the channel goes out by itself")
			requireQueued(t, c.deliver(t, l.from(1).says("and now?")), 1)
			c.await("an answer with the new token", patience, func() bool {
				return slices.ContainsFunc(c.sentTo(l.from(1)), func(text string) bool { return strings.Contains(text, "and now?") })
			})
		})
	}
}
