package egress

import (
	"net"
	"net/http"
)

// Resolve lets the client's names be resolved by another resolver, under the guard that all clients have.
func Resolve(client *http.Client, resolver *net.Resolver) {
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		panic("the client has no transport of ours")
	}
	transport.DialContext = (&net.Dialer{Resolver: resolver, Control: Policy{}.control}).DialContext
}
