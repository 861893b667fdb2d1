package dashboard

import (
	"bytes"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/ui"
)

func TestAgentIsCreated(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("POST /agents", http.StatusCreated, agentJSON)
	w := r.submit(t, "/dashboard/agents", url.Values{"name": {"Lan"}, "model": {"echo/a"}, "instructions": {"Be kind.\r\nAlways."}, "handover": {"true"}})
	requireTo(t, w, "/dashboard/agents/agt_1", "agent-create")
	require.Equal(t, map[string]any{"name": "Lan", "model": "echo/a", "instructions": "Be kind.\nAlways.", "handover": true}, r.last(t, http.MethodPost).body)
}

// The picker says what one chooses by, and keeps a model that was taken away.
func TestModelPicker(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	page := r.see(t, "/dashboard/agents")
	require.Contains(t, page, "A – Echo A, economy, 8,000 tokens of context, runs in the home country")
	require.Contains(t, page, `<option value="echo/b">echo/b</option>`)
	holds(t, r.see(t, "/dashboard/agents/agt_1"), "agent-edit-model", "echo/a")
	r.answer("GET /agents/models", http.StatusOK, `{"data":[{"id":"echo/b"}]}`)
	page = r.see(t, "/dashboard/agents/agt_1")
	holds(t, page, "agent-edit-model", "echo/a")
	require.Contains(t, page, "echo/a (no longer available)")
}

// An empty field is sent as its default: null where the API accepts it, else 0.
func TestAgentIsChanged(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("PATCH /agents/agt_1", http.StatusOK, agentJSON)
	typed := url.Values{
		"name": {"Mai"}, "model": {"echo/a"}, "instructions": {"x"}, "maxTokens": {" 200 "}, "temperature": {"0.5"},
		"debounceSeconds": {"2.5"}, "debounceMaxSeconds": {"30"}, "pauseMinutes": {"90"}, "supersede": {"true"},
		"knowledgeBaseIds": {"kb_1", "kb_2"}, "handover": {"true"}, "handoverWords": {"a person\r\n\r\nboss\r\n"}, "handoverReply": {"Soon."}, "typing": {"true"},
	}
	requireTo(t, r.submit(t, "/dashboard/agents/agt_1", typed), "/dashboard/agents/agt_1", "agent-edit")
	want := map[string]any{
		"name": "Mai", "instructions": "x", "useByok": false, "maxTokens": 200.0, "temperature": 0.5, "debounceSeconds": 2.5,
		"debounceMaxSeconds": 30.0, "supersede": true, "pauseMinutes": 90.0, "knowledgeBaseIds": []any{"kb_1", "kb_2"},
		"handover": true, "handoverWords": []any{"a person", "boss"}, "handoverReply": "Soon.", "typing": true,
	}
	require.Equal(t, want, r.last(t, http.MethodPatch).body, "the model was not touched")

	r.submit(t, "/dashboard/agents/agt_1", url.Values{"name": {"Mai"}, "model": {"echo/b"}, "maxTokens": {""}, "debounceSeconds": {"soon"}})
	require.Equal(t, map[string]any{
		"name": "Mai", "model": "echo/b", "instructions": "", "useByok": false, "maxTokens": nil, "temperature": nil,
		"debounceSeconds": "soon", "debounceMaxSeconds": 0.0, "supersede": false, "pauseMinutes": nil,
		"handover": false, "handoverWords": []any{}, "handoverReply": "", "typing": false,
	}, r.last(t, http.MethodPatch).body, "what is no number is refused by the API at its field, and what the form didn't have stays")
	r.submit(t, "/dashboard/agents/agt_1", url.Values{"name": {"Mai"}, "knowledgeBaseIds": {""}})
	require.Equal(t, []any{}, r.last(t, http.MethodPatch).body["knowledgeBaseIds"], "no box is checked")
	require.Contains(t, r.see(t, "/dashboard/agents/agt_1"), `<input type="hidden" name="knowledgeBaseIds" value="">`)
}

