package messaging_test

import (
	"strconv"
	"testing"
	"time"

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

func TestRefreshSpeaksEachPlatformsLanguage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		platform    platforms.Type
		answer      string
		path, query string
		secretKey   string
		body        string
		life        time.Duration
	}{
		{
			platform: localchat.Type, answer: `{"access_token":"a2","refresh_token":"r2","expires_in":"90000"}`,
			path: "/base/v4/oa/access_token", secretKey: platformfake.LocalChatAppSecret,
			body: "app_id=2551&grant_type=refresh_token&refresh_token=refresh-" + secretToken, life: 25 * time.Hour,
		},
		{
			platform: marketa.Type, answer: `{"access_token":"a2","refresh_token":"r2","expire_in":14400,"error":"","shop_id":1}`,
			path:  "/base/api/v2/auth/access_token/get",
			query: "partner_id=2001234&sign=bc112d9e98fa88ff21d10b65a2379750c3243dcaa542fc1fe3dfe827b503d80d&timestamp=1795219200",
			body:  `{"partner_id":2001234,"refresh_token":"refresh-` + secretToken + `","shop_id":947042923}`, life: 4 * time.Hour,
		},
		{
			platform: marketb.Type, answer: `{"code":"0","access_token":"a2","refresh_token":"r2","expires_in":604800}`,
			path:  "/base/auth/token/refresh",
			query: "app_key=123456&sign=41A8498537AFCC9ADAFE802666FBA117BD677D2B9C531D467345CFA6C2EEEDA8&sign_method=sha256&timestamp=1795219200000",
			body:  "refresh_token=refresh-" + secretToken, life: 168 * time.Hour,
		},
	} {
		t.Run(string(test.platform), func(t *testing.T) {
			t.Parallel()
			v := &vendor{status: 200, body: test.answer}
			renewed, err := v.client(t).Refresh(t.Context(), &platforms.Channel{Type: test.platform, ExternalID: "947042923", Credentials: credentials(test.platform)})
			require.NoError(t, err)
			require.Equal(t, platforms.Credentials{platforms.AccessToken: "a2", platforms.RefreshToken: "r2", platforms.ExpiresAt: strconv.FormatInt(at.Add(test.life).UnixMilli(), 10)}, renewed)
			require.Equal(t, "POST", v.last.method)
			require.Equal(t, test.path, v.last.path)
			require.Equal(t, test.query, v.last.query.Encode())
			require.Equal(t, test.body, v.last.body)
			require.Equal(t, test.secretKey, v.last.header.Get("secret_key"))
		})
	}
}

func TestRefreshErrors(t *testing.T) {
	t.Parallel()
	const local, marketA, marketB = localchat.Type, marketa.Type, marketb.Type
	for name, test := range map[string]struct {
		platform platforms.Type
		status   int
		body     string
		want     platforms.Class
	}{
		"used token, local":        {local, 200, `{"error":-14014,"error_name":"Invalid refresh token."}`, platforms.NeedsReauth},
		"wrong application, local": {local, 200, `{"error":-14002}`, platforms.Refused},
		"out of order, local":      {local, 500, `{"error":-1}`, platforms.Retry},
		"too many, local":          {local, 200, `{"error":-32}`, platforms.Retry},
		"used token, A":            {marketA, 403, `{"error":"error_auth"}`, platforms.NeedsReauth},
		"bad signature, A":         {marketA, 403, `{"error":"error_sign"}`, platforms.Refused},
		"used token, B":            {marketB, 200, `{"code":"IllegalRefreshToken"}`, platforms.NeedsReauth},
		"bad signature, B":         {marketB, 200, `{"code":"IncompleteSignature"}`, platforms.Refused},
		"too many, B":              {marketB, 200, `{"code":"ApiCallLimit"}`, platforms.Retry},
		"page":                     {marketB, 200, `<html>`, platforms.Unknown},
		"gateway":                  {marketA, 502, `<html>`, platforms.Unknown},
		"bare 401":                 {marketA, 401, ``, platforms.NeedsReauth},
		"bare 429":                 {marketA, 429, ``, platforms.Retry},
		"no token":                 {local, 200, `{}`, platforms.Unknown},
		"token with a line":        {local, 200, `{"access_token":"a\nb","refresh_token":"r2"}`, platforms.Unknown},
		"bad refresh token":        {local, 200, `{"access_token":"a2","refresh_token":"é"}`, platforms.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &vendor{status: test.status, body: test.body}
			renewed, err := v.client(t).Refresh(t.Context(), &platforms.Channel{Type: test.platform, ExternalID: "947042923", Credentials: credentials(test.platform)})
			failure := requireFailure(t, err)
			require.Equal(t, test.want, failure.Class, failure.Error())
			require.False(t, failure.Refreshable)
			require.Empty(t, renewed)
		})
	}
}

