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

// readyTemplates are those of a shop at the chat app, by the platform's rules.
func readyTemplates() []platformfake.Template {
	return []platformfake.Template{
		{Name: "order_ready", Language: "en_US", Category: "UTILITY", Body: "Dear {{1}}, order {{2}} is ready."},
		{Name: "we_miss_you", Language: "vi", Body: "Chào {{first_name}}!"},
		{Name: "sale", Language: "en_US", Body: "Look at this", Others: `[{"type":"HEADER","format":"IMAGE"}]`},
	}
}

// TestTemplates guarantees that a conversation which the platform takes no text for any more is no dead end: an approved template is
// listed, sent once however often it is asked for, and shown as the customer sees it; the conversation then needs nobody.
func TestTemplates(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, social.ChatApp)
		c.platform.SetTemplates(l.External, readyTemplates()...)
		customer := l.from(1)
		c.platform.CloseWindow(customer.Customer)
		requireQueued(t, c.deliver(t, customer.says("hello")), 1)
		c.awaitMessages(b, l, "the answer to be refused", func(_, to []message) bool {
			return len(to) == 1 && to[0].State == "failed" && to[0].Code == "template_required"
		})
		conversation := b.conversation(t, l)
		require.Equal(t, "template_required", conversation.Attention)

		listed := b.call(t, http.MethodGet, "/channels/"+l.ID+"/templates", nil, http.StatusOK)
		require.Nil(t, listed["nextCursor"])
		require.Len(t, listed["data"], 3)
		require.Equal(t, map[string]any{
			"name": "order_ready", "language": "en_US", "category": "utility", "body": "Dear {{1}}, order {{2}} is ready.",
			"variables": []any{"1", "2"}, "needs": nil,
		}, listed["data"].([]any)[0])

		path := "/conversations/" + conversation.ID + "/messages"
		const body = `{"template":{"name":"order_ready","language":"en_US","variables":[{"name":"1","value":"Lan"},{"name":"2","value":"7"}]}}`
		for _, replayed := range []string{"", "true"} {
			a := b.product.as(b.customer).send(t, http.MethodPost, path, strings.NewReader(body), "Idempotency-Key", "order-7")
			require.Equal(t, http.StatusCreated, a.Status, "%s", a.Body)
			require.Equal(t, replayed, a.Header.Get("Idempotent-Replayed"))
		}
		require.Equal(t, []string{"Dear Lan, order 7 is ready."}, c.awaitSent(customer, 1))
		require.Equal(t, "order_ready", c.platform.SentTo(customer.Customer)[0].Template)
		_, to := c.awaitMessages(b, l, "the template to be sent", func(_, to []message) bool { return len(to) == 2 && to[1].State == "sent" })
		require.Equal(t, "template", to[1].Kind)
		require.Equal(t, "human", to[1].Author)
		require.Equal(t, "Dear Lan, order 7 is ready.", to[1].Text)
		require.Empty(t, b.conversation(t, l).Attention)

		for _, refused := range []map[string]any{
			{"name": "order_ready", "language": "en_US"},
			{"name": "order_ready", "language": "de"},
			{"name": "unknown", "language": "en_US"},
			{"name": "sale", "language": "en_US"},
		} {
			requireError(t, b.ask(t, http.MethodPost, path, map[string]any{"template": refused}), "invalid_request")
		}
		named := map[string]any{"name": "we_miss_you", "language": "vi", "variables": []any{map[string]string{"name": "first_name", "value": "Lan"}}}
		b.post(t, path, map[string]any{"template": named}, http.StatusCreated)
		require.Equal(t, "Chào Lan!", c.awaitSent(customer, 2)[1])
		c.svc(t, "doctor")
	})
}

// TestPausedTemplates guarantees that a template which the platform pauses while it is on its way fails by name, and can be sent again
// when the pause is over.
func TestPausedTemplates(t *testing.T) {
	t.Parallel()
	c := prepareConnected(t, store.SQLite)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := b.lineTo(t, social.ChatApp, "")
	c.platform.SetTemplates(l.External, readyTemplates()...)
	customer := l.from(1)
	requireQueued(t, c.deliver(t, customer.says("hello")), 1)
	conversation := b.conversation(t, l)
	path := "/conversations/" + conversation.ID
	named := map[string]any{"name": "we_miss_you", "language": "vi", "variables": []any{map[string]string{"name": "first_name", "value": "Lan"}}}
	sent := b.post(t, path+"/messages", map[string]any{"template": named}, http.StatusCreated)
	paused := readyTemplates()
	paused[1].Status = "PAUSED"
	c.platform.SetTemplates(l.External, paused...)
	c.worker = c.startWorker()
	c.awaitMessages(b, l, "the template to fail", func(_, to []message) bool {
		return len(to) == 1 && to[0].State == "failed" && to[0].Code == "template_paused"
	})
	requireError(t, b.ask(t, http.MethodPost, path+"/messages", map[string]any{"template": named}), "invalid_request")
	c.platform.SetTemplates(l.External, readyTemplates()...)
	b.post(t, path+"/messages/"+sent["id"].(string)+"/resend", map[string]bool{"mayArriveTwice": false}, http.StatusOK)
	require.Equal(t, []string{"Chào Lan!"}, c.awaitSent(customer, 1))

	other := b.line(t, bot.Type)
	requireError(t, b.ask(t, http.MethodGet, "/channels/"+other.ID+"/templates", nil), "conflict")
	c.platform.Expire(l.Token)
	requireError(t, b.ask(t, http.MethodGet, "/channels/"+l.ID+"/templates", nil), "channel_needs_reauth")
	c.svc(t, "doctor")
}
