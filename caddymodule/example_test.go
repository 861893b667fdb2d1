package caddymodule

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
)

// instance is a Caddyfile that was adapted and provisioned in this process, without listeners of Caddy's.
type instance struct {
	app  *App
	http *caddyhttp.App
}

// provision adapts a Caddyfile and loads its JSON form. The app is not started yet. Like load, it is not for parallel
// tests.
func provision(t *testing.T, caddyfile string) *instance {
	t.Helper()
	adapted, err := adapt(caddyfile)
	require.NoError(t, err)
	var config caddy.Config
	require.NoError(t, json.Unmarshal([]byte(adapted), &config))
	ctx, err := caddy.ProvisionContext(&config)
	require.NoError(t, err)
	app, err := ctx.AppIfConfigured(appName)
	require.NoError(t, err)
	site, err := ctx.AppIfConfigured("http")
	require.NoError(t, err)
	return &instance{app: app.(*App), http: site.(*caddyhttp.App)}
}

// start does what Caddy does with the app, and undoes it at the end of the test.
func (i *instance) start(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		require.NoError(t, i.app.Stop())
		require.NoError(t, i.app.Cleanup())
	})
	require.NoError(t, i.app.Start())
}

// server serves the server that listens on address, whose name the adapter chose.
func (i *instance) server(t *testing.T, address string) *httptest.Server {
	t.Helper()
	for _, server := range i.http.Servers {
		if server.Listen[0] == address {
			listening := httptest.NewServer(server)
			t.Cleanup(listening.Close)
			return listening
		}
	}
	require.Fail(t, "no server listens on "+address)
	return nil
}

// ask sends a request and returns its answer with the whole body.
func ask(t *testing.T, method, address string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	require.NoError(t, err)
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, string(body)
}

// requireContract checks the error body.
func requireContract(t *testing.T, resp *http.Response, body string, status int, code string) {
	t.Helper()
	var answer struct {
		Error struct {
			Code      string `json:"code"`
			Message   string `json:"message"`
			RequestID string `json:"requestId"`
		} `json:"error"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer), body)
	require.Equal(t, status, resp.StatusCode, body)
	require.Equal(t, code, answer.Error.Code)
	require.NotEmpty(t, answer.Error.Message)
	require.Regexp(t, `^req_`, answer.Error.RequestID)
	require.Equal(t, answer.Error.RequestID, resp.Header.Get("X-Request-ID"))
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
}

// TestCaddyfileExample runs the file that operators begin with, as it stands, in an empty directory.
func TestCaddyfileExample(t *testing.T) {
	text, err := os.ReadFile("../Caddyfile.example")
	require.NoError(t, err)
	dir := storeFolder(t)
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("data", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join("data", "master.key"), []byte(testMasterKey+"\n"), 0o600))

	// Caddy keeps log writers open under the name they are configured with, for as long as the process lives. Absolute,
	// the name is another one when the test runs again.
	accessLog := filepath.Join(dir, "data", "access.log")
	require.Contains(t, string(text), "output file data/access.log")
	run := provision(t, strings.ReplaceAll(string(text), "output file data/access.log", "output file "+accessLog))
	public, private := run.server(t, ":8080"), run.server(t, "127.0.0.1:8081")

	resp, body := ask(t, http.MethodGet, private.URL+"/health/live", nil)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	resp, body = ask(t, http.MethodGet, private.URL+"/health/ready", nil)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "not started yet, so not ready: %s", body)

	run.start(t)
	resp, body = ask(t, http.MethodGet, private.URL+"/health/ready", nil)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	resp, body = ask(t, http.MethodGet, private.URL+"/metrics", nil)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)

	resp, body = ask(t, http.MethodGet, public.URL+"/v1/models", nil)
	requireContract(t, resp, body, http.StatusUnauthorized, "unauthenticated")
	resp, body = ask(t, http.MethodGet, public.URL+"/v1/models?key="+planted, http.Header{
		"X-Api-Key": {"ck_live_" + planted}, "X-Bot-Api-Secret-Token": {planted}, "X-Hub-Signature-256": {planted},
	})
	requireContract(t, resp, body, http.StatusUnauthorized, "invalid_api_key")
	resp, body = ask(t, http.MethodPost, public.URL+"/v1/chat/completions", nil)
	requireContract(t, resp, body, http.StatusUnauthorized, "unauthenticated")
	for _, group := range []string{"/wallet", "/agents", "/channels", "/conversations"} {
		resp, body = ask(t, http.MethodGet, public.URL+group, nil)
		requireContract(t, resp, body, http.StatusUnauthorized, "unauthenticated")
	}
	resp, body = ask(t, http.MethodPost, public.URL+"/webhooks/bot/chn_x", http.Header{"X-Bot-Api-Secret-Token": {planted}})
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.JSONEq(t, `{"ok":true,"queued":0}`, body, "no such channel")
	resp, body = ask(t, http.MethodPost, private.URL+"/demo-bot-api/bot1:demo/sendMessage", nil)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.JSONEq(t, `{"ok":true,"result":{"message_id":1}}`, body)
	for _, unknown := range []string{"/", "/v1", "/v1/", "/v1/embeddings", "/health/live", "/metrics", "/wp-login.php"} {
		resp, body = ask(t, http.MethodGet, public.URL+unknown, nil)
		requireContract(t, resp, body, http.StatusNotFound, "not_found")
	}

	logged, err := os.ReadFile(accessLog)
	require.NoError(t, err)
	require.Contains(t, string(logged), "/v1/models")
	require.NotContains(t, string(logged), planted)
	require.Equal(t, 15, strings.Count(string(logged), `"logger":"http.log.access`), "one line for each public request")
}

// TestCaddyfileExampleHasEverything guarantees that the blocks that are commented out in the example are right when their
// comment signs go, and that every option there is appears somewhere.
func TestCaddyfileExampleHasEverything(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Caddyfile.example")
	require.NoError(t, err)
	commented := regexp.MustCompile(`(?ms)^(\t+)# (memory|transfer|(redis|provider|model|catalog_model|platform|payments|payment_rate|handle) \S+) \{\n.*?^\t+# \}\n`)
	whole := commented.ReplaceAllStringFunc(string(text), func(block string) string {
		return regexp.MustCompile(`(?m)^(\t+)# `).ReplaceAllString(block, "$1")
	})
	require.NotEqual(t, string(text), whole)
	adapted, err := adapt(whole)
	require.NoError(t, err)
	for _, platform := range messagingPlatforms.names() {
		require.Contains(t, adapted, `"platform": "`+platform+`"`, "the webhook")
	}
	require.Contains(t, adapted, `"handler": "svc_payments"`)
	var config struct {
		Apps struct {
			SVC json.RawMessage `json:"svc"`
		} `json:"apps"`
	}
	require.NoError(t, json.Unmarshal([]byte(adapted), &config))
	later := []string{ // no directive of this version asks for them
		"knowledge_bytes",
	}
	other := []string{
		"dsn", "direct", // of the engine that the example doesn't use
		"operator_endpoints", // which would need a secret before the example starts; docs/operating.md shows one
	}
	for _, options := range []any{
		App{},
		Store{},
		Plan{},
		Provider{},
		Model{},
		Limits{},
		Memory{},
		Timing{},
		Worker{},
		PaymentRate{},
		Transfer{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(options)) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && !slices.Contains(slices.Concat(later, other), name) {
				require.Contains(t, string(config.Apps.SVC), `"`+name+`":`, "%T", options)
			}
		}
	}
	for _, driver := range messagingPlatforms.all() {
		for _, option := range driver.Describe().Options {
			name := cmp.Or(option.Table, option.Name)
			require.Contains(t, string(config.Apps.SVC), `"`+name+`":`)
			for _, key := range option.Keys {
				require.Contains(t, string(config.Apps.SVC), `"`+key+`":`)
			}
		}
	}
}

