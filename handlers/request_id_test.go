package handlers_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
)

func TestRequestIDIsMadeOnceAndIgnoresTheClient(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Request-Id", "req_00000000000000000000000000")
	r1, id := handlers.EnsureRequestID(w, r)
	require.Regexp(t, `^req_[0-9a-z]{26}$`, id)
	require.NotEqual(t, "req_00000000000000000000000000", id)
	require.Equal(t, id, w.Header().Get("X-Request-Id"))
	require.Equal(t, id, handlers.RequestIDFrom(r1.Context()))
	r2, again := handlers.EnsureRequestID(w, r1)
	require.Same(t, r1, r2)
	require.Equal(t, id, again)
}

func TestRequestIDSurvivesTheLossOfTheContext(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	_, id := handlers.EnsureRequestID(w, r)
	r2, again := handlers.EnsureRequestID(w, r)
	require.Equal(t, id, again)
	require.Equal(t, id, handlers.RequestIDFrom(r2.Context()))
}

func TestRequestIDSurvivesTheLossOfTheHeader(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	r, id := handlers.EnsureRequestID(w, httptest.NewRequest(http.MethodGet, "/", nil))
	w.Header().Del("X-Request-Id")
	handlers.EnsureRequestID(w, r)
	require.Equal(t, id, w.Header().Get("X-Request-Id"))
}

func TestRequestIDOfAProxiedAnswerIsReplaced(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{"abc", "req_", "req_short", "req_0123456789012345678901234\n", "req_UPPER0123456789012345678901", "req_" + string(make([]byte, 30))} {
		w := httptest.NewRecorder()
		w.Header()["X-Request-Id"] = []string{foreign}
		_, id := handlers.EnsureRequestID(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.NotEqual(t, foreign, id)
		require.Equal(t, []string{id}, w.Header()["X-Request-Id"])
	}
}

func TestRequestIDsSortByTime(t *testing.T) {
	t.Parallel()
	last := ""
	for range 100 {
		_, id := handlers.EnsureRequestID(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		require.NotEqual(t, last, id)
		require.GreaterOrEqual(t, id[:14], last[:min(14, len(last))])
		last = id
	}
}
