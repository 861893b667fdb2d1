package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddytokens "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
)

// site is the site of a Caddyfile around a directive that the adapter is reading.
type site struct {
	keys []caddytokens.Token
	// segments are its directives with their arguments and blocks, in the order of the text.
	segments []caddytokens.Segment
}

// siteOf returns the site around h's directive. The site has no directives if h is in a named route. Caddy passes a directive only its
// own text, but whether the directive can work depends on its neighbours, and no later step has their lines. So siteOf reads a field of
// [httpcaddyfile.Helper] that isn't exported. With a Caddy that lacks the field, no directives are found and none is refused.
func siteOf(h httpcaddyfile.Helper) site {
	field := reflect.ValueOf(&h).Elem().FieldByName("parentBlock")
	if !field.IsValid() || field.Type() != reflect.TypeFor[caddytokens.ServerBlock]() || h.IsNamedRoute() {
		return site{}
	}
	block := (*caddytokens.ServerBlock)(field.Addr().UnsafePointer())
	return site{keys: block.Keys, segments: block.Segments}
}

// place returns where a token stands, as messages say it.
func place(token caddytokens.Token) string { return fmt.Sprintf("%s:%d", token.File, token.Line) }

// sharedWithWorker returns the text of a fault if the worker listens on an address of the site, else an empty text. A site that
// names no port is compared when the worker starts.
func (s site) sharedWithWorker(h httpcaddyfile.Helper, app *App) string {
	listen := valueOr(app.Worker, Worker{}).Listen
	worker, err := caddy.ParseNetworkAddress(listen)
	if listen == "" || err != nil || h.Option("default_bind") != nil {
		return ""
	}
	for _, key := range s.keys {
		address, err := httpcaddyfile.ParseAddress(strings.TrimSuffix(key.Text, ","))
		if err != nil || address.Port == "" {
			continue
		}
		for _, host := range s.boundTo() {
			bound, err := caddy.ParseNetworkAddress(joinPort(host, address.Port))
			if err == nil && overlap(worker, bound) {
				return fmt.Sprintf("svc.worker.listen: %s is also an address of the site %s, which would lose a part of its requests to the "+
					"worker; give the worker another port, at %s", listen, address.Original, place(key))
			}
		}
	}
	return ""
}

// boundTo returns the addresses of the site's `bind`. An empty address means every address.
func (s site) boundTo() []string {
	var hosts []string
	for _, segment := range s.segments {
		if segment.Directive() == "bind" {
			hosts = append(hosts, arguments(segment)...)
		}
	}
	if len(hosts) == 0 {
		return []string{""}
	}
	return hosts
}

// index returns the position of the segment that begins with the token, or -1.
func (s site) index(of caddytokens.Token) int {
	return slices.IndexFunc(s.segments, func(segment caddytokens.Segment) bool { return sameToken(segment[0], of) })
}

func sameToken(a, b caddytokens.Token) bool {
	return a.File == b.File && a.Line == b.Line && a.Text == b.Text
}

// responders are directives that respond to every request that they get and stand before svc_server in Caddy's order of
// directives.
var responders = []string{
	"abort", "error", "respond", "redir", "metrics", "reverse_proxy", "php_fastcgi", "file_server",
	"svc_health", "svc_operator", "svc_console", "svc_models", "svc_chat", "svc_api", "svc_docs", "svc_dashboard", "svc_widget", "svc_webhook",
}

// takesAll reports whether a directive responds to every request of its site.
func takesAll(segment caddytokens.Segment) bool {
	if hasMatcher(segment) {
		return false
	}
	directive := segment.Directive()
	if directive == "handle" || directive == "route" {
		return slices.ContainsFunc(caddyfile.Lines(segment), takesAll)
	}
	return slices.Contains(responders, directive) && !slices.ContainsFunc(caddyfile.Lines(segment), func(option caddytokens.Segment) bool {
		return directive == "file_server" && option.Directive() == "pass_thru"
	})
}

// hasMatcher reports whether a directive is limited to some requests. The adapter removes the matcher of a directive that it has
// read from the text: the tokens behind it move forward, and the last one stands twice.
func hasMatcher(segment caddytokens.Segment) bool {
	if last := len(segment) - 1; last > 0 && sameToken(segment[last], segment[last-1]) {
		return true
	}
	words := arguments(segment)
	return len(words) > 0 && (strings.HasPrefix(words[0], "/") || strings.HasPrefix(words[0], "@"))
}

