package messaging_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func TestIdentifyAsksThePlatform(t *testing.T) {
	t.Parallel()
	server := platformfake.Start(t)
	client := server.Client(t)
	for _, platform := range sendingTypes {
		mine := server.Account(platform, "947042923")
		ids, err := client.Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: "947042923", Credentials: mine})
		require.NoError(t, err, platform)
		require.Equal(t, []string{"947042923"}, ids, platform)

		// Credentials of another account confirm another id, or are refused.
		ids, err = client.Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: "165103149", Credentials: mine})
		if err != nil {
			require.Contains(t, []platforms.Type{social.ChatApp, marketa.Type}, platform)
			requireFailure(t, err)
		} else {
			require.Equal(t, []string{"947042923"}, ids, platform)
		}

		_, err = client.Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: "947042923", Credentials: credentials(platform)})
		require.Equal(t, platforms.NeedsReauth, requireFailure(t, err).Class, platform)

		server.Script(mine[platforms.AccessToken]+mine["botToken"], platformfake.ServerError)
		_, err = client.Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: "947042923", Credentials: mine})
		require.Equal(t, platforms.Unknown, requireFailure(t, err).Class, platform)
	}
	require.Empty(t, server.Sent())
	require.Zero(t, server.Attempts(""))
}

func TestIdentifyRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		platform           platforms.Type
		answer             string
		method, path, asks string
	}{
		{bot.Type, `{"ok":true,"result":{"id":947042923}}`, "POST", "/bot110201543:" + secretToken + "/getMe", ""},
		{social.Messenger, `{"id":"947042923"}`, "GET", "/me", "id"},
		{social.PhotoDM, `{"id":"5","user_id":"947042923"}`, "GET", "/me", "user_id"},
		{social.ChatApp, `{"id":"947042923","display_phone_number":"+1"}`, "GET", "/947042923", "id,display_phone_number"},
		{localchat.Type, `{"error":0,"data":{"oa_id":947042923}}`, "GET", "/v2.0/oa/getoa", ""},
		{marketa.Type, `{"error":"","shop_name":"x"}`, "GET", "/api/v2/shop/get_shop_info", ""},
		{marketb.Type, `{"code":"0","data":{"seller_id":947042923}}`, "GET", "/seller/get", ""},
	} {
		v := &vendor{status: 200, body: test.answer}
		ids, err := v.client(t).Identify(t.Context(), &platforms.Channel{Type: test.platform, ExternalID: "947042923", Credentials: credentials(test.platform)})
		require.NoError(t, err, test.platform)
		require.Equal(t, []string{"947042923"}, ids, test.platform)
		require.Equal(t, test.method, v.last.method)
		require.Equal(t, "/base"+test.path, v.last.path)
		require.Equal(t, test.asks, v.last.query.Get("fields"))
	}
}

// An answer without the id proves nothing.
func TestIdentifyProvesNothingWithoutTheID(t *testing.T) {
	t.Parallel()
	for platform, bodies := range map[platforms.Type][]string{
		bot.Type:         {`{"ok":true,"result":{}}`, `{}`, `<html>`},
		social.Messenger: {`{}`, `{"id":""}`, `[]`},
		social.PhotoDM:   {`{"id":"947042923"}`},
		social.ChatApp:   {`{"id":"947042923"}`, `{"display_phone_number":"+1"}`},
		localchat.Type:   {`{"error":0,"data":{}}`, `{"error":0}`},
		marketa.Type:     {`{}`, `{"error":""}`, `null`},
		marketb.Type:     {`{"code":"0"}`, `{"data":{"seller_id":"947042923"}}`},
	} {
		for _, body := range bodies {
			v := &vendor{status: 200, body: body}
			ids, err := v.client(t).Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: "947042923", Credentials: credentials(platform)})
			requireFailure(t, err)
			require.Empty(t, ids, body)
		}
	}
}

func TestIdentifyRefusesWithoutACall(t *testing.T) {
	t.Parallel()
	v := &vendor{status: 200}
	client := v.client(t)
	for platform, id := range map[platforms.Type]string{social.ChatApp: "a/b", marketa.Type: "x", messaging.Widget: "1", "pigeon": "1"} {
		_, err := client.Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: id, Credentials: credentials(platform)})
		require.Equal(t, platforms.Refused, requireFailure(t, err).Class, platform)
	}
	require.Empty(t, v.last.method)
}