// TestErrorRoutes raises errors of all origins and looks at what clients get.
func TestErrorRoutes(t *testing.T) {
	run := provision(t, `{
	svc {
		base_url http://localhost:8080
		store sqlite `+filepath.Join(storeFolder(t), "svc.db")+`
		master_key `+string(secretFile(t, testMasterKey))+`
	}
}
:8080 {
	handle_errors {
		svc_error
	}
	handle /403 {
		error "hidden" 403
	}
	handle /405 {
		error "hidden" 405
	}
	handle /413 {
		error "hidden" 413
	}
	handle /418 {
		error "hidden" 418
	}
	handle /429 {
		error "hidden" 429
	}
	handle /500 {
		error "hidden" 500
	}
	handle /502 {
		error "hidden" 502
	}
	handle /503 {
		error "hidden" 503
	}
	handle /proxy {
		reverse_proxy 127.0.0.1:1
	}
	handle {
		svc_error
	}
}
`)
	server := run.server(t, ":8080")
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/403":   {http.StatusForbidden, "forbidden"},
		"/405":   {http.StatusNotFound, "not_found"},
		"/413":   {http.StatusBadRequest, "invalid_request"},
		"/418":   {http.StatusBadRequest, "invalid_request"},
		"/429":   {http.StatusTooManyRequests, "rate_limited"},
		"/500":   {http.StatusInternalServerError, "internal_error"},
		"/502":   {http.StatusInternalServerError, "internal_error"},
		"/503":   {http.StatusInternalServerError, "internal_error"},
		"/proxy": {http.StatusInternalServerError, "internal_error"},
		"/else":  {http.StatusNotFound, "not_found"},
	} {
		resp, body := ask(t, http.MethodGet, server.URL+path, nil)
		requireContract(t, resp, body, want.status, want.code)
		require.NotContains(t, body, "hidden", "the text of an error stays in the log")
		require.NotContains(t, body, "127.0.0.1")
	}
}