// arguments returns the words behind a directive, in its line.
func arguments(segment caddytokens.Segment) []string {
	d := caddytokens.NewDispenser(segment)
	d.Next()
	return d.RemainingArgs()
}

// besideServer returns the faults of the directives beside svc_server, which begins with the token.
func (s site) besideServer(h httpcaddyfile.Helper, server caddytokens.Token) (faults []string) {
	own := s.index(server)
	for i, segment := range s.segments {
		switch {
		case own >= 0 && i > own && segment.Directive() == "handle_errors" && len(arguments(segment)) == 0:
			faults = append(faults, "the handle_errors at "+place(segment[0])+" would never run, because svc_server's own error route comes first; "+
				"move it above svc_server")
		case h.Option("order") == nil && takesAll(segment):
			faults = append(faults, fmt.Sprintf("the %s at %s would respond to every request in place of svc_server; "+
				"give it a path, e.g. `%[1]s /shop/* …`, or a site of its own", segment.Directive(), place(segment[0])))
		}
	}
	return faults
}

// strips returns the text of a fault if a handle_path around the directive that begins with the token removes a part of the
// directive's path, else an empty text.
func (s site) strips(directive caddytokens.Token, path string) string {
	outer, _ := around(s.segments, directive)
	for _, segment := range outer {
		words := arguments(segment)
		if segment.Directive() != "handle_path" || len(words) == 0 {
			continue
		}
		if prefix := strings.TrimRight(words[0], "/*"); prefix != "" && strings.HasPrefix(path, prefix) {
			return fmt.Sprintf("the handle_path at %s removes %s from the path, so every delivery would end with not_found; use handle",
				place(segment[0]), prefix)
		}
	}
	return ""
}

// around returns the directives among segments that enclose the directive that begins with the token, innermost first.
func around(segments []caddytokens.Segment, directive caddytokens.Token) (outer []caddytokens.Segment, found bool) {
	for _, segment := range segments {
		if sameToken(segment[0], directive) {
			return nil, true
		}
		if outer, found := around(caddyfile.Lines(segment), directive); found {
			return append(outer, segment), true
		}
	}
	return nil, false
}

// behindAuth reports whether svc_auth runs before the directive that begins with the token, as far as the site shows.
func (s site) behindAuth(directive caddytokens.Token) bool {
	found, behind := behindAuth(s.segments, directive, false)
	return behind || !found
}

// behindAuth looks for a directive among some of one block and in their blocks. It reports whether it was found, and whether svc_auth
// or something unseen may run before it. ordered: the block is a route, in which the order of the text counts.
func behindAuth(segments []caddytokens.Segment, directive caddytokens.Token, ordered bool) (found, behind bool) {
	for i, segment := range segments {
		here := sameToken(segment[0], directive)
		if !here {
			below, behind := behindAuth(caddyfile.Lines(segment), directive, segment.Directive() == "route")
			if behind {
				return true, true
			}
			if !below {
				continue
			}
		}
		found = true
		for j, other := range segments {
			if j == i || ordered && j > i || exclusive(segment) && exclusive(other) {
				continue
			}
			if authenticates(other) {
				return true, true
			}
		}
	}
	return found, false
}

// exclusive reports whether a directive is a handle: a request enters only the first handle of a block that matches.
func exclusive(segment caddytokens.Segment) bool {
	return strings.HasPrefix(segment.Directive(), "handle")
}

// authenticates reports whether a directive has svc_auth in it, or may have.
func authenticates(segment caddytokens.Segment) bool {
	return segment.Directive() == "svc_auth" || segment.Directive() == "invoke" || slices.ContainsFunc(caddyfile.Lines(segment), authenticates)
}

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

// publicListener returns an address of ctx's server that other machines may reach, outside of private networks. It is empty if there is none.
func publicListener(ctx caddy.Context) string {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return ""
	}
	for _, listen := range server.Listen {
		address, err := caddy.ParseNetworkAddress(listen)
		if err != nil || address.IsUnixNetwork() || isLoopback(address.Host) {
			continue // Caddy itself refuses an address with an error
		}
		ip, err := netip.ParseAddr(address.Host)
		if err != nil || !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast() {
			return listen
		}
	}
	return ""
}

// taken returns an error if another process listens at an address. It listens there itself for a moment, without SO_REUSEPORT, with
// which Caddy would share the port. Caddy itself reports other reasons why it can't listen.
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
