package caddymodule

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDashboard guarantees that the pages come through Caddy with their policy, that over plain http they explain why signing in is
// possible on this machine only, and that a one-time link of the configuration's store works there.
func TestDashboard(t *testing.T) {
	run := provision(t, `{
	svc {
		base_url http://localhost:8080
		store sqlite `+filepath.Join(storeFolder(t), "svc.db")+`
		master_key `+string(secretFile(t, testMasterKey))+`
	}
}
:8080 {
	handle /dashboard* {
		svc_dashboard
	}
}
`)
	run.start(t)
	server := run.server(t, ":8080")
	send := func(method, path, host string, form string) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(form))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Host = host
		w, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		body, err := io.ReadAll(w.Body)
		require.NoError(t, err)
		require.NoError(t, w.Body.Close())
		require.Contains(t, w.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';")
		require.Regexp(t, `^req_`, w.Header.Get("X-Request-Id"))
		return w, string(body)
	}

	w, page := send(http.MethodGet, "/dashboard/login", "svc.example", "")
	require.Equal(t, http.StatusOK, w.StatusCode)
	require.Contains(t, page, "Signing in needs https")
	require.NotContains(t, page, `type="password"`)
	w, page = send(http.MethodGet, "/dashboard/login", "localhost:8080", "")
	require.Equal(t, http.StatusOK, w.StatusCode)
	require.Contains(t, page, `type="password"`)
	w, page = send(http.MethodPost, "/dashboard/login", "localhost:8080", "email=nobody%40example.com&password=a+wrong+password")
	require.Equal(t, http.StatusUnauthorized, w.StatusCode)
	require.Contains(t, page, "The e-mail address or the password is wrong.")
	w, _ = send(http.MethodGet, "/dashboard", "localhost:8080", "")
	require.Equal(t, "/dashboard/login?next=%2Fdashboard", w.Header.Get("Location"))
	w, page = send(http.MethodPost, "/dashboard/welcome", "localhost:8080", "token=nobody_made_this&password=correct+horse+battery")
	require.Equal(t, http.StatusBadRequest, w.StatusCode)
	require.Contains(t, page, `id="welcome-token-error"`)
	w, _ = send(http.MethodGet, "/dashboardx", "localhost:8080", "")
	require.Equal(t, http.StatusNotFound, w.StatusCode)
}
