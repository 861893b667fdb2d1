package dashboard

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// scriptedAPI answers by a script, by method and path, and records its requests.
type scriptedAPI struct {
	mu      sync.Mutex
	answers map[string]scriptedAnswer
	asked   []asked
}

type scriptedAnswer struct {
	status int
	body   string
	header http.Header
}

// asked is a request that came to the API.
type asked struct {
	method, path string
	protocol     string
	query        url.Values
	header       http.Header
	body         map[string]any
}

func (a *scriptedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	one := asked{method: r.Method, path: r.URL.Path, protocol: r.Proto, query: r.URL.Query(), header: r.Header}
	_ = json.Unmarshal(text, &one.body) // none is none
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, one)
	answer, known := a.answers[r.Method+" "+r.URL.Path]
	if !known {
		answer = refusedBy(http.StatusNotFound, "not_found", "", "There is nothing with this id.")
	}
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = io.WriteString(w, answer.body)
}

// answer makes the API say something to a request like "GET /agents".
func (a *scriptedAPI) answer(request string, status int, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[request] = scriptedAnswer{status: status, body: body}
}

// refuse makes the API refuse it.
func (a *scriptedAPI) refuse(request string, status int, code, field, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[request] = refusedBy(status, code, field, message)
}

func refusedBy(status int, code, field, message string) scriptedAnswer {
	text, err := json.Marshal(map[string]any{"error": map[string]any{
		"code": code, "field": field, "message": message, "requestId": "req_1",
	}})
	if err != nil {
		panic(err)
	}
	return scriptedAnswer{status: status, body: string(text)}
}

// last is the newest request of a method, without those for the session.
func (a *scriptedAPI) last(t *testing.T, method string) asked {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range slices.Backward(a.asked) {
		if one.method == method && one.path != "/session" {
			return one
		}
	}
	require.Fail(t, "the API was not asked with "+method)
	return asked{}
}

func (a *scriptedAPI) count(method string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.asked {
		if a.asked[i].method == method {
			n++
		}
	}
	return n
}

const (
	agentJSON = `{"id":"agt_1","name":"Lan","model":"echo/a","instructions":"Be kind.","useByok":true,"maxTokens":null,
		"temperature":0.7,"debounceSeconds":2.5,"debounceMaxSeconds":0,"supersede":false,"pauseMinutes":null,
		"knowledgeBaseIds":["kb_1"],"createdAt":"2026-11-21T10:00:00.000Z","updatedAt":"2026-11-21T10:00:00.000Z"}`
	modelsJSON = `{"data":[{"id":"echo/a","displayName":"Echo A","friendlyName":"A","tier":"economy","contextWindow":8000,
		"maxOutputTokens":1,"vnHosted":true},{"id":"echo/b","displayName":"","friendlyName":"","tier":"","contextWindow":0}]}`
	baseJSON = `{"id":"kb_1","name":"Prices","description":"What it costs","documents":2,"bytes":2048,
		"createdAt":"2026-11-21T10:00:00.000Z","updatedAt":"2026-11-21T10:00:00.000Z"}`
	channelJSON = `{"id":"chn_1","type":"social_messenger","name":"Page","externalId":"4711","agentId":"agt_1","state":"active",
		"webhookUrl":"https://svc.example/webhooks/social","createdAt":"2026-11-21T10:00:00.000Z","updatedAt":"2026-11-21T10:00:00.000Z"}`
	conversationJSON = `{"id":"cnv_1","channelId":"chn_1","customerId":"8490","customerName":"Lan","state":"assistant",
		"attention":null,"pausedUntil":null,"lastCustomerAt":"2026-11-21T10:00:00.000Z","createdAt":"2026-11-21T10:00:00.000Z",
		"updatedAt":"2026-11-21T10:00:00.000Z"}`
	messagesJSON = `{"data":[
		{"id":"msg_2","author":"assistant","kind":"text","text":"hello","state":"sent","code":null,"turnId":"trn_1","handled":false,"at":"2026-11-21T10:01:00.000Z"},
		{"id":"msg_1","author":"customer","kind":"text","text":"hi","state":null,"code":null,"turnId":"trn_1","handled":false,"at":"2026-11-21T10:00:00.000Z"}
		],"nextCursor":null}`
	documentsJSON = `{"data":[{"id":"doc_1","knowledgeBaseId":"kb_1","name":"prices.md","mediaType":"text/markdown","bytes":100,
		"state":"ready","chunksDone":3,"chunksTotal":3,"reason":null,"createdAt":"2026-11-21T10:00:00.000Z","updatedAt":"2026-11-21T10:00:00.000Z"}],
		"nextCursor":null}`
)

