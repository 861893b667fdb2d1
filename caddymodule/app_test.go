package caddymodule

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// testMasterKey is the base64 of 32 bytes.
const testMasterKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// planted stands where no secret may stand, and must never be seen again.
const planted = "hunter2"

// secretFile writes content to a file of its own and returns the reference to it.
func secretFile(t *testing.T, content string) config.Secret {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return config.Secret("{file." + path + "}")
}

// Events and files each have their own option for private addresses. Setting one leaves the other public.
func TestTargets(t *testing.T) {
	t.Parallel()
	for _, app := range []*App{{}, {EventEndpoints: "any"}, {CustomerFiles: "any"}, {EventEndpoints: "public", CustomerFiles: "public"}} {
		app.fill()
		rt := &runtime{shared: &sharedStore{}}
		require.Equal(t, app.EventEndpoints == "any", app.deliverer(rt).Policy.AllowPrivate)
		require.Equal(t, app.CustomerFiles == "any", app.fetcher(rt).Policy.AllowPrivate)
	}
	app := goodApp(t)
	app.CustomerFiles = "private"
	require.ErrorContains(t, app.faults().Err(), `svc.customer_files: "private" is not known; allowed: public, any`)
}

// goodApp is a configuration without a fault.
func goodApp(t *testing.T) *App {
	t.Helper()
	amount := func(n int64) *int64 { return &n }
	return &App{
		BaseURL:   "https://api.example.com",
		Store:     &Store{Engine: "sqlite", Path: filepath.Join(storeFolder(t), "svc.db")},
		MasterKey: secretFile(t, testMasterKey+"\n"),
		Plans:     []*Plan{{Name: "free", RequestsPerMinute: amount(60)}, {Name: "pro"}},
		Providers: []*Provider{
			{Name: "echo", Protocol: "echo"},
			{
				Name: "vendor", Protocol: "openai", BaseURL: "https://vendor.example.com/v1",
				APIKey: secretFile(t, "sk-"+planted),
			},
		},
		Models: []*Model{{
			Name: "echo/echo-1", ContextWindow: amount(8192), MaxOutputTokens: amount(4096),
			PriceInput: amount(0), PriceOutput: amount(2),
		}},
	}
}

// load validates a configuration through the JSON entrance, as `caddy validate` does. Tests that use it can't be
// parallel: provisioning writes package variables of Caddy's, which the race detector sees.
func load(t *testing.T, app any) error {
	t.Helper()
	return loadLogging(t, app, nil)
}

// loadLogging is load with logs of the configuration's own.
func loadLogging(t *testing.T, app any, logging *caddy.Logging) error {
	t.Helper()
	raw, err := json.Marshal(app)
	require.NoError(t, err)
	off := false
	return caddy.Validate(&caddy.Config{
		Admin:   &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &off}},
		AppsRaw: caddy.ModuleMap{appName: raw},
		Logging: logging,
	})
}

func TestJSONEntrance(t *testing.T) {
	app := goodApp(t)
	require.NoError(t, load(t, app))
	require.NoFileExists(t, app.Store.Path, "validating must open nothing")
}

