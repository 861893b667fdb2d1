package handlers_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	var fault error
	stopping := false
	h := &handlers.Health{
		Ping: func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				return errors.New("a probe must not wait for ever")
			}
			return fault
		},
		ShuttingDown: func() bool { return stopping },
	}
	ready := func() (int, string) {
		w := handlertest.Served(h.Serve, handlertest.Get("/health/ready"))
		return w.Code, w.Body.String()
	}
	live := func() string { return handlertest.OkText(t, h.Serve, handlertest.Get("/live")) }
	status, text := ready()
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, `{"status":"ready"}`, text)
	require.Equal(t, `{"status":"live"}`, live())

	fault = errors.New("secret path /data/svc.db")
	status, text = ready()
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, `{"status":"unready","reason":"store"}`, text)
	require.Equal(t, `{"status":"live"}`, live())

	fault, stopping = nil, true
	status, text = ready()
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, `{"status":"unready","reason":"shutting_down"}`, text)
	require.Equal(t, `{"status":"live"}`, live())

	handlertest.RefusedWith(t, errcode.NotFound, h.Serve, handlertest.Get("/health"))
	handlertest.RefusedWith(t, errcode.NotFound, h.Serve, httptest.NewRequest(http.MethodPost, "/ready", nil))
	require.Equal(t, http.StatusOK, handlertest.Served(h.Serve, httptest.NewRequest(http.MethodHead, "/live", nil)).Code)
}

func TestHealthWithTheStore(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	h := &handlers.Health{Ping: db.Ping}
	require.Equal(t, `{"status":"ready"}`, handlertest.OkText(t, h.Serve, handlertest.Get("/ready")))
	require.NoError(t, db.Close(t.Context()))
	require.Equal(t, http.StatusServiceUnavailable, handlertest.Served(h.Serve, handlertest.Get("/ready")).Code)
}