// Lists for choosing are read to their end, but for one that has none.
func TestChoicesAreReadPageByPage(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("GET /knowledge-bases", http.StatusOK, `{"data":[`+baseJSON+`],"nextCursor":"more"}`)
	page := r.see(t, "/dashboard/agents/agt_1")
	require.Equal(t, maxPages, strings.Count(page, `value="kb_1"`))
	require.Equal(t, "more", r.last(t, http.MethodGet).query.Get("cursor"))
}

func TestDeletes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, form, request, to string }{
		{"/dashboard/agents/agt_1", "agent-delete", "DELETE /agents/agt_1", "/dashboard/agents"},
		{"/dashboard/knowledge/kb_1", "knowledge-delete", "DELETE /knowledge-bases/kb_1", "/dashboard/knowledge"},
		{"/dashboard/channels/chn_1", "channel-delete", "DELETE /channels/chn_1", "/dashboard/channels"},
		{"/dashboard/conversations/cnv_1", "conversation-delete", "DELETE /conversations/cnv_1", "/dashboard/conversations"},
	} {
		r := newBareFixture(t)
		require.Contains(t, element(t, r.see(t, c.path), c.form), "data-confirm=")
		r.refuse(c.request, http.StatusForbidden, "forbidden", "", "This needs the role administrator.")
		w := r.submit(t, c.path+"/delete", nil)
		require.Equal(t, http.StatusForbidden, w.Code)
		require.Contains(t, w.Body.String(), "This needs the role administrator.")
		r.answer(c.request, http.StatusNoContent, "")
		requireTo(t, r.submit(t, c.path+"/delete", nil), c.to, c.form)
	}
	r := newBareFixture(t)
	r.answer("DELETE /knowledge-bases/kb_1/documents/doc_1", http.StatusNoContent, "")
	w := r.submit(t, "/dashboard/knowledge/kb_1/delete-document", url.Values{"docId": {"doc_1"}})
	requireTo(t, w, "/dashboard/knowledge/kb_1", "document-delete")
	w = r.submit(t, "/dashboard/knowledge/kb_1/delete-document", url.Values{"docId": {"../../../agents/agt_1"}})
	require.Equal(t, http.StatusNotFound, w.Code, "no name of a document reaches another resource")
	require.NotEqual(t, "/agents/agt_1", r.last(t, http.MethodDelete).path)
}

// upload sends the form of a document with a file.
func (r *fixture) upload(t *testing.T, fileName, content string, typed map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	return r.uploadTo(t, "/dashboard/knowledge/kb_1/documents", fileName, content, typed)
}

// uploadTo sends a form with a file.
func (r *fixture) uploadTo(t *testing.T, path, fileName, content string, typed map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	body, mediaType := fileForm(t, fileName, content, typed)
	sent := httptest.NewRequest(http.MethodPost, path, body)
	sent.Header.Set("Content-Type", mediaType)
	return r.serve(t, sent)
}

func fileForm(t *testing.T, fileName, content string, typed map[string]string) (body *bytes.Buffer, mediaType string) {
	t.Helper()
	body = new(bytes.Buffer)
	parts := multipart.NewWriter(body)
	file, err := parts.CreateFormFile("file", fileName)
	require.NoError(t, err)
	_, err = file.Write([]byte(content))
	require.NoError(t, err)
	for name, value := range typed {
		require.NoError(t, parts.WriteField(name, value))
	}
	require.NoError(t, parts.Close())
	return body, parts.FormDataContentType()
}

