package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// joinPort returns a network address of Caddy with the port, which a socket's path doesn't have.
func joinPort(host, port string) string {
	if network, rest, found := strings.Cut(host, "/"); found {
		if caddy.IsUnixNetwork(network) || caddy.IsFdNetwork(network) {
			return host
		}
		return network + "/" + net.JoinHostPort(strings.Trim(rest, "[]"), port)
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// overlap reports whether a connection to one address may reach what listens at the other.
func overlap(a, b caddy.NetworkAddress) bool {
	if a.IsUnixNetwork() || b.IsUnixNetwork() || a.IsFdNetwork() || b.IsFdNetwork() {
		return a.Network == b.Network && a.Host == b.Host
	}
	if a.StartPort > b.EndPort || b.StartPort > a.EndPort || a.EndPort == 0 || b.EndPort == 0 {
		return false
	}
	return a.Host == b.Host || everyHost(a.Host) || everyHost(b.Host) || isLoopback(a.Host) && isLoopback(b.Host)
}

func everyHost(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }

// isLoopback reports whether a host is an address that localhost may mean.
func isLoopback(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

// taken returns an error if another process listens at an address. It listens there itself for a moment, without SO_REUSEPORT, with
// which Caddy would share the port. What else would keep Caddy from listening, Caddy reports itself.
func taken(address string) error {
	parsed, err := caddy.ParseNetworkAddress(address)
	if err != nil || parsed.IsFdNetwork() {
		return nil //nolint:nilerr // see above
	}
	if parsed.IsUnixNetwork() {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", parsed.Host)
		if err != nil {
			return nil //nolint:nilerr // a path that nobody listens at is made anew
		}
		conn.Close() //nolint:errcheck // nothing was sent
		return fmt.Errorf("%s is taken: another process listens there", address)
	}
	if !strings.HasPrefix(parsed.Network, "tcp") || parsed.StartPort == 0 {
		return nil
	}
	for offset := range parsed.PortRangeSize() {
		listener, err := net.Listen(parsed.Network, parsed.JoinHostPort(offset)) //nolint:noctx // it waits for nothing
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s is taken: another process listens there, perhaps another Caddy", parsed.At(offset))
		}
		if err == nil {
			listener.Close() //nolint:errcheck // it was only tried
		}
	}
	return nil
}

// isServer reports whether this process is `caddy run`, rather than a command that only reads or checks a configuration, or a worker.
func isServer() bool { return len(os.Args) > 1 && os.Args[1] == "run" }

// requireFree fails if another process listens where the server of ctx's handler is about to. Caddy would share the port with another
// Caddy of the same user, which then loses a part of its requests. It looks only when `caddy run` loads the first configuration of its
// process: later ones share their ports with those before, and `caddy validate` listens nowhere.
func (a *App) requireFree(ctx caddy.Context) error {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || !isServer() || caddy.ActiveContext().Context != nil {
		return nil
	}
	for _, address := range server.Listen {
		if a.tried[address] {
			continue
		}
		if a.tried == nil {
			a.tried = make(map[string]bool)
		}
		a.tried[address] = true
		if err := taken(address); err != nil {
			return fmt.Errorf("%w. Two would share the requests. Stop the other one, or give this site another port", err)
		}
	}
	return nil
}
