package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// answer is what a client sees of an error.
type answer struct {
	status int
	header http.Header
	text   string
	fields map[string]any
}

func (a answer) code() string { return a.fields["code"].(string) }

// written answers what WriteError makes of err, after checking what holds for every error (spec §7.1).
func written(t *testing.T, err error, docsBase string) answer {
	t.Helper()
	w := httptest.NewRecorder()
	WriteError(w, httptest.NewRequest(http.MethodGet, "/", nil), err, docsBase)
	return checked(t, w)
}

func checked(t *testing.T, w *httptest.ResponseRecorder) answer {
	t.Helper()
	var doc map[string]map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc), w.Body.String())
	require.Len(t, doc, 1)
	a := answer{w.Code, w.Header(), w.Body.String(), doc["error"]}
	for key := range a.fields {
		require.Contains(t, []string{"code", "message", "field", "docsUrl", "retryAfter", "requestId"}, key)
	}
	require.Equal(t, errcode.Code(a.code()).Status(), a.status)
	require.NotEmpty(t, a.fields["message"])
	require.Regexp(t, `^req_[0-9a-z]{26}$`, a.fields["requestId"])
	require.Equal(t, a.fields["requestId"], a.header.Get("X-Request-Id"))
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Equal(t, strconv.Itoa(w.Body.Len()), a.header.Get("Content-Length"))
	after, has := a.fields["retryAfter"].(float64)
	require.Equal(t, a.status == 429 || a.status == 503, has, "retryAfter only with 429 and 503")
	if has {
		require.GreaterOrEqual(t, after, 1.0)
		require.LessOrEqual(t, after, 60.0)
		require.Equal(t, strconv.Itoa(int(after)), a.header.Get("Retry-After"))
		require.NotEmpty(t, a.header.Get("Retry-After-Ms"))
	}
	return a
}

func TestWriteErrorKeepsTheContractForEveryCode(t *testing.T) {
	t.Parallel()
	for _, code := range errcode.All() {
		a := written(t, &Error{Code: code, Message: "Text."}, "")
		require.Equal(t, string(code), a.code())
		require.Equal(t, "Text.", a.fields["message"])
		require.NotContains(t, a.fields, "field")
		require.NotContains(t, a.fields, "docsUrl")
	}
}

func TestWriteErrorBodyInFull(t *testing.T) {
	t.Parallel()
	a := written(t, &Error{
		Code: errcode.ProviderOverloaded, Message: `Say "later" <b>`, Field: "messages[0].content",
		RetryAfter: 1200 * time.Millisecond,
	}, "http://localhost:8080/docs")
	id := a.header.Get("X-Request-Id")
	require.Equal(t, `{"error":{"code":"provider_overloaded","message":"Say \"later\" <b>","field":"messages[0].content",`+
		`"docsUrl":"http://localhost:8080/docs#provider_overloaded","retryAfter":2,"requestId":"`+id+`"}}`, a.text)
	require.Equal(t, "1200", a.header.Get("Retry-After-Ms"))
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
			a := written(t, &Error{Code: c.code, Message: "Text.", RetryAfter: c.wait}, "")
			require.Equal(t, c.seconds, a.header.Get("Retry-After"))
			require.Equal(t, c.ms, a.header.Get("Retry-After-Ms"))
		})
	}
}

func TestWriteErrorShouldRetry(t *testing.T) {
	t.Parallel()
	require.Equal(t, "false", written(t, &Error{Code: errcode.IdempotencyKeyReused, Message: "x"}, "").header.Get("X-Should-Retry"))
	require.Equal(t, "false", written(t, &Error{Code: errcode.ProviderError, Message: "x", NoRetry: true}, "").header.Get("X-Should-Retry"))
	require.Empty(t, written(t, &Error{Code: errcode.ProviderError, Message: "x"}, "").header.Get("X-Should-Retry"))
	require.Empty(t, written(t, &Error{Code: errcode.Conflict, Message: "x"}, "").header.Get("X-Should-Retry"))
}

func TestWriteErrorHidesCauses(t *testing.T) {
	t.Parallel()
	const secret = "sk-upstream-secret"
	for _, err := range []error{
		errors.New(secret),
		fmt.Errorf("store %s: %w", secret, context.DeadlineExceeded),
		Internal(errors.New(secret)),
		Busy(time.Second, errors.New(secret)),
		&Error{Code: errcode.ProviderError, Message: "The provider failed.", Cause: errors.New(secret)},
		&Error{Code: "made_up", Message: secret},
	} {
		require.NotContains(t, written(t, err, "").text, "secret")
	}
	require.Equal(t, internalMessage, written(t, errors.New(secret), "").fields["message"])
}

func TestWriteErrorRemovesStaleHeaders(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "X-Should-Retry", "Retry-After"} {
		w.Header().Set(name, "17")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Ratelimit-Limit-Requests", "60")
	WriteError(w, httptest.NewRequest(http.MethodGet, "/", nil), NotFound("Nothing."), "")
	a := checked(t, w)
	for _, name := range []string{"Content-Encoding", "Etag", "Last-Modified", "X-Should-Retry", "Retry-After"} {
		require.Empty(t, a.header.Get(name), name)
	}
	require.Equal(t, "60", a.header.Get("X-Ratelimit-Limit-Requests"))
}

func TestWriteErrorTakesBytesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\ufffdb", written(t, NotFound("a\xffb"), "").fields["message"])
}

func TestAppendErrorEvent(t *testing.T) {
	t.Parallel()
	e := &Error{Code: errcode.ProviderTimeout, Message: "Line\nbreak", Field: "x", RetryAfter: time.Second, Cause: errors.New("secret")}
	require.Equal(t,
		"before data: "+`{"error":{"code":"provider_timeout","message":"Line\nbreak","requestId":"req_1"}}`+"\n\n",
		string(AppendErrorEvent([]byte("before "), e, "req_1")))
	require.Contains(t, string(AppendErrorEvent(nil, errors.New("secret"), "req_1")), `"code":"internal_error"`)
	require.NotContains(t, string(AppendErrorEvent(nil, errors.New("secret"), "req_1")), "secret")
}
