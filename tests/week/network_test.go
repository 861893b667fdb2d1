package week

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// network is the way to the platforms' servers, in memory. Each platform is a host of its own.
type network struct {
	handler http.Handler
	server  http.Server
	conns   chan net.Conn
	closed  chan struct{}

	mu     sync.Mutex
	random *rand.Rand
	down   map[string]bool // hosts that refuse connections
	sick   map[string]bool // hosts that fail a part of the requests, some after they have done what was asked
}

func newNetwork(fake *platformfake.Server, random *rand.Rand) *network {
	n := &network{
		handler: fake.Handler(), conns: make(chan net.Conn), closed: make(chan struct{}), random: random,
		down: map[string]bool{}, sick: map[string]bool{},
	}
	n.server.Handler = n
	go func() { _ = n.server.Serve(n) }()
	return n
}

// base is the address of a platform's interface.
func base(platform string) string {
	return "http://" + strings.ReplaceAll(platform, "_", "-") + ".test/" + platform
}

// host is that of a platform's interface.
func host(t platforms.Type) string {
	switch t {
	case social.Messenger, social.PhotoDM, social.ChatApp:
		return "social.test"
	}
	return strings.ReplaceAll(string(t), "_", "-") + ".test"
}

// client returns a client whose connections are this network's.
func (n *network) client() *platforms.Client {
	return platforms.NewClient(platforms.ClientConfig{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}})
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	to, _, _ := net.SplitHostPort(address)
	if n.is(n.down, to) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	select {
	case n.conns <- there:
		return here, nil
	case <-n.closed:
	case <-ctx.Done():
	}
	return nil, errors.Join(here.Close(), there.Close(), net.ErrClosed)
}

func (n *network) is(state map[string]bool, host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return state[host]
}

func (n *network) set(state map[string]bool, host string, is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	state[host] = is
}

// chance is true once in so many times.
func (n *network) chance(in int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.IntN(in) == 0
}

// ServeHTTP serves a request as the platform's health allows.
func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n.is(n.sick, r.Host) {
		switch {
		case n.chance(4):
			w.WriteHeader(http.StatusBadGateway)
			return
		case n.chance(8):
			defer panic(http.ErrAbortHandler)
		}
	}
	n.handler.ServeHTTP(w, r)
}

// Accept implements [net.Listener].
func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (n *network) Close() error {
	select {
	case <-n.closed:
	default:
		close(n.closed)
	}
	return nil
}

// Addr implements [net.Listener].
func (n *network) Addr() net.Addr { return &net.TCPAddr{} }