func TestUpload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, content string
		typed         map[string]string
		want          map[string]any
	}{
		{"prices.MD", "\ufeff# Tea\r\n3", nil, map[string]any{"name": "prices.MD", "mediaType": "text/markdown", "content": "# Tea\r\n3"}},
		{"page.htm", "<p>Tea</p>", map[string]string{"name": " Tea ", "content": "not this"}, map[string]any{"name": " Tea ", "mediaType": "text/html", "content": "<p>Tea</p>"}},
		{"notes", "Tea", map[string]string{"mediaType": "text/html"}, map[string]any{"name": "notes", "mediaType": "text/html", "content": "Tea"}},
		{"notes.txt", strings.Repeat("Tea ", 1<<20), nil, map[string]any{"name": "notes.txt", "mediaType": "text/plain", "content": strings.Repeat("Tea ", 1<<20)}},
	} {
		r := newBareFixture(t)
		r.answer("POST /knowledge-bases/kb_1/documents", http.StatusCreated, `{"id":"doc_2"}`)
		requireTo(t, r.upload(t, c.file, c.content, c.typed), "/dashboard/knowledge/kb_1", "document-create")
		require.Equal(t, c.want, r.last(t, http.MethodPost).body)
	}
	r := newBareFixture(t)
	r.answer("POST /knowledge-bases/kb_1/documents", http.StatusCreated, `{"id":"doc_2"}`)
	w := r.submit(t, "/dashboard/knowledge/kb_1/documents", url.Values{"name": {"Tea"}, "content": {"3\r\n4"}, "mediaType": {""}})
	requireTo(t, w, "/dashboard/knowledge/kb_1", "document-create")
	require.Equal(t, map[string]any{"name": "Tea", "mediaType": "text/plain", "content": "3\n4"}, r.last(t, http.MethodPost).body)
}

// Files that are no text are refused before the API is asked.
func TestUploadRefusals(t *testing.T) {
	t.Parallel()
	for content, message := range map[string]string{
		"":                                 "The file is empty.",
		" ":                                "The file is empty.",
		"caf\xe9":                          "The file is not UTF-8 text.",
		"%PDF\x00":                         "The file is not UTF-8 text.",
		"\xff\xfeT\x00":                    "The file is not UTF-8 text.",
		strings.Repeat("a", maxDocument+1): "The file has more than 4 MiB.",
	} {
		r := newBareFixture(t)
		w := r.upload(t, "x.txt", content, map[string]string{"name": "Kept"})
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), `<p class="error" id="document-create-file-error">`+message)
		holds(t, w.Body.String(), "document-create-name", "Kept")
		require.Zero(t, r.count(http.MethodPost))
	}
	r := newBareFixture(t)
	require.Equal(t, http.StatusBadRequest, r.upload(t, "x.txt", strings.Repeat("a", maxUpload), nil).Code)
	w := r.submit(t, "/dashboard/knowledge/kb_1/documents", url.Values{"name": {"Tea"}})
	requireErrorAt(t, w.Body.String(), "document-create-file", "Choose a file, or paste the text below.")
	w = r.submit(t, "/dashboard/knowledge/kb_1/documents", url.Values{"content": {"Tea"}})
	requireErrorAt(t, w.Body.String(), "document-create-name", "Pasted text needs a name.")
	holds(t, w.Body.String(), "document-create-content", "Tea")
}

// A browser can't choose a file again, so its text stays in the form.
func TestRefusedFileIsKept(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.refuse("POST /knowledge-bases/kb_1/documents", http.StatusConflict, "conflict", "", "The name is taken.")
	w := r.upload(t, "prices.md", "# <Tea>\n3", nil)
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), "The name is taken.")
	holds(t, w.Body.String(), "document-create-name", "prices.md")
	holds(t, w.Body.String(), "document-create-mediaType", "text/markdown")
	holds(t, w.Body.String(), "document-create-content", "# <Tea>\n3")

	r.refuse("POST /knowledge-bases/kb_1/documents", http.StatusBadRequest, "invalid_request", "content", "content has no text.")
	w = r.upload(t, "long.txt", strings.Repeat("a", maxKeptDocument+1), nil)
	requireErrorAt(t, w.Body.String(), "document-create-file", "content has no text.")
	require.Less(t, w.Body.Len(), maxKeptDocument)
}

