package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// said is what a person sees of a message: its direction and state, and its text.
const said = `[...document.querySelectorAll("#messages > li")].map(message =>
	message.dataset.direction + " " + message.dataset.state + " " + message.querySelector(".said, .event").innerText.trim())`

// awaitSaid looks until the conversation shows these messages, without opening the page again.
func (p *person) awaitSaid(messages ...string) {
	p.t.Helper()
	p.await(strings.Join(messages, "; "), said+`.join("; ") === `+quoted(strings.Join(messages, "; ")))
}

// TestBrowserConversation guarantees the way of a customer's message through the dashboard: a user connects a channel and
// reads the address for the platform; what is delivered there appears by itself in the list and in the conversation, and so
// does the assistant's answer; a takeover isn't interrupted by it, and the user's message reaches the customer; after
// handing back the assistant answers again. At last the conversation is deleted.
func TestBrowserConversation(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	p := b.person(t, "administrator")

	credentials := c.platform.Account(bot.Type, "94700")
	p.open("/dashboard/channels")
	p.follow(`#channel-types a[href*="type=bot"]`)
	p.fill("#channel-create-name", "Tea shop")
	p.fill("#channel-create-agentId", b.AgentID)
	p.fill(`[name="credentials.botToken"]`, credentials["botToken"])
	p.fill(`[name="credentials.secretToken"]`, credentials["secretToken"])
	p.submit("form#channel-create")
	id := strings.TrimPrefix(p.path(), "/dashboard/channels/")
	require.Equal(t, c.BaseURL+"/webhooks/bot/"+id, p.text("#webhook-url"))
	require.NotContains(t, js[string](p.tab, "document.documentElement.outerHTML"), credentials["botToken"])
	p.picture("a new channel")
	l := &line{Type: bot.Type, ID: id, Token: credentials["botToken"], Secret: credentials["secretToken"], baseURL: c.BaseURL, number: businesses.Add(1)}
	customer := l.from(1)

	p.open("/dashboard/conversations")
	stays := func() { js[bool](p.tab, "window.stays = true") }
	requireStayed := func() {
		t.Helper()
		require.True(t, js[bool](p.tab, "window.stays === true"), "the page was not opened again")
	}
	stays()
	requireQueued(t, c.deliver(t, customer.says("hello")), 1)
	p.await("the conversation to appear", `document.querySelector("#conversations tbody tr")`)
	requireStayed()
	p.follow("#conversations tbody th a")
	p.awaitSaid("in received hello", "out sent Re: hello")
	stays()
	requireQueued(t, c.deliver(t, customer.says("and oolong?")), 1)
	p.awaitSaid("in received hello", "out sent Re: hello", "in received and oolong?", "out sent Re: and oolong?")
	requireStayed()
	require.Equal(t, []string{"Re: hello", "Re: and oolong?"}, c.awaitSent(customer, 2))
	p.picture("answered by the assistant")

	p.submit("form#conversation-handover")
	p.await("a person to answer", `document.querySelector("#conversation-state[data-state=human]")`)
	requireQueued(t, c.deliver(t, customer.says("Is anybody there?")), 1)
	p.awaitText("#messages > li[data-direction=in]", "Is anybody there?")
	p.open("/dashboard/conversations?waiting=true")
	require.Equal(t, []string{"1", "wait", "for", "a", "person"}, strings.Fields(p.text("#waiting")))
	p.picture("waiting for a person")
	p.follow("#conversations tbody th a")
	require.True(t, p.has("#conversation-waiting"))
	p.fill("#message-create-text", "Yes,\nhow can I help?")
	p.submit("form#message-create")
	p.await("the answer to be sent", `document.querySelector("#messages > li:last-child[data-direction=out][data-state=sent]")`)
	require.Equal(t, "Yes,\nhow can I help?", c.awaitSent(customer, 3)[2])
	p.open(p.path())
	require.False(t, p.has("#waiting"))
	p.picture("answered by a person")

	p.submit("form#conversation-handback")
	p.await("the assistant to answer", `document.querySelector("#conversation-state[data-state=assistant]")`)
	requireQueued(t, c.deliver(t, customer.says("thanks")), 1)
	p.awaitText("#messages > li[data-direction=out][data-state=sent]", "Re: thanks")
	require.Equal(t, "Re: thanks", c.awaitSent(customer, 4)[3])
	require.Len(t, b.Model.Calls(), 3, "the assistant was silent while a person had the conversation")

	conversation := p.path()
	p.submit("form#conversation-delete")
	require.Equal(t, "/dashboard/conversations", p.path())
	require.False(t, p.has("#conversations tbody tr"))
	require.EqualValues(t, 404, p.openAny(conversation))
}

// TestBrowserPlayground guarantees that the playground shows an answer while it is made, says what it cost, and takes that
// from the wallet; and that an answer that breaks off says so and loses nothing of what was typed.
func TestBrowserPlayground(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	more := newGate(t)
	b := c.business(t, 1_000_000, c.up.script(func(call *upstreamCall) {
		if strings.Contains(replyTo(call), "break") {
			call.begin()
			call.text("Half of ")
			call.drop()
			return
		}
		call.answerInTwo("We have ", more, "sencha.")
	}), nil)
	p := b.person(t, "member")
	p.open(fmt.Sprintf("/dashboard/agents/%s/playground", b.AgentID))
	p.fill("#playground-ask-text", "Green tea?")
	p.enterHere()
	p.awaitText("#playground-log li[data-direction=out]", "We have")
	require.NotContains(t, p.text("#playground-log"), "sencha")
	p.picture("while it is made")
	more.open()
	p.awaitText("#playground-log li[data-direction=out]", "We have sencha.")
	p.await("the charge", fmt.Sprintf(`document.querySelector("#playground-charged").dataset.micros === "%d"`, usualCharge))
	b.awaitCalls(t, 1)
	require.EqualValues(t, 1_000_000-usualCharge, b.wallet(t).BalanceMicros)
	p.requireAccessible()

	p.fill("#playground-ask-text", "Now break")
	p.click("form#playground-ask button[type=submit]")
	p.await("the reason", `!document.querySelector("#playground-ask-error").hidden`)
	require.Equal(t, "Now break", p.value("#playground-ask-text"))
	b.awaitCalls(t, 2)
}
