package caddymodule

import (
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/platforms"
)

// allPlatforms is a configuration with every option of every platform, without a fault.
func allPlatforms(t *testing.T) *Platforms {
	t.Helper()
	return &Platforms{
		Bot: &BotPlatform{Platform{Header: "X-Bot", APIBase: "http://127.0.0.1:1/bots/", Ack: AckEmpty}},
		Social: &SocialPlatform{
			Platform: Platform{APIBase: "https://graph.example.com/v23.0"}, AppSecret: secretFile(t, "social-"+planted),
			VerifyToken: secretFile(t, "verify-"+planted), Objects: &SocialObjects{PhotoDM: "photos"},
		},
		LocalChat: &LocalChatPlatform{
			Platform: Platform{APIBase: "https://openapi.example.com"}, AuthBase: "https://oauth.example.com",
			AppID: "4318", AppSecret: secretFile(t, "local-"+planted),
		},
		MarketA: &MarketAPlatform{
			Platform: Platform{APIBase: "https://partner.example.com"}, PartnerID: config.Identifier(secretFile(t, "2001887\n")),
			PartnerKey: secretFile(t, "partner-"+planted),
		},
		MarketB: &MarketBPlatform{
			Platform: Platform{APIBase: "https://api.example.com/rest"}, AuthBase: "https://auth.example.com/rest",
			AppKey: "100240", AppSecret: secretFile(t, "market-"+planted),
		},
	}
}

// TestPlatformSettings guarantees that what is configured reaches those who speak to the platforms, and that no secret of
// it is in the configuration.
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
	require.Equal(t, platforms.Config{
		Bases: map[platforms.Type]string{
			platforms.Bot:             "http://127.0.0.1:1/bots",
			platforms.SocialMessenger: "https://graph.example.com/v23.0",
			platforms.PhotoDM:         "https://graph.example.com/v23.0",
			platforms.ChatApp:         "https://graph.example.com/v23.0",
			platforms.LocalChat:       "https://openapi.example.com",
			platforms.MarketA:         "https://partner.example.com",
			platforms.MarketB:         "https://api.example.com/rest",
		},
		AuthBases: map[platforms.Type]string{
			platforms.LocalChat: "https://oauth.example.com", platforms.MarketB: "https://auth.example.com/rest",
		},
		LocalChat: platforms.LocalChatApp{AppID: "4318", AppSecret: "local-" + planted},
		MarketA:   platforms.MarketAApp{PartnerID: "2001887", PartnerKey: "partner-" + planted},
		MarketB:   platforms.MarketBApp{AppKey: "100240", AppSecret: "market-" + planted},
	}, loaded.platformsConfig())
	require.NoError(t, loaded.platformsConfig().Check())
	require.Equal(t, "social-"+planted, loaded.settings.platforms.socialAppSecret)
	require.Equal(t, "verify-"+planted, loaded.settings.platforms.socialVerifyToken)

	written, err := json.Marshal(loaded)
	require.NoError(t, err)
	require.NotContains(t, string(written), planted)
	require.JSONEq(t, string(raw), string(written))
}

// TestWithoutPlatforms guarantees that the real platforms are spoken to where nothing is configured, and that only the bot
// platform's webhooks work then.
func TestWithoutPlatforms(t *testing.T) {
	t.Parallel()
	config := new(App).platformsConfig()
	require.Empty(t, config.Bases)
	require.Empty(t, config.AuthBases)
	for name, configured := range map[string]bool{
		platformBot: true, platformSocial: false, platformLocalChat: false, platformMarketA: false, platformMarketB: false, "widget": false,
	} {
		require.Equal(t, configured, (*Platforms)(nil).configured(name), name)
		require.Equal(t, configured, new(Platforms).configured(name), name)
		require.Equal(t, name != "widget", allPlatforms(t).configured(name), name)
	}
}

func TestMissingPlatformSecretsAreToldTogether(t *testing.T) {
	app := goodApp(t)
	app.Platforms = &Platforms{
		Social:    &SocialPlatform{AppSecret: "{env.SVC_TEST_NO_1}", VerifyToken: "{env.SVC_TEST_NO_2}"},
		LocalChat: &LocalChatPlatform{AppID: "{env.SVC_TEST_NO_3}", AppSecret: "{env.SVC_TEST_NO_4}"},
		MarketA:   &MarketAPlatform{PartnerID: config.Identifier(secretFile(t, planted)), PartnerKey: "{env.SVC_TEST_NO_5}"},
		MarketB:   &MarketBPlatform{AppKey: config.Identifier(secretFile(t, planted+"\nand more")), AppSecret: "{env.SVC_TEST_NO_6}"},
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
		"svc.platform[market_b].app_key: what " + string(app.Platforms.MarketB.AppKey) + " holds is no identifier",
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
