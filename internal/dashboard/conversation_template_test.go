package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	orderReadyJSON = `{"name":"order_ready","language":"en_US","category":"utility","body":"Dear {{1}}, order {{2}} is ready.\nSee you, {{1}}!",
		"variables":["1","2"],"needs":null}`
	templatesJSON = orderReadyJSON + `,{"name":"sale","language":"en_US","category":null,"body":"Look","variables":[],"needs":"a picture in its header"}`
	templatePath  = "/dashboard/conversations/cnv_1/template"
	orderReady    = "?language=en_US&name=order_ready"
)

// Where the platform has templates, and only there, the conversation's page leads to them.
func TestConversationLeadsToTemplates(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	require.NotContains(t, r.see(t, "/dashboard/conversations/cnv_1"), `id="conversation-template"`)
	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, "social_messenger", "chat_app", 1))
	page := r.see(t, "/dashboard/conversations/cnv_1")
	require.Contains(t, element(t, page, "conversation-template"), `href="`+templatePath+`"`)
	r.answer("GET /conversations/cnv_1/messages", http.StatusOK, strings.Replace(messagesJSON, `"kind":"text"`, `"kind":"template"`, 1))
	require.Contains(t, r.see(t, "/dashboard/conversations/cnv_1"), "Assistant, as a template,")
	r.answer("GET /conversations/cnv_1", http.StatusOK, strings.Replace(conversationJSON, `"assistant"`, `"closed"`, 1))
	require.NotContains(t, r.see(t, "/dashboard/conversations/cnv_1"), `id="conversation-template"`)
}

// The list is the API's, page by page and by name, and leads to those that can be sent from here.
func TestTemplatesAreListed(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("GET /channels/chn_1/templates", http.StatusOK, `{"data":[`+templatesJSON+`],"nextCursor":"more"}`)
	page := r.see(t, templatePath+"?name=+order+")
	require.Equal(t, url.Values{"name": {"order"}}, r.last(t, http.MethodGet).query)
	holds(t, page, "template-find-name", "order")
	require.Contains(t, page, `<a href="`+templatePath+`?language=en_US&amp;name=order_ready">order_ready</a>`)
	require.NotContains(t, page, ">sale</a>")
	require.Contains(t, page, "It needs a picture in its header")
	require.Contains(t, page, `href="`+templatePath+`?cursor=more&amp;name=&#43;order&#43;"`)
	r.see(t, templatePath+"?cursor=more")
	require.Equal(t, url.Values{"cursor": {"more"}}, r.last(t, http.MethodGet).query)
	r.answer("GET /channels/chn_1/templates", http.StatusOK, listOf())
	require.Contains(t, r.see(t, templatePath), "There is none yet.")
	require.Contains(t, r.see(t, templatePath+"?name=x"), "There is none like that.")
}

// A template is shown with the values before it is sent, and sent once with all of them.
func TestTemplateIsFilledInAndSent(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	page := r.see(t, templatePath+orderReady)
	require.Equal(t, url.Values{"name": {"order_ready"}}, r.last(t, http.MethodGet).query)
	require.Contains(t, page, "Dear {{1}}, order {{2}} is ready.\nSee you, {{1}}!")
	require.Contains(t, element(t, page, "template-send-value.1"), "required")
	require.Contains(t, page, `formaction="`+templatePath+`/preview?language=en_US&amp;name=order_ready"`)

	typed := url.Values{"value.1": {"Lan <3"}, "value.2": {" "}}
	w := r.submit(t, templatePath+"/preview"+orderReady, typed)
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "Dear Lan &lt;3, order {{2}} is ready.\nSee you, Lan &lt;3!")
	holds(t, w.Body.String(), "template-send-value.1", "Lan <3")
	require.Zero(t, r.count(http.MethodPost), "nothing was sent")

	typed.Set("value.2", "7")
	r.answer("POST /conversations/cnv_1/messages", http.StatusCreated, `{"id":"msg_9","parts":["msg_9"]}`)
	requireTo(t, r.submit(t, templatePath+"/send"+orderReady, typed), "/dashboard/conversations/cnv_1", "template-send")
	require.Equal(t, map[string]any{"template": map[string]any{"name": "order_ready", "language": "en_US", "variables": []any{
		map[string]any{"name": "1", "value": "Lan <3"}, map[string]any{"name": "2", "value": "7"},
	}}}, r.last(t, http.MethodPost).body)
	require.Contains(t, r.see(t, "/dashboard/conversations/cnv_1?done=template-send"), "The template is on its way.")
}

// A refusal stands at the value that the API names, in words for people, and what was entered stays, even if the platform can't be asked
// for the template again.
func TestRefusedTemplates(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	typed := url.Values{"value.1": {"Lan"}, "value.2": {"7\t"}}
	send := func() (int, string) {
		w := r.submit(t, templatePath+"/send"+orderReady, typed)
		return w.Code, w.Body.String()
	}
	const field = "template.variables[1].value"
	r.refuse("POST /conversations/cnv_1/messages", http.StatusBadRequest, "invalid_request", field, field+" contains a line break.")
	status, page := send()
	require.Equal(t, http.StatusBadRequest, status)
	requireErrorAt(t, page, "template-send-value.2", "The value contains a line break.")
	holds(t, page, "template-send-value.1", "Lan")
	require.Contains(t, page, "Dear Lan, order 7\t is ready.")

	r.refuse("POST /conversations/cnv_1/messages", http.StatusBadRequest, "invalid_request", "template.variables", "The value of 3 is missing.")
	_, page = send()
	require.Contains(t, page, `id="template-send-error"`)
	require.Contains(t, page, "The value of 3 is missing.")

	r.refuse("POST /conversations/cnv_1/messages", http.StatusGatewayTimeout, "provider_timeout", "", "The platform did not answer in time.")
	r.refuse("GET /channels/chn_1/templates", http.StatusGatewayTimeout, "provider_timeout", "", "Not in time either.")
	status, page = send()
	require.Equal(t, http.StatusGatewayTimeout, status)
	require.Contains(t, page, "The platform did not answer in time.")
	holds(t, page, "template-send-value.1", "Lan")
	holds(t, page, "template-send-value.2", "7\t")

	r.refuse("GET /channels/chn_1/templates", http.StatusUnprocessableEntity, "channel_needs_reauth", "", "Give others with PATCH /channels/chn_1.")
	for _, path := range []string{templatePath, templatePath + orderReady} {
		w := r.open(t, path)
		require.Equal(t, http.StatusUnprocessableEntity, w.Code)
		require.Contains(t, w.Body.String(), "Reconnect the channel with another one.")
		require.NotContains(t, w.Body.String(), "PATCH")
	}
	r.answer("GET /channels/chn_1/templates", http.StatusOK, `{"data":[],"nextCursor":"more"}`)
	before := len(r.asked)
	require.Equal(t, http.StatusNotFound, r.open(t, templatePath+orderReady).Code)
	require.LessOrEqual(t, len(r.asked)-before, templatePages+2, "a look has an end")
	require.Equal(t, http.StatusBadRequest, r.submit(t, templatePath+"/send", typed).Code, "no template was chosen")
}
