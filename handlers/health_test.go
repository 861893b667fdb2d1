package handlers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	var fault error
	stopping := false
	h := &Health{
		Store: pingFunc(func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				return errors.New("a probe must not wait for ever")
			}
			return fault
		}),
		ShuttingDown: func() bool { return stopping },
	}
	ready := func() (int, string) {
		w := served(h.Serve, get("/health/ready"))
		return w.Code, w.Body.String()
	}
	live := func() string { return okText(t, h.Serve, get("/live")) }
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

	refusedWith(t, errcode.NotFound, h.Serve, get("/health"))
	refusedWith(t, errcode.NotFound, h.Serve, httptest.NewRequest(http.MethodPost, "/ready", nil))
	require.Equal(t, http.StatusOK, served(h.Serve, httptest.NewRequest(http.MethodHead, "/live", nil)).Code)
}

func TestHealthWithTheStore(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	h := &Health{Store: db}
	require.Equal(t, `{"status":"ready"}`, okText(t, h.Serve, get("/ready")))
	require.NoError(t, db.Close(t.Context()))
	require.Equal(t, http.StatusServiceUnavailable, served(h.Serve, get("/ready")).Code)
}
