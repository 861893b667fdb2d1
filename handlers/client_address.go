package handlers

import (
	"context"
	"net"
	"net/http"
	"net/netip"
)

type clientAddressKey struct{}

// WithClientAddress returns r with the client's address as Caddy determines it: only Caddy's configuration says which proxies'
// headers can be trusted.
func WithClientAddress(r *http.Request, address string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), clientAddressKey{}, address))
}

// customerBits is the prefix length of the IPv6 network that access providers assign to one customer.
const customerBits = 56

// ClientAddress returns the address under which a client without credentials is counted: that of [WithClientAddress], or else
// of the connection's peer, without a port. For IPv6 it is the network of 56 bits. It is "" when the address is unknown.
func ClientAddress(r *http.Request) string {
	text, ok := r.Context().Value(clientAddressKey{}).(string)
	if !ok || text == "" {
		text = r.RemoteAddr
	}
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, err := address.Prefix(customerBits)
	if err != nil {
		return ""
	}
	return network.String()
}
