package widget

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestSessionOrigins: a session is for pages of the channel's origins only.
func TestSessionOrigins(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	session := func(origin string) *http.Request {
		return visitorRequest(http.MethodPost, "/widget/chn_1/session", origin, "", `{}`)
	}
	for _, origin := range []string{shop, "http://localhost:8080", "https://a.example.com", "https://a.b.example.com"} {
		w := handlertest.Served(s.Serve, session(origin))
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		require.Equal(t, origin, w.Header().Get("Access-Control-Allow-Origin"))
		require.Equal(t, "Origin", w.Header().Get("Vary"))
		require.Empty(t, w.Header().Get("Access-Control-Allow-Credentials"), "there are no cookies")
		require.Empty(t, w.Header().Values("Set-Cookie"))
	}
	for _, origin := range []string{
		"", "null", "https://evil.example", "https://evil-example.com", "https://example.com", "http://shop.vn", "https://shop.vn.evil.org",
		"https://svc.example", // our own page has no right of its own to a session
	} {
		a := handlertest.RefusedWith(t, errcode.Forbidden, s.Serve, session(origin))
		require.Empty(t, a.Header.Get("Access-Control-Allow-Origin"), "%q", origin)
		require.Equal(t, "Origin", a.Header.Get("Vary"))
	}
	twice := session(shop)
	twice.Header.Add("Origin", shop)
	handlertest.RefusedWith(t, errcode.Forbidden, s.Serve, twice)
}

// TestPreflight: browsers send a preflight before a request with a token; pages of other origins learn nothing but the refusal.
func TestPreflight(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	for _, part := range []string{"session", "messages"} {
		w := handlertest.Served(s.Serve, visitorRequest(http.MethodOptions, "/widget/chn_1/"+part, shop, "", ""))
		require.Equal(t, http.StatusNoContent, w.Code)
		require.Equal(t, shop, w.Header().Get("Access-Control-Allow-Origin"))
		require.Equal(t, "GET, POST", w.Header().Get("Access-Control-Allow-Methods"))
		require.Equal(t, "Authorization, Content-Type", w.Header().Get("Access-Control-Allow-Headers"))
		require.Equal(t, "Origin", w.Header().Get("Vary"))
		for _, origin := range []string{"", "null", "https://evil-example.com"} {
			a := handlertest.RefusedWith(t, errcode.Forbidden, s.Serve, visitorRequest(http.MethodOptions, "/widget/chn_1/"+part, origin, "", ""))
			require.Empty(t, a.Header.Get("Access-Control-Allow-Origin"))
		}
	}
}

// TestVisitorTokens: a token must be valid for this channel, unexpired, and of an origin that is still allowed; without one nothing
// can be read or written.
func TestVisitorTokens(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	token := s.begin(t, `{}`)
	wholeStream(t, s.write(token, "m-1", "alo?"))
	theirs := handlertest.Served(s.Serve, visitorRequest(http.MethodPost, "/widget/chn_2/session", shop, "", `{}`))
	require.Equal(t, http.StatusOK, theirs.Code)
	other := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(theirs.Body.String())[1]
	flipped := "A"
	if token[30] == 'A' {
		flipped = "B"
	}
	for name, bad := range map[string]string{
		"none": "", "of another channel": other, "changed": token[:30] + flipped + token[31:], "cut": token[:len(token)-1], "longer": token + "A", "no base64": "!", "an API key": "ck_live_x",
		"huge": strings.Repeat("A", 5000),
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := visitorRequest(method, "/widget/chn_1/messages", "", bad, `{"id":"m-2","text":"x"}`)
			a := handlertest.RefusedWith(t, errcode.Unauthenticated, s.Serve, r)
			require.NotContains(t, a.Text, "alo?", name)
		}
	}
	twice := visitorRequest(http.MethodGet, "/widget/chn_1/messages", "", token, "")
	twice.Header.Add("Authorization", "Bearer "+token)
	handlertest.RefusedWith(t, errcode.Unauthenticated, s.Serve, twice)
	require.Len(t, s.seen(t, token), 2)

	read := func(origin string) *http.Request {
		return visitorRequest(http.MethodGet, "/widget/chn_1/messages", origin, token, "")
	}
	require.Equal(t, shop, handlertest.Served(s.Serve, read(shop)).Header().Get("Access-Control-Allow-Origin"))
	require.Equal(t, http.StatusOK, handlertest.Served(s.Serve, read("https://svc.example")).Code, "the page in the frame is ours")
	require.Equal(t, http.StatusOK, handlertest.Served(s.Serve, read("")).Code)
	for _, origin := range []string{"null", "https://evil-example.com"} {
		require.Empty(t, handlertest.RefusedWith(t, errcode.Forbidden, s.Serve, read(origin)).Header.Get("Access-Control-Allow-Origin"))
	}

	settings := store.WidgetSettings{Origins: []string{"https://new.vn"}, RequestsPerMinute: 1000}
	require.NoError(t, s.db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
	handlertest.RefusedWith(t, errcode.Forbidden, s.Serve, read(""))
}

