package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// soundPage is one with nothing to complain about; %s is what a test puts into its main part.
const soundPage = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Test</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/style.css"><script src="/script.js" defer></script></head>
<body><main><h1>Test</h1><form id="add" method="post"><label for="add-name">Name</label>
<input id="add-name" name="name" value="" aria-describedby="add-name-error" aria-invalid="true"><p id="add-name-error">Too short.</p>
<select id="add-kind" name="kind" aria-label="Kind"><option value="a">A</option><option value="b">B</option></select>
<button>Add</button></form>%s</main></body></html>`

const soundStyle = `:root { color-scheme: light dark; background: #fff; color: #111 }
@media (prefers-color-scheme: dark) { :root { background: #111; color: #eee } }`

// startPage serves soundPage with main and script in it, under a strict content security policy, and answers its form.
func startPage(t testing.TB, main, script, style string) string {
	t.Helper()
	serve := func(w http.ResponseWriter, kind, text string) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		_, _ = fmt.Fprint(w, text)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		switch {
		case r.URL.Path == "/style.css":
			serve(w, "text/css", soundStyle+style)
		case r.URL.Path == "/icon.svg":
			serve(w, "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg"/>`)
		case r.URL.Path == "/script.js":
			serve(w, "text/javascript", script)
		case r.Method == http.MethodPost && r.PostFormValue("name") == "bad":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, soundPage, main)
		case r.Method == http.MethodPost:
			http.Redirect(w, r, "/done?name="+url.QueryEscape(r.PostFormValue("name")+r.PostFormValue("kind")), http.StatusSeeOther)
		case r.URL.Path == "/", r.URL.Path == "/done":
			serve(w, "text/html", fmt.Sprintf(soundPage, main))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestBrowserHarness guarantees that the browser tests see what goes wrong in a page, and nothing in a sound one: else none
// of the others would show anything.
func TestBrowserHarness(t *testing.T) {
	t.Parallel()
	t.Run("a sound page", func(t *testing.T) {
		t.Parallel()
		p := openTab(t, startPage(t, `<p id="late"></p>`, `
			setTimeout(() => document.querySelector("#late").textContent = "here", 50)
			console.warn("a warning is no error")
			document.addEventListener("submit", event => { if (!confirm("Sure?")) event.preventDefault() })`, ""))
		p.open("/")
		p.awaitText("#late", "here")
		p.requireAccessible()
		p.fill("#add-name", "x & y")
		p.fill("#add-name", "Grün")
		p.fill("#add-kind", "b")
		p.submit("form#add")
		require.Equal(t, "/done", p.path())
		require.True(t, strings.HasSuffix(p.address(), "?name=Gr%C3%BCnb"), p.address())
		require.Equal(t, []string{"Sure?"}, p.watcher.asked())
		p.fill("#add-name", "bad")
		p.submitBad("form#add")
		require.Equal(t, "Too short.", p.requireFieldError("#add-name"))
		require.EqualValues(t, http.StatusNotFound, p.openAny("/nothing"))
		require.Empty(t, p.watcher.take())
	})
	for name, c := range map[string]struct{ main, script, complaint string }{
		"an error on the console": {script: `console.error("it", 7)`, complaint: "console.error: \"it\" 7"},
		"an exception":            {script: `setTimeout(() => missing.function())`, complaint: "exception: Uncaught ReferenceError"},
		"a rejected promise":      {script: `Promise.reject(new Error("broken"))`, complaint: "Error: broken"},
		"an inline script":        {main: `<script>var inline</script>`, complaint: "Content Security Policy"},
		"an inline style":         {main: `<p style="color: red">red</p>`, complaint: "Content Security Policy"},
		"another site's picture":  {main: `<img alt="" src="https://cdn.test/x.png">`, complaint: "foreign: "},
		"what isn't there":        {main: `<img alt="" src="/x.png">`, complaint: "404"},
		"a fragment that fails":   {script: `fetch("/nothing")`, complaint: "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openTab(t, startPage(t, c.main, c.script, ""))
			p.open("/")
			require.Contains(t, awaitComplaint(p, c.complaint), c.complaint) // the browser tells a little later
			p.watcher.forgive()
		})
	}
	t.Run("too small for a finger", func(t *testing.T) {
		t.Parallel()
		p := openTab(t, startPage(t, `<p><a href="/">in a sentence</a> it may be small</p><a id="small" href="/">alone</a>`, "", `input, select, button { min-height: 44px; min-width: 44px }`))
		p.open("/")
		require.Empty(t, p.tooSmall(), "nothing is near")
		js[bool](p, `document.querySelector("#small").insertAdjacentHTML("afterend", "<br><a href='/'>below</a>") ?? true`)
		require.Len(t, p.tooSmall(), 2)
	})
	for name, c := range map[string]struct{ main, style, fault string }{
		"a field without a label":   {main: `<input name="x">`, fault: "critical: label"},
		"pale text":                 {main: `<p class="pale">pale</p>`, style: `.pale { color: #ccc; background: #fff }`, fault: "serious: color-contrast"},
		"pale text in the dark":     {main: `<p class="grey">grey</p>`, style: `.grey { color: #555 }`, fault: "dark, 360 px: serious: color-contrast"},
		"pale text on a phone only": {main: `<p class="s">pale</p>`, style: `@media (max-width: 500px) { .s { color: #ccc; background: #fff } }`, fault: "light, 360 px: serious: color-contrast"},
		"too wide for a phone":      {main: `<p class="wide">wide</p>`, style: `.wide { width: 700px }`, fault: `320 px: wider than the screen: <p class="wide">`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openTab(t, startPage(t, c.main, "", c.style))
			p.open("/")
			require.Contains(t, strings.Join(p.faults(), "\n"), c.fault)
		})
	}
}
