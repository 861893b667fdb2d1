package caddymodule

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// TestPanicIsAnswered: a handler that panics gets its client the error body of the contract, or, when the answer has begun,
// the end of the connection; and it leaves nothing running.
func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	calls := gateway.NewInFlight()
	app := &App{lifecycle: lifecycle{
		log: slog.New(slog.DiscardHandler), ready: make(chan struct{}), runtime: &runtime{shared: &sharedStore{calls: calls}},
	}}
	close(app.ready)
	serve := func(h func(w http.ResponseWriter)) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		return app.serve("test", httptest.NewRecorder(), r, func(_ *runtime, w http.ResponseWriter, _ *http.Request) error {
			h(w)
			return nil
		})
	}

	err := serve(func(http.ResponseWriter) { panic("planted") })
	var answer *handlers.Error
	require.ErrorAs(t, err, &answer)
	require.Equal(t, handlers.CodeInternalError, answer.Code)
	require.NotContains(t, answer.Message, "planted")
	var routed caddyhttp.HandlerError
	require.ErrorAs(t, err, &routed)
	require.Equal(t, http.StatusInternalServerError, routed.StatusCode)

	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_ = serve(func(w http.ResponseWriter) {
			_, _ = w.Write([]byte("half an answer"))
			panic("planted")
		})
	})
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_ = serve(func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
	})
	require.Zero(t, calls.Running())
}
