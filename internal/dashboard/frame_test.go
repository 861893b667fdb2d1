package dashboard

import (
	"encoding/xml"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/site"
)

// tag is an element of a page with what stands in it.
type tag struct {
	name       string
	attributes map[string]string
	text       string
	level      int
}

// tags reads a page, which must be well formed.
func tags(t *testing.T, page string) []*tag {
	t.Helper()
	read := xml.NewDecoder(strings.NewReader(page))
	read.Strict, read.AutoClose, read.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var all, open []*tag
	for {
		token, err := read.Token()
		if errors.Is(err, io.EOF) {
			require.Empty(t, open)
			return all
		}
		require.NoError(t, err, page)
		switch token := token.(type) {
		case xml.StartElement:
			one := &tag{name: token.Name.Local, attributes: make(map[string]string), level: len(open)}
			for _, attribute := range token.Attr {
				one.attributes[attribute.Name.Local] = attribute.Value
			}
			all, open = append(all, one), append(open, one)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, one := range open {
				one.text += string(token)
			}
		}
	}
}

// everyPage is the address of each page, with ids that the scripted API has.
func everyPage() (paths []string) {
	ids := map[string]string{"/agents": "agt_1", "/knowledge": "kb_1", "/channels": "chn_1", "/conversations": "cnv_1", "/members": "usr_1"}
	for _, p := range pages(nil) {
		if p.Template == "" {
			continue
		}
		group := regexp.MustCompile(`^/dashboard(/[a-z-]+)?`).FindStringSubmatch(p.Path)[1]
		paths = append(paths, strings.Replace(p.Path, "{id}", ids[group], 1))
	}
	return append(paths, "/dashboard/nowhere", "/dashboard/members/usr_nobody", "/dashboard/channels?type=bot", "/dashboard/channels?type=widget")
}

// Every page is well formed, has one h1, headings in order, a label for every input, no id twice, nothing inline, nothing from
// elsewhere, and no link and no form that leads nowhere.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	paths := everyPage()
	require.Greater(t, len(paths), 20)
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			requireGoodPage(t, r.dashboard, path, r.open(t, path))
		})
	}
}

// The same holds for pages that say what was wrong, and for those that show something once.
func TestEveryRefusedForm(t *testing.T) {
	t.Parallel()
	for _, p := range pages(nil) {
		for _, a := range p.Actions {
			path := site.Below(p.Path, a.Verb)
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				r := newFixture(t)
				for _, known := range everyPage() {
					if !strings.Contains(known, "nobody") && regexp.MustCompile("^"+strings.ReplaceAll(p.Path, "{id}", "[a-z]+_1")+"$").MatchString(known) {
						path = site.Below(known, a.Verb)
					}
				}
				w := r.submit(t, path, url.Values{"email": {"x"}, "type": {"bot"}})
				if w.Code == http.StatusSeeOther { // what changes nothing can't be refused
					return
				}
				require.GreaterOrEqual(t, w.Code, http.StatusBadRequest)
				requireGoodPage(t, r.dashboard, path, w)
				require.Contains(t, w.Body.String(), `role="alert"`)
			})
		}
	}
}

func requireGoodPage(t *testing.T, d *Dashboard, path string, w *httptest.ResponseRecorder) {
	t.Helper()
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'; script-src 'self'; style-src 'self'; ")
	require.Contains(t, policy, "frame-ancestors 'none'; base-uri 'none'")
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"), w.Code)
	all := tags(t, w.Body.String())
	ids, labelled, described := make(map[string]bool), make(map[string]bool), ""
	level, headings := 0, 0
	for _, one := range all {
		if id := one.attributes["id"]; id != "" {
			require.False(t, ids[id], "the id %s stands twice", id)
			ids[id] = true
		}
		if one.name == "label" {
			require.NotEmpty(t, strings.TrimSpace(one.text))
			labelled[one.attributes["for"]] = true
		}
		described += " " + one.attributes["aria-describedby"] + " " + one.attributes["aria-labelledby"]
		if len(one.name) == 2 && one.name[0] == 'h' && one.name[1] >= '1' && one.name[1] <= '6' {
			here := int(one.name[1] - '0')
			require.LessOrEqual(t, here, level+1, one.text)
			require.NotEmpty(t, strings.TrimSpace(one.text))
			level = here
			if here == 1 {
				headings++
			}
		}
	}
	require.Equal(t, 1, headings)
	require.Contains(t, []string{"en", "vi"}, all[0].attributes["lang"])
	for id := range strings.FieldsSeq(described) {
		require.True(t, ids[id], "nothing has the id %s", id)
	}
	for _, one := range all {
		switch one.name {
		case "input", "select", "textarea":
			if one.attributes["type"] != "hidden" {
				require.True(t, labelled[one.attributes["id"]], "%v has no label", one.attributes)
			}
		case "button", "summary", "legend", "caption", "title":
			if !strings.HasPrefix(one.attributes["id"], "confirm") {
				require.NotEmpty(t, strings.TrimSpace(one.text), "%v", one)
			}
		case "a", "link":
			requireLeadsSomewhere(t, d, http.MethodGet, one.attributes["href"], path, ids)
		case "script":
			requireLeadsSomewhere(t, d, http.MethodGet, one.attributes["src"], path, ids)
			require.Empty(t, one.text)
		case "form":
			require.NotEmpty(t, one.attributes["id"])
			requireLeadsSomewhere(t, d, strings.ToUpper(one.attributes["method"]), one.attributes["action"], path, ids)
		case "style", "iframe", "img", "object", "embed", "base":
			require.Fail(t, "no page has "+one.name)
		}
		for name := range one.attributes {
			require.False(t, name == "style" || strings.HasPrefix(name, "on"), "%s of %s", name, one.name)
		}
		if live := one.attributes["data-live"]; live != "" {
			requireLeadsSomewhere(t, d, http.MethodGet, live, path, ids)
		}
	}
}