func TestJSONEntranceTellsAllFaultsByPath(t *testing.T) {
	raw := json.RawMessage(`{
		"base_url": "https://api.example.com/v1",
		"store": {"engine": "sqlite", "path": "{env.DB}", "dsn": "{env.DSN}", "direct": "{env.DIRECT}"},
		"master_key": "` + planted + `",
		"plans": [null, {"name": ""}, {"name": "a", "requests_per_minute": 0}, {"name": "a", "channels": -1}],
		"providers": [
			{"name": "p", "protocol": "openai", "base_url": "vendor.example.com", "api_key": "` + planted + `", "idle_timeout": "-1s"},
			{"name": "q", "protocol": "openai", "base_url": "http://q", "transport": {"protocol": "http", "read_timeout": 5}},
			{"name": "r", "protocol": "openai", "base_url": "http://r", "transport": {"protocol": "http", "nonsense": 5}},
			{"name": "s", "protocol": "openai", "base_url": "http://s", "transport": {}}
		],
		"models": [{"name": "p/m"}],
		"timing": {"hold_ttl": "25h", "early_status": "25h"},
		"limits": {"buffered_bytes": 0, "streams": -1},
		"memory": {"gc_floor": 1000}
	}`)
	err := load(t, raw)
	require.Error(t, err)
	require.NotContains(t, err.Error(), planted)
	for _, want := range []string{
		"svc.base_url: takes no path",
		"svc.store: sqlite takes a path, not a dsn",
		"svc.store.direct: sqlite takes no direct address",
		"svc.store: the path of a sqlite file takes no placeholders",
		"svc.master_key: must be exactly one",
		"svc.plan[#0]: the name is missing",
		"svc.plan[#1]: the name is missing",
		"svc.plan[a].requests_per_minute: 0 is out of range",
		"svc.plan[a#2]: the name is taken",
		"svc.plan[a#2].channels: -1 is out of range",
		"svc.provider[p].base_url: must be an http or https address",
		"svc.provider[p].api_key: must be exactly one",
		"svc.provider[p].idle_timeout: -1s is out of range",
		"svc.provider[q].transport: read_timeout is refused",
		"svc.provider[r].transport: these are no options of Caddy's http transport",
		`svc.provider[s].transport: transport "" is refused`,
		"svc.model[p/m].context_window: missing",
		"svc.model[p/m].max_output_tokens: missing",
		"svc.model[p/m].price_input: missing",
		"svc.model[p/m].price_output: missing",
		"svc.timing.hold_ttl: 25h0m0s is out of range",
		"svc.timing.early_status: 25h0m0s is out of range",
		"svc.limits.buffered_bytes: 0 is out of range",
		"svc.limits.streams: -1 is out of range",
		"svc.memory.gc_floor: 1000 is out of range; allowed: 4194304 to 1099511627776",
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, err, "26 faults:")
}

func TestJSONEntranceRefusesUnknownFields(t *testing.T) {
	require.ErrorContains(t, load(t, json.RawMessage(`{"base_uri": "https://api.example.com"}`)), "base_uri")
}

func TestMissingSecretsAreToldTogether(t *testing.T) {
	app := goodApp(t)
	app.Store = &Store{Engine: "postgres", DSN: "{env.SVC_TEST_NO_DSN}", Direct: "{file.testdata/no-such-dsn}"}
	app.MasterKey = "{file.testdata/no-such-key}"
	app.Providers[1].APIKey = "{env.SVC_TEST_NO_KEY}"
	app.Providers = append(app.Providers, &Provider{
		Name: "odd", Protocol: "openai", BaseURL: "http://odd.example.com", APIKey: secretFile(t, planted+" and\nmore"),
	})
	err := load(t, app)
	require.Error(t, err)
	require.NotContains(t, err.Error(), planted)
	lines := strings.Split(err.Error(), "\n")
	require.Contains(t, lines[0], "5 faults:")
	require.Equal(t, []string{
		"svc.store: {env.SVC_TEST_NO_DSN} is not set",
		"svc.store.direct: {file.testdata/no-such-dsn} can't be read or is empty: no such file or directory",
		"svc.master_key: {file.testdata/no-such-key} can't be read or is empty: no such file or directory",
		"svc.provider[vendor].api_key: {env.SVC_TEST_NO_KEY} is not set",
		"svc.provider[odd].api_key: what " + string(app.Providers[2].APIKey) +
			" holds can't be sent in a header; allowed: visible ASCII characters",
	}, trimAll(lines[1:]))
}

func trimAll(lines []string) []string {
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}

func TestBadMasterKeyIsNotQuoted(t *testing.T) {
	app := goodApp(t)
	app.MasterKey = secretFile(t, planted)
	err := load(t, app)
	require.ErrorContains(t, err, "svc.master_key: what "+string(app.MasterKey)+" holds is no master key")
	require.NotContains(t, err.Error(), planted)
}

