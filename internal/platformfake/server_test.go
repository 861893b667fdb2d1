package platformfake_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post speaks to the server without the product's client, so that what the server does is seen for itself.
func post(t *testing.T, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer token")
	req.GetBody = nil
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

func message(text string) string {
	return `{"recipient":{"id":"p1"},"message":{"text":"` + text + `"}}`
}

func TestFaultsDeliverAsTheySay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault     platformfake.Fault
		status    int // 0: no whole answer
		delivered int
		// vendorText: the answer holds what no log may show.
		vendorText bool
	}{
		"well":         {platformfake.Slow(0), 200, 1, false},
		"slow":         {platformfake.Slow(time.Millisecond), 200, 1, false},
		"unauthorized": {platformfake.Unauthorized, 401, 0, true},
		"too many":     {platformfake.TooManyFor(7 * time.Second), 429, 0, true},
		"temporary":    {platformfake.Temporary, 500, 0, true},
		"server error": {platformfake.ServerError, 502, 0, true},
		"window":       {platformfake.WindowExpired, 400, 0, true},
		"blocked":      {platformfake.CustomerBlocked, 400, 0, true},
		"rejected":     {platformfake.Rejected, 400, 0, true},
		"drop before":  {platformfake.DropBefore, 0, 0, false},
		"drop after":   {platformfake.DropAfter, 0, 1, false},
		"garbage":      {platformfake.Garbage, 200, 1, true},
		"truncated":    {platformfake.Truncated, 0, 1, false},
		"redirect":     {platformfake.Redirect, 307, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := platformfake.Start(t)
			server.Script("hello", test.fault)
			resp, err := post(t, server.URL(social.Messenger)+"/me/messages", message("hello"))
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				if err == nil {
					require.Equal(t, test.status, resp.StatusCode)
					require.Equal(t, test.vendorText, bytes.Contains(body, []byte(platformfake.Secret)))
				}
			}
			require.Equal(t, test.status == 0, err != nil)
			require.Len(t, server.Sent(), test.delivered)
			require.Equal(t, 1, server.Attempts("hello"))
			require.Zero(t, server.Attempts("other"))

			_, err = post(t, server.URL(social.Messenger)+"/me/messages", message("hello"))
			require.NoError(t, err, "one fault meets one request")
			require.Len(t, server.SentTo("p1"), test.delivered+1)
		})
	}
}

func TestHangDeliversAndWaits(t *testing.T) {
	t.Parallel()
	server := platformfake.Start(t)
	server.Script("p1", platformfake.Hang)
	answered := make(chan int, 1)
	go func() {
		if resp, err := post(t, server.URL(social.Messenger)+"/me/messages", message("hello")); err == nil { //nolint:testifylint // a failed post fails the wait below, too
			answered <- resp.StatusCode
		}
	}()
	server.WaitAttempts(t, "hello", 1)
	require.Len(t, server.WaitSent(t, 1), 1)
	select {
	case <-answered:
		require.Fail(t, "answered before the release")
	default:
	}
	server.Release()
	require.Equal(t, 200, <-answered)
}

func TestScriptsGoInOrder(t *testing.T) {
	t.Parallel()
	server := platformfake.Start(t)
	server.Script("hello", platformfake.Repeat(2, platformfake.ServerError)...)
	server.Script("p1", platformfake.Temporary)
	var statuses []int
	for range 4 {
		resp, err := post(t, server.URL(social.PhotoDM)+"/me/messages", message("hello"))
		require.NoError(t, err)
		statuses = append(statuses, resp.StatusCode)
	}
	require.Equal(t, []int{502, 502, 500, 200}, statuses)
}

func TestDownRefusesConnectionsAndKeepsItsPort(t *testing.T) {
	t.Parallel()
	server := platformfake.Start(t)
	url := server.URL(social.Messenger) + "/me/messages"
	server.Down()
	server.Down()
	_, err := post(t, url, message("hello"))
	require.ErrorContains(t, err, "connection refused")
	server.Up(t)
	server.Up(t)
	_, err = post(t, url, message("hello"))
	require.NoError(t, err)
	require.Len(t, server.Sent(), 1)
}

func TestRefreshTokensAreGoodForOneUse(t *testing.T) {
	t.Parallel()
	for _, platform := range []platforms.Type{localchat.Type, marketa.Type, marketb.Type} {
		t.Run(string(platform), func(t *testing.T) {
			t.Parallel()
			server := platformfake.Start(t)
			client := server.Client(t)
			first := server.Account(platform, "366")
			second, err := client.Refresh(t.Context(), &platforms.Channel{Type: platform, ExternalID: "366", Credentials: first})
			require.NoError(t, err)
			require.NotEqual(t, first[platforms.AccessToken], second[platforms.AccessToken])
			require.NotEqual(t, first[platforms.RefreshToken], second[platforms.RefreshToken])

			_, err = client.Refresh(t.Context(), &platforms.Channel{Type: platform, ExternalID: "366", Credentials: first})
			require.Error(t, err, "the first refresh token was used")
			_, err = client.Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: "366", Credentials: first})
			require.Error(t, err, "the first access token was replaced")
			ids, err := client.Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: "366", Credentials: second})
			require.NoError(t, err)
			require.Equal(t, []string{"366"}, ids)

			server.Expire(second[platforms.AccessToken])
			_, err = client.Identify(t.Context(), &platforms.Channel{Type: platform, ExternalID: "366", Credentials: second})
			require.Error(t, err)
			third, err := client.Refresh(t.Context(), &platforms.Channel{Type: platform, ExternalID: "366", Credentials: second})
			require.NoError(t, err, "an expired access token says nothing about the refresh token")

			server.Revoke(third[platforms.AccessToken])
			_, err = client.Refresh(t.Context(), &platforms.Channel{Type: platform, ExternalID: "366", Credentials: third})
			require.Error(t, err)
		})
	}
}
