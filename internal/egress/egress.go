// Package egress makes calls to addresses that tenants choose. It keeps tenants from reaching addresses that only this host can
// reach: private networks, the host itself, the metadata services of clouds. The address is checked when a connection is made,
// after its name was resolved, so a name that resolves differently the next time is no way around the check. The package follows
// no redirect, and uses no proxy, because a proxy would resolve names itself.
//
// Calls to addresses that the operator chooses don't belong here.
package egress

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

// ErrPrivate is the error of a connection to an address that isn't public.
var ErrPrivate = errors.New("the address is not public")

const (
	// connectWait limits the making of a connection, and a TLS handshake.
	connectWait = 5 * time.Second
	// idleWait is the time for which an unused connection stays open.
	idleWait = 30 * time.Second
	// maxIdle limits the unused connections of a client.
	maxIdle = 32
	// maxHeaderBytes limits the header of an answer.
	maxHeaderBytes = 16 << 10
	// MaxURLBytes limits an address.
	MaxURLBytes = 2048
)

// Policy decides which addresses may be called. The zero value allows public addresses by https, at port 443 or a port above
// 1023.
type Policy struct {
	// AllowPrivate allows every address and port, and http to this host itself. It is for trials, and for operators who trust
	// their tenants.
	AllowPrivate bool
}

// Check parses an address that a tenant chose. The error is a sentence without the address, which may contain a password.
func (p Policy) Check(address string) (*url.URL, error) {
	if len(address) > MaxURLBytes {
		return nil, fmt.Errorf("must have at most %d bytes", MaxURLBytes)
	}
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" || u.Hostname() == "" {
		return nil, errors.New("must be an address like https://example.com/events")
	}
	if u.User != nil || u.Fragment != "" {
		return nil, errors.New("must have no user, password or fragment")
	}
	host, notAddress := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || notAddress == nil && host.Unmap().IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local || !p.AllowPrivate) {
		return nil, errors.New("must begin with https://")
	}
	if notAddress == nil && !p.allows(host) {
		return nil, errors.New("must be a public address")
	}
	// Ports of well-known services would let tenants try others' mail servers and consoles from this host.
	if port := u.Port(); !p.AllowPrivate && port != "" && port != "443" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number <= 1023 {
			return nil, errors.New("must have the port 443, or one above 1023")
		}
	}
	return u, nil
}

// Client returns a client that limits each call to timeout. [http.Client.CloseIdleConnections] closes its connections.
func (p Policy) Client(timeout time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: connectWait, KeepAlive: 30 * time.Second, Control: p.control}
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    connectWait,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true,
			MaxIdleConns:           maxIdle,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        idleWait,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}
}

// control runs for each address that a name resolved to, before the connection is made.
func (p Policy) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !p.allows(to.Addr()) {
		return ErrPrivate
	}
	return nil
}

func (p Policy) allows(address netip.Addr) bool { return p.AllowPrivate || Public(address) }

// Public reports whether an address belongs to the public internet (IANA's special-purpose registries, RFC 6890) and not to a
// cloud itself. An IPv6 address that reaches an IPv4 one through a translator or tunnel isn't public, whatever the IPv4 address
// is.
func Public(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if address.Is6() && !globalUnicast6.Contains(address) || !address.IsGlobalUnicast() || address.IsPrivate() {
		return false
	}
	for _, special := range specialPurpose {
		if special.Contains(address) {
			return false
		}
	}
	return true
}

// globalUnicast6 is the part of IPv6 that is assigned to the public internet so far.
var globalUnicast6 = netip.MustParsePrefix("2000::/3")

// specialPurpose are prefixes that [netip.Addr] treats as public although they aren't.
var specialPurpose = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by customers of a carrier
	netip.MustParsePrefix("168.63.129.16/32"), // the host of a virtual machine at Azure, which only the machine reaches
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // relays of 6to4
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, and the broadcast
	netip.MustParsePrefix("2001::/23"),        // protocol assignments, among them Teredo
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4
	netip.MustParsePrefix("3fff::/20"),        // documentation
}