// requireLeadsSomewhere checks that an address is one of the dashboard's, by the method.
func requireLeadsSomewhere(t *testing.T, d *Dashboard, method, address, from string, ids map[string]bool) {
	t.Helper()
	if id, here := strings.CutPrefix(address, "#"); here {
		require.True(t, ids[id], "nothing has the id %s", id)
		return
	}
	at, err := url.Parse(from)
	require.NoError(t, err)
	if from == "/dashboard/nowhere" && address == "" {
		return
	}
	to, err := at.Parse(address)
	require.NoError(t, err)
	require.Empty(t, to.Host, address)
	_, pattern := d.Mux.Handler(httptest.NewRequest(method, to.Path, nil))
	require.NotEmpty(t, pattern, "%s %s leads nowhere", method, address)
}

// What another site makes a browser send changes nothing, whatever the address; it is refused before it is read.
func TestForeignOrigin(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for _, p := range pages(nil) {
		for _, a := range p.Actions {
			for name, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
				sent := httptest.NewRequest(http.MethodPost, strings.Replace(site.Below(p.Path, a.Verb), "{id}", "usr_1", 1), unread{t})
				sent.Header.Set(name, value)
				w := r.serve(t, sent)
				require.Equal(t, http.StatusForbidden, w.Code)
				require.Contains(t, w.Body.String(), "another site")
			}
		}
	}
	require.Empty(t, r.asked)
	// A link on another site may lead here.
	sent := httptest.NewRequest(http.MethodGet, "/dashboard/wallet", nil)
	sent.Header.Set("Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, r.serve(t, sent).Code)
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// A response of the API that is passed on is requested with the parts of the browser's request that identify the user, and no others; a key in a
// header never signs a user in.
func TestWhatTheAPIGets(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("GET /conversations/cnv_1/export", http.StatusOK, "{}")
	sent := httptest.NewRequest(http.MethodGet, "/dashboard/conversations/cnv_1/export", nil)
	for name, value := range map[string]string{
		"Content-Type": "text/plain", "Cookie": "__Host-svc_session=abc", "Origin": "http://example.com",
		"Sec-Fetch-Site": "same-origin", "User-Agent": "Browser", "Authorization": "Bearer ck_live_x", "X-Api-Key": "ck_live_x",
		"Accept-Encoding": "gzip", "X-Forwarded-For": "192.0.2.1",
	} {
		sent.Header.Set(name, value)
	}
	require.Equal(t, http.StatusOK, r.serve(t, sent).Code)
	require.Equal(t, http.Header{
		"Cookie": {"__Host-svc_session=abc"}, "Origin": {"http://example.com"}, "Sec-Fetch-Site": {"same-origin"}, "User-Agent": {"Browser"},
	}, r.last(t, http.MethodGet).header)
}

// A browser without a session is sent to the sign-in page, and back afterwards; a script gets the status.
func TestSignedOut(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.signedOut()
	for _, p := range pages(nil) {
		if p.Public {
			continue
		}
		path := strings.NewReplacer("{id}", "cnv_1", "{month}", "2026-10").Replace(p.Path) + "?cursor=a%26b"
		w := r.open(t, path)
		require.Equal(t, http.StatusSeeOther, w.Code, path)
		require.Equal(t, "/dashboard/login?next="+url.QueryEscape(path), w.Header().Get("Location"))
		require.Equal(t, http.StatusUnauthorized, r.open(t, path+"&fragment=x").Code)
	}
}

// What was typed while the session ended is kept, but for secrets, and can be sent again.
func TestSessionEndsWhileTyping(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.signedOut()
	w := r.submit(t, "/dashboard/agents", url.Values{"name": {`"Lan"`}, "instructions": {"one\r\n<two>"}})
	require.Equal(t, http.StatusUnauthorized, w.Code)
	requireGoodPage(t, r.dashboard, "/dashboard/agents", w)
	require.Contains(t, w.Body.String(), `action="/dashboard/agents"`)
	require.Contains(t, w.Body.String(), `<input type="hidden" name="instructions" value="one`+"\r\n"+`&lt;two&gt;">`)
	require.Contains(t, w.Body.String(), `<input type="hidden" name="name" value="&#34;Lan&#34;">`)
	require.Zero(t, r.count(http.MethodPost))

	w = r.submit(t, "/dashboard/provider-keys", url.Values{"provider": {"acme"}, "key": {"sk-secret"}})
	require.Contains(t, w.Body.String(), `name="provider" value="acme"`)
	require.NotContains(t, w.Body.String(), "sk-secret")

	r.is("owner")
	r.refuse("POST /agents", http.StatusUnauthorized, "unauthenticated", "", "The login session has ended. Sign in again.")
	w = r.submit(t, "/dashboard/agents", url.Values{"name": {"Lan"}})
	require.Contains(t, w.Body.String(), `id="ended-resend"`, "it may end between the two requests, too")
}

// The form of a request without a session cookie is neither read nor sent back: the browser is sent to the sign-in page.
func TestStrangersFormIsNotRead(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.signedOut()
	for path, next := range map[string]string{
		"/dashboard/knowledge/kb_1/documents": "/dashboard/knowledge/kb_1", "/dashboard/agents": "/dashboard/agents",
	} {
		sent := httptest.NewRequest(http.MethodPost, path, unread{t})
		sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		sent.Header.Set("Cookie", "other=1")
		w := r.serve(t, sent)
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, "/dashboard/login?next="+url.QueryEscape(next), w.Header().Get("Location"))
	}
}

