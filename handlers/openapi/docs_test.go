package openapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func failureModes(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/failure-modes.md")
	require.NoError(t, err)
	return string(text)
}

func newDocs(t *testing.T) *Docs {
	t.Helper()
	catalog := handlertest.BuiltinPlatforms(t).Catalog
	docs, err := New(api.New(api.Deps{Catalog: catalog}), Config{Catalog: catalog, BaseURL: "https://svc.example", FailureModes: failureModes(t)})
	require.NoError(t, err)
	return docs
}

// fetch requests a path with an Accept header, "" for none.
func (d *Docs) fetch(t *testing.T, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := handlertest.Served(d.Serve, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.NotEmpty(t, w.Header().Get("X-Request-Id"))
	return w
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"

// /docs serves JSON, or the page when Accept prefers text/html; the other addresses ignore Accept.
func TestDocs(t *testing.T) {
	t.Parallel()
	d := newDocs(t)
	description := d.fetch(t, "/docs/openapi.json", browser)
	require.Equal(t, "application/json", description.Header().Get("Content-Type"))
	require.True(t, json.Valid(description.Body.Bytes()))
	require.Equal(t, "application/yaml", d.fetch(t, "/docs/openapi.yaml", browser).Header().Get("Content-Type"))
	for _, accept := range []string{"", "*/*", "application/json", "application/json, text/html", "text/html;q=0.5, */*"} {
		w := d.fetch(t, "/docs", accept)
		require.Equal(t, description.Body.String(), w.Body.String(), accept)
		require.Equal(t, "Accept", w.Header().Get("Vary"))
	}
	page := d.fetch(t, "/docs", browser)
	require.Equal(t, "text/html; charset=utf-8", page.Header().Get("Content-Type"))
	require.Equal(t, "Accept", page.Header().Get("Vary"))

	r := httptest.NewRequest(http.MethodGet, "/docs/openapi.json", http.NoBody)
	r.Header.Set("If-None-Match", description.Header().Get("Etag"))
	again := handlertest.Served(d.Serve, r)
	require.Equal(t, http.StatusNotModified, again.Code)
	require.Empty(t, again.Body.String())

	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodPost, "/docs", http.NoBody), httptest.NewRequest(http.MethodHead, "/docs", http.NoBody),
		handlertest.Get("/docs/"), handlertest.Get("/docs/openapi"), handlertest.Get("/docs/style.css"), handlertest.Get("/docs.json"), handlertest.Get("/docs/openapi.json/"),
	} {
		handlertest.RefusedWith(t, errcode.NotFound, d.Serve, r)
	}
}

// everyone accepts every key for every scope.
type everyone struct{}

func (everyone) Authenticate(context.Context, string) (identity.Principal, error) {
	return identity.Principal{OrgID: "org_1", KeyID: "key_1", Env: store.Live, Scopes: identity.ScopesOf(identity.AllScopes()...)}, nil
}

