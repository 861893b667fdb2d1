package caddymodule

import (
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

// block is a platform's block with texts only.
func block(values map[string]string) *PlatformBlock { return &PlatformBlock{values: values} }

// allPlatforms is a configuration with every option of every platform, without a fault.
func allPlatforms(t *testing.T) Platforms {
	t.Helper()
	secret := func(value string) string { return string(secretFile(t, value)) }
	social := block(map[string]string{
		"api_base": "https://graph.example.com/v23.0", "app_secret": secret("social-" + planted), "verify_token": secret("verify-" + planted),
	})
	social.tables = map[string]map[string]string{"objects": {"photo_dm": "photos"}}
	return Platforms{
		"bot":    block(map[string]string{"header": "X-Bot", "api_base": "http://127.0.0.1:1/bots/", "ack": AckEmpty}),
		"social": social,
		"localchat": block(map[string]string{
			"api_base": "https://openapi.example.com", "auth_base": "https://oauth.example.com",
			"app_id": "4318", "app_secret": secret("local-" + planted),
		}),
		"market_a": block(map[string]string{
			"api_base": "https://partner.example.com", "partner_id": secret("2001887\n"), "partner_key": secret("partner-" + planted),
		}),
		"market_b": block(map[string]string{
			"api_base": "https://api.example.com/rest", "auth_base": "https://auth.example.com/rest",
			"app_key": "100240", "app_secret": secret("market-" + planted),
		}),
	}
}

// TestPlatformSettings guarantees that what is configured reaches the platforms, and that no secret of it is in the
// configuration.
func TestPlatformSettings(t *testing.T) {
	app := goodApp(t)
	app.Platforms = allPlatforms(t)
	raw, err := json.Marshal(app)
	require.NoError(t, err)
	ctx, err := caddy.ProvisionContext(&caddy.Config{AppsRaw: caddy.ModuleMap{appName: raw}})
	require.NoError(t, err)
	provisioned, err := ctx.AppIfConfigured(appName)
	require.NoError(t, err)
	loaded := provisioned.(*App)
	require.Equal(t, map[string]map[string]string{
		"bot": {"header": "X-Bot", "api_base": "http://127.0.0.1:1/bots/"},
		"social": {
			"api_base": "https://graph.example.com/v23.0", "app_secret": "social-" + planted, "verify_token": "verify-" + planted,
			"object[photo_dm]": "photos",
		},
		"localchat": {
			"api_base": "https://openapi.example.com", "auth_base": "https://oauth.example.com",
			"app_id": "4318", "app_secret": "local-" + planted,
		},
		"market_a": {"api_base": "https://partner.example.com", "partner_id": "2001887", "partner_key": "partner-" + planted},
		"market_b": {
			"api_base": "https://api.example.com/rest", "auth_base": "https://auth.example.com/rest",
			"app_key": "100240", "app_secret": "market-" + planted,
		},
	}, loaded.settings.platforms)
	set, err := loaded.newPlatforms()
	require.NoError(t, err)
	set.Close()

	written, err := json.Marshal(loaded)
	require.NoError(t, err)
	require.NotContains(t, string(written), planted)
	require.JSONEq(t, filledJSON(t, app), string(written))
}

// TestWithoutPlatforms guarantees that only the bot platform's webhooks work where nothing is configured.
func TestWithoutPlatforms(t *testing.T) {
	t.Parallel()
	set, err := new(App).newPlatforms()
	require.NoError(t, err)
	t.Cleanup(set.Close)
	require.Len(t, set.Platforms(), 5)
	for _, d := range set.Platforms() {
		require.Equal(t, d.Name == "bot", Platforms(nil).configured(d), d.Name)
		require.Equal(t, d.Name == "bot", Platforms{d.Name: nil}.configured(d), d.Name)
		require.True(t, allPlatforms(t).configured(d), d.Name)
	}
	require.Nil(t, messagingPlatforms.named("widget"))
}

func TestMissingPlatformSecretsAreToldTogether(t *testing.T) {
	app := goodApp(t)
	noIdentifier := string(secretFile(t, planted+"\nand more"))
	app.Platforms = Platforms{
		"social":    block(map[string]string{"app_secret": "{env.SVC_TEST_NO_1}", "verify_token": "{env.SVC_TEST_NO_2}"}),
		"localchat": block(map[string]string{"app_id": "{env.SVC_TEST_NO_3}", "app_secret": "{env.SVC_TEST_NO_4}"}),
		"market_a":  block(map[string]string{"partner_id": string(secretFile(t, planted)), "partner_key": "{env.SVC_TEST_NO_5}"}),
		"market_b":  block(map[string]string{"app_key": noIdentifier, "app_secret": "{env.SVC_TEST_NO_6}"}),
	}
	err := load(t, app)
	require.ErrorContains(t, err, "8 faults:")
	require.NotContains(t, err.Error(), planted)
	for _, want := range []string{
		"svc.platform[social].app_secret: {env.SVC_TEST_NO_1} is not set",
		"svc.platform[social].verify_token: {env.SVC_TEST_NO_2} is not set",
		"svc.platform[localchat].app_id: {env.SVC_TEST_NO_3} is not set",
		"svc.platform[localchat].app_secret: {env.SVC_TEST_NO_4} is not set",
		"svc.platform[market_a].partner_key: {env.SVC_TEST_NO_5} is not set",
		"svc.platform[market_a].partner_id: must be a whole number above 0",
		"svc.platform[market_b].app_key: what " + noIdentifier + " holds is no identifier",
		"svc.platform[market_b].app_secret: {env.SVC_TEST_NO_6} is not set",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestJSONEntranceTellsAllFaultsOfPlatformsAndWorker(t *testing.T) {
	good := goodApp(t)
	raw, err := json.Marshal(good)
	require.NoError(t, err)
	var app map[string]any
	require.NoError(t, json.Unmarshal(raw, &app))
	app["platforms"] = map[string]any{
		"bot":       map[string]any{"header": "a b", "api_base": "ftp://x", "ack": "full"},
		"social":    map[string]any{"app_secret": planted, "objects": map[string]any{"page": "same", "chat_app": "same"}},
		"localchat": map[string]any{"app_id": "{env.A}{env.B}", "app_secret": planted, "auth_base": "http://" + planted + "@x"},
		"market_a":  map[string]any{"partner_id": "12a", "api_base": "http://x?y"},
		"market_b":  map[string]any{"auth_base": "http://x#y"},
	}
	app["worker"] = map[string]any{"concurrency": 0, "listen": "127.0.0.1:80-90"}
	app["timing"] = map[string]any{"lease": "-1s"}
	err = load(t, app)
	require.Error(t, err)
	require.NotContains(t, err.Error(), planted)
	for _, want := range []string{
		`svc.platform[bot].header: "a b" is no name of a header`,
		"svc.platform[bot].api_base: must be an http or https address",
		`svc.platform[bot].ack: "full" is not known; allowed: empty`,
		"svc.platform[social].app_secret: must be exactly one",
		"svc.platform[social].verify_token: missing",
		`svc.platform[social].object[chat_app]: "same" is the value of page already`,
		"svc.platform[localchat].auth_base: takes no user and no password",
		"svc.platform[localchat].app_id: must be 1 to 128 visible ASCII characters",
		"svc.platform[localchat].app_secret: must be exactly one",
		"svc.platform[market_a].api_base: takes no query and no fragment",
		"svc.platform[market_a].partner_id: must be a whole number above 0",
		"svc.platform[market_a].partner_key: missing",
		"svc.platform[market_b].auth_base: takes no query and no fragment",
		"svc.platform[market_b].app_key: missing",
		"svc.platform[market_b].app_secret: missing",
		"svc.worker.concurrency: 0 is out of range",
		"svc.worker.listen: must be one address with its port",
		"svc.timing.lease: -1s is out of range",
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, err, "18 faults:")
	require.ErrorContains(t, load(t, map[string]any{"platforms": map[string]any{"telegram": map[string]any{}}}), "telegram")
	unknown := map[string]any{"app_key": planted, "objects": map[string]any{"page": planted}}
	err = load(t, map[string]any{"platforms": map[string]any{"bot": unknown}})
	require.ErrorContains(t, err, `svc.platform[bot]: "app_key" is not an option here; allowed: header, api_base, ack`)
	require.ErrorContains(t, err, `svc.platform[bot]: "objects"."page" is not an option here`)
	require.NotContains(t, err.Error(), planted)
	err = load(t, map[string]any{"platforms": map[string]any{"bot": map[string]any{"header": 7}}})
	require.ErrorContains(t, err, `"header" must be a text`)
}

func TestListenAddress(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"127.0.0.1:8082": true, ":8082": true, "[::1]:8082": true, "tcp/localhost:8082": true, "unix//run/svc.sock": true,
		"unix/svc.sock": true, "8082": false, "localhost": false, "127.0.0.1:80-90": false, "udp/127.0.0.1:80": false,
		"127.0.0.1:99999": false, "{env.ADDRESS}": false, "unix/": false,
	} {
		require.Equal(t, good, listenAddress(address), address)
	}
}
