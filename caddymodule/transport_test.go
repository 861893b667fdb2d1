package caddymodule

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

func testContext(t *testing.T) caddy.Context {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	return ctx
}

func TestTransportDefaults(t *testing.T) {
	t.Parallel()
	transport, err := loadTransport(testContext(t), nil, 7*time.Second)
	require.NoError(t, err)
	require.Equal(t, 1024, transport.MaxIdleConnsPerHost)
	require.Zero(t, transport.MaxConnsPerHost)
	require.Zero(t, transport.ResponseHeaderTimeout, "the timers of a call are the adapter's")
}

func TestTransportOptionsWin(t *testing.T) {
	t.Parallel()
	raw := json.RawMessage(`{
		"protocol": "http", "max_conns_per_host": 3, "keep_alive": {"max_idle_conns_per_host": 5, "idle_timeout": "30s"},
		"tls": {"server_name": "other.example.com"}
	}`)
	transport, err := loadTransport(testContext(t), raw, time.Second)
	require.NoError(t, err)
	require.Equal(t, 3, transport.MaxConnsPerHost)
	require.Equal(t, 5, transport.MaxIdleConnsPerHost)
	require.Equal(t, 30*time.Second, transport.IdleConnTimeout)
	require.Equal(t, "other.example.com", transport.TLSClientConfig.ServerName)
}

func TestTransportKeepsIdleDefaultBesideOtherKeepAliveOptions(t *testing.T) {
	t.Parallel()
	raw := json.RawMessage(`{"protocol": "http", "keep_alive": {"idle_timeout": "30s"}}`)
	transport, err := loadTransport(testContext(t), raw, time.Second)
	require.NoError(t, err)
	require.Equal(t, 1024, transport.MaxIdleConnsPerHost)
}

// TestTransportNeedsNoReplacer makes a call with a bare context, over TLS too: reverse_proxy would put a replacer there.
func TestTransportNeedsNoReplacer(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(plain.Close)
	encrypted := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(encrypted.Close)
	raw := json.RawMessage(`{"protocol": "http", "tls": {"insecure_skip_verify": true, "server_name": "example.com"}}`)
	transport, err := loadTransport(testContext(t), raw, time.Second)
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	for _, address := range []string{plain.URL, encrypted.URL} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
}

// A client that reads nothing makes the vendor wait, and keeps no whole answer in our memory.
func TestTransportReadsLittleAhead(t *testing.T) {
	t.Parallel()
	written := make(chan int, 1)
	vendor := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := http.NewResponseController(w)
		sent, piece := 0, make([]byte, 16<<10)
		defer func() { written <- sent }()
		for sent < 3<<20 {
			// A write that the client's window has room for ends at once.
			if answer.SetWriteDeadline(time.Now().Add(time.Second)) != nil {
				return
			}
			if _, err := w.Write(piece); err != nil {
				return
			}
			sent += len(piece)
		}
	}))
	vendor.EnableHTTP2 = true
	vendor.StartTLS()
	t.Cleanup(vendor.Close)
	transport, err := loadTransport(testContext(t), nil, 7*time.Second)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(vendor.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, vendor.URL, nil)
	require.NoError(t, err)
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, response.Body.Close()) })
	require.Equal(t, 2, response.ProtoMajor)
	require.LessOrEqual(t, <-written, 2*streamBuffer)
}