// TestHandlersNeedTheApp loads handlers through the JSON entrance without the app.
func TestHandlersNeedTheApp(t *testing.T) {
	for handler, wanted := range map[string]string{
		`{"handler": "svc_auth", "scopes": ["models:read"]}`:  "svc_auth needs the app svc, which is not configured",
		`{"handler": "svc_auth"}`:                             "svc_auth needs at least one scope",
		`{"handler": "svc_auth", "scopes": ["models:erase"]}`: `"models:erase" is not a scope`,
		`{"handler": "svc_rate_limit"}`:                       "svc_rate_limit needs the app svc",
		`{"handler": "svc_models"}`:                           "svc_models needs the app svc",
		`{"handler": "svc_chat"}`:                             "svc_chat needs the app svc",
		`{"handler": "svc_api"}`:                              "svc_api needs the app svc",
		`{"handler": "svc_dashboard"}`:                        "svc_dashboard needs the app svc",
		`{"handler": "svc_docs"}`:                             "svc_docs needs the app svc",
		`{"handler": "svc_widget"}`:                           "svc_widget needs the app svc",
		`{"handler": "svc_webhook", "platform": "bot"}`:       "svc_webhook needs the app svc",
		`{"handler": "svc_webhook"}`:                          "svc_webhook needs a platform; allowed: bot, social",
		`{"handler": "svc_webhook", "platform": "market-a"}`:  `there is no platform "market-a"`,
		`{"handler": "svc_health"}`:                           "svc_health needs the app svc",
		`{"handler": "svc_health", "probe": "alive"}`:         `"alive" is not a probe`,
	} {
		off := false
		err := caddy.Validate(&caddy.Config{
			Admin: &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &off}},
			AppsRaw: caddy.ModuleMap{"http": json.RawMessage(
				`{"servers": {"s": {"listen": [":0"], "routes": [{"handle": [` + handler + `]}]}}}`)},
		})
		require.ErrorContains(t, err, wanted)
	}
}

// TestWebhookNeedsItsPlatform loads the handler through the JSON entrance.
func TestWebhookNeedsItsPlatform(t *testing.T) {
	app, err := json.Marshal(goodApp(t))
	require.NoError(t, err)
	validate := func(platform string) error {
		off := false
		return caddy.Validate(&caddy.Config{
			Admin: &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &off}},
			AppsRaw: caddy.ModuleMap{appName: app, "http": json.RawMessage(
				`{"servers": {"s": {"listen": [":0"], "routes": [{"handle": [{"handler": "svc_webhook", "platform": "` + platform + `"}]}]}}}`)},
		})
	}
	require.NoError(t, validate("bot"), "its secrets belong to the channels")
	require.ErrorContains(t, validate("market_b"), "the svc block has no `platform market_b`")
}

// TestExampleKeepsTheAdminInterfaceToItself guarantees that the file operators begin with opens the admin interface on a
// Unix socket only, and stores no copy of the configuration.
func TestExampleKeepsTheAdminInterfaceToItself(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Caddyfile.example")
	require.NoError(t, err)
	adapted, err := adapt(string(text))
	require.NoError(t, err)
	var config struct {
		Admin struct {
			Disabled bool   `json:"disabled"`
			Listen   string `json:"listen"`
			Config   struct {
				Persist *bool `json:"persist"`
			} `json:"config"`
			Remote json.RawMessage `json:"remote"`
		} `json:"admin"`
	}
	require.NoError(t, json.Unmarshal([]byte(adapted), &config))
	if !config.Admin.Disabled {
		require.Regexp(t, `^unix//?[^|]+(\|0?[0-7]00)?$`, config.Admin.Listen, "others on the machine, or the network, can reach it")
	}
	require.NotNil(t, config.Admin.Config.Persist)
	require.False(t, *config.Admin.Config.Persist, "the configuration is written to a file")
	require.Empty(t, config.Admin.Remote)
}

// TestExamplesEndSlowHeaders guarantees that no server of the files that operators begin with waits long for the headers of a request.
func TestExamplesEndSlowHeaders(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"../Caddyfile.example", "../packaging/Caddyfile"} {
		text, err := os.ReadFile(file) //nolint:gosec // the repository's own
		require.NoError(t, err)
		adapted, err := adapt(string(text))
		require.NoError(t, err)
		var config struct {
			Apps struct {
				HTTP struct {
					Servers map[string]struct {
						ReadHeaderTimeout time.Duration `json:"read_header_timeout"`
					} `json:"servers"`
				} `json:"http"`
			} `json:"apps"`
		}
		require.NoError(t, json.Unmarshal([]byte(adapted), &config))
		require.Len(t, config.Apps.HTTP.Servers, 2, file)
		for name, server := range config.Apps.HTTP.Servers {
			require.Equal(t, 10*time.Second, server.ReadHeaderTimeout, "%s: %s", file, name)
		}
	}
}