func TestSearchTryOut(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	require.NotContains(t, r.see(t, "/dashboard/knowledge/kb_1"), "Found for")
	r.answer("GET /knowledge-bases/kb_1/search", http.StatusOK, `{"data":[{"document":"prices.md","position":2,"text":"Tea: 3","score":1}]}`)
	page := r.see(t, "/dashboard/knowledge/kb_1?q=what+is+tea")
	require.Contains(t, page, "prices.md, part 3")
	require.Contains(t, page, "Tea: 3")
	holds(t, page, "knowledge-search-q", "what is tea")
	require.Equal(t, "what is tea", r.last(t, http.MethodGet).query.Get("q"))
	r.answer("GET /knowledge-bases/kb_1/search", http.StatusOK, `{"data":[]}`)
	element(t, r.see(t, "/dashboard/knowledge/kb_1?q=x"), "no-snippets")
	r.refuse("GET /knowledge-bases/kb_1/search", http.StatusBadRequest, "invalid_request", "q", "q is too long.")
	requireErrorAt(t, r.see(t, "/dashboard/knowledge/kb_1?q=x"), "knowledge-search-q", "q is too long.")
}

// Each type asks for what it needs, and sends nothing else.
func TestChannelsAreCreated(t *testing.T) {
	t.Parallel()
	tokens := map[string]any{"accessToken": "a", "refreshToken": "r"}
	for kind, want := range map[string]struct {
		external    bool
		credentials map[string]any
	}{
		"bot":              {false, map[string]any{"secretToken": "s", "botToken": "12:b"}},
		"social_messenger": {true, map[string]any{"accessToken": "a"}},
		"photo_dm":         {true, map[string]any{"accessToken": "a"}},
		"chat_app":         {true, map[string]any{"accessToken": "a"}},
		"localchat":        {true, tokens},
		"market_a":         {true, tokens},
		"market_b":         {true, tokens},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newBareFixture(t)
			r.answer("POST /channels", http.StatusCreated, channelJSON)
			w := r.submit(t, "/dashboard/channels", url.Values{
				"type": {kind}, "name": {"Tea"}, "agentId": {"agt_1"}, "externalId": {" 4711 "}, "credentials.secretToken": {"s"},
				"credentials.botToken": {" 12:b\n"}, "credentials.accessToken": {" a"}, "credentials.refreshToken": {"r "},
			})
			requireTo(t, w, "/dashboard/channels/chn_1", "channel-create")
			body := map[string]any{"type": kind, "name": "Tea", "agentId": "agt_1", "credentials": want.credentials}
			if want.external {
				body["externalId"] = "4711"
			}
			require.Equal(t, body, r.last(t, http.MethodPost).body)
			page := r.see(t, "/dashboard/channels?type="+kind)
			for name := range want.credentials {
				element(t, page, "channel-create-credentials."+name)
			}
			require.Equal(t, want.external, strings.Contains(page, `name="externalId"`))
		})
	}
	own := newBareFixture(t)
	own.answer("POST /channels", http.StatusCreated, channelJSON)
	own.submit(t, "/dashboard/channels", url.Values{
		"type": {"market_a"}, "name": {"Tea"}, "externalId": {"4711"}, "credentials.accessToken": {"a"}, "credentials.refreshToken": {"r"},
		"credentials.pushKey": {" p "}, "credentials.partnerId": {" "},
	})
	require.Equal(t, map[string]any{"accessToken": "a", "refreshToken": "r", "pushKey": "p"}, own.last(t, http.MethodPost).body["credentials"])
	page := own.see(t, "/dashboard/channels?type=market_a")
	require.Regexp(t, `for="channel-create-credentials.pushKey">Push key[^\n]*optional`, page)
	require.NotContains(t, element(t, page, "channel-create-credentials.pushKey"), "required")
	r := newBareFixture(t)
	require.Equal(t, http.StatusBadRequest, r.submit(t, "/dashboard/channels", url.Values{"type": {"fax"}}).Code)
	require.Zero(t, r.count(http.MethodPost))
	proposal := func() string {
		return element(t, r.see(t, "/dashboard/channels?type=bot"), "channel-create-credentials.secretToken")
	}
	first := proposal()
	require.NotEqual(t, first, proposal(), "each proposal is new")
	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, "social_messenger", "bot", 1))
	holds(t, r.see(t, "/dashboard/channels/chn_1"), "channel-reconnect-credentials.secretToken", "")
}

