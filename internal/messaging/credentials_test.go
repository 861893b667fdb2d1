package messaging_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func TestCheckCredentials(t *testing.T) {
	t.Parallel()
	type c = platforms.Credentials
	botOf := func(token string) c { return c{"secretToken": "s-0123456789abcdef", "botToken": token} }
	for name, test := range map[string]struct {
		platform    platforms.Type
		credentials c
		field       string // "": all is well
	}{
		"bot":                          {bot.Type, botOf("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_-"), ""},
		"bot, longest secret":          {bot.Type, c{"secretToken": strings.Repeat("a", 256), "botToken": "1:a"}, ""},
		"bot, secret too long":         {bot.Type, c{"secretToken": strings.Repeat("a", 257), "botToken": "1:a"}, "secretToken"},
		"bot, secret with other signs": {bot.Type, c{"secretToken": "a b", "botToken": "1:a"}, "secretToken"},
		"bot, no secret":               {bot.Type, c{"botToken": "1:a"}, "secretToken"},
		"bot, no token":                {bot.Type, c{"secretToken": "s-0123456789abcdef"}, "botToken"},
		"bot, no colon":                {bot.Type, botOf("1a"), "botToken"},
		"bot, nothing behind it":       {bot.Type, botOf("1:"), "botToken"},
		"bot, no id":                   {bot.Type, botOf(":a"), "botToken"},
		"bot, path":                    {bot.Type, botOf("1:a/b"), "botToken"},
		"bot, too long":                {bot.Type, botOf("1:" + strings.Repeat("a", 4096)), "botToken"},
		"bot, other token":             {bot.Type, c{"secretToken": "s-0123456789abcdef", "botToken": "1:a", "accessToken": "x"}, "accessToken"},
		"bot, unheard-of field":        {bot.Type, c{"secretToken": "s-0123456789abcdef", "botToken": "1:a", "pigeon": "x"}, "pigeon"},
		"messenger":                    {social.Messenger, c{"accessToken": "EAAG|x"}, ""},
		"photo":                        {social.PhotoDM, c{"accessToken": "x"}, ""},
		"chat app":                     {social.ChatApp, c{"accessToken": "x"}, ""},
		"chat app, none":               {social.ChatApp, c{}, "accessToken"},
		"chat app, refresh token":      {social.ChatApp, c{"accessToken": "x", "refreshToken": "y"}, "refreshToken"},
		"local":                        {localchat.Type, c{"accessToken": "x", "refreshToken": "y", "expiresAt": "1"}, ""},
		"local, no refresh token":      {localchat.Type, c{"accessToken": "x"}, "refreshToken"},
		"market A":                     {marketa.Type, c{"accessToken": "x", "refreshToken": "y"}, ""},
		"market B":                     {marketb.Type, c{"accessToken": "x", "refreshToken": "y"}, ""},
		"market B, line":               {marketb.Type, c{"accessToken": "x\r\ny", "refreshToken": "y"}, "accessToken"},
		"market B, longest":            {marketb.Type, c{"accessToken": strings.Repeat("x", 4096), "refreshToken": "y"}, ""},
		"market B, too long":           {marketb.Type, c{"accessToken": "x", "refreshToken": strings.Repeat("y", 4097)}, "refreshToken"},
		"market B, not ASCII":          {marketb.Type, c{"accessToken": "é", "refreshToken": "y"}, "accessToken"},
		"widget":                       {messaging.Widget, c{}, ""},
		"widget with a token":          {messaging.Widget, c{"accessToken": "x"}, "accessToken"},
	} {
		err := typeOf(t, test.platform).CheckCredentials(test.credentials)
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
	err := typeOf(t, bot.Type).CheckCredentials(platforms.Credentials{"secretToken": "s-0123456789abcdef", "botToken": secretToken + " "})
	require.Error(t, err)
	require.NotContains(t, err.Error(), secretToken)
}

func TestCredentialsAsJSON(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(platforms.Credentials{"secretToken": "a", "botToken": "b", "accessToken": "c", "refreshToken": "d", "expiresAt": "5"})
	require.NoError(t, err)
	require.JSONEq(t, `{"secretToken":"a","botToken":"b","accessToken":"c","refreshToken":"d","expiresAt":5}`, string(raw))
}

func TestWindows(t *testing.T) {
	t.Parallel()
	for platform, want := range map[platforms.Type]time.Duration{
		bot.Type: 0, social.Messenger: 24 * time.Hour, social.PhotoDM: 24 * time.Hour, social.ChatApp: 24 * time.Hour,
		localchat.Type: 168 * time.Hour, marketa.Type: 0, marketb.Type: 0, messaging.Widget: 0,
	} {
		require.Equal(t, want, typeOf(t, platform).Window, platform)
	}
	require.Equal(t, "template_required", messaging.Code(typeOf(t, social.ChatApp).WindowClass()))
	require.Equal(t, "service_window_expired", messaging.Code(typeOf(t, localchat.Type).WindowClass()))
}

// typeOf is a channel type of the built-in platforms.
func typeOf(t testing.TB, channelType platforms.Type) messaging.ChannelType {
	t.Helper()
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	found, ok := catalog.Find(string(channelType))
	require.True(t, ok, channelType)
	return found
}

func TestTypes(t *testing.T) {
	t.Parallel()
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	known := []string{"bot", "social_messenger", "photo_dm", "chat_app", "localchat", "market_a", "market_b", "widget"}
	require.Equal(t, known, catalog.TypeNames())
	for _, name := range known {
		_, ok := catalog.Find(name)
		require.True(t, ok)
	}
	for _, name := range []string{"", "Bot", "market-a"} {
		_, ok := catalog.Find(name)
		require.False(t, ok)
	}
}
