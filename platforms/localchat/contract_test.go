package localchat

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
	"github.com/caddy-svc/caddy-svc/verify"
)

func TestContract(t *testing.T) {
	t.Parallel()
	const key = "signing-key-0123456789"
	for name, options := range map[string]map[string]string{
		"one secret":  {"app_id": testAppID, "app_secret": key},
		"two secrets": {"app_id": testAppID, "app_secret": "calling-key-0123456789", "oa_secret_key": key},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			platformtest.Run(t, suite(options))
		})
	}
}

const testAppID = "2551"

// suite is the adapter's.
func suite(options map[string]string) platformtest.Suite {
	return platformtest.Suite{
		Driver:  Driver{},
		Options: options,
		Sign: func(d *platforms.Delivery, channel *platforms.Channel, options map[string]string) {
			id, key := cmp.Or(channel.Credentials[appID], options["app_id"]), cmp.Or(
				channel.Credentials[oaSecretKey], channel.Credentials[appSecret], options["oa_secret_key"], options["app_secret"])
			sum := sha256.Sum256([]byte(id + string(d.Body) + "1763650003354" + key))
			d.Header.Set(verify.LocalChatHeader, "mac="+hex.EncodeToString(sum[:]))
		},
		Channels: map[platforms.Type]platformtest.Sample{Type: {
			ExternalID:  "1001",
			Credentials: platforms.Credentials{platforms.AccessToken: "access-0123456789", platforms.RefreshToken: "refresh-0123456789"},
			Own: []platforms.Credentials{
				{oaSecretKey: "own-oa-key-0123456789"},
				{appID: "77", appSecret: "own-app-secret-0123456789"},
				{appID: "77", appSecret: "own-app-secret-0123456789", oaSecretKey: "own-oa-key-0123456789"},
			},
			Text: `{"event_name":"user_send_text","sender":{"id":"%c"},"recipient":{"id":"%e"},"message":{"msg_id":"m%m","text":"%t"},` +
				`"timestamp":"1763650003354"}`,
			Sent:       `{"error":0,"message":"Success","data":{"message_id":"m%m"}}`,
			Identified: `{"error":0,"data":{"oa_id":%e}}`,
			Refreshed:  `{"access_token":"%a","refresh_token":"%r","expires_in":"90000"}`,
			Failures: []platformtest.Failure{
				{Status: 200, Body: `{"error":-216,"message":"x"}`, Class: platforms.NeedsReauth, Refreshable: true},
				{Status: 200, Body: `{"error":"-220","message":"x"}`, Class: platforms.NeedsReauth, Refreshable: true},
				{Status: 200, Body: `{"error":-219}`, Class: platforms.NeedsReauth},
				{Status: 200, Body: `{"error":-230}`, Class: platforms.WindowExpired},
				{Status: 200, Body: `{"error":-232}`, Class: platforms.WindowExpired},
				{Status: 200, Body: `{"error":-213}`, Class: platforms.CustomerBlocked},
				{Status: 200, Body: `{"error":-217}`, Class: platforms.CustomerBlocked},
				{Status: 200, Body: `{"error":-227}`, Class: platforms.CustomerBlocked},
				{Status: 200, Body: `{"error":-242}`, Class: platforms.NeedsReauth, Refreshable: true},
				{Status: 200, Body: `{"error":-204}`, Class: platforms.NeedsReauth},
				{Status: 200, Body: `{"error":-205}`, Class: platforms.NeedsReauth},
				{Status: 200, Body: `{"error":-209}`, Class: platforms.NeedsReauth},
				{Status: 200, Body: `{"error":-212}`, Class: platforms.NeedsReauth},
				{Status: 200, Body: `{"error":-221}`, Class: platforms.NeedsReauth},
				{Status: 200, Body: `{"error":-240}`, Class: platforms.NeedsReauth},
				{Status: 200, Body: `{"error":-211}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":-218}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":-224}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":-320}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":-321}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":-233}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":-248}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":-210}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":-234}`, Class: platforms.Retry},
				{Status: 200, Body: `{"error":-305}`, Class: platforms.WindowExpired},
				{Status: 200, Body: `{"error":-244}`, Class: platforms.CustomerBlocked},
				{Status: 200, Body: `{"error":-32}`, Class: platforms.Retry},
				{Status: 200, Body: `{"error":-201}`, Class: platforms.Refused},
				{Status: 503, Body: `{"error":-1}`, Class: platforms.Retry},
				{Status: 200, Body: `{"error":0,"data":{}}`, Class: platforms.Unknown},
				{Status: 200, Body: `{"message":"Success"}`, Class: platforms.Unknown},
			},
		}},
	}
}

