package platformtest_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/internal/platforms"
	"github.com/caddy-svc/caddy-svc/internal/platforms/platformtest"
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
		fault     platformtest.Fault
		status    int // 0: no whole answer
		delivered int
		// vendorText: the answer holds what no log may show.
		vendorText bool
	}{
		"well":         {platformtest.Slow(0), 200, 1, false},
		"slow":         {platformtest.Slow(time.Millisecond), 200, 1, false},
		"unauthorized": {platformtest.Unauthorized, 401, 0, true},
		"too many":     {platformtest.TooManyFor(7 * time.Second), 429, 0, true},
		"temporary":    {platformtest.Temporary, 500, 0, true},
		"server error": {platformtest.ServerError, 502, 0, true},
		"window":       {platformtest.WindowExpired, 400, 0, true},
		"blocked":      {platformtest.CustomerBlocked, 400, 0, true},
		"rejected":     {platformtest.Rejected, 400, 0, true},
		"drop before":  {platformtest.DropBefore, 0, 0, false},
		"drop after":   {platformtest.DropAfter, 0, 1, false},
		"garbage":      {platformtest.Garbage, 200, 1, true},
		"truncated":    {platformtest.Truncated, 0, 1, false},
		"redirect":     {platformtest.Redirect, 307, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := platformtest.Start(t)
			server.Script("hello", test.fault)
			resp, err := post(t, server.URL(platforms.SocialMessenger)+"/me/messages", message("hello"))
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				if err == nil {
					require.Equal(t, test.status, resp.StatusCode)
					require.Equal(t, test.vendorText, bytes.Contains(body, []byte(platformtest.Secret)))
				}
			}
			require.Equal(t, test.status == 0, err != nil)
			require.Len(t, server.Sent(), test.delivered)
			require.Equal(t, 1, server.Attempts("hello"))
			require.Zero(t, server.Attempts("other"))

			_, err = post(t, server.URL(platforms.SocialMessenger)+"/me/messages", message("hello"))
			require.NoError(t, err, "one fault meets one request")
			require.Len(t, server.SentTo("p1"), test.delivered+1)
		})
	}
}

func TestHangDeliversAndWaits(t *testing.T) {
	t.Parallel()
	server := platformtest.Start(t)
	server.Script("p1", platformtest.Hang)
	answered := make(chan int, 1)
	go func() {
		if resp, err := post(t, server.URL(platforms.SocialMessenger)+"/me/messages", message("hello")); err == nil { //nolint:testifylint // a failed post fails the wait below, too
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
	server := platformtest.Start(t)
	server.Script("hello", platformtest.Repeat(2, platformtest.ServerError)...)
	server.Script("p1", platformtest.Temporary)
	var statuses []int
	for range 4 {
		resp, err := post(t, server.URL(platforms.PhotoDM)+"/me/messages", message("hello"))
		require.NoError(t, err)
		statuses = append(statuses, resp.StatusCode)
	}
	require.Equal(t, []int{502, 502, 500, 200}, statuses)
}

func TestDownRefusesConnectionsAndKeepsItsPort(t *testing.T) {
	t.Parallel()
	server := platformtest.Start(t)
	url := server.URL(platforms.SocialMessenger) + "/me/messages"
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
	for _, platform := range []platforms.Type{platforms.LocalChat, platforms.MarketA, platforms.MarketB} {
		t.Run(string(platform), func(t *testing.T) {
			t.Parallel()
			server := platformtest.Start(t)
			client := server.Client(t)
			first := server.Account(platform, "366")
			second, err := client.Refresh(t.Context(), platform, "366", first)
			require.NoError(t, err)
			require.NotEqual(t, first.AccessToken, second.AccessToken)
			require.NotEqual(t, first.RefreshToken, second.RefreshToken)

			_, err = client.Refresh(t.Context(), platform, "366", first)
			require.Error(t, err, "the first refresh token was used")
			_, err = client.Identify(t.Context(), platform, "366", first)
			require.Error(t, err, "the first access token was replaced")
			ids, err := client.Identify(t.Context(), platform, "366", second)
			require.NoError(t, err)
			require.Equal(t, []string{"366"}, ids)

			server.Expire(second.AccessToken)
			_, err = client.Identify(t.Context(), platform, "366", second)
			require.Error(t, err)
			third, err := client.Refresh(t.Context(), platform, "366", second)
			require.NoError(t, err, "an expired access token says nothing about the refresh token")

			server.Revoke(third.AccessToken)
			_, err = client.Refresh(t.Context(), platform, "366", third)
			require.Error(t, err)
		})
	}
}
