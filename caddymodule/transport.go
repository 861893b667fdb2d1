package caddymodule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// httpTransport is the id of the only transport module that is allowed, and its protocol in the inline key.
const (
	httpTransport         = "http.reverse_proxy.transport.http"
	httpTransportProtocol = "http"
)

// idleConnectionsPerHost is our default: a model call is slow, so hundreds run side by side to one host,
// and Caddy's default of 32 would open and close connections for all above it.
const idleConnectionsPerHost = 1024

// streamBuffer is how much of an answer over HTTP/2 is read ahead of its client, in bytes. Go's default of 4 MiB lets a thousand
// clients that read nothing keep whole answers in our memory; 256 KiB still carry 2.5 MB/s from a vendor 100 ms away.
const streamBuffer = 256 << 10

// trustPools are the sources of trusted certificates that need neither another app nor the network while the
// configuration is loaded: start order of apps is random, and `caddy validate` opens nothing.
var trustPools = []string{"file", "inline", "storage", "system"}

// transportFaults checks a provider's transport options; raw may be nil.
func transportFaults(fs *config.Faults, path string, raw json.RawMessage) {
	if raw == nil {
		return
	}
	options, err := decodeTransport(raw)
	if err != nil {
		fs.Addf(path, "%v", err)
		return
	}
	tls := valueOr(options.TLS, reverseproxy.TLSConfig{})
	pool, refusedPool := refusedTrustPool(tls.CARaw)
	for _, option := range []struct {
		refused bool
		why     string
	}{
		{slices.Contains(options.Versions, "3"), "versions 3 is refused: HTTP/3 doesn't go through the timers of a model call; allowed: 1.1, 2, h2c"},
		{options.ProxyProtocol != "", "proxy_protocol is refused: connections are shared by many clients, so there is no client address to send"},
		{options.ReadTimeout != 0, "read_timeout is refused: on HTTP/2 it ends other calls of the connection; use the provider's idle_timeout"},
		{options.WriteTimeout != 0, "write_timeout is refused: on HTTP/2 it ends other calls of the connection; use the provider's max_duration"},
		{options.ResponseHeaderTimeout != 0, "response_header_timeout is refused: it would end calls beside our own timers; " +
			"use first_byte_timeout or response_timeout"},
		{strings.ContainsAny(tls.ServerName, "{}"), "tls_server_name takes no placeholders: they can't be filled in outside reverse_proxy"},
		{tls.ClientCertificateAutomate != "", "tls_client_auth with one name is refused: it needs the tls app; " +
			"give the files of certificate and key"},
		{refusedPool, fmt.Sprintf("tls_trust_pool %q is refused: it needs another app or the network while the configuration is loaded; allowed: %s",
			pool, config.Listed(trustPools))},
	} {
		if option.refused {
			fs.Addf(path, "%s", option.why)
		}
	}
}

// refusedTrustPool returns the first source that isn't allowed, looking into combined ones.
func refusedTrustPool(raw json.RawMessage) (string, bool) {
	if raw == nil {
		return "", false
	}
	var pool struct {
		Provider string            `json:"provider"`
		Sources  []json.RawMessage `json:"sources"`
	}
	if json.Unmarshal(raw, &pool) != nil {
		return "", true
	}
	if pool.Provider != "combined" {
		return pool.Provider, !slices.Contains(trustPools, pool.Provider)
	}
	for _, source := range pool.Sources {
		if name, refused := refusedTrustPool(source); refused {
			return name, true
		}
	}
	return "", false
}

// decodeTransport reads transport options in their JSON form. Their protocol must be http.
func decodeTransport(raw json.RawMessage) (*reverseproxy.HTTPTransport, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, errors.New("must be an object with the options of Caddy's http transport")
	}
	var protocol string
	_ = json.Unmarshal(fields["protocol"], &protocol) // anything but a string stays "", which is refused
	if protocol != httpTransportProtocol {
		return nil, fmt.Errorf("transport %q is refused; allowed: %s", protocol, httpTransportProtocol)
	}
	delete(fields, "protocol")
	plain, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("reading the options: %w", err)
	}
	options := new(reverseproxy.HTTPTransport)
	if err := caddy.StrictUnmarshalJSON(plain, options); err != nil {
		return nil, fmt.Errorf("these are no options of Caddy's http transport: %w", err)
	}
	return options, nil
}