// TestExpiredToken: an expired token gives no access, and can be exchanged for a new one for a while, from an allowed page.
func TestExpiredToken(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	token := s.begin(t, `{}`)
	wholeStream(t, s.write(token, "m-1", "alo?"))
	s.ahead.Add(int64(visitLife - time.Minute))
	require.Len(t, s.seen(t, token), 2)
	s.ahead.Add(int64(2 * time.Minute))
	a := handlertest.RefusedWith(t, errcode.Unauthenticated, s.Serve, visitorRequest(http.MethodGet, "/widget/chn_1/messages", shop, token, ""))
	require.Contains(t, a.Text, "expired")
	require.Equal(t, shop, a.Header.Get("Access-Control-Allow-Origin"), "the page must be able to read that")
	handlertest.RefusedWith(t, errcode.Forbidden, s.Serve, visitorRequest(http.MethodPost, "/widget/chn_1/session", "https://evil.example", "", `{"token":"`+token+`"}`))
	renewed := s.begin(t, `{"token":"`+token+`"}`)
	require.NotEqual(t, token, renewed)
	require.Len(t, s.seen(t, renewed), 2)

	s.ahead.Add(int64(visitReturn))
	require.Empty(t, s.seen(t, s.begin(t, `{"token":"`+token+`"}`)), "after that it is somebody new")
	for _, body := range []string{`{}`, `{"token":""}`, `{"token":"nonsense"}`, `{"token":null}`} {
		require.Empty(t, s.seen(t, s.begin(t, body)), body)
	}
}

// TestWidgetBodies: the JSON rules of the groups, with bounds of the visitors' own.
func TestWidgetBodies(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	token := s.begin(t, `{}`)
	for body, field := range map[string]string{
		``: "", `[]`: "", `{}`: "id", `{"id":"m-1"}`: "text", `{"text":"x"}`: "id", `{"id":"m-1","text":""}`: "text", `{"id":"m-1","text":" \n"}`: "text",
		`{"id":"","text":"x"}`: "id", `{"id":"a b","text":"x"}`: "id", `{"id":"a:b","text":"x"}`: "id", `{"id":7,"text":"x"}`: "id",
		`{"id":"` + strings.Repeat("a", 65) + `","text":"x"}`:       "id",
		`{"id":"m-1","text":"` + strings.Repeat("é", 4001) + `"}`:   "text",
		`{"id":"m-1","text":"\u0000"}`:                              "text",
		`{"id":"m-1","id":"m-2","text":"x"}`:                        "id",
		`{"id":"m-1","text":"` + strings.Repeat("a", 70<<10) + `"}`: "",
	} {
		r := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", token, body)
		a := handlertest.RefusedWith(t, errcode.InvalidRequest, s.Serve, r)
		if field == "" {
			require.NotContains(t, a.Fields, "field")
		} else {
			require.Equal(t, field, a.Fields["field"], body)
		}
	}
	require.Empty(t, s.seen(t, token))
	wholeStream(t, s.write(token, "m-1", strings.Repeat("é", 4000)))
}

// TestVisitorTextInFull: 4,000 characters are 4,000 characters however a client writes them, up to 12 bytes each.
func TestVisitorTextInFull(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	token := s.begin(t, `{}`)
	for i, character := range []string{`\ud83d\ude00`, "😀"} {
		w := s.write(token, strings.Repeat(strconv.Itoa(i), 64), strings.Repeat(character, 4000))
		require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, w.Code, w.Body.String())
		seen := s.seen(t, token)
		require.Equal(t, "visitor: "+strings.Repeat("😀", 4000), seen[2*i], "the text is stored whole")
	}
}

// TestVisitorsBodyIsReadLast: without a token nothing of a message is read, wherever the operations are mounted.
func TestVisitorsBodyIsReadLast(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	for name, serve := range map[string]handlers.Handler{"widget": s.Serve, "groups": s.server.Serve} {
		body := strings.NewReader(`{"id":"m-1","text":"` + strings.Repeat("a", 4000) + `"}`)
		r := httptest.NewRequest(http.MethodPost, "/widget/chn_1/messages", body)
		size := body.Len()
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusNotFound}, handlertest.Served(serve, r).Code)
		require.Equal(t, size, body.Len(), name)
	}
}

