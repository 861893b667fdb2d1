package handlers

import (
	"context"
	"net"
	"net/http"
	"net/netip"
)

type clientAddressKey struct{}

// WithClientAddress is r with the address of the client as the server in front knows it, who alone can tell a trusted proxy
// from a header that anybody wrote (S6).
func WithClientAddress(r *http.Request, address string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), clientAddressKey{}, address))
}

// ClientAddress is whom failures are counted against: what [WithClientAddress] said, or else the connection's peer, without a
// port. An IPv6 address is cut to its network of 64 bits, of which a client has all addresses. "" when it isn't known.
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
	network, err := address.Prefix(64)
	if err != nil {
		return ""
	}
	return network.String()
}
