package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// serverApp is a svc block, for a store in dir, with the platforms social and market_a.
func serverApp(t *testing.T, dir string) string {
	t.Helper()
	return `{
	svc {
		base_url http://localhost:8080
		store sqlite ` + filepath.Join(dir, "svc.db") + `
		master_key ` + string(secretFile(t, testMasterKey)) + `
		platform social {
			app_secret ` + string(secretFile(t, "secret")) + `
			verify_token ` + string(secretFile(t, "token")) + `
		}
		platform market_a {
			partner_id 1
			partner_key ` + string(secretFile(t, "key")) + `
		}
	}
}
`
}

// The parts of a site as they are written out.
const (
	writtenModels = `
	handle /v1/models* {
		svc_auth models:read
		svc_rate_limit
		svc_models
	}`
	writtenChat = `
	handle /v1/chat/completions {
		svc_auth chat:write
		svc_rate_limit
		svc_chat
	}`
	writtenAPI = `
	@groups path /api-keys* /provider-keys* /agents* /knowledge-bases* /channels* /conversations* /wallet* /event-endpoints* /session* /members* /organization* /audit-log*
	handle @groups {
		svc_api
	}`
	writtenDashboard = `
	handle /dashboard* {
		svc_dashboard
	}
	@browser {
		path /
		method GET HEAD
		header Accept *text/html*
	}
	handle @browser {
		redir * /dashboard
	}`
	writtenDocs = `
	handle /docs* {
		svc_docs
	}`
	writtenWidget = `
	handle /widget/* {
		svc_widget
	}`
	writtenBot = `
	handle /webhooks/bot/* {
		svc_webhook bot
	}`
	writtenSocial = `
	handle /webhooks/social {
		svc_webhook social
	}`
	writtenMarketA = `
	handle /webhooks/market-a {
		svc_webhook market_a
	}`
	writtenRest = `
	handle {
		svc_error
	}
	handle_errors {
		svc_error
	}`
)

// TestServerIsShortForTheDirectives guarantees that a site with svc_server has exactly the JSON form of the site with the
// directives written out, whichever options it has.
func TestServerIsShortForTheDirectives(t *testing.T) {
	t.Parallel()
	app := serverApp(t, storeFolder(t))
	const webhooks = writtenBot + writtenSocial + writtenMarketA
	for _, tt := range []struct{ name, server, written string }{
		{
			"everything", "svc_server",
			writtenModels + writtenChat + writtenAPI + writtenDashboard + writtenDocs + writtenWidget + webhooks + writtenRest,
		},
		{
			"empty block", "svc_server {\n}",
			writtenModels + writtenChat + writtenAPI + writtenDashboard + writtenDocs + writtenWidget + webhooks + writtenRest,
		},
		{
			"without docs", "svc_server {\ndocs off\n}",
			writtenModels + writtenChat + writtenAPI + writtenDashboard + writtenWidget + webhooks + writtenRest,
		},
		{
			"without dashboard", "svc_server {\ndashboard off\n}",
			writtenModels + writtenChat + writtenAPI + writtenDocs + writtenWidget + webhooks + writtenRest,
		},
		{
			"without widget", "svc_server {\nwidget off\n}",
			writtenModels + writtenChat + writtenAPI + writtenDashboard + writtenDocs + webhooks + writtenRest,
		},
		{
			"some webhooks", "svc_server {\nwebhooks market_a bot\n}",
			writtenModels + writtenChat + writtenAPI + writtenDashboard + writtenDocs + writtenWidget + writtenBot + writtenMarketA + writtenRest,
		},
		{
			"without models and some endpoint groups", "svc_server {\nexcept models session members wallet\n}",
			writtenChat + strings.NewReplacer(" /session*", "", " /members*", "", " /wallet*", "").Replace(writtenAPI) +
				writtenDashboard + writtenDocs + writtenWidget + webhooks + writtenRest,
		},
		{
			"messages only", "svc_server {\nwebhooks bot\nexcept models chat " + strings.Join(apiGroups, " ") + "\ndocs off\ndashboard off\nwidget off\n}",
			writtenBot + writtenRest,
		},
		{
			"beside other directives", "@old path /old\nredir @old /new\nhandle_errors 403 {\nrespond no 403\n}\nsvc_server",
			"@old path /old\nredir @old /new\nhandle_errors 403 {\nrespond no 403\n}" +
				writtenModels + writtenChat + writtenAPI + writtenDashboard + writtenDocs + writtenWidget + webhooks + writtenRest,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, address := range []string{":8080", "ai.example.com", "a.example.com, b.example.com"} {
				short, err := adapt(app + address + " {\n" + tt.server + "\n}\n")
				require.NoError(t, err)
				written, err := adapt(app + address + " {\n" + tt.written + "\n}\n")
				require.NoError(t, err)
				require.Equal(t, renumbered(written), renumbered(short), address)
			}
		})
	}
}

