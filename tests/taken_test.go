package tests

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestTakenAddress guarantees that an address has one listener. A second gateway on the port of a running one ends with an error
// before it takes a request, and so does a worker on the address of a site or of another worker. The running gateway still reloads.
func TestTakenAddress(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	probes := freePort(t)
	d.App += fmt.Sprintf("worker {\nlisten 127.0.0.1:%d\n}\n", probes)
	p := startProduct(t, d)
	c := p.operator().customer(t, rollingFunds)
	load := startLoad(t, c, p.as(c), up.script(replying), 4)
	defer load.end()

	second := prepareProduct(t, d.beside())
	second.Port = p.Port
	second.writeCaddyfile(second.caddyfile(t))
	for range 3 { // Caddy starts its apps in random order
		load.awaitAnswers(t, 10)
		_, err := second.caddy("run", "--config", second.configFile())
		require.ErrorContains(t, err, fmt.Sprintf("127.0.0.1:%d is taken: another process listens there", p.Port))
	}
	load.awaitAnswers(t, 10)
	load.end()
	require.NoError(t, p.reload(p.caddyfile(t)))
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)

	worker := p.startWorker()
	worker.await("the worker's probes", startWait, func() bool { return ready(p, probes) })
	_, err := p.caddy("svc-worker", "--config", p.configFile())
	require.ErrorContains(t, err, fmt.Sprintf("127.0.0.1:%d is taken: another process listens there", probes))
	second.TLSPort = freePort(t)
	second.App = fmt.Sprintf("worker {\nlisten 127.0.0.1:%d\n}\n", second.TLSPort)
	second.Sites = fmt.Sprintf("http://:%d {\nrespond hi\n}\n", second.TLSPort)
	second.writeCaddyfile(second.caddyfile(t))
	_, err = second.caddy("svc-worker", "--config", second.configFile())
	require.ErrorContains(t, err, fmt.Sprintf("svc.worker.listen: 127.0.0.1:%[1]d is also the address of a site (:%[1]d)", second.TLSPort))
}

// ready reports whether the probe at a port of this machine says that its process is ready.
func ready(p *product, port int) bool {
	response, err := p.clear.Get(fmt.Sprintf("http://127.0.0.1:%d/health/ready", port)) //nolint:noctx // it is local
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
