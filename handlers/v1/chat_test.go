package v1

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// post sends a body through a Chat with the given gateway, as the principal of org_1.
func post(t *testing.T, g Gateway, body string, change ...func(*http.Request, *Chat)) (*httptest.ResponseRecorder, error) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r, _ = handlers.EnsureRequestID(w, r)
	r = r.WithContext(handlers.WithPrincipal(r.Context(), identity.Principal{OrgID: "org_1", KeyID: "key_1", Env: store.Test}))
	chat := &Chat{
		Gateway: g, Bodies: handlers.NewByteBudget(1 << 20), Streams: new(Streams), Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(r, chat)
	}
	err := chat.Serve(w, r)
	require.Zero(t, chat.Bodies.Used(), "the body's budget must be given back")
	require.Zero(t, chat.Streams.Count(), "the stream must be counted out")
	return w, err
}

const (
	plain  = `{"model":"acme/std","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"temperature":0.5,"top_p":1,"stop":["x"]}`
	stream = `{"model":"acme/std","messages":[{"role":"user","content":"hi"}],"stream":true}`
)

// TestCompletion: every field of the answer with its type, and what the call is made with.
func TestCompletion(t *testing.T) {
	t.Parallel()
	g := &handlertest.ScriptedCall{Result: handlertest.Completed()}
	w, err := post(t, g, plain)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var got map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	require.Equal(t, map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1.7e9, "model": `acme/"std"`,
		"choices": []any{map[string]any{
			"index": 0.0, "finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": "one \"two\"\n\u2028</script>"},
		}},
		"usage": map[string]any{"prompt_tokens": 3.0, "completion_tokens": 4.0, "total_tokens": 7.0},
		"svc":   map[string]any{"charged_micros": "9007199254740993", "byok": false},
	}, got)

	req := g.Request
	require.Equal(t, "org_1", req.OrgID)
	require.Equal(t, "key_1", req.KeyID)
	require.Equal(t, store.Test, req.Env)
	require.Equal(t, w.Header().Get("X-Request-Id"), req.RequestID)
	require.EqualValues(t, 5, req.MaxTokens)
	require.False(t, req.Stream)
	require.False(t, req.BYOK)
}

// TestOwnKeyHeader: "true" in any case asks for the organization's own key, nothing else does.
func TestOwnKeyHeader(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"true": true, "TRUE": true, "false": false, "1": false, "": false} {
		g := &handlertest.ScriptedCall{Result: handlertest.Completed()}
		_, err := post(t, g, plain, func(r *http.Request, _ *Chat) { r.Header.Set("x-svc-use-byok", value) })
		require.NoError(t, err)
		require.Equal(t, want, g.Request.BYOK, "%q", value)
	}
}