func TestRefreshRefusesWithoutACall(t *testing.T) {
	t.Parallel()
	v := &vendor{status: 200}
	client := v.client(t)
	for _, test := range []struct {
		platform   platforms.Type
		externalID string
		refresh    string
		want       platforms.Class
	}{
		{bot.Type, "1", "r", platforms.Refused},
		{social.ChatApp, "1", "r", platforms.Refused},
		{localchat.Type, "1", "", platforms.NeedsReauth},
		{localchat.Type, "1", "a b", platforms.NeedsReauth},
		{marketa.Type, "", "r", platforms.Refused},
		{marketa.Type, "1x", "r", platforms.Refused},
	} {
		_, err := client.Refresh(t.Context(), &platforms.Channel{Type: test.platform, ExternalID: test.externalID, Credentials: platforms.Credentials{platforms.RefreshToken: test.refresh}})
		require.Equal(t, test.want, requireFailure(t, err).Class, "%+v", test)
	}
	require.Empty(t, v.last.method)

	bare := setOf(t, messaging.Config{})
	for _, platform := range []platforms.Type{localchat.Type, marketa.Type, marketb.Type} {
		_, err := bare.Refresh(t.Context(), &platforms.Channel{Type: platform, ExternalID: "1", Credentials: credentials(platform)})
		require.Equal(t, platforms.Refused, requireFailure(t, err).Class, "no application")
	}
}

// A platform that doesn't rotate leaves the refresh token as it was; what else is in the credentials stays.
func TestRefreshKeepsWhatIsNotReplaced(t *testing.T) {
	t.Parallel()
	v := &vendor{status: 200, body: `{"access_token":"a2"}`}
	renewed, err := v.client(t).Refresh(t.Context(), &platforms.Channel{Type: localchat.Type, ExternalID: "1", Credentials: platforms.Credentials{platforms.AccessToken: "a1", platforms.RefreshToken: "r1", platforms.ExpiresAt: "5"}})
	require.NoError(t, err)
	require.Equal(t, platforms.Credentials{platforms.AccessToken: "a2", platforms.RefreshToken: "r1"}, renewed)
}

// The refresh token is used up by a refresh whose answer is lost: Unknown says so.
func TestLostRefreshIsUnknown(t *testing.T) {
	t.Parallel()
	server := platformfake.Start(t)
	client := server.Client(t)
	old := server.Account(localchat.Type, "366")
	server.Script(old[platforms.RefreshToken], platformfake.DropAfter)
	_, err := client.Refresh(t.Context(), &platforms.Channel{Type: localchat.Type, ExternalID: "366", Credentials: old})
	require.Equal(t, platforms.Unknown, requireFailure(t, err).Class)
	_, err = client.Refresh(t.Context(), &platforms.Channel{Type: localchat.Type, ExternalID: "366", Credentials: old})
	require.Equal(t, platforms.NeedsReauth, requireFailure(t, err).Class)
}

// Tokens are never refreshed at the real platform when the operator has replaced it.
func TestRefreshStaysWithTheConfiguredPlatform(t *testing.T) {
	t.Parallel()
	auth, api := &vendor{status: 200, body: `{"access_token":"a2"}`}, &vendor{status: 200, body: `{"access_token":"a2"}`}
	authBase, apiBase := serve(t, auth), serve(t, api)
	for _, platform := range []platforms.Type{localchat.Type, marketb.Type} {
		config := platformfake.Start(t).Config()
		config.Options[string(platform)]["api_base"] = apiBase
		client := setOf(t, config)
		_, err := client.Refresh(t.Context(), &platforms.Channel{Type: platform, ExternalID: "1", Credentials: credentials(platform)})
		require.NoError(t, err)
		require.NotEmpty(t, api.last.method)
		require.Empty(t, auth.last.method)

		config.Options[string(platform)]["auth_base"] = authBase
		other := setOf(t, config)
		_, err = other.Refresh(t.Context(), &platforms.Channel{Type: platform, ExternalID: "1", Credentials: credentials(platform)})
		require.NoError(t, err)
		require.NotEmpty(t, auth.last.method)
		auth.last, api.last = seen{}, seen{}
	}
}
