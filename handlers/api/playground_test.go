package api

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/worker"
)

// newPlayground returns a fixture with an agent of org_1 and a gateway that plays an answer.
func newPlayground(t *testing.T) (o *fixture, path string, calls *handlertest.ScriptedCall) {
	t.Helper()
	o = newFixture(t)
	calls = &handlertest.ScriptedCall{Result: handlertest.Completed(), Pieces: []string{"one ", "two"}}
	o.Models = modelSet{"echo/a": {ID: "echo/a", ContextWindow: 8000, MaxOutputTokens: 1000}}
	o.Chat = &v1.Chat{Gateway: calls, Streams: new(v1.Streams), Logger: slog.New(slog.DiscardHandler)}
	o.PlaygroundCall = worker.PlaygroundCall
	agent := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner",
		`{"name":"Lan","model":"echo/a","instructions":"Be kind.","maxTokens":50,"temperature":0.5}`)
	return o, "/agents/" + agent["id"].(string) + "/playground", calls
}

// said returns the messages of a call as role and text.
func said(call *gateway.Request) (all []string) {
	for _, m := range call.Messages {
		all = append(all, m.Role+" "+string(m.Content.AppendText(nil)))
	}
	return all
}

// TestPlayground: the stream has the form of docs/contract.md, and the call is the one that would answer a customer.
func TestPlayground(t *testing.T) {
	t.Parallel()
	o, path, calls := newPlayground(t)
	body := `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"},
		{"role":"user","content":"are you"},{"role":"user","content":"open?"}]}`
	w := handlertest.Served(o.Serve, request(http.MethodPost, path, "user:member", body))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.True(t, strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"))
	require.True(t, w.Flushed)
	got := handlertest.Events(t, w)
	require.Len(t, got, 6)
	require.Contains(t, got[0], `"delta":{"role":"assistant","content":""}`)
	require.Contains(t, got[1], `"one "`)
	require.Contains(t, got[4], `"charged_micros"`)
	require.Equal(t, "[DONE]", got[5])
	require.Zero(t, o.Chat.Streams.Count())

	require.Equal(t, []string{"system Be kind.", "user hi", "assistant hello", "user are you", "user open?"}, said(calls.Request))
	require.Equal(t, "org_1", calls.Request.OrgID)
	require.Equal(t, store.Live, calls.Request.Env)
	require.Equal(t, w.Header().Get("X-Request-Id"), calls.Request.RequestID)
	require.Empty(t, calls.Request.KeyID)
	require.Nil(t, calls.Request.Turn)
	require.True(t, calls.Request.Stream)
	require.EqualValues(t, 50, calls.Request.MaxTokens)
	require.InDelta(t, 0.5, *calls.Request.Temperature, 0)
}

// TestPlaygroundOfATestKey: a ck_test_ key never spends live credits.
func TestPlaygroundOfATestKey(t *testing.T) {
	t.Parallel()
	o, path, calls := newPlayground(t)
	handlertest.Served(o.Serve, request(http.MethodPost, path, "test", `{"messages":[{"role":"user","content":"hi"}]}`))
	require.Equal(t, store.Test, calls.Request.Env)
	require.Equal(t, "key_1", calls.Request.KeyID)
}

func TestPlaygroundRefusals(t *testing.T) {
	t.Parallel()
	o, path, calls := newPlayground(t)
	for body, field := range map[string]string{
		`{}`:                              "messages",
		`{"messages":[]}`:                 "messages",
		`{"messages":null}`:               "messages",
		`{"messages":[{"role":"user"}]}`:  "messages[0].content",
		`{"messages":[{"content":"hi"}]}`: "messages[0].role",
		`{"messages":[{"role":"system","content":"hi"}]}`:                                 "messages[0].role",
		`{"messages":[{"role":"user","content":""}]}`:                                     "messages[0].content",
		`{"messages":[{"role":"user","content":"a\u0000"}]}`:                              "messages[0].content",
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`: "messages",
	} {
		o.refused(t, errcode.InvalidRequest, field, http.MethodPost, path, "owner", body)
	}
	const good = `{"messages":[{"role":"user","content":"hi"}]}`
	o.Models = modelSet{}
	o.refused(t, errcode.UnsupportedModel, "model", http.MethodPost, path, "owner", good)
	require.Nil(t, calls.Request, "no model was called")
}

// TestPlaygroundFailures: before the first byte an error has its own status, afterwards it is an event of the stream.
func TestPlaygroundFailures(t *testing.T) {
	t.Parallel()
	const good = `{"messages":[{"role":"user","content":"hi"}]}`
	o, path, calls := newPlayground(t)
	calls.Fail = handlertest.Failed(gateway.OutcomeProviderTimeout)
	w := handlertest.Served(o.Serve, request(http.MethodPost, path, "owner", good))
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `data: {"error":{"code":"provider_timeout"`)
	require.NotContains(t, w.Body.String(), "[DONE]")

	calls.Pieces, calls.Fail = nil, handlertest.Failed(gateway.OutcomeInsufficientCredits)
	o.refused(t, errcode.InsufficientCredits, "", http.MethodPost, path, "owner", good)

	closeStream, err := o.Chat.Streams.Open("org_1", 1)
	require.NoError(t, err)
	defer closeStream()
	o.Chat.StreamLimit = 1
	o.refused(t, errcode.RateLimited, "", http.MethodPost, path, "owner", good)
}
