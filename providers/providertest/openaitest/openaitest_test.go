package openaitest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func post(t *testing.T, ctx context.Context, baseURL, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+"/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestUpstreamJournalAndStream(t *testing.T) {
	t.Parallel()
	u, baseURL := Start(t)
	resp := post(t, t.Context(), baseURL, `{"stream":true,"messages":[{"content":"scenario:ok;n=2;pt=5;ct=6 please"}]}`)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(body), `{"content":"w1 "}`))
	require.Contains(t, string(body), `"usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11}}`)
	require.True(t, strings.HasSuffix(string(body), "\n\ndata: [DONE]\n\n"))
	seen := u.Await(t, "scenario:ok", 1)
	require.Equal(t, "ok", seen[0].Scenario)
	require.Equal(t, "/v1/chat/completions", seen[0].Path)
	require.False(t, seen[0].Aborted())
	require.Empty(t, u.Find("nothing"))
}

func TestUpstreamGate(t *testing.T) {
	t.Parallel()
	u, baseURL := Start(t)
	answered := make(chan string)
	go func() {
		resp := post(t, t.Context(), baseURL, `scenario:ok;gate=g;text=a+b`) //nolint:testifylint // a failed post fails the wait below, too
		body, _ := io.ReadAll(resp.Body)
		answered <- string(body)
	}()
	<-u.Reached("g")
	select {
	case <-answered:
		require.Fail(t, "answered before the release")
	default:
	}
	u.Release("g")
	u.Release("g")
	require.Contains(t, <-answered, `"content":"a b"`)
}

func TestUpstreamKnowsItsScenarios(t *testing.T) {
	t.Parallel()
	_, baseURL := Start(t)
	names := Scenarios()
	require.Greater(t, len(names), 60)
	require.Contains(t, names, "stall")
	require.Equal(t, 501, post(t, t.Context(), baseURL, `scenario:no-such-thing`).StatusCode)
	require.Equal(t, 200, post(t, t.Context(), baseURL, `nothing asked for`).StatusCode)
	require.Equal(t, 418, post(t, t.Context(), baseURL, `scenario:418`).StatusCode)
}