// A cookie is easily made up, so no more is read and sent back than a person types.
func TestLargeFormIsNotKept(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.signedOut()
	for _, name := range []string{"svc_session", "__Host-svc_session"} {
		body := strings.NewReader("name=Lan&content=" + strings.Repeat("<", 12<<20))
		size := body.Len()
		sent := httptest.NewRequest(http.MethodPost, "/dashboard/knowledge/kb_1/documents", body)
		sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		sent.Header.Set("Cookie", name+"=made-up")
		w := r.serve(t, sent)
		require.Equal(t, http.StatusUnauthorized, w.Code)
		require.Less(t, w.Body.Len(), 16<<10)
		requireGoodPage(t, r.dashboard, "/dashboard/knowledge/kb_1", w)
		require.Contains(t, w.Body.String(), "too long to be kept")
		require.NotContains(t, w.Body.String(), "ended-resend")
		require.LessOrEqual(t, size-body.Len(), site.SmallForm+1)
	}
	w := r.submit(t, "/dashboard/agents", url.Values{"instructions": {strings.Repeat("x", site.SmallForm-100)}})
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Greater(t, w.Body.Len(), site.SmallForm-100)
}

// Whatever is sent without a session, 16 KiB of it are read at most.
func TestFormsOfStrangersAreSmall(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.signedOut()
	send := func(path, mediaType string) {
		t.Helper()
		const size = 1 << 20
		body := strings.NewReader("a=" + strings.Repeat("x", size-2))
		sent := httptest.NewRequest(http.MethodPost, strings.ReplaceAll(path, "{id}", "a_1"), body)
		sent.Header.Set("Content-Type", mediaType)
		sent.Header.Set("Cookie", "svc_session=made-up")
		r.serve(t, sent)
		require.LessOrEqual(t, size-body.Len(), 16<<10+1, path)
	}
	pages := pages(nil)
	require.Greater(t, len(pages), 10)
	for i := range pages {
		page := &pages[i]
		for _, a := range page.Actions {
			send(site.Below(page.Path, a.Verb), "application/x-www-form-urlencoded")
			send(site.Below(page.Path, a.Verb), "multipart/form-data; boundary=x")
		}
		for _, l := range page.Relays {
			send(site.Below(page.Path, l.Name), "application/json")
		}
	}
}

