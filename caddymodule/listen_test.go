package caddymodule

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
)

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", true},
		{"127.0.0.1:8080", ":8080", true},
		{"10.0.0.1:8080", "0.0.0.0:8080", true},
		{"127.0.0.1:8080", "localhost:8080", true},
		{"127.0.0.1:8080", "tcp4/127.0.0.1:8079-8080", true},
		{"unix//run/worker", "unix//run/worker", true},
		{"127.0.0.1:8080", "127.0.0.1:8081", false},
		{"127.0.0.1:8080", "127.0.0.1:8081-8090", false},
		{"127.0.0.1:8080", "10.0.0.1:8080", false},
		{"127.0.0.1:0", ":0", false}, // the system chooses
		{"unix//run/worker", "unix//run/site", false},
		{"unix//run/worker", ":8080", false},
		{"127.0.0.1:8080", "fd/3", false},
	} {
		a, err := caddy.ParseNetworkAddress(c.a)
		require.NoError(t, err)
		b, err := caddy.ParseNetworkAddress(c.b)
		require.NoError(t, err)
		require.Equal(t, c.want, overlap(a, b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, overlap(b, a), "%s %s", c.b, c.a)
	}
}

// TestTaken guarantees that an address with a listener is taken, even one that would share its port, and no other; nothing is left
// of the look.
func TestTaken(t *testing.T) {
	t.Parallel()
	shared, err := caddy.ParseNetworkAddress("127.0.0.1:0")
	require.NoError(t, err)
	listening, err := shared.Listen(t.Context(), 0, net.ListenConfig{}) // with SO_REUSEPORT
	require.NoError(t, err)
	listener := listening.(net.Listener)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	for _, address := range []string{"127.0.0.1:" + port, ":" + port, "tcp4/127.0.0.1:" + port} {
		require.ErrorContains(t, taken(address), "is taken: another process listens there", address)
	}
	require.NoError(t, listener.Close())
	for range 2 {
		require.NoError(t, taken("127.0.0.1:"+port))
	}
	require.NoError(t, taken("fd/3"))

	folder, err := os.MkdirTemp("", "svc") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "worker")
	require.NoError(t, taken("unix/"+socket))
	left, err := net.Listen("unix", socket) //nolint:noctx // it is local
	require.NoError(t, err)
	require.ErrorContains(t, taken("unix/"+socket), "is taken")
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, left.Close())
	require.NoError(t, taken("unix/"+socket), "left by a process that was killed")
}

// TestWorkersListener guarantees that a worker doesn't start where a site, the admin interface or another process listens.
func TestWorkersListener(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is local
	require.NoError(t, err)
	address := other.Addr().String()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	requireFree := func(admin, worker string) error {
		return requireFreeListener(fmt.Appendf(nil, `{"admin":{%s},"apps":{"svc":{"worker":{%s}},"http":{"servers":{"srv0":{"listen":[":9"]}}}}}`,
			admin, worker))
	}
	const site = `"listen":"127.0.0.1:9"`
	require.ErrorContains(t, requireFree("", site), "127.0.0.1:9 is also the address of a site (:9)")
	require.ErrorContains(t, requireFree("", `"listen":"localhost:2019"`), "is also the address of Caddy's admin interface")
	ours := `"listen":"` + address + `"`
	require.ErrorContains(t, requireFree(`"listen":"localhost:`+port+`"`, ours), "is also the address of Caddy's admin interface")
	require.ErrorContains(t, requireFree("", ours), address+" is taken")
	require.NoError(t, other.Close())
	require.NoError(t, requireFree(`"disabled":true`, ours))
	require.NoError(t, requireFree("", ""))
}

// TestOperatorsListener guarantees that the operator's interface is served on private listeners alone, unless the configuration confirms it.
func TestOperatorsListener(t *testing.T) {
	t.Parallel()
	for listen, public := range map[string]bool{
		"127.0.0.1:8081": false, "[::1]:8081": false, "localhost:8081": false, "10.0.0.5:8081": false, "192.168.1.2:8081": false, "[fd00::5]:8081": false,
		"unix//run/svc.sock": false, "tcp4/127.0.0.1:8081": false,
		":8081": true, "0.0.0.0:8081": true, "[::]:8081": true, "203.0.113.7:443": true, "[2001:db8::1]:443": true, "svc.example.com:443": true, "fd/3": true,
	} {
		server := &caddyhttp.Server{Listen: []string{"127.0.0.1:1", listen}}
		ctx := caddy.Context{Context: context.WithValue(t.Context(), caddyhttp.ServerCtxKey, server)}
		found := publicListener(ctx)
		require.Equal(t, public, found != "", listen)
		if public {
			require.ErrorContains(t, new(Operator).Provision(ctx), "other machines may reach "+listen)
			require.ErrorContains(t, new(Console).Provision(ctx), "other machines may reach "+listen)
		}
	}
}

// TestGatewaysListener guarantees that `caddy run` doesn't start where another process listens, and that other commands don't look.
func TestGatewaysListener(t *testing.T) { //nolint:paralleltest // it changes the arguments of the process
	other, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is local
	require.NoError(t, err)
	address := other.Addr().String()
	ctx := caddy.Context{Context: context.WithValue(t.Context(), caddyhttp.ServerCtxKey, &caddyhttp.Server{Listen: []string{address}})}
	arguments := os.Args
	t.Cleanup(func() { os.Args = arguments })
	os.Args = []string{"caddy", "validate"}
	require.NoError(t, new(App).requireFree(ctx))
	os.Args = []string{"caddy", "run"}
	require.ErrorContains(t, new(App).requireFree(ctx), address+" is taken")
	require.NoError(t, other.Close())
	require.NoError(t, new(App).requireFree(ctx))
}
