package platforms_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platforms"
)

func TestCheckCredentials(t *testing.T) {
	t.Parallel()
	type c = platforms.Credentials
	botOf := func(token string) c { return c{SecretToken: "s", BotToken: token} }
	for name, test := range map[string]struct {
		platform    platforms.Type
		credentials c
		field       string // "": all is well
	}{
		"bot":                          {platforms.Bot, botOf("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_-"), ""},
		"bot, longest secret":          {platforms.Bot, c{SecretToken: strings.Repeat("a", 256), BotToken: "1:a"}, ""},
		"bot, secret too long":         {platforms.Bot, c{SecretToken: strings.Repeat("a", 257), BotToken: "1:a"}, "secretToken"},
		"bot, secret with other signs": {platforms.Bot, c{SecretToken: "a b", BotToken: "1:a"}, "secretToken"},
		"bot, no secret":               {platforms.Bot, c{BotToken: "1:a"}, "secretToken"},
		"bot, no token":                {platforms.Bot, c{SecretToken: "s"}, "botToken"},
		"bot, no colon":                {platforms.Bot, botOf("1a"), "botToken"},
		"bot, nothing behind it":       {platforms.Bot, botOf("1:"), "botToken"},
		"bot, no id":                   {platforms.Bot, botOf(":a"), "botToken"},
		"bot, path":                    {platforms.Bot, botOf("1:a/b"), "botToken"},
		"bot, too long":                {platforms.Bot, botOf("1:" + strings.Repeat("a", 4096)), "botToken"},
		"bot, other token":             {platforms.Bot, c{SecretToken: "s", BotToken: "1:a", AccessToken: "x"}, "accessToken"},
		"messenger":                    {platforms.SocialMessenger, c{AccessToken: "EAAG|x"}, ""},
		"photo":                        {platforms.PhotoDM, c{AccessToken: "x"}, ""},
		"chat app":                     {platforms.ChatApp, c{AccessToken: "x"}, ""},
		"chat app, none":               {platforms.ChatApp, c{}, "accessToken"},
		"chat app, refresh token":      {platforms.ChatApp, c{AccessToken: "x", RefreshToken: "y"}, "refreshToken"},
		"local":                        {platforms.LocalChat, c{AccessToken: "x", RefreshToken: "y", ExpiresAt: 1}, ""},
		"local, no refresh token":      {platforms.LocalChat, c{AccessToken: "x"}, "refreshToken"},
		"market A":                     {platforms.MarketA, c{AccessToken: "x", RefreshToken: "y"}, ""},
		"market B":                     {platforms.MarketB, c{AccessToken: "x", RefreshToken: "y"}, ""},
		"market B, line":               {platforms.MarketB, c{AccessToken: "x\r\ny", RefreshToken: "y"}, "accessToken"},
		"market B, longest":            {platforms.MarketB, c{AccessToken: strings.Repeat("x", 4096), RefreshToken: "y"}, ""},
		"market B, too long":           {platforms.MarketB, c{AccessToken: "x", RefreshToken: strings.Repeat("y", 4097)}, "refreshToken"},
		"market B, not ASCII":          {platforms.MarketB, c{AccessToken: "é", RefreshToken: "y"}, "accessToken"},
		"widget":                       {platforms.Widget, c{}, ""},
		"widget with a token":          {platforms.Widget, c{AccessToken: "x"}, "accessToken"},
	} {
		err := test.platform.CheckCredentials(test.credentials)
		if test.field == "" {
			require.NoError(t, err, name)
			continue
		}
		var fault *platforms.FieldError
		require.ErrorAs(t, err, &fault, name)
		require.Equal(t, test.field, fault.Field, name)
		require.True(t, strings.HasPrefix(err.Error(), test.field+": "), name)
	}
}

func TestFieldErrorNeverQuotesTheValue(t *testing.T) {
	t.Parallel()
	err := platforms.Bot.CheckCredentials(platforms.Credentials{SecretToken: "s", BotToken: secretToken + " "})
	require.Error(t, err)
	require.NotContains(t, err.Error(), secretToken)
}

func TestCredentialsAsJSON(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(platforms.Credentials{SecretToken: "a", BotToken: "b", AccessToken: "c", RefreshToken: "d", ExpiresAt: 5})
	require.NoError(t, err)
	require.JSONEq(t, `{"secretToken":"a","botToken":"b","accessToken":"c","refreshToken":"d","expiresAt":5}`, string(raw))
}

func TestWindows(t *testing.T) {
	t.Parallel()
	for platform, want := range map[platforms.Type]time.Duration{
		platforms.Bot: 0, platforms.SocialMessenger: 24 * time.Hour, platforms.PhotoDM: 24 * time.Hour, platforms.ChatApp: 24 * time.Hour,
		platforms.LocalChat: 168 * time.Hour, platforms.MarketA: 0, platforms.MarketB: 0, platforms.Widget: 0,
	} {
		require.Equal(t, want, platforms.Window(platform), platform)
	}
	require.Equal(t, "template_required", platforms.WindowCode(platforms.ChatApp))
	require.Equal(t, "service_window_expired", platforms.WindowCode(platforms.LocalChat))
}