// TestReadmeCaddyfile guarantees that the Caddyfile of the README is whole, and no longer than 22 lines: a model that reasons needs
// max_tokens_field and reasoning.
func TestReadmeCaddyfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## A Caddyfile for a vendor\n")
	_, example, found := strings.Cut(section, "```caddyfile\n")
	require.True(t, found)
	example, _, _ = strings.Cut(example, "```")
	require.LessOrEqual(t, strings.Count(example, "\n"), 22)
	adapted, err := adapt(example)
	require.NoError(t, err)
	for _, part := range []string{`"ai.example.com"`, `"openai/gpt-6-luna"`, `"svc_chat"`, `"svc_dashboard"`, `"svc_error"`} {
		require.Contains(t, adapted, part)
	}
}

// renumbered gives the groups of routes, whose names are numbers, new ones in the order in which they appear.
func renumbered(adapted string) string {
	names := map[string]string{}
	return regexp.MustCompile(`"group": "group\d+"`).ReplaceAllStringFunc(adapted, func(name string) string {
		if names[name] == "" {
			names[name] = fmt.Sprintf(`"group": "%d"`, len(names))
		}
		return names[name]
	})
}

// TestServerServesTheInterface guarantees that a site with svc_server serves every operation of the interface description, and
// answers all else, and every error of the site, as the contract says.
func TestServerServesTheInterface(t *testing.T) {
	run := provision(t, serverApp(t, storeFolder(t))+`:8080 {
	svc_server
	error /broken 502
	handle_errors 410 {
		respond "own page" 410
	}
	error /gone 410
}
`)
	run.start(t)
	server := run.server(t, ":8080")
	unrouted, text := ask(t, http.MethodGet, server.URL+"/nothing-here", nil)
	requireContract(t, unrouted, text, http.StatusNotFound, "not_found")
	message := func(body string) string {
		var answer struct{ Error struct{ Message string } }
		_ = json.Unmarshal([]byte(body), &answer) // pages and files have none
		return answer.Error.Message
	}
	require.NotEmpty(t, message(text))

	_, body := ask(t, http.MethodGet, server.URL+"/docs/openapi.json", nil)
	var described struct {
		Paths map[string]map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(body), &described))
	require.Greater(t, len(described.Paths), 30)
	groups := map[string]bool{}
	for path, operations := range described.Paths {
		if strings.HasPrefix(path, "/webhooks/localchat") || strings.HasPrefix(path, "/webhooks/market-b") {
			continue // these platforms are not configured
		}
		for method := range operations {
			if method == "parameters" {
				continue
			}
			address := server.URL + regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "x")
			resp, body := ask(t, strings.ToUpper(method), address, nil)
			require.NotEqual(t, message(text), message(body), "%s %s is not served", method, path)
			require.Less(t, resp.StatusCode, http.StatusInternalServerError, "%s %s: %s", method, path, body)
			groups[strings.Split(path, "/")[1]] = true
		}
	}
	for _, group := range apiGroups {
		require.True(t, groups[group], "the interface has no group %s", group)
	}
	resp, body := ask(t, http.MethodGet, server.URL+"/dashboard/login", nil)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	browser, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/", http.NoBody)
	require.NoError(t, err)
	browser.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	led, err := http.DefaultTransport.RoundTrip(browser)
	require.NoError(t, err)
	require.NoError(t, led.Body.Close())
	require.Equal(t, http.StatusFound, led.StatusCode)
	require.Equal(t, "/dashboard", led.Header.Get("Location"))

	for _, unknown := range []string{"/", "/v1", "/v1/embeddings", "/webhooks/market-b", "/webhooks/bot", "/metrics", "/health/live"} {
		resp, body := ask(t, http.MethodGet, server.URL+unknown, nil)
		requireContract(t, resp, body, http.StatusNotFound, "not_found")
	}
	resp, body = ask(t, http.MethodGet, server.URL+"/broken", nil)
	requireContract(t, resp, body, http.StatusInternalServerError, "internal_error")
	resp, body = ask(t, http.MethodGet, server.URL+"/gone", nil)
	require.Equal(t, http.StatusGone, resp.StatusCode)
	require.Equal(t, "own page", body, "the site's own error route")
}

// TestServerLeavesOut guarantees that what an option turns off is answered as an unknown path.
func TestServerLeavesOut(t *testing.T) {
	run := provision(t, serverApp(t, storeFolder(t))+`:8080 {
	svc_server {
		except models wallet
		docs off
		dashboard off
		widget off
		webhooks social
	}
}
`)
	run.start(t)
	server := run.server(t, ":8080")
	for _, path := range []string{"/v1/models", "/wallet", "/docs", "/dashboard", "/widget/chn_x/widget.js", "/webhooks/bot/chn_x", "/webhooks/market-a"} {
		resp, body := ask(t, http.MethodGet, server.URL+path, nil)
		requireContract(t, resp, body, http.StatusNotFound, "not_found")
		require.NotContains(t, body, "docsUrl", "there is no page to explain it")
	}
	for _, path := range []string{"/v1/chat/completions", "/agents"} {
		resp, body := ask(t, http.MethodGet, server.URL+path, nil)
		requireContract(t, resp, body, http.StatusUnauthorized, "unauthenticated")
	}
}
