package tests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestBrowserTemplates guarantees that a person finds, from a conversation that the platform takes no text for any more, the templates
// that it has approved, sees one with the values before it is sent, learns at the field what is wrong with a value, and sends it, without
// script as well; the conversation then shows it and needs nobody.
func TestBrowserTemplates(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := b.line(t, social.ChatApp)
	c.platform.SetTemplates(l.External, readyTemplates()...)
	customer := l.from(1)
	c.platform.CloseWindow(customer.Customer)
	requireQueued(t, c.deliver(t, customer.says("hello")), 1)
	c.awaitMessages(b, l, "the answer to be refused", func(_, to []message) bool { return len(to) == 1 && to[0].State == "failed" })
	p := b.person(t, "member")
	conversation := "/dashboard/conversations/" + b.conversation(t, l).ID

	p.open(conversation)
	require.True(t, p.has("#conversation-attention[data-code=template_required]"))
	p.requireAccessible()
	p.follow("#conversation-template")
	require.Equal(t, []string{"order_ready", "we_miss_you", "sale"}, p.texts("#templates tbody th"))
	require.Equal(t, 2, p.count("#templates tbody th a"), "one needs a picture")
	p.requireAccessible()
	p.picture("the list")
	p.fill("#template-find-name", "order")
	p.submit("form#template-find")
	require.Equal(t, []string{"order_ready"}, p.texts("#templates tbody th"))
	p.follow("#templates tbody th a")
	require.Equal(t, "Dear {{1}}, order {{2}} is ready.", p.text("#template-text"))

	const first, second, preview, send = `[id="template-send-value.1"]`, `[id="template-send-value.2"]`, "#template-send [formaction]", "#template-send button:not([formaction])"
	p.fill(first, "Lan")
	require.EqualValues(t, 400, p.follow(send).Status, "a value is missing")
	p.requireFieldErrorAt("template-send-value.2")
	require.Equal(t, "Dear Lan, order {{2}} is ready.", p.text("#template-text"))
	p.fill(second, "7")
	require.EqualValues(t, 200, p.follow(preview).Status)
	require.Equal(t, "Dear Lan, order 7 is ready.", p.text("#template-text"))
	p.requireAccessible()
	p.picture("with the values")
	p.follow(send)
	require.Equal(t, conversation, p.path())
	require.Equal(t, []string{"Dear Lan, order 7 is ready."}, c.awaitSent(customer, 1))
	p.await("the template to be shown as sent", `document.querySelector("#messages > li:last-child[data-kind=template][data-state=sent]")`)
	p.await("the end of the attention", `!document.querySelector("#conversation-attention")`)

	p.withoutScript()
	p.open(conversation + "/template?name=we_miss_you&language=vi")
	p.fill(`[id="template-send-value.first_name"]`, "Lan")
	p.follow(preview)
	require.Equal(t, "Chào Lan!", p.text("#template-text"))
	p.follow(send)
	require.Equal(t, "Chào Lan!", c.awaitSent(customer, 2)[1])
	c.svc(t, "doctor")
}