func TestChannelStates(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	page := r.see(t, "/dashboard/channels/chn_1")
	require.Contains(t, page, `<code id="webhook-url">https://svc.example/webhooks/social</code>`)
	require.Contains(t, page, `data-copy="#webhook-url"`)
	require.NotContains(t, page, "channel-pending")

	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, "active", "pending", 1))
	page = r.see(t, "/dashboard/channels/chn_1")
	require.Contains(t, page, "caddy svc channel approve chn_1")
	element(t, page, "channel-verify")
	r.answer("POST /channels/chn_1/verify", http.StatusOK, strings.Replace(channelJSON, "active", "pending", 1))
	w := r.submit(t, "/dashboard/channels/chn_1/verify", nil)
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "did not confirm")
	r.answer("POST /channels/chn_1/verify", http.StatusOK, channelJSON)
	r.answer("GET /channels/chn_1", http.StatusOK, channelJSON)
	require.Contains(t, r.submit(t, "/dashboard/channels/chn_1/verify", nil).Body.String(), "The platform has confirmed it.")

	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, "active", "expiring", 1))
	page = r.see(t, "/dashboard/channels/chn_1")
	require.Contains(t, page, "its token ends in some days")
	require.Contains(t, page, `href="#channel-reconnect"`)

	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, `"active"`, `"throttled","throttledUntil":"2026-11-23T11:00:00.000Z"`, 1))
	page = r.see(t, "/dashboard/channels/chn_1")
	require.Contains(t, page, "its platform has asked for a pause")
	require.Contains(t, page, `datetime="2026-11-23T11:00:00.000Z"`)

	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, "active", "needs_reauth", 1))
	page = r.see(t, "/dashboard/channels/chn_1")
	require.Contains(t, page, "Must be reconnected")
	require.Contains(t, page, `href="#channel-reconnect"`)
	r.answer("PATCH /channels/chn_1", http.StatusOK, channelJSON)
	w = r.submit(t, "/dashboard/channels/chn_1/reconnect", url.Values{"credentials.accessToken": {"new"}, "credentials.botToken": {"x"}})
	requireTo(t, w, "/dashboard/channels/chn_1", "channel-reconnect")
	require.Equal(t, map[string]any{"credentials": map[string]any{"accessToken": "new"}}, r.last(t, http.MethodPatch).body)

	w = r.submit(t, "/dashboard/channels/chn_1", url.Values{"name": {"Page 2"}, "agentId": {""}})
	requireTo(t, w, "/dashboard/channels/chn_1", "channel-edit")
	require.Equal(t, map[string]any{"name": "Page 2", "agentId": nil, "maxAgeMinutes": nil, "openingHours": []any{}, "timeZone": nil, "closedNotice": nil, "mediaNotice": nil}, r.last(t, http.MethodPatch).body)

	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, `"state"`, `"maxAgeMinutes":240,"state"`, 1))
	holds(t, r.see(t, "/dashboard/channels/chn_1"), "channel-edit-maxAgeMinutes", "240")
	r.submit(t, "/dashboard/channels/chn_1", url.Values{
		"name": {"Page"}, "agentId": {""}, "maxAgeMinutes": {"60"}, "answerMode": {"draft"},
		"openingHours": {"mon-fri 08:00-17:30\r\n\r\n sat 09:00-12:00 "}, "timeZone": {"Asia/Ho_Chi_Minh"}, "closedNotice": {"We are closed."}, "mediaNotice": {"Please write. "},
	})
	require.Equal(t, map[string]any{
		"name": "Page", "agentId": nil, "maxAgeMinutes": 60.0, "answerMode": "draft",
		"openingHours": []any{"mon-fri 08:00-17:30", "sat 09:00-12:00"}, "timeZone": "Asia/Ho_Chi_Minh", "closedNotice": "We are closed.", "mediaNotice": "Please write.",
	}, r.last(t, http.MethodPatch).body)
}

const widgetJSON = `{"id":"chn_2","type":"widget","name":"Site","externalId":null,"agentId":null,"state":"active","webhookUrl":null,
	"origins":["https://shop.example","https://*.shop.example"],"dailySpendMicros":"2500000","requestsPerMinute":30}`

