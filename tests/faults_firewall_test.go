package tests

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// firewall passes connections on to a server, until it forgets them: from then on it drops their packets in both
// directions, for good and without a word. Toxiproxy has no such fault: its toxics are for all connections of a proxy.
type firewall struct {
	address string

	mu    sync.Mutex
	flows []*flow
}

// flow is one connection through a firewall.
type flow struct {
	client, server net.Conn
	forgotten      atomic.Bool
}

// guard begins to pass connections on to host:port, until the test's end.
func (f *firewall) guard(t testing.TB, server string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is local
	require.NoError(t, err)
	f.address = listener.Addr().String()
	var working sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		f.closeAll()
		working.Wait()
	})
	working.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			working.Go(func() { f.pass(client, server) })
		}
	})
}

// pass joins a client to the server until one of them ends the connection.
func (f *firewall) pass(client net.Conn, address string) {
	server, err := net.Dial("tcp", address) //nolint:noctx // it is local
	if err != nil {
		_ = client.Close()
		return
	}
	one := &flow{client: client, server: server}
	f.mu.Lock()
	f.flows = append(f.flows, one)
	f.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { one.carry(client, server) })
	both.Go(func() { one.carry(server, client) })
	both.Wait()
}

// carry takes bytes from one side to the other. The end of a forgotten connection isn't passed on, either.
func (f *flow) carry(from, to net.Conn) {
	packet := make([]byte, 64<<10)
	for {
		n, err := from.Read(packet)
		if f.forgotten.Load() {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			_, _ = to.Write(packet[:n])
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// forget drops whatever comes through the connections that are open now.
func (f *firewall) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.flows {
		one.forgotten.Store(true)
	}
}

func (f *firewall) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.flows {
		_ = one.client.Close()
		_ = one.server.Close()
	}
}
