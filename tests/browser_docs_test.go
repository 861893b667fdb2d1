package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestBrowserDocs guarantees that a reader of /docs can try calls with a key: the answer is shown as JSON, a stream as it comes,
// a refusal with its code. The key is in one header of those calls and nowhere else: in no address, storage, cookie or log.
func TestBrowserDocs(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up).describing())
	_, key := p.operator().customer(t, 1_000_000).newKey(t, identity.KeyRequest{Scopes: []string{"models:read", "chat:write", "agents:read"}})
	more := newGate(t)
	slow := up.script(func(call *upstreamCall) { call.answerInTwo("We have ", more, "sencha.") })
	reader := openTab(t, p.BaseURL)
	reader.open("/docs")
	part := func(operation string) string { return fmt.Sprintf(`article[aria-labelledby=%s] .try`, operation) }

	reader.click(part("listModels") + " > button")
	require.Equal(t, "try-key", js[string](reader, `document.activeElement.id`), "the key is asked for first")
	reader.keys(key)
	reader.enterHere()
	reader.awaitText(part("listModels")+" .answer [role=status]", "200, request req_")
	reader.awaitText(part("listModels")+" .answer pre", `"id": "`+modelStd+`"`)

	reader.click(part("getModel") + " > button")
	require.Equal(t, "try-getModel-id", js[string](reader, `document.activeElement.id`), "the key is still there")
	reader.keys(modelStd)
	reader.enterHere()
	reader.awaitText(part("getModel")+" .answer pre", `"object": "model"`)

	reader.click(part("createChatCompletion") + " > button")
	reader.fill("#try-createChatCompletion", prompt(modelStd, slow.Mark, true))
	reader.click("#try > button:not([type])")
	reader.awaitText(part("createChatCompletion")+" .answer pre", "We have ")
	require.NotContains(t, reader.text(part("createChatCompletion")+" .answer pre"), "sencha")
	more.open()
	reader.awaitText(part("createChatCompletion")+" .answer pre", "data: [DONE]")

	reader.click(part("getAgent") + " > button")
	reader.fill("#try-getAgent-id", "agt_unknown")
	reader.enterHere()
	reader.awaitText(part("getAgent")+" .answer pre", `"code": "not_found"`)
	require.Contains(t, awaitComplaint(reader, "404"), "404") // the browser's own line about the refusal
	require.NotContains(t, reader.text(part("listModels")+" .answer pre"), "not_found", "earlier answers stay")

	stored := js[string](reader, `JSON.stringify([localStorage, sessionStorage, document.cookie, location.href, document.documentElement.outerHTML])`)
	require.NotContains(t, stored, key)
	// The 250 articles are alike, and axe-core and the picture take a minute of two cores for all of them.
	others := `article:not(:has(.answer pre)):not(:first-of-type)`
	require.Greater(t, js[int](reader, `[...document.querySelectorAll("`+others+`")].map(article => article.remove()).length`), 100)
	require.Equal(t, 4, reader.count(".answer pre"))
	reader.requireAccessible()
	reader.picture("calls with their answers")
	reader.open("/docs")
	require.Empty(t, reader.value("#try-key"))

	p.stop()
	access, err := os.ReadFile(filepath.Join(p.Dir, "access.log"))
	require.NoError(t, err)
	require.Contains(t, string(access), "/agents/agt_unknown")
	for place, text := range map[string]string{"the access log": string(access), "the log": p.log.String()} {
		require.NotContains(t, text, key, "the key is in %s", place)
	}
}
