// Package handlertest has the fakes and checks that the tests of the handlers share. It is for tests only.
package handlertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Answer is an error as a client receives it.
type Answer struct {
	Status int
	Header http.Header
	Text   string
	Fields map[string]any
}

// Code is the error code.
func (a Answer) Code() string { return a.Fields["code"].(string) }

// Written returns the answer that WriteError writes for err, after checking the rules of every error.
func Written(t *testing.T, err error, docsBase string) Answer {
	t.Helper()
	w := httptest.NewRecorder()
	handlers.WriteError(w, httptest.NewRequest(http.MethodGet, "/", nil), err, docsBase)
	return Checked(t, w)
}

// Checked returns the written error, after checking the rules of every error.
func Checked(t *testing.T, w *httptest.ResponseRecorder) Answer {
	t.Helper()
	var doc map[string]map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc), w.Body.String())
	require.Len(t, doc, 1)
	a := Answer{w.Code, w.Header(), w.Body.String(), doc["error"]}
	for key := range a.Fields {
		require.Contains(t, []string{"code", "message", "field", "docsUrl", "retryAfter", "requestId"}, key)
	}
	require.Equal(t, errcode.Code(a.Code()).Status(), a.Status)
	require.NotEmpty(t, a.Fields["message"])
	require.Regexp(t, `^req_[0-9a-z]{26}$`, a.Fields["requestId"])
	require.Equal(t, a.Fields["requestId"], a.Header.Get("X-Request-Id"))
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	if length := a.Header.Get("Content-Length"); length != "" { // else the server counts
		require.Equal(t, strconv.Itoa(w.Body.Len()), length)
	}
	after, has := a.Fields["retryAfter"].(float64)
	require.Equal(t, a.Status == 429 || a.Status == 503, has, "retryAfter only with 429 and 503")
	if has {
		require.GreaterOrEqual(t, after, 1.0)
		require.LessOrEqual(t, after, 60.0)
		require.Equal(t, strconv.Itoa(int(after)), a.Header.Get("Retry-After"))
		require.NotEmpty(t, a.Header.Get("Retry-After-Ms"))
	}
	return a
}

// Described fails the test when the interface description doesn't name the code for the request's operation. Package described,
// which tests import for its effect, sets it.
var Described = func(testing.TB, *http.Request, string) {}

// Served runs a handler as the server does, with WriteError for its error.
func Served(h handlers.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	if err := h(w, r); err != nil {
		handlers.WriteError(w, r, err, "")
	}
	return w
}

// RefusedWith checks that the handler answers with the code in the contract's shape, and that the interface description
// names the code.
func RefusedWith(t *testing.T, code errcode.Code, h handlers.Handler, r *http.Request) Answer {
	t.Helper()
	a := Checked(t, Served(h, r))
	require.Equal(t, string(code), a.Code(), a.Text)
	Described(t, r, a.Code())
	return a
}

// OkText checks that the handler answers 200 with JSON and the headers of every answer.
func OkText(t *testing.T, h handlers.Handler, r *http.Request) string {
	t.Helper()
	w := Served(h, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	return w.Body.String()
}

// RequireInvalid requires an invalid_request that names no cause.
func RequireInvalid(t *testing.T, err error) *handlers.Error {
	t.Helper()
	e, ok := errors.AsType[*handlers.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, errcode.InvalidRequest, e.Code, "%v", err)
	return e
}

// ErrBusy is the error of a package when the store has refused a write because too many writes wait.
var ErrBusy = fmt.Errorf("doing something: %w", fmt.Errorf("%w: too much waits", store.ErrBusy))

// RequireBusy requires the answer to a write that the store refused immediately: 500 with the time to retry only in the header.
func RequireBusy(t *testing.T, a Answer) {
	t.Helper()
	require.Equal(t, http.StatusInternalServerError, a.Status)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	require.NotContains(t, a.Fields, "retryAfter")
	require.Contains(t, a.Fields["message"], "busy")
	require.NotContains(t, a.Text, "too much waits")
}
