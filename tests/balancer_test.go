package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// staleAfter is the largest age of the balancer's view of a node's readiness. Nodes that end wait longer than that
	// before they take no more connections: shutdownDelay.
	staleAfter = 100 * time.Millisecond
	// readyPatience is what a node has to say whether it is ready.
	readyPatience = 5 * time.Second
)

// balancer is a load balancer in front of the nodes of a cluster, of the plainest kind: request by request to the next
// node that says it is ready, no matter whose it is. A dial that is refused goes to the next node; whatever else fails
// has failed, and the client sees it.
type balancer struct {
	// URL is where clients reach the cluster.
	URL string

	backends []*backend
	turn     atomic.Int64
	probes   *http.Client
	// reloads: configurations change, for which no node says before that it isn't ready. What a node closed unanswered is
	// sent to the next one then, as a refused one is; that it wasn't done twice the books tell.
	reloads atomic.Bool
	onward  *http.Transport
}

// backend is a node as the balancer sees it.
type backend struct {
	// host is where it serves, probe where it says whether it is ready.
	host, probe string
	// answered counts the requests that it has begun to answer.
	answered atomic.Int64

	mu    sync.Mutex
	asked time.Time
	ready bool
}

// startBalancer is a balancer without nodes. It ends with the test.
func startBalancer(t testing.TB) *balancer {
	t.Helper()
	b := &balancer{
		probes: &http.Client{Transport: &http.Transport{}, Timeout: readyPatience},
		// A connection that is kept may be closed by a server that reloads just when the next request is written to it.
		onward: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme = "http"
			r.SetXForwarded()
		},
		Transport:     b,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = fmt.Fprintf(w, "balancer: %v", err)
		},
	}
	server := httptest.NewUnstartedServer(proxy)
	server.Config.ErrorLog = proxy.ErrorLog
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		b.probes.CloseIdleConnections()
	})
	b.URL = server.URL
	return b
}

// add puts a node behind the balancer, before the first request.
func (b *balancer) add(p *product) {
	b.backends = append(b.backends, &backend{host: strings.TrimPrefix(p.BaseURL, "http://"), probe: p.SideURL + "/ready"})
}

// RoundTrip sends a request to the next node that takes it. It implements [http.RoundTripper].
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
	}
	for giveUp := time.Now().Add(patience); ; betweenLooks() {
		response, err := b.pass(r, body)
		if !errors.Is(err, errNobody) || time.Now().After(giveUp) {
			return response, err
		}
	}
}

// errNobody says that no node is ready, as all may seem to be for a moment on a machine that is busy with other tests.
var errNobody = errors.New("no node is ready")

// pass goes once around the nodes.
func (b *balancer) pass(r *http.Request, body []byte) (*http.Response, error) {
	failed := errNobody
	first := int(b.turn.Add(1))
	for i := range b.backends {
		next := b.backends[(first+i)%len(b.backends)]
		if !b.isReady(r.Context(), next) {
			continue
		}
		response, err := b.send(r, next, body)
		if err == nil {
			next.answered.Add(1)
			return response, nil
		}
		if failed = err; !b.triesAnother(err) {
			break
		}
	}
	return nil, failed
}

// triesAnother reports whether a request is sent to another node: when the connection was refused, and while configurations
// change when it was closed without a response. Go's server does so with a request that it has just read when it is asked to
// end, and the kernel with a connection that was not accepted yet.
func (b *balancer) triesAnother(err error) bool {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return true
	}
	unanswered := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	return unanswered && b.reloads.Load()
}

// send tries one node.
func (b *balancer) send(r *http.Request, to *backend, body []byte) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Host = to.host
	// A body without GetBody: Go sends no request again by itself.
	out.Body, out.GetBody = io.NopCloser(bytes.NewReader(body)), nil
	return b.onward.RoundTrip(out)
}

// isReady is what the node says of itself, now or a moment ago.
func (b *balancer) isReady(ctx context.Context, node *backend) bool {
	node.mu.Lock()
	defer node.mu.Unlock()
	if now := time.Now(); now.Sub(node.asked) > staleAfter {
		node.ready, node.asked = b.probe(ctx, node), now
	}
	return node.ready
}

func (b *balancer) probe(ctx context.Context, node *backend) bool {
	r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, node.probe, http.NoBody)
	if err != nil {
		return false
	}
	response, err := b.probes.Do(r)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
