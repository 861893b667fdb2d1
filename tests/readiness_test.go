package tests

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// probe asks a health address of the product, over a connection of its own, as a balancer may.
func (p *product) probe(path string) (int, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get(p.SideURL + path) //nolint:noctx // it has a timeout
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// requireProbe requires the status of a health address.
func (p *product) requireProbe(t testing.TB, path string, status int) {
	t.Helper()
	got, err := p.probe(path)
	require.NoError(t, err)
	require.Equal(t, status, got, "the status of %s", path)
}

// TestReadinessFailsDuringShutdownDelay guarantees what a balancer needs to lose no request: as soon as the process is
// asked to end, ready answers 503 and live 200, while for the whole shutdown_delay new connections are served as before.
func TestReadinessFailsDuringShutdownDelay(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.Global = "shutdown_delay 1h" // the test is over before
	p := startProduct(t, d)
	c := p.operator().customer(t, 10_000_000)
	p.requireProbe(t, "/ready", http.StatusOK)

	p.terminate()
	p.await("readiness to fail", patience, func() bool {
		status, err := p.probe("/ready")
		require.NoError(t, err, "the listener must stay open")
		return status == http.StatusServiceUnavailable
	})
	for range 3 {
		p.clear.CloseIdleConnections()
		requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
		p.requireProbe(t, "/ready", http.StatusServiceUnavailable)
		p.requireProbe(t, "/live", http.StatusOK)
	}
	c.awaitCalls(t, 3)
	p.kill()
}

// TestEndAfterShutdownDelay guarantees that calls which began before or during the shutdown_delay end whole, and that
// the process then ends with status 0.
func TestEndAfterShutdownDelay(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.Global = "shutdown_delay 2s"
	p := startProduct(t, d)
	c := p.operator().customer(t, 10_000_000)
	streams := holdStreams(t, p, up, c, 5)
	p.terminate()
	p.awaitRefused()
	streams.requireWhole(t)
	p.wait()
	c.awaitCalls(t, 5)
	require.EqualValues(t, 10_000_000-5*usualCharge, c.wallet(t).BalanceMicros)
}

// TestReloadStaysReady guarantees that a reload takes no node out of its balancer: neither one that keeps all listeners,
// nor one that closes a listener and so waits out the shutdown_delay.
func TestReloadStaysReady(t *testing.T) {
	t.Parallel()
	d := deploy(t, store.SQLite, startUpstream(t))
	d.Global = "shutdown_delay 1s"
	p := startProduct(t, d)
	kept := p.caddyfile(t)
	extra := strings.Replace(kept, "http://:", "http://127.0.0.1:"+strconv.Itoa(freePort(t))+" {\n respond hi\n}\nhttp://:", 1)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan string, 1)
	asked := make(chan int)
	go func() {
		n := 0
		defer func() { asked <- n }()
		for ; ctx.Err() == nil; n++ {
			// A connection that the closing socket has not taken yet is reset by the kernel, which is no answer of ours.
			status, err := p.probe("/ready")
			if err == nil && status != http.StatusOK {
				select {
				case failed <- http.StatusText(status):
				default:
				}
				return
			}
		}
	}()
	for _, text := range []string{kept, extra, kept} {
		require.NoError(t, p.reload(text))
	}
	cancel()
	require.Positive(t, <-asked)
	select {
	case status := <-failed:
		t.Fatalf("during a reload ready was not OK but %q", status)
	default:
	}
	require.Contains(t, p.log.String(), "shutdown scheduled", "the second reload closes a listener")
	p.requireProbe(t, "/ready", http.StatusOK)
	p.terminate()
	p.await("readiness to fail on exit, after reloads too", patience, func() bool {
		status, err := p.probe("/ready")
		return err == nil && status == http.StatusServiceUnavailable
	})
	p.wait()
}