// The widget has no credentials; its settings are the channel's.
func TestWidgetChannel(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("POST /channels", http.StatusCreated, widgetJSON)
	r.answer("GET /channels/chn_2", http.StatusOK, widgetJSON)
	r.answer("PATCH /channels/chn_2", http.StatusOK, widgetJSON)
	typed := url.Values{"type": {"widget"}, "name": {"Site"}, "origins": {"https://a.example\r\n\r\n https://b.example"}, "dailySpendMicros": {"2.5"}}
	requireTo(t, r.submit(t, "/dashboard/channels", typed), "/dashboard/channels/chn_2", "channel-create")
	require.Equal(t, map[string]any{
		"type": "widget", "name": "Site", "origins": []any{"https://a.example", "https://b.example"}, "dailySpendMicros": "2500000",
	}, r.last(t, http.MethodPost).body)

	page := r.see(t, "/dashboard/channels/chn_2")
	require.Contains(t, page, `&lt;script src=&#34;https://svc.example/widget/chn_2/widget.js&#34; async&gt;&lt;/script&gt;</code>`)
	holds(t, page, "channel-edit-origins", "https://shop.example\nhttps://*.shop.example")
	holds(t, page, "channel-edit-dailySpendMicros", "2.50")
	require.NotContains(t, page, "channel-reconnect")
	require.NotContains(t, page, "webhook-url")

	typed = url.Values{"name": {"Site"}, "agentId": {"agt_1"}, "origins": {""}, "requestsPerMinute": {"9"}}
	requireTo(t, r.submit(t, "/dashboard/channels/chn_2", typed), "/dashboard/channels/chn_2", "channel-edit")
	require.Equal(t, map[string]any{
		"name": "Site", "agentId": "agt_1", "origins": []any{}, "dailySpendMicros": nil, "requestsPerMinute": 9.0, "maxAgeMinutes": nil,
		"openingHours": []any{}, "timeZone": nil, "closedNotice": nil, "mediaNotice": nil,
	}, r.last(t, http.MethodPatch).body)

	typed.Set("dailySpendMicros", "much")
	w := r.submit(t, "/dashboard/channels/chn_2", typed)
	requireErrorAt(t, w.Body.String(), "channel-edit-dailySpendMicros", "Enter an amount of credits, such as 2.50, or nothing.")
	holds(t, w.Body.String(), "channel-edit-dailySpendMicros", "much")
}

func TestMicrosOf(t *testing.T) {
	t.Parallel()
	for amount, micros := range map[string]string{
		"0": "0", "1": "1000000", "2.5": "2500000", "0.000001": "1", "2.": "2000000", "007": "7000000", "999999999999.999999": "999999999999999999",
	} {
		got, ok := ui.Micros(amount)
		require.True(t, ok, amount)
		require.Equal(t, micros, got)
	}
	for _, amount := range []string{"", ".5", "-1", "+1", "1,5", "1.0000001", "1e3", "1.2.3", "1234567890123", "١"} {
		_, ok := ui.Micros(amount)
		require.False(t, ok, amount)
	}
}

// Members see channels and can't change them.
func TestMembersOnlySeeChannels(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.is("member")
	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, "active", "pending", 1))
	for _, path := range []string{"/dashboard/channels?type=bot", "/dashboard/channels/chn_1"} {
		page := r.see(t, path)
		for _, form := range []string{"channel-create", "channel-edit", "channel-reconnect", "channel-delete", "channel-verify"} {
			require.NotContains(t, page, `<form id="`+form)
		}
	}
	const message = "This needs the role administrator."
	for path, request := range map[string]string{
		"": "POST /channels", "/chn_1": "PATCH /channels/chn_1", "/chn_1/verify": "POST /channels/chn_1/verify",
		"/chn_1/reconnect": "PATCH /channels/chn_1", "/chn_1/delete": "DELETE /channels/chn_1",
	} {
		r.refuse(request, http.StatusForbidden, "forbidden", "", message)
		w := r.submit(t, "/dashboard/channels"+path, url.Values{"type": {"bot"}, "name": {"Bot"}})
		require.Equal(t, http.StatusForbidden, w.Code)
		require.Contains(t, w.Body.String(), message, path)
	}
}