func TestBaseURL(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"http://localhost:8080":         true,
		"https://api.example.com":       true,
		"https://[::1]:8443":            true,
		"https://api.example.com/":      false,
		"https://api.example.com/v1":    false,
		"https://api.example.com?x=1":   false,
		"https://api.example.com#x":     false,
		"https://me:pw@api.example.com": false,
		"https://api.example.com:":      false,
		"https://api.example.com:0":     false,
		"https://api.example.com:65536": false,
		"https://api.example.com:port":  false,
		"HTTPS://api.example.com":       false,
		"ftp://api.example.com":         false,
		"api.example.com":               false,
		"//api.example.com":             false,
		"https://":                      false,
		"https://{env.HOST}":            false,
		"https://api example.com":       false,
		"":                              false,
	} {
		var fs config.Faults
		baseURLFaults(&fs, "svc.base_url", address)
		require.Equal(t, good, len(fs) == 0, "%q: %v", address, fs)
	}
}

func TestModelDefaults(t *testing.T) {
	t.Parallel()
	price := int64(7)
	m := &Model{Name: "openrouter/meta/llama-3", PriceInput: &price}
	caddyfile.Fill(m.Rules())
	require.Equal(t, "openrouter", m.provider())
	require.Equal(t, "meta/llama-3", m.UpstreamModel)
	require.Equal(t, "openrouter/meta/llama-3", m.DisplayName)
	require.Equal(t, m.DisplayName, m.FriendlyName)
	require.Equal(t, "economy", m.Tier)
	require.Equal(t, "openrouter", m.OwnedBy)
	require.Empty(t, m.MaxTokensField, "the provider's protocol has the default")
	require.False(t, m.VNHosted)
	require.Equal(t, int64(1735689600), *m.Created)
	require.Equal(t, int64(7), *m.PriceCachedInput)

	named := &Model{Name: "a/b", DisplayName: "Bee"}
	caddyfile.Fill(named.Rules())
	require.Equal(t, "Bee", named.FriendlyName)
}

// filled returns the app with the defaults of all options.
func filled(app *App) *App {
	app.fill()
	return app
}

// filledJSON returns a configuration with its defaults.
func filledJSON(t *testing.T, app *App) string {
	t.Helper()
	raw, err := json.Marshal(filled(app))
	require.NoError(t, err)
	return string(raw)
}

func TestPlanOfOrganization(t *testing.T) {
	t.Parallel()
	app := goodApp(t)
	require.Equal(t, "pro", app.plan("pro").Name)
	require.Equal(t, "free", app.plan("").Name, "the first plan is the default")
	require.Equal(t, "free", app.plan("gone").Name, "a removed plan must not lift the limits")
	require.Equal(t, int64(60), app.RequestsPerMinute("free"))
	require.Zero(t, app.RequestsPerMinute("pro"), "an absent limit is unlimited")
	require.Zero(t, new(App).RequestsPerMinute("any"), "without plans there are no limits")
}

// TestConfigurationHoldsNoSecret provisions a configuration and looks for its secrets in everything it can be written
// out as.
func TestConfigurationHoldsNoSecret(t *testing.T) {
	app := goodApp(t)
	raw, err := json.Marshal(app)
	require.NoError(t, err)
	ctx, err := caddy.ProvisionContext(&caddy.Config{AppsRaw: caddy.ModuleMap{appName: raw}})
	require.NoError(t, err)
	provisioned, err := ctx.AppIfConfigured(appName)
	require.NoError(t, err)
	loaded, ok := provisioned.(*App)
	require.True(t, ok)
	require.Equal(t, "sk-"+planted, loaded.settings.vendors["vendor"].APIKey)
	written, err := json.Marshal(loaded)
	require.NoError(t, err)
	require.NotContains(t, string(written), planted)
	require.NotContains(t, string(written), testMasterKey)
	require.JSONEq(t, filledJSON(t, app), string(written), "provisioning adds the defaults, nothing else")
}