func listOf(elements ...string) string {
	return `{"data":[` + strings.Join(elements, ",") + `],"nextCursor":null}`
}

// rooms are the pages over an API that has one of everything.
type fixture struct {
	*scriptedAPI

	dashboard *Dashboard
}

func newBareFixture(t *testing.T) *fixture {
	t.Helper()
	api := &scriptedAPI{answers: make(map[string]scriptedAnswer)}
	for request, body := range map[string]string{
		"GET /agents": listOf(agentJSON), "GET /agents/agt_1": agentJSON, "GET /agents/models": modelsJSON,
		"GET /knowledge-bases": listOf(baseJSON), "GET /knowledge-bases/kb_1": baseJSON, "GET /knowledge-bases/kb_1/documents": documentsJSON,
		"GET /channels": listOf(channelJSON), "GET /channels/chn_1": channelJSON,
		"GET /conversations": listOf(conversationJSON), "GET /conversations/cnv_1": conversationJSON, "GET /conversations/cnv_1/messages": messagesJSON,
		"GET /channels/chn_1/templates": listOf(templatesJSON),
	} {
		api.answer(request, http.StatusOK, body)
	}
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	r := &fixture{scriptedAPI: api, dashboard: overHTTP(New(Config{
		API: api, BaseURL: "https://svc.example", ChannelTypes: catalog.Declared(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}))}
	r.is("owner")
	return r
}

// is signs the visitor in with a role.
func (r *fixture) is(role string) {
	r.answer("GET /session", http.StatusOK,
		`{"user":{"id":"usr_1","email":"lan@shop.example"},"organization":{"id":"org_1","name":"Shop"},"role":"`+role+`"}`)
}

// see opens a page, which must be shown.
func (r *fixture) see(t *testing.T, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
	requireNothingInline(t, w.Body.String())
	return w.Body.String()
}

// submit sends a form.
func (r *fixture) submit(t *testing.T, path string, typed url.Values) *httptest.ResponseRecorder {
	t.Helper()
	sent := httptest.NewRequest(http.MethodPost, path, strings.NewReader(typed.Encode()))
	sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	sent.Header.Set("Cookie", "__Host-svc_session=abc")
	return r.serve(t, sent)
}

func (r *fixture) serve(t *testing.T, sent *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r.dashboard.ServeHTTP(w, sent)
	requireNothingInline(t, w.Body.String())
	return w
}

// requireTo checks that the browser is sent to a page that says what was done.
func requireTo(t *testing.T, w *httptest.ResponseRecorder, path, form string) {
	t.Helper()
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body.String())
	require.Equal(t, path+"?done="+form, w.Header().Get("Location"))
}

var (
	inlineStyle  = regexp.MustCompile(`(?i)<style|\sstyle=`)
	inlineScript = regexp.MustCompile(`(?i)<script[^>]*>[^<]|\son[a-z]+=|javascript:`)
	scriptWith   = regexp.MustCompile(`<script type="module" src="/dashboard/static/[0-9a-f]+/[a-z]+\.js"></script>`)
)

// requireNothingInline requires a page without inline script or style, which the policy forbids.
func requireNothingInline(t *testing.T, page string) {
	t.Helper()
	require.NotRegexp(t, inlineStyle, page)
	require.NotRegexp(t, inlineScript, page)
	require.NotContains(t, scriptWith.ReplaceAllString(page, ""), "<script")
}

// element finds the start tag of the element with an id.
func element(t *testing.T, page, id string) string {
	t.Helper()
	tag := regexp.MustCompile(`<[a-z]+[^>]*\sid="` + regexp.QuoteMeta(id) + `"[^>]*>`).FindString(page)
	require.NotEmpty(t, tag, "no element with the id %s in %s", id, page)
	return tag
}