// The playground's relay asks the assistant, in the person's name, and hands the stream through.
func TestPlaygroundRelay(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	const stream = "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"
	r.answers["POST /agents/agt_1/playground"] = scriptedAnswer{
		status: http.StatusOK, body: stream, header: http.Header{"Content-Type": {"text/event-stream"}},
	}
	send := func(body string) *httptest.ResponseRecorder {
		sent := httptest.NewRequest(http.MethodPost, "/dashboard/agents/agt_1/playground/stream", strings.NewReader(body))
		sent.Header.Set("Cookie", "svc_session=abc")
		sent.Header.Set("Sec-Fetch-Site", "same-origin")
		sent.Proto, sent.ProtoMajor, sent.ProtoMinor = "HTTP/2.0", 2, 0
		w := httptest.NewRecorder()
		r.dashboard.ServeHTTP(w, sent)
		return w
	}
	said := `{"messages":[{"role":"user","content":"<hi>"}]}`
	w := send(said)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, stream, w.Body.String())
	require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	asked := r.last(t, http.MethodPost)
	require.Equal(t, "svc_session=abc", asked.header.Get("Cookie"))
	require.Equal(t, "HTTP/2.0", asked.protocol, "the API writes to the browser's connection, by its rules")
	text, err := json.Marshal(asked.body)
	require.NoError(t, err)
	require.JSONEq(t, said, string(text))
	require.Equal(t, http.StatusBadRequest, send(`{"messages":`).Code)
	w = send(`{"messages":"` + strings.Repeat("x", maxTry) + `"}`)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "What you sent is too large.")
	r.refuse("POST /agents/agt_1/playground", http.StatusPaymentRequired, "insufficient_credits", "", "No funds.")
	w = send(said)
	require.Equal(t, http.StatusPaymentRequired, w.Code)
	require.Contains(t, w.Body.String(), "No funds.")
}

// A channel that lost its account to an organization for which the platform confirmed it says so, and offers neither another
// attempt nor new credentials.
func TestLostChannel(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pending := strings.Replace(channelJSON, `"active"`, `"pending"`, 1)
	r.answer("GET /channels/chn_1", http.StatusOK, pending)
	page := r.see(t, "/dashboard/channels/chn_1")
	element(t, page, "channel-pending")
	element(t, page, "channel-reconnect")
	require.NotContains(t, page, "channel-lost")

	lost := strings.Replace(pending, `"externalId":"4711"`, `"externalId":null,"lostExternalId":"4711"`, 1)
	r.answer("GET /channels/chn_1", http.StatusOK, lost)
	r.answer("GET /channels", http.StatusOK, listOf(lost))
	page = r.see(t, "/dashboard/channels/chn_1")
	require.Contains(t, page, `<strong>4711</strong> for another`)
	element(t, page, "channel-delete")
	for _, id := range []string{"channel-pending", "channel-reconnect", "channel-verify"} {
		require.NotContains(t, page, id)
	}
	for _, list := range []string{"/dashboard/channels", "/dashboard"} {
		require.Contains(t, r.see(t, list), "Lost its account to another organization", list)
	}
}

// A channel whose platform is not part of the installation is shown, says so wherever channels are shown, and can be deleted.
func TestChannelWithoutPlatform(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	const reason = "The platform of channels of type fax is not part of this installation."
	fax := regexp.MustCompile(`"type":"[^"]*"`).ReplaceAllString(channelJSON, `"type":"fax","unavailableReason":"`+reason+`"`)
	r.answer("GET /channels/chn_1", http.StatusOK, fax)
	r.answer("GET /channels", http.StatusOK, listOf(fax))
	page := r.see(t, "/dashboard/channels/chn_1")
	element(t, page, "channel-unavailable")
	require.Contains(t, page, reason)
	element(t, page, "channel-edit")
	element(t, page, "channel-delete")
	require.NotContains(t, page, "channel-reconnect", "nothing is known about its credentials")
	for _, list := range []string{"/dashboard/channels", "/dashboard"} {
		require.Contains(t, r.see(t, list), "Stands still: its platform is missing", list)
	}
}
