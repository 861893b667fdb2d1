package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

func TestWriteErrorKeepsTheContractForEveryCode(t *testing.T) {
	t.Parallel()
	for _, code := range errcode.All() {
		a := handlertest.Written(t, &handlers.Error{Code: code, Message: "Text."}, "")
		require.Equal(t, string(code), a.Code())
		require.Equal(t, "Text.", a.Fields["message"])
		require.NotContains(t, a.Fields, "field")
		require.NotContains(t, a.Fields, "docsUrl")
	}
}

func TestWriteErrorBodyInFull(t *testing.T) {
	t.Parallel()
	a := handlertest.Written(t, &handlers.Error{
		Code: errcode.ProviderOverloaded, Message: `Say "later" <b>`, Field: "messages[0].content",
		RetryAfter: 1200 * time.Millisecond,
	}, "http://localhost:8080/docs")
	id := a.Header.Get("X-Request-Id")
	require.Equal(t, `{"error":{"code":"provider_overloaded","message":"Say \"later\" <b>","field":"messages[0].content",`+
		`"docsUrl":"http://localhost:8080/docs#provider_overloaded","retryAfter":2,"requestId":"`+id+`"}}`, a.Text)
	require.Equal(t, "1200", a.Header.Get("Retry-After-Ms"))
}

func TestWriteErrorRetryAfter(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name        string
		code        errcode.Code
		wait        time.Duration
		seconds, ms string
	}{
		{"429 without an opinion", errcode.RateLimited, 0, "1", "1000"},
		{"503 without an opinion", errcode.ProviderOverloaded, 0, "5", "5000"},
		{"never 0", errcode.RateLimited, time.Nanosecond, "1", "1"},
		{"never negative", errcode.RateLimited, -time.Minute, "1", "1000"},
		{"rounded up", errcode.RateLimited, 59_000*time.Millisecond + 1, "60", "59001"},
		{"below 60000 ms for the ai-sdk", errcode.RateLimited, time.Minute, "60", "59999"},
		{"no more than a minute", errcode.ProviderOverloaded, time.Hour, "60", "59999"},
		{"header only with other codes", errcode.InternalError, 2 * time.Second, "2", "2000"},
		{"none", errcode.InternalError, 0, "", ""},
		{"none with 502", errcode.ProviderError, 0, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := handlertest.Written(t, &handlers.Error{Code: c.code, Message: "Text.", RetryAfter: c.wait}, "")
			require.Equal(t, c.seconds, a.Header.Get("Retry-After"))
			require.Equal(t, c.ms, a.Header.Get("Retry-After-Ms"))
		})
	}
}

func TestWriteErrorShouldRetry(t *testing.T) {
	t.Parallel()
	require.Equal(t, "false", handlertest.Written(t, &handlers.Error{Code: errcode.IdempotencyKeyReused, Message: "x"}, "").Header.Get("X-Should-Retry"))
	require.Equal(t, "false", handlertest.Written(t, &handlers.Error{Code: errcode.ProviderError, Message: "x", NoRetry: true}, "").Header.Get("X-Should-Retry"))
	require.Empty(t, handlertest.Written(t, &handlers.Error{Code: errcode.ProviderError, Message: "x"}, "").Header.Get("X-Should-Retry"))
	require.Empty(t, handlertest.Written(t, &handlers.Error{Code: errcode.Conflict, Message: "x"}, "").Header.Get("X-Should-Retry"))
}

func TestWriteErrorHidesCauses(t *testing.T) {
	t.Parallel()
	const secret = "sk-upstream-secret"
	for _, err := range []error{
		errors.New(secret),
		fmt.Errorf("store %s: %w", secret, context.DeadlineExceeded),
		handlers.Internal(errors.New(secret)),
		handlers.Busy(time.Second, errors.New(secret)),
		&handlers.Error{Code: errcode.ProviderError, Message: "The provider failed.", Cause: errors.New(secret)},
		&handlers.Error{Code: "made_up", Message: secret},
	} {
		require.NotContains(t, handlertest.Written(t, err, "").Text, "secret")
	}
	require.Equal(t, standardText, handlertest.Written(t, errors.New(secret), "").Fields["message"])
}

func TestWriteErrorRemovesStaleHeaders(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "X-Should-Retry", "Retry-After"} {
		w.Header().Set(name, "17")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Ratelimit-Limit-Requests", "60")
	handlers.WriteError(w, httptest.NewRequest(http.MethodGet, "/", nil), handlers.NotFound("Nothing."), "")
	a := handlertest.Checked(t, w)
	for _, name := range []string{"Content-Encoding", "Etag", "Last-Modified", "X-Should-Retry", "Retry-After"} {
		require.Empty(t, a.Header.Get(name), name)
	}
	require.Equal(t, "60", a.Header.Get("X-Ratelimit-Limit-Requests"))
}

func TestWriteErrorTakesBytesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\ufffdb", handlertest.Written(t, handlers.NotFound("a\xffb"), "").Fields["message"])
}

func TestAppendErrorEvent(t *testing.T) {
	t.Parallel()
	e := &handlers.Error{Code: errcode.ProviderTimeout, Message: "Line\nbreak", Field: "x", RetryAfter: time.Second, Cause: errors.New("secret")}
	require.Equal(t,
		"before data: "+`{"error":{"code":"provider_timeout","message":"Line\nbreak","requestId":"req_1"}}`+"\n\n",
		string(handlers.AppendErrorEvent([]byte("before "), e, "req_1")))
	require.Contains(t, string(handlers.AppendErrorEvent(nil, errors.New("secret"), "req_1")), `"code":"internal_error"`)
	require.NotContains(t, string(handlers.AppendErrorEvent(nil, errors.New("secret"), "req_1")), "secret")
}

// TestBusyStore guarantees that the answer of a store with too many writes says when to come back.
func TestBusyStore(t *testing.T) {
	t.Parallel()
	handlertest.RequireBusy(t, handlertest.Written(t, handlertest.ErrBusy, ""))
	require.Zero(t, handlers.Internal(errors.New("disk I/O error")).RetryAfter)
}