// holds checks that an input, an area, a select or a box has a value.
func holds(t *testing.T, page, id, value string) {
	t.Helper()
	tag, escaped := element(t, page, id), html.EscapeString(value)
	escaped = strings.NewReplacer("&#39;", "&#39;", "+", "&#43;").Replace(escaped)
	_, after, _ := strings.Cut(page, tag)
	switch {
	case strings.HasPrefix(tag, "<textarea"):
		require.True(t, strings.HasPrefix(after, "\n"+escaped+"</textarea>"), "%s holds %.100q", id, after)
	case strings.HasPrefix(tag, "<select"):
		inside, _, _ := strings.Cut(after, "</select>")
		require.Contains(t, inside, `<option value="`+escaped+`" selected>`)
	case strings.Contains(tag, `type="checkbox"`):
		require.Equal(t, value == "true", strings.Contains(tag, " checked"))
	default:
		require.Contains(t, tag, ` value="`+escaped+`"`)
	}
}

// requireErrorAt checks that a message stands at an input, and that screen readers know.
func requireErrorAt(t *testing.T, page, id, message string) {
	t.Helper()
	tag := element(t, page, id)
	require.Contains(t, tag, id+"-error")
	at := element(t, page, id+"-error")
	_, after, _ := strings.Cut(page, at)
	require.True(t, strings.HasPrefix(after, html.EscapeString(message)+"<"), "%s: %.200s", id, after)
}

// Every page is shown, names its hooks, and has nothing that the policy forbids.
func TestRoomsAreShown(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("GET /knowledge-bases/kb_1/search", http.StatusOK, `{"data":[{"document":"prices.md","position":2,"text":"Tea: 3","score":1}]}`)
	for path, hooks := range map[string][]string{
		"/dashboard/agents":                  {"agents", "agent-create", "agent-create-name", "agent-create-model", "agent-create-instructions"},
		"/dashboard/agents/agt_1":            {"agent-edit", "agent-edit-temperature", "agent-edit-useByok", "agent-edit-knowledgeBaseIds", "agent-delete"},
		"/dashboard/agents/agt_1/playground": {"playground-log", "playground-ask", "playground-ask-text", "playground-charged"},
		"/dashboard/knowledge":               {"knowledge-bases", "knowledge-create", "knowledge-create-name"},
		"/dashboard/knowledge/kb_1":          {"documents", "document-create", "document-create-file", "document-delete-doc_1", "knowledge-search-q", "knowledge-delete"},
		"/dashboard/knowledge/kb_1?q=tea":    {"snippets"},
		"/dashboard/channels":                {"channels", "channel-types"},
		"/dashboard/channels?type=bot":       {"channel-create", "channel-create-name", "channel-create-agentId", "channel-create-credentials.botToken", "channel-create-credentials.secretToken"},
		"/dashboard/channels?type=market_a":  {"channel-create-externalId", "channel-create-credentials.accessToken", "channel-create-credentials.refreshToken"},
		"/dashboard/channels?type=chat_app":  {"channel-create-externalId", "channel-create-credentials.accessToken"},
		"/dashboard/channels/chn_1":          {"webhook-url", "channel-state", "channel-steps", "channel-edit", "channel-reconnect", "channel-delete"},
		"/dashboard/conversations":           {"conversations", "conversation-filter", "conversation-filter-state", "conversation-filter-waiting"},
		"/dashboard/conversations/cnv_1":     {"messages", "conversation-state", "message-create-text", "conversation-handover", "conversation-delete"},
	} {
		page := r.see(t, path)
		for _, hook := range hooks {
			element(t, page, hook)
		}
		require.Equal(t, 1, strings.Count(page, "<h1>"), path)
	}
}

// Headings go down by one at a time, so that readers can find their way.
func TestRoomsHaveHeadingsInOrder(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("GET /knowledge-bases/kb_1/search", http.StatusOK, `{"data":[{"document":"prices.md","position":2,"text":"Tea: 3","score":1}]}`)
	heading := regexp.MustCompile(`<h([1-6])`)
	for _, path := range []string{
		"/dashboard/agents", "/dashboard/agents/agt_1", "/dashboard/agents/agt_1/playground", "/dashboard/knowledge",
		"/dashboard/knowledge/kb_1?q=tea", "/dashboard/channels?type=bot", "/dashboard/channels/chn_1", "/dashboard/conversations",
		"/dashboard/conversations/cnv_1",
	} {
		level := byte('0')
		for _, found := range heading.FindAllStringSubmatch(r.see(t, path), -1) {
			require.LessOrEqual(t, found[1][0], level+1, path)
			level = found[1][0]
		}
	}
}