// loadTransport builds the HTTP client side of a provider from its transport options, which may be nil, and our
// defaults. Caddy provisions it and closes its idle connections when ctx ends; running calls keep theirs.
//
// The result is the module's inner *http.Transport. That is equivalent to the module's own RoundTrip, which only adds a
// missing URL scheme (ours is never missing) and HTTP/3 (refused), and saves a call through it. It needs no replacer in
// the request's context: only placeholders in the server name would, and they are refused. An adapter should not derive
// the outbound context's values from the inbound request's, though: if Caddy's vars are among them, the transport notes
// a forward proxy there, in a map that belongs to the goroutine of the inbound request.
func loadTransport(ctx caddy.Context, raw json.RawMessage, connectTimeout time.Duration) (*http.Transport, error) {
	options := new(reverseproxy.HTTPTransport)
	if raw != nil {
		decoded, err := decodeTransport(raw)
		if err != nil {
			return nil, err
		}
		options = decoded
	}
	options.DialTimeout = cmp.Or(options.DialTimeout, caddy.Duration(connectTimeout))
	options.KeepAlive = cmp.Or(options.KeepAlive, new(reverseproxy.KeepAlive))
	options.KeepAlive.MaxIdleConnsPerHost = cmp.Or(options.KeepAlive.MaxIdleConnsPerHost, idleConnectionsPerHost)
	complete, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("writing the options: %w", err)
	}
	module, err := ctx.LoadModuleByID(httpTransport, complete)
	if err != nil {
		return nil, fmt.Errorf("loading the http transport: %w", err)
	}
	loaded, ok := module.(*reverseproxy.HTTPTransport)
	if !ok {
		return nil, fmt.Errorf("module %s is a %T", httpTransport, module)
	}
	loaded.Transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: streamBuffer}
	dial := loaded.Transport.DialContext
	loaded.Transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if plain, ok := conn.(*net.TCPConn); ok {
			return &slicesConn{plain}, err
		}
		return conn, err
	}
	return loaded.Transport, nil
}

// slicesConn is a connection that sends the slices of a large prompt with one system call and without a copy. It matters only for plain
// HTTP/1: TLS and HTTP/2 have to read a body. Copying a prompt of 200 KB took a sixth of its call's processor time.
type slicesConn struct{ *net.TCPConn }

// ReadFrom is called by the transport with what doesn't fit into its buffer beside the headers.
func (c *slicesConn) ReadFrom(src io.Reader) (int64, error) {
	if limited, ok := src.(*io.LimitedReader); ok {
		body, ok := limited.R.(interface {
			io.WriterTo
			Left() int64
		})
		if ok && body.Left() == limited.N {
			n, err := body.WriteTo(c.TCPConn)
			limited.N -= n
			return n, err
		}
	}
	return c.TCPConn.ReadFrom(src)
}

// validHost reports whether u has a host, and a port that exists if it has one.
func validHost(u *url.URL) bool {
	if u.Hostname() == "" || strings.ContainsAny(u.Host, "{}") || strings.HasSuffix(u.Host, ":") {
		return false
	}
	if u.Port() == "" {
		return true
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && port >= 1 && port <= 65535
}

// readTransport hands `http { … }` to Caddy's own transport, which stops at its first fault.
func readTransport(to *json.RawMessage) caddyfile.Read {
	return func(r *caddyfile.Reader, path string, o caddyfile.Option) {
		protocol, ok := r.One(path, o, httpTransportProtocol)
		if !ok {
			return
		}
		if protocol != httpTransportProtocol {
			r.Unreadf(path, o, "transport %s is refused; allowed: %s", config.Quoted(protocol), httpTransportProtocol)
			return
		}
		transport := new(reverseproxy.HTTPTransport)
		if err := transport.UnmarshalCaddyfile(o.Dispenser()); err != nil {
			r.UnreadBecause(path, o, err)
			return
		}
		raw := caddyconfig.JSONModuleObject(transport, "protocol", httpTransportProtocol, nil)
		caddyfile.Set(r, path, o, to, raw)
	}
}