// The description is made on the first request for it, while the operations are served. The race detector would find what it changes.
func TestDocsBesideRequests(t *testing.T) {
	t.Parallel()
	catalog := handlertest.BuiltinPlatforms(t).Catalog
	server := api.New(api.Deps{Catalog: catalog, Authenticator: everyone{}})
	over := make(chan struct{})
	var clients sync.WaitGroup
	for _, path := range []string{"/agents", "/channels", "/api-keys", "/event-endpoints"} {
		clients.Go(func() {
			for served := 0; ; served++ {
				select {
				case <-over:
					if served > 0 {
						return
					}
				default:
				}
				r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"name":7,"extra":[{}]}`))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer key")
				if answer := handlertest.Served(server.Serve, r); answer.Code != http.StatusBadRequest {
					t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
					return
				}
			}
		})
	}
	docs, err := New(server, Config{Catalog: catalog, BaseURL: "https://svc.example", FailureModes: failureModes(t)})
	close(over)
	clients.Wait()
	require.NoError(t, err)
	require.Equal(t, newDocs(t).json.text, docs.json.text)
}

// The page loads only its style and its script, and every link in it has a target.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	d := newDocs(t)
	answer := d.fetch(t, "/docs", browser)
	require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors 'none'", answer.Header().Get("Content-Security-Policy"))
	page := answer.Body.String()
	ids := map[string]bool{}
	for _, found := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		require.False(t, ids[found[1]], "the id %s is there twice", found[1])
		ids[found[1]] = true
	}
	for _, code := range errcode.All() {
		require.True(t, ids[string(code)], "%s has no anchor", code)
	}
	for _, found := range regexp.MustCompile(`(?:href|src|aria-labelledby)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		target := found[1]
		if anchor, inside := strings.CutPrefix(target, "#"); inside || ids[target] {
			require.True(t, ids[strings.TrimPrefix(anchor, "#")] || ids[target], "nothing has the id %s", target)
			continue
		}
		w := d.fetch(t, target, "")
		mediaType, isAsset := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}[path.Ext(target)]
		if isAsset {
			require.Equal(t, mediaType, w.Header().Get("Content-Type"))
			require.Contains(t, w.Header().Get("Cache-Control"), "immutable")
			require.NotRegexp(t, `url\(|@import|^import|https?:`, w.Body.String())
		}
	}
	require.NotRegexp(t, `<script[^>]*>[^<]`, page, "a script in the page itself")
	for _, no := range []string{"<img", "<iframe", "style=", " on", "https://cdn", "http-equiv"} {
		if no == " on" {
			require.NotRegexp(t, `<[^>]* on[a-z]+=`, page)
			continue
		}
		require.NotContains(t, page, no)
	}
	for _, route := range slices.Concat(v1.Routes(), webhook.Routes(handlertest.BuiltinPlatforms(t).Catalog), api.New(api.Deps{}).Routes()) {
		require.Contains(t, page, "<code>"+route.Path+"</code>")
	}
}

// A newcomer finds a call to paste first, then the key that it needs, and the errors after the operations.
func TestDocsPageBegins(t *testing.T) {
	t.Parallel()
	page := newDocs(t).fetch(t, "/docs", browser).Body.String()
	require.Contains(t, page, "<pre><code>curl &#39;https://svc.example/v1/chat/completions&#39;")
	at := 0
	for _, part := range []string{
		`id="first-call"`, `id="scheme-bearer"`, `id="scheme-apiKey"`, `id="scheme-session"`, `id="scheme-botSecret"`,
		`id="createChatCompletion"`, `id="errors"`, `id="schemas"`,
	} {
		next := strings.Index(page[at:], part)
		require.GreaterOrEqual(t, next, 0, "%s is not there, or too early", part)
		at += next
	}
}

// Every operation that a key can call has a form for it, and no other operation.
func TestDocsPageTries(t *testing.T) {
	t.Parallel()
	page := newDocs(t).fetch(t, "/docs", browser).Body.String()
	tried := map[string]bool{}
	for _, form := range regexp.MustCompile(`data-method="([A-Z]+)" data-path="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		tried[form[1]+" "+form[2]] = true
	}
	for _, operation := range operationsOf(described(t)) {
		byKey := slices.ContainsFunc(operation.Security, func(way map[string][]string) bool { return way["apiKey"] != nil })
		require.Equal(t, byKey, tried[operation.Method+" "+operation.Path], "%s %s", operation.Method, operation.Path)
	}
	require.Greater(t, len(tried), 30)
	for _, field := range []string{
		`<input id="try-getAgent-id" data-in="path" data-name="id" placeholder="agt_00000000000000000000000001" autocomplete="off" spellcheck="false" required>`,
		`<select id="try-listConversations-state" data-in="query" data-name="state"><option value=""></option><option>assistant</option>`,
		`<textarea id="try-createAgent" data-in="body"`,
	} {
		require.Contains(t, page, field)
	}
}

// Every code of package errcode has one entry in docs/failure-modes.md, and there is no other entry.
func TestCodeDocs(t *testing.T) {
	t.Parallel()
	page := failureModes(t)
	docs, err := readCodeDocs(page)
	require.NoError(t, err)
	require.Len(t, docs, len(errcode.All()))
	for i, doc := range docs {
		require.Equal(t, errcode.All()[i], doc.Code)
		require.NotContains(t, doc.Cause+doc.Client, "](", "a link that leads nowhere from /docs")
		require.Zero(t, strings.Count(doc.Cause, "`")%2)
		require.Zero(t, strings.Count(doc.Client, "`")%2)
	}
	for broken, says := range map[string]string{
		strings.Replace(page, "### conflict", "### conflicts", 1):                             "conflict has no entry",
		strings.Replace(page, "**Status** 429", "**Status** 430", 1):                          "rate_limited: the status is 429",
		page + "\n### teapot\n\n**Status** 418. **Cause**: c. **Client**: c. **Operator**: o": "teapot: the status is 0",
		strings.Replace(page, "**Operator**: a proxy", "a proxy", 1):                          "unauthenticated: Cause, Client or Operator is missing",
	} {
		_, err := readCodeDocs(broken)
		require.ErrorContains(t, err, says)
	}
}
