package caddymodule

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
)

// An HTTP/2 connection can be ended from its requests; with HTTP/1 deadlines do it.
func TestHangUp(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	for _, version := range []int{1, 2} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		require.Nil(t, (&responseWriter{r: r}).HangUp(), "without a connection")
		r = r.WithContext(context.WithValue(r.Context(), connKey{}, server))
		r.ProtoMajor = version
		hangUp := (&responseWriter{r: r}).HangUp()
		if version == 1 {
			require.Nil(t, hangUp)
			continue
		}
		hangUp()
		_, err := client.Read(make([]byte, 1))
		require.Error(t, err)
	}
}

// connHandler answers whether its request has a connection to hang up.
type connHandler struct{}

// CaddyModule implements [caddy.Module].
func (connHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.conn_of_a_test", New: func() caddy.Module { return new(connHandler) }}
}

func (connHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	_, found := r.Context().Value(connKey{}).(net.Conn)
	_, err := fmt.Fprint(w, found)
	return err
}

func init() { caddy.RegisterModule(connHandler{}) }

// TestRequestsKnowTheirConnection guarantees that the requests to a server with one of our handlers have a connection to hang up.
func TestRequestsKnowTheirConnection(t *testing.T) {
	folder, err := os.MkdirTemp("", "svc") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "site")
	adapted, err := adapt(strings.Replace(sqliteCaddyfile(t, filepath.Join(storeFolder(t), "svc.db"), ""), ":8080 {", ":8080 {\nbind unix/"+socket, 1))
	require.NoError(t, err)
	const ours = `"handle": [`
	require.Equal(t, 1, strings.Count(adapted, ours))
	var config caddy.Config
	require.NoError(t, json.Unmarshal([]byte(strings.Replace(adapted, ours, ours+`{"handler": "conn_of_a_test"},`, 1)), &config))
	ctx, err := caddy.ProvisionContext(&config)
	require.NoError(t, err)
	site, err := ctx.AppIfConfigured("http")
	require.NoError(t, err)
	server := site.(*caddyhttp.App)
	require.NoError(t, server.Start())
	t.Cleanup(func() { require.NoError(t, server.Stop()) })

	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	answer, err := client.Get("http://localhost/") //nolint:noctx // it is local
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "true", string(text))
}