// TestStream: the exact order of events, with one id, model and created in every chunk.
func TestStream(t *testing.T) {
	t.Parallel()
	const head = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"acme/\"std\"","choices":[`
	for name, test := range map[string]struct {
		pieces []string
		middle []string
	}{
		"with text": {
			pieces: []string{"one ", "\"two\"\n\ndata: [DONE]\n\n"},
			middle: []string{
				head + `{"index":0,"delta":{"content":"one "},"finish_reason":null}]}`,
				head + `{"index":0,"delta":{"content":"\"two\"\n\ndata: [DONE]\n\n"},"finish_reason":null}]}`,
			},
		},
		"without text": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := post(t, &handlertest.ScriptedCall{Result: handlertest.Completed(), Pieces: test.pieces}, stream)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, w.Code)
			require.True(t, w.Flushed)
			require.True(t, strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"))
			require.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
			want := append([]string{head + `{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`}, test.middle...)
			want = append(want,
				head+`{"index":0,"delta":{},"finish_reason":"stop"}]}`,
				head+`],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7},"svc":{"charged_micros":"9007199254740993","byok":false}}`,
				"[DONE]")
			require.Equal(t, want, handlertest.Events(t, w))
		})
	}
}

func TestStreamFailsBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	w, err := post(t, &handlertest.ScriptedCall{Fail: handlertest.Failed(gateway.OutcomeProviderOverloaded)}, stream)
	answer, ok := errors.AsType[*handlers.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, errcode.ProviderOverloaded, answer.Code)
	require.Zero(t, w.Body.Len())
	require.False(t, w.Flushed)
}

// TestStreamFailsAfterTheFirstByte: one error event, and neither finish_reason nor usage nor svc nor [DONE].
func TestStreamFailsAfterTheFirstByte(t *testing.T) {
	t.Parallel()
	w, err := post(t, &handlertest.ScriptedCall{Result: handlertest.Completed(), Pieces: []string{"one "}, Fail: handlertest.Failed(gateway.OutcomeProviderTimeout)}, stream)
	require.NoError(t, err, "an error returned now would append a second body")
	got := handlertest.Events(t, w)
	require.Len(t, got, 3)
	require.JSONEq(t, `{"error":{"code":"provider_timeout","message":"public text","requestId":"`+w.Header().Get("X-Request-Id")+`"}}`, got[2])
	require.NotContains(t, w.Body.String(), `finish_reason":"`)
	require.NotContains(t, w.Body.String(), "charged_micros")
	require.NotContains(t, w.Body.String(), "[DONE]")
	require.NotContains(t, w.Body.String(), "sk-secret")
}

// goneWriter is a client that has left.
type goneWriter struct{ http.ResponseWriter }

func (goneWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (goneWriter) FlushError() error         { return io.ErrClosedPipe }

// TestFailedWriteReachesTheGateway: a failed write ends the call like one whose client left.
func TestFailedWriteReachesTheGateway(t *testing.T) {
	t.Parallel()
	writer := NewChunkWriter(goneWriter{httptest.NewRecorder()}, new(http.Request))
	defer writer.Free()
	require.NoError(t, writer.Begin(gateway.Head{ID: "chatcmpl-1", Created: 1, Model: "m"}))
	require.NoError(t, writer.Text("one"))
	require.ErrorIs(t, writer.Flush(), io.ErrClosedPipe)
}

// TestOutcomesHaveCodes: every ending that is an error has its public code, and vendor text stays inside.
func TestOutcomesHaveCodes(t *testing.T) {
	t.Parallel()
	for outcome, code := range map[gateway.Outcome]errcode.Code{
		gateway.OutcomeUnsupportedModel: errcode.UnsupportedModel, gateway.OutcomeContextTooLong: errcode.ContextTooLong,
		gateway.OutcomeInsufficientCredits: errcode.InsufficientCredits, gateway.OutcomeRequestTooLarge: errcode.InvalidRequest,
		gateway.OutcomeInvalidRequest: errcode.InvalidRequest,
		gateway.OutcomeProviderError:  errcode.ProviderError, gateway.OutcomeProviderOverloaded: errcode.ProviderOverloaded,
		gateway.OutcomeProviderTimeout: errcode.ProviderTimeout, gateway.OutcomeClientGone: errcode.InternalError,
		gateway.OutcomeExiting: errcode.InternalError, gateway.OutcomeInternalError: errcode.InternalError,
	} {
		w, err := post(t, &handlertest.ScriptedCall{Fail: handlertest.Failed(outcome)}, plain)
		answer, ok := errors.AsType[*handlers.Error](err)
		require.True(t, ok)
		require.Equal(t, code, answer.Code, outcome)
		handlers.WriteError(w, httptest.NewRequest(http.MethodPost, "/", http.NoBody), err, "")
		require.NotContains(t, w.Body.String(), "sk-secret")
	}
}

// TestChatNeedsPostAndPrincipal: another method is 404, and a route without svc_auth is internal_error, not a free call.
func TestChatNeedsPostAndPrincipal(t *testing.T) {
	t.Parallel()
	chat := &Chat{Gateway: &handlertest.ScriptedCall{}, Bodies: handlers.NewByteBudget(1), Streams: new(Streams)}
	err := chat.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/chat/completions", http.NoBody))
	require.Equal(t, errcode.NotFound, handlers.AsError(err).Code)
	err = chat.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(plain)))
	require.Equal(t, errcode.InternalError, handlers.AsError(err).Code)
}

// TestChatIsDecodedInTurn: a body that finds no slot for decoding is refused, and no call is made.
func TestChatIsDecodedInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, err := post(t, &handlertest.ScriptedCall{}, plain, func(r *http.Request, chat *Chat) {
			handlertest.FillSlots(t, chat.Bodies)
			*r = *handlertest.Impatient(t, r)
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, errcode.InternalError, handlers.AsError(err).Code)
	})
}

// TestStreamLimit: a stream beyond the limit is 429 with a Retry-After of a second.
func TestStreamLimit(t *testing.T) {
	t.Parallel()
	var open Streams
	closeStream, err := open.Open("org_1", 1)
	require.NoError(t, err)
	defer closeStream()
	g := &handlertest.ScriptedCall{}
	chat := &Chat{Gateway: g, Bodies: handlers.NewByteBudget(1 << 20), Streams: &open, StreamLimit: 1}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(stream))
	err = chat.Serve(w, r.WithContext(handlers.WithPrincipal(r.Context(), identity.Principal{OrgID: "org_1"})))
	require.Equal(t, errcode.RateLimited, handlers.AsError(err).Code)
	require.Nil(t, g.Request, "the call must not be made")
}

// TestPooledBuffersAreEmpty: no answer begins with the rest of another one from the same buffer.
//
//nolint:paralleltest // another test could take the buffer that this one still reads
func TestPooledBuffersAreEmpty(t *testing.T) {
	used := takeBuffer()
	*used = append(*used, "another customer's answer"...)
	giveBuffer(used)
	require.Empty(t, *used)
	require.Empty(t, *takeBuffer())
}

// TestBusyStore guarantees that the answer of a store with too many writes says when to come back.
func TestBusyStore(t *testing.T) {
	t.Parallel()
	_, err := post(t, &handlertest.ScriptedCall{Fail: &gateway.Failure{
		Outcome: gateway.OutcomeInternalError, Message: "The service is busy; the model was not called.", RetryAfter: time.Second,
		Cause: handlertest.ErrBusy,
	}}, plain)
	handlertest.RequireBusy(t, handlertest.Written(t, err, ""))
}

// wholeCalls is a gateway whose answers have 100,000 bytes, though 10,000 are reserved for each.
type wholeCalls struct{ made atomic.Int32 }

func (g *wholeCalls) Call(_ context.Context, req *gateway.Request, _ gateway.Sink) (*gateway.Result, error) {
	if !req.Room(10_000) {
		return nil, &gateway.Failure{Outcome: gateway.OutcomeTooManyCalls, RetryAfter: time.Second, Message: "Retry."}
	}
	g.made.Add(1)
	result := handlertest.Completed()
	result.Text = strings.Repeat("a", 100_000)
	return &result, nil
}

// TestUnreadCompletionsAreCharged: whole answers that are not read are charged to their organization. It is refused before it pays
// for another call; a paid answer is given, even if it is larger than its room; other organizations are served.
func TestUnreadCompletionsAreCharged(t *testing.T) {
	t.Parallel()
	calls := &wholeCalls{}
	chat := &Chat{Gateway: calls, Bodies: handlers.NewByteBudget(2 << 20), Streams: new(Streams), Logger: slog.New(slog.DiscardHandler)}
	client := handlertest.OpenNoWindow(t, handlertest.Serve(t, handlertest.Handler(func(w http.ResponseWriter, r *http.Request) error {
		return chat.Serve(w, r.WithContext(handlers.WithPrincipal(r.Context(), identity.Principal{OrgID: r.Header.Get("X-Org")})))
	})))
	ask := func(org string) string {
		return client.Status(client.Send(http.MethodPost, "/v1/chat/completions", plain, "X-Org", org))
	}
	for i := range 6 { // 524,288 bytes are one organization's; the sixth answer begins within them
		if i == 5 {
			room := handlers.NewRoom(chat.Bodies, handlers.Account{Owner: "org_1"})
			require.True(t, room.Grow(15_000))
			require.Equal(t, "429", ask("org_1"), "there is room for the request, and none for its answer")
			require.EqualValues(t, 5, calls.made.Load())
			room.Close()
		}
		require.Equal(t, "200", ask("org_1"))
		require.Greater(t, chat.Bodies.Used(), int64(i+1)*100_000)
	}
	require.Equal(t, "429", ask("org_1"))
	require.EqualValues(t, 6, calls.made.Load())
	require.Equal(t, "200", ask("org_2"))
	client.Close()
	require.Eventually(t, func() bool { return chat.Bodies.Used() == 0 }, 10*time.Second, time.Millisecond)
}
