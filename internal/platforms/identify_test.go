package platforms_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platforms"
	"github.com/caddy-svc/caddy-svc/internal/platforms/platformtest"
)

func TestIdentifyAsksThePlatform(t *testing.T) {
	t.Parallel()
	server := platformtest.Start(t)
	client := server.Client(t)
	for _, platform := range sendingTypes {
		mine := server.Account(platform, "947042923")
		ids, err := client.Identify(t.Context(), platform, "947042923", mine)
		require.NoError(t, err, platform)
		require.Equal(t, []string{"947042923"}, ids, platform)

		// Whoever claims another's account learns, or is told, that it isn't theirs.
		ids, err = client.Identify(t.Context(), platform, "165103149", mine)
		if err != nil {
			require.Contains(t, []platforms.Type{platforms.ChatApp, platforms.MarketA}, platform)
			requireFailure(t, err)
		} else {
			require.Equal(t, []string{"947042923"}, ids, platform)
		}

		_, err = client.Identify(t.Context(), platform, "947042923", credentials(platform))
		require.Equal(t, platforms.NeedsReauth, requireFailure(t, err).Outcome, platform)

		server.Script(mine.AccessToken+mine.BotToken, platformtest.ServerError)
		_, err = client.Identify(t.Context(), platform, "947042923", mine)
		require.Equal(t, platforms.Unknown, requireFailure(t, err).Outcome, platform)
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
		{platforms.Bot, `{"ok":true,"result":{"id":947042923}}`, "POST", "/bot110201543:" + secretToken + "/getMe", ""},
		{platforms.SocialMessenger, `{"id":"947042923"}`, "GET", "/me", "id"},
		{platforms.PhotoDM, `{"id":"5","user_id":"947042923"}`, "GET", "/me", "user_id"},
		{platforms.ChatApp, `{"id":"947042923","display_phone_number":"+1"}`, "GET", "/947042923", "id,display_phone_number"},
		{platforms.LocalChat, `{"error":0,"data":{"oa_id":947042923}}`, "GET", "/v2.0/oa/getoa", ""},
		{platforms.MarketA, `{"error":"","shop_name":"x"}`, "GET", "/api/v2/shop/get_shop_info", ""},
		{platforms.MarketB, `{"code":"0","data":{"seller_id":947042923}}`, "GET", "/seller/get", ""},
	} {
		v := &vendor{status: 200, body: test.answer}
		ids, err := v.client(t).Identify(t.Context(), test.platform, "947042923", credentials(test.platform))
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
		platforms.Bot:             {`{"ok":true,"result":{}}`, `{}`, `<html>`},
		platforms.SocialMessenger: {`{}`, `{"id":""}`, `[]`},
		platforms.PhotoDM:         {`{"id":"947042923"}`},
		platforms.ChatApp:         {`{"id":"947042923"}`, `{"display_phone_number":"+1"}`},
		platforms.LocalChat:       {`{"error":0,"data":{}}`, `{"error":0}`},
		platforms.MarketA:         {`{}`, `{"error":""}`, `null`},
		platforms.MarketB:         {`{"code":"0"}`, `{"data":{"seller_id":"947042923"}}`},
	} {
		for _, body := range bodies {
			v := &vendor{status: 200, body: body}
			ids, err := v.client(t).Identify(t.Context(), platform, "947042923", credentials(platform))
			requireFailure(t, err)
			require.Empty(t, ids, body)
		}
	}
}

func TestIdentifyRefusesWithoutACall(t *testing.T) {
	t.Parallel()
	v := &vendor{status: 200}
	client := v.client(t)
	for platform, id := range map[platforms.Type]string{platforms.ChatApp: "a/b", platforms.MarketA: "x", platforms.Widget: "1", "pigeon": "1"} {
		_, err := client.Identify(t.Context(), platform, id, credentials(platform))
		require.Equal(t, platforms.Refused, requireFailure(t, err).Outcome, platform)
	}
	require.Empty(t, v.last.method)
}