// Errors of the API become pages with its status and its words; those of ours keep their text for the log.
func TestFailures(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.refuse("GET /session", http.StatusPaymentRequired, "organization_suspended", "", "The organization is suspended.")
	w := r.open(t, "/dashboard")
	require.Equal(t, http.StatusPaymentRequired, w.Code)
	element(t, w.Body.String(), "logout")
	r.is("owner")
	r.refuse("GET /api-keys", http.StatusForbidden, "forbidden", "", "This needs the role administrator.")
	w = r.open(t, "/dashboard/keys")
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "This needs the role administrator.")
	require.Contains(t, w.Body.String(), "Request "+w.Header().Get("X-Request-Id"))
	r.answer("GET /wallet", http.StatusBadGateway, "<html>secret of a proxy</html>")
	w = r.open(t, "/dashboard/wallet")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.NotContains(t, w.Body.String(), "secret")
	r.answer("GET /wallet", http.StatusOK, `{"balanceMicros":`)
	require.Equal(t, http.StatusInternalServerError, r.open(t, "/dashboard/wallet").Code)
	for _, path := range []string{"/dashboard/agents/A", "/dashboard/agents/a.b", "/dashboard/agents/%2e%2e", "/dashboard/agents/" + strings.Repeat("a", 65)} {
		require.Equal(t, http.StatusNotFound, r.open(t, path).Code, path)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPost} {
		require.Equal(t, http.StatusNotFound, r.serve(t, httptest.NewRequest(method, "/dashboard/wallet", nil)).Code)
	}
	require.Equal(t, "/dashboard", r.open(t, "/dashboard/").Header().Get("Location"))
}

// What is too large is refused with words, and nothing of it reaches the API.
func TestTooLargeForm(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	w := r.submit(t, "/dashboard/agents", url.Values{"instructions": {strings.Repeat("x", maxForm)}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "What you sent is too large.")
	require.Zero(t, r.count(http.MethodPost))
	sent := httptest.NewRequest(http.MethodPost, "/dashboard/agents", strings.NewReader("name=%zz"))
	sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, http.StatusBadRequest, r.serve(t, sent).Code)
}

// Files are for ever under their own hash; under another version's they are this one's, and aren't kept.
func TestStaticFiles(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for name, kind := range map[string]string{"ui.css": "text/css; charset=utf-8", "playground.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		w := r.open(t, r.dashboard.Assets.Address(name))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, kind, w.Header().Get("Content-Type"))
		require.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		w = r.open(t, "/dashboard/static/0123456789abcdef/"+name)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	require.Equal(t, http.StatusNotFound, r.open(t, r.dashboard.Assets.Address("icon.svg")+"x").Code)
	require.Empty(t, r.asked, "files are nobody's")
}

// Navigation has the pages of the role; the API refuses hidden ones all the same. Every entry is one press from its section, and
// every page below another leads back to an entry.
func TestNavigation(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	shown := func(role string) (paths []string) {
		r.is(role)
		next := []string{"/dashboard"}
		for len(next) > 0 {
			page := r.see(t, next[0])
			next = next[1:]
			for _, e := range entries {
				if !slices.Contains(paths, e.path) && strings.Contains(page, `<a href="`+e.path+`"`) && strings.Contains(page, "</svg><span class=\"label\">"+html.EscapeString(string(e.section))) {
					paths, next = append(paths, e.path), append(next, e.path)
				}
			}
		}
		return paths
	}
	member := shown("member")
	require.Contains(t, member, "/dashboard/wallet/calls")
	require.NotContains(t, member, "/dashboard/keys")
	require.NotContains(t, member, "/dashboard/members")
	require.Len(t, shown("administrator"), len(entries))
	require.Equal(t, shown("administrator"), shown("owner"))
	require.Empty(t, shown("somebody"), "a role that this version doesn't know")
	r.is("owner")
	agent := r.see(t, "/dashboard/agents/agt_1")
	require.Contains(t, agent, `href="/dashboard/agents" aria-current="page"`)
	require.Contains(t, agent, `aria-label="Where you are"><a href="/dashboard/agents">Assistants</a>`)
	require.Contains(t, r.see(t, "/dashboard/knowledge"), `<a href="/dashboard/knowledge" aria-current="page">Knowledge</a>`)
	var patterns []string
	for _, p := range pages(nil) {
		require.NotContains(t, patterns, p.Path)
		patterns = append(patterns, p.Path)
		if p.Section != "" {
			require.True(t, slices.ContainsFunc(entries, func(e entry) bool { return e.path == p.Section }), p.Section)
		}
	}
}
