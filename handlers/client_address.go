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

// customerBits is the IPv6 network that providers give to one customer, who has all addresses in it.
const customerBits = 56

// ClientAddress returns the address that a client without credentials is counted under: that of [WithClientAddress], or else
// the connection's peer, without a port. Of IPv6 it is the network of 56 bits. It is "" when the address isn't known.
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
