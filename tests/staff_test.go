package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestSendAgain guarantees that a message whose delivery is unknown goes to the customer a second time only when a person wishes so
// knowing that it may arrive twice, once for each wish; and that a message by hand is one message however often it is sent with its key.
func TestSendAgain(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, social.Messenger)
		customer := l.from(1)
		c.platform.Script(customer.Customer, platformfake.DropAfter)
		requireQueued(t, c.deliver(t, customer.says("hello")), 1)
		_, to := c.awaitMessages(b, l, "the delivery to be unknown", func(_, to []message) bool {
			return len(to) == 1 && to[0].State == "delivery_unknown"
		})
		conversation := b.conversation(t, l)
		require.Equal(t, "delivery_unknown", conversation.Attention)
		path := "/conversations/" + conversation.ID
		resend := path + "/messages/" + to[0].ID + "/resend"
		requireError(t, b.ask(t, http.MethodPost, resend, map[string]bool{"mayArriveTwice": false}), "invalid_request")
		again := b.post(t, resend, map[string]bool{"mayArriveTwice": true}, http.StatusOK)
		require.Equal(t, to[0].ID, again["id"])
		require.Equal(t, []string{"Re: hello", "Re: hello"}, c.awaitSent(customer, 2))
		c.awaitMessages(b, l, "the message to be sent", func(_, to []message) bool { return len(to) == 1 && to[0].State == "sent" })
		requireError(t, b.ask(t, http.MethodPost, resend, map[string]bool{"mayArriveTwice": true}), "conflict")
		require.Empty(t, b.conversation(t, l).Attention)
		require.Len(t, b.Model.Calls(), 1, "the model is asked and charged once")

		keyed := func(text string) answer {
			return b.product.as(b.customer).send(t, http.MethodPost, path+"/messages", strings.NewReader(`{"text":`+quoted(text)+`}`), "Idempotency-Key", "by-hand-1")
		}
		first, repeated := keyed("A person here."), keyed("A person here.")
		require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
		require.Equal(t, http.StatusCreated, repeated.Status, "%s", repeated.Body)
		require.Empty(t, first.Header.Get("Idempotent-Replayed"))
		require.Equal(t, "true", repeated.Header.Get("Idempotent-Replayed"))
		requireError(t, keyed("Somebody else."), "idempotency_key_reused")
		require.Equal(t, []string{"Re: hello", "Re: hello", "A person here."}, c.awaitSent(customer, 3))
		c.svc(t, "doctor")
	})
}

// TestDismissed guarantees that what a person has dismissed is never answered, whatever is mended afterwards, and that the assistant
// answers what the customer writes next.
func TestDismissed(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.lineTo(t, bot.Type, "")
		requireQueued(t, c.deliver(t, l.from(1).says("one")), 1)
		requireQueued(t, c.deliver(t, l.from(2).says("two")), 1)
		c.await("both to need attention", patience, func() bool {
			all := b.conversations(t, l)
			return len(all) == 2 && all[0].Attention == "no_agent" && all[1].Attention == "no_agent"
		})
		first := b.conversations(t, l)[0]
		require.Nil(t, b.post(t, "/conversations/"+first.ID+"/dismiss", nil, http.StatusOK)["attention"])
		b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"agentId": b.AgentID}, http.StatusOK)
		changed := b.post(t, "/conversations?channelId="+l.ID, map[string]string{"action": "retry"}, http.StatusOK)
		require.Contains(t, []any{0.0, 1.0}, changed["changed"], "the worker may have been quicker")
		c.awaitSent(l.from(2), 1)
		requireQueued(t, c.deliver(t, l.from(1).says("three")), 1)
		require.Equal(t, []string{"Re: three"}, c.awaitSent(l.from(1), 1))
		requireError(t, b.ask(t, http.MethodPost, "/conversations/"+first.ID+"/retry", nil), "conflict")
		require.Len(t, b.Model.Calls(), 2)
		c.svc(t, "doctor")
	})
}

// TestBlockedCustomer guarantees that nothing a blocked customer writes is answered or charged, and that they are answered again once
// they are unblocked.
func TestBlockedCustomer(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, bot.Type)
		customer := l.from(1)
		requireQueued(t, c.deliver(t, customer.says("one")), 1)
		c.awaitSent(customer, 1)
		path := "/conversations/" + b.conversation(t, l).ID
		require.NotNil(t, b.post(t, path+"/block", nil, http.StatusOK)["blockedAt"])
		requireQueued(t, c.deliver(t, customer.says("two")), 1)
		requireQueued(t, c.deliver(t, l.from(2).says("other")), 1)
		c.awaitSent(l.from(2), 1)
		by, to := written(b.messages(t, strings.TrimPrefix(path, "/conversations/")))
		require.Len(t, by, 2)
		require.True(t, by[1].Handled)
		require.Len(t, to, 1)
		b.post(t, path+"/unblock", nil, http.StatusOK)
		requireQueued(t, c.deliver(t, customer.says("three")), 1)
		require.Equal(t, []string{"Re: one", "Re: three"}, c.awaitSent(customer, 2))
		require.Len(t, b.Model.Calls(), 3)
		c.svc(t, "doctor")
	})
}

// TestErasedCustomer guarantees that a customer can be erased while the model is asked for them: the call ends, nothing is sent,
// nothing of what they wrote is left in the store, and the books are whole.
func TestErasedCustomer(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		model := c.hold()
		b := c.business(t, 1_000_000, model.script, nil)
		l := b.line(t, bot.Type)
		customer := l.from(1)
		requireQueued(t, c.deliver(t, customer.says("erase me")), 1)
		c.awaitAsked(model.script, 1)
		path := "/conversations/" + b.conversation(t, l).ID
		exported := b.call(t, http.MethodGet, path+"/export", nil, http.StatusOK)
		require.Len(t, exported["messages"], 1)
		b.call(t, http.MethodDelete, path, nil, http.StatusNoContent)
		model.gate.open()
		requireError(t, b.ask(t, http.MethodGet, path, nil), "not_found")
		require.Empty(t, b.conversations(t, l))
		requireQueued(t, c.deliver(t, customer.says("again")), 1)
		require.Equal(t, []string{"Re: again"}, c.awaitSent(customer, 1), "a new conversation, that knows nothing of the old one")
		calls := model.Calls()
		require.NotContains(t, calls[len(calls)-1].Raw, "erase me")
		c.svc(t, "doctor")
	})
}