// TestUnknownWidgets: ids of no channel or of one of another type, and unknown addresses, are not_found.
func TestUnknownWidgets(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	require.NoError(t, s.db.Channels.Create(t.Context(), "test", store.Channel{
		ID: "chn_bot", OrgID: "org_1", Type: "bot", Name: "Bot", State: store.ChannelActive,
	}, 0))
	for _, id := range []string{"chn_unknown", "chn_bot", "x", "%00", "a%20b", "..", "%2e%2e", strings.Repeat("a", 100), "'"} {
		for _, part := range []string{"GET ", "GET /widget.js", "POST /session", "POST /messages", "GET /messages", "OPTIONS /session"} {
			method, rest, _ := strings.Cut(part, " ")
			handlertest.RefusedWith(t, errcode.NotFound, s.Serve, visitorRequest(method, "/widget/"+id+rest, shop, "", `{}`))
		}
	}
	for _, r := range []string{
		"GET /widget/", "GET /widget", "GET /widget/chn_1/", "GET /widget/chn_1/session", "PUT /widget/chn_1/messages", "HEAD /widget/chn_1",
		"DELETE /widget/chn_1/messages", "GET /widget/chn_1/messages/m-1", "POST /widget/chn_1/session/", "GET /widget/chn_1/frame.js",
		"GET /widget/static/", "GET /widget/static/frame.js", "GET /widget/static/0/frame.js", "GET /widget/static/../widget.go", "OPTIONS /widget/chn_1",
	} {
		method, path, _ := strings.Cut(r, " ")
		handlertest.RefusedWith(t, errcode.NotFound, s.Serve, visitorRequest(method, path, shop, "", `{}`))
	}
}

// TestWidgetOperationsAreServedByTheWidget: the groups alone give visitors no access.
func TestWidgetOperationsAreServedByTheWidget(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	for _, r := range []string{"POST session", "POST messages", "GET messages"} {
		method, part, _ := strings.Cut(r, " ")
		body := `{"id":"m-1","text":"x"}`
		handlertest.RefusedWith(t, errcode.NotFound, s.server.Serve, visitorRequest(method, "/widget/chn_1/"+part, shop, s.begin(t, `{}`), body))
	}
}

// TestWidgetPage: its policy names the origins that may frame it, and everything it loads is the service's own and cacheable.
func TestWidgetPage(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	page := func() (text, policy string) {
		w := handlertest.Served(s.Serve, visitorRequest(http.MethodGet, "/widget/chn_1", "", "", ""))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.Empty(t, w.Header().Get("X-Frame-Options"), "it would forbid all frames")
		return w.Body.String(), w.Header().Get("Content-Security-Policy")
	}
	text, policy := page()
	require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors https://shop.vn https://*.example.com http://localhost:8080", policy)
	require.NotRegexp(t, `(?i)<script>|<style|\sstyle=|\son[a-z]+=|https?://`, text, "nothing inline, nothing from elsewhere")
	paths := regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(text, -1)
	require.Len(t, paths, 2)
	for _, path := range paths {
		w := handlertest.Served(s.Serve, visitorRequest(http.MethodGet, path[1], "", "", ""))
		require.Equal(t, http.StatusOK, w.Code, path[1])
		require.Contains(t, w.Header().Get("Cache-Control"), "immutable")
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.NotContains(t, w.Body.String(), "innerHTML", "what people write is text")
	}
	script := handlertest.Served(s.Serve, visitorRequest(http.MethodGet, "/widget/chn_1/widget.js", "", "", ""))
	require.Equal(t, http.StatusOK, script.Code)
	require.Equal(t, "text/javascript; charset=utf-8", script.Header().Get("Content-Type"))
	require.Equal(t, "cross-origin", script.Header().Get("Cross-Origin-Resource-Policy"))

	settings := store.WidgetSettings{RequestsPerMinute: 1}
	require.NoError(t, s.db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
	_, policy = page()
	require.Contains(t, policy, "frame-ancestors 'none'")
}

// TestWidgetWithoutItsStore: a failure of the store is 500, never an error of rights.
func TestWidgetWithoutItsStore(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	token := s.begin(t, `{}`)
	s.db.Close(t.Context())
	for _, part := range []string{"GET ", "POST /session", "POST /messages", "GET /messages"} {
		method, rest, _ := strings.Cut(part, " ")
		handlertest.RefusedWith(t, errcode.InternalError, s.Serve, visitorRequest(method, "/widget/chn_1"+rest, shop, token, `{"id":"m","text":"x"}`))
	}
}