// The application's secret renews tokens, whatever key signs deliveries; that of the channel's own application, if it has one.
func TestRefreshWithTheApplicationsSecret(t *testing.T) {
	t.Parallel()
	secrets := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secrets <- r.FormValue("app_id") + " " + r.Header.Get("secret_key")
		_, _ = io.WriteString(w, `{"access_token":"a2","refresh_token":"r2","expires_in":"90000"}`)
	}))
	t.Cleanup(server.Close)
	p := platformtest.New(t, Driver{}, map[string]string{
		"app_id": testAppID, "app_secret": "app-secret-0123456789", "oa_secret_key": "signing-key-0123456789", "api_base": server.URL,
	})
	fresh, err := p.(platforms.Refresher).Refresh(t.Context(), &platforms.Channel{
		Type: Type, ExternalID: "1001", Credentials: platforms.Credentials{platforms.AccessToken: "a1", platforms.RefreshToken: "r1"},
	})
	require.NoError(t, err)
	require.Equal(t, "a2", fresh[platforms.AccessToken])
	require.Equal(t, "2551 app-secret-0123456789", <-secrets)

	own := platforms.Credentials{
		platforms.AccessToken: "a1", platforms.RefreshToken: "r1", appID: "77", appSecret: "own-secret-0123456789", oaSecretKey: "own-key-0123456789",
	}
	fresh, err = p.(platforms.Refresher).Refresh(t.Context(), &platforms.Channel{Type: Type, ExternalID: "1001", Credentials: own})
	require.NoError(t, err)
	require.Equal(t, "77 own-secret-0123456789", <-secrets)
	require.Equal(t, own[oaSecretKey], fresh[oaSecretKey], "what isn't a token stays")
	require.Equal(t, own[appSecret], fresh[appSecret])
}

func TestUntilMorning(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]time.Duration{
		"22:00": 8 * time.Hour, "23:30": 6*time.Hour + 30*time.Minute, "00:00": 6 * time.Hour, "05:59": time.Minute, "06:00": 0, "06:01": 0,
		"12:00": 0, "21:49": 0, "21:50": 8*time.Hour + 10*time.Minute,
	} {
		now, err := time.Parse("2006-01-02 15:04 -07:00", "2026-11-22 "+at+" +07:00")
		require.NoError(t, err)
		require.Equal(t, want, untilMorning(now), at)
	}
}

// At night the platform is closed until the morning; by day the same code is one try that failed.
func TestClosedAtNight(t *testing.T) {
	t.Parallel()
	r := &platforms.Response{Status: 200, Body: []byte(`{"error":-234,"message":"x"}`)}
	night := time.Date(2026, 11, 22, 16, 0, 0, 0, time.UTC) // 23:00 in Vietnam
	var failure *platforms.Error
	require.ErrorAs(t, read(r, nil, night), &failure)
	require.True(t, failure.Closed)
	require.Equal(t, 7*time.Hour, failure.RetryAfter)
	require.ErrorAs(t, read(r, nil, night.Add(12*time.Hour)), &failure)
	require.False(t, failure.Closed)
	require.Equal(t, platforms.Retry, failure.Class)
}