// What was typed stays after a refusal, and the message stands at the field that the API named.
func TestRoomFormsKeepWhatWasTyped(t *testing.T) {
	t.Parallel()
	const message = `That's "not" <right>.`
	for _, c := range []struct {
		name, request, path, form, field, api string
		typed                                 url.Values
		forgets                               []string
	}{
		{
			name: "new assistant", request: "POST /agents", path: "/dashboard/agents", form: "agent-create", field: "name",
			typed: url.Values{"name": {`<b>"Lan"`}, "model": {"echo/b"}, "instructions": {"Be kind.\n</textarea> & more"}},
		},
		{
			name: "assistant", request: "PATCH /agents/agt_1", path: "/dashboard/agents/agt_1", form: "agent-edit", field: "temperature",
			typed: url.Values{
				"name": {"Mai"}, "model": {"echo/b"}, "instructions": {""}, "maxTokens": {"many"}, "temperature": {"hot"}, "debounceSeconds": {"3"},
				"debounceMaxSeconds": {"9"}, "pauseMinutes": {"7.5"}, "supersede": {"true"}, "useByok": {""},
			},
		},
		{
			name: "new knowledge base", request: "POST /knowledge-bases", path: "/dashboard/knowledge", form: "knowledge-create", field: "name",
			typed: url.Values{"name": {"Prices"}, "description": {"All <of> them"}},
		},
		{
			name: "knowledge base", request: "PATCH /knowledge-bases/kb_1", path: "/dashboard/knowledge/kb_1", form: "knowledge-edit",
			field: "description", typed: url.Values{"name": {"Prices 2"}, "description": {"All"}},
		},
		{
			name: "pasted document", request: "POST /knowledge-bases/kb_1/documents", path: "/dashboard/knowledge/kb_1/documents",
			form: "document-create", field: "name",
			typed: url.Values{"name": {"prices"}, "content": {"Tea: 3\n"}, "mediaType": {"text/markdown"}},
		},
		{
			name: "new bot", request: "POST /channels", path: "/dashboard/channels", form: "channel-create", field: "credentials.botToken",
			typed: url.Values{
				"type": {"bot"}, "name": {"Bot"}, "agentId": {"agt_1"}, "credentials.secretToken": {"s3cret"}, "credentials.botToken": {"12:never"},
			},
			forgets: []string{"credentials.botToken"},
		},
		{
			name: "new shop", request: "POST /channels", path: "/dashboard/channels", form: "channel-create", field: "externalId",
			typed: url.Values{
				"type": {"market_b"}, "name": {"Shop"}, "agentId": {""}, "externalId": {"47 11"},
				"credentials.accessToken": {"never-1"}, "credentials.refreshToken": {"never-2"},
			},
			forgets: []string{"credentials.accessToken", "credentials.refreshToken"},
		},
		{
			name: "channel", request: "PATCH /channels/chn_1", path: "/dashboard/channels/chn_1", form: "channel-edit", field: "agentId",
			typed: url.Values{"name": {"Page 2"}, "agentId": {""}},
		},
		{
			name: "reconnect", request: "PATCH /channels/chn_1", path: "/dashboard/channels/chn_1/reconnect", form: "channel-reconnect",
			field: "credentials.accessToken", typed: url.Values{"credentials.accessToken": {"never"}},
			forgets: []string{"credentials.accessToken"},
		},
		{
			name: "answer", request: "POST /conversations/cnv_1/messages", path: "/dashboard/conversations/cnv_1/messages",
			form: "message-create", field: "text", typed: url.Values{"text": {"Hello\n<there>"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newBareFixture(t)
			r.refuse(c.request, http.StatusBadRequest, "invalid_request", c.field, message)
			w := r.submit(t, c.path, c.typed)
			require.Equal(t, http.StatusBadRequest, w.Code)
			page := w.Body.String()
			requireErrorAt(t, page, c.form+"-"+c.field, message)
			for name, values := range c.typed {
				if name == "type" {
					continue
				}
				if !strings.Contains(strings.Join(c.forgets, " "), name) {
					holds(t, page, c.form+"-"+name, values[0])
				} else {
					require.NotContains(t, page, values[0], "a secret is never written into a page")
				}
			}

			r.refuse(c.request, http.StatusConflict, "conflict", "", message)
			w = r.submit(t, c.path, c.typed)
			require.Equal(t, http.StatusConflict, w.Code)
			require.Contains(t, w.Body.String(), html.EscapeString(message), "without a field it stands at the form")
			element(t, w.Body.String(), c.form+"-error")
		})
	}
}

// A form that is shown again at the address of another action still sends to its own.
func TestRoomFormsNameTheirAddress(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`<form id="([^"]+)"[^>]*>`)
	for page, sent := range map[string]string{
		"/dashboard/agents/agt_1": "/delete", "/dashboard/knowledge/kb_1": "/documents", "/dashboard/channels/chn_1": "/reconnect",
		"/dashboard/conversations/cnv_1": "/messages",
	} {
		r := newBareFixture(t)
		w := r.submit(t, page+sent, url.Values{})
		require.GreaterOrEqual(t, w.Code, 400, page)
		for _, found := range form.FindAllStringSubmatch(w.Body.String(), -1) {
			require.Contains(t, found[0], ` action="/dashboard/`, found[1])
		}
		for _, live := range regexp.MustCompile(`data-live="([^"]+)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			require.True(t, strings.HasPrefix(live[1], page+"?fragment="), live[1])
		}
	}
}

// What customers write, and what they call themselves, is text wherever it stands.
func TestCustomersTextIsEscaped(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	const evil = `<img src=x onerror=alert(1)>"'</li><script>`
	quoted, err := json.Marshal(evil)
	require.NoError(t, err)
	for _, request := range []string{"GET /conversations", "GET /conversations/cnv_1"} {
		body := strings.Replace(conversationJSON, `"Lan"`, string(quoted), 1)
		if request == "GET /conversations" {
			body = listOf(body)
		}
		r.answer(request, http.StatusOK, body)
	}
	r.answer("GET /conversations/cnv_1/messages", http.StatusOK, strings.Replace(messagesJSON, `"hi"`, string(quoted), 1))
	r.answer("GET /knowledge-bases/kb_1/search", http.StatusOK, fmt.Sprintf(`{"data":[{"document":%s,"position":0,"text":%s}]}`, quoted, quoted))
	for _, path := range []string{
		"/dashboard/conversations", "/dashboard/conversations?fragment=conversation-list", "/dashboard/conversations/cnv_1",
		"/dashboard/conversations/cnv_1?fragment=message-list", "/dashboard/knowledge/kb_1?q=" + url.QueryEscape(evil),
	} {
		page := httptest.NewRecorder()
		r.dashboard.ServeHTTP(page, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, page.Code)
		require.Contains(t, page.Body.String(), "&lt;img src=x", path)
		require.NotContains(t, page.Body.String(), "<img", path)
	}
}

// Live parts are their own piece of the page, and follow what the address asks for.
func TestLiveParts(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	for path, has := range map[string]string{
		"/dashboard/conversations?fragment=conversation-list&state=human": `<table id="conversations">`,
		"/dashboard/conversations/cnv_1?fragment=message-list":            `<ol id="messages"`,
		"/dashboard/conversations/cnv_1?fragment=conversation-state":      `id="conversation-state"`,
		"/dashboard/knowledge/kb_1?fragment=documents":                    `<table id="documents">`,
	} {
		part := r.see(t, path)
		require.Contains(t, part, has)
		require.NotContains(t, part, "<html")
		require.NotContains(t, part, "<h1")
	}
	require.Contains(t, r.see(t, "/dashboard/conversations?state=human&channelId=chn_1&done=x"),
		`data-live="/dashboard/conversations?channelId=chn_1&amp;fragment=conversation-list&amp;state=human"`)
	asked := r.last(t, http.MethodGet)
	require.Equal(t, "/channels", asked.path)

	require.NotContains(t, r.see(t, "/dashboard/knowledge/kb_1"), "data-live", "nothing is on its way")
	r.answer("GET /knowledge-bases/kb_1/documents", http.StatusOK, listOf(`{"id":"doc_1","name":"long.txt","state":"ingesting","chunksDone":4,"chunksTotal":9}`))
	page := r.see(t, "/dashboard/knowledge/kb_1")
	require.Contains(t, page, `data-live="/dashboard/knowledge/kb_1?fragment=documents"`)
	require.Contains(t, page, `<progress max="9" value="4"`)
	require.Contains(t, page, "4 of 9 parts")
}
