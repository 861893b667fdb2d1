package caddymodule

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// TestTraceOfAPanicShowsNoSecret: what is logged of a panic says where it was, and nothing of the request or of what the
// functions on the way were given.
func TestTraceOfAPanicShowsNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "ck_live_planted-in-a-request" //nolint:gosec // it is none
	var log bytes.Buffer
	app := filled(&App{lifecycle: lifecycle{
		log: slog.New(slog.NewJSONHandler(&log, nil)), ready: make(chan struct{}),
		runtime: &runtime{shared: &sharedStore{calls: gateway.NewInFlight()}},
	}})
	close(app.ready)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions?key="+secret, strings.NewReader(secret))
	r.Header.Set("Authorization", "Bearer "+secret)
	err := (&inApp{app: app, name: "test"}).serve(httptest.NewRecorder(), r, func(_ *runtime, _ http.ResponseWriter, r *http.Request) error {
		return breaksOver(r, r.Header.Get("Authorization"), []byte(secret), map[string]string{secret: secret}, len(secret))
	})
	require.ErrorIs(t, err, errPanicked)
	require.NotContains(t, err.Error(), secret)
	require.Contains(t, log.String(), "index out of range")
	require.Contains(t, log.String(), "breaksOver", "the trace says where it was")
	require.NotContains(t, log.String(), secret)
	require.NotContains(t, log.String(), "planted")
}

//go:noinline
func breaksOver(r *http.Request, header string, body []byte, members map[string]string, n int) error {
	if body[n] == header[0] {
		r.Header.Set("X", members[header])
	}
	return nil
}
