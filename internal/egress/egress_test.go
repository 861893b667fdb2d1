package egress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/caddy-svc/caddy-svc/internal/egress"
)

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for address := range strings.FieldsSeq(`1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.255.255 172.32.0.1 192.0.1.1 198.17.255.255
		223.255.255.255 2606:4700::1111 2a00:1450::1 ::ffff:1.1.1.1 2001:4860::8888 168.63.129.15`) {
		require.True(t, egress.Public(netip.MustParseAddr(address)), address)
	}
	for address := range strings.FieldsSeq(`0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1
		168.63.129.16 172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1
		255.255.255.255 :: ::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:db8::1
		2002:7f00:1::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1`) {
		require.False(t, egress.Public(netip.MustParseAddr(address)), address)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for address, problem := range map[string]string{
		"https://example.com/events?a=b":           "",
		"https://example.com:8443":                 "",
		"https://1.1.1.1/":                         "",
		"https://example.com:443/":                 "",
		"https://example.com:1024/":                "",
		"https://example.com:65535/":               "",
		"https://example.com:65536/":               "port 443",
		"https://example.com:1023/":                "port 443",
		"https://example.com:22/":                  "port 443",
		"https://1.1.1.1:0/":                       "port 443",
		"https://example.com:/":                    "",
		"http://example.com/":                      "https://",
		"ftp://example.com/":                       "https://",
		"http://127.0.0.1/":                        "https://",
		"https://127.0.0.1/":                       "public",
		"https://[::1]/":                           "public",
		"https://[::ffff:10.0.0.1]:9/":             "public",
		"https://169.254.169.254/latest/meta-data": "public",
		"https://user:hunter2@example.com/":        "password",
		"https://example.com/#x":                   "fragment",
		"https:///events":                          "like https://",
		"https:example.com":                        "like https://",
		"":                                         "like https://",
		"https://exa mple.com/":                    "like https://",
		"https://e.com/" + strings.Repeat("a", egress.MaxURLBytes): "at most",
	} {
		_, err := egress.Policy{}.Check(address)
		if problem == "" {
			require.NoError(t, err, address)
			continue
		}
		require.ErrorContains(t, err, problem, address)
		require.NotContains(t, err.Error(), "hunter2")
	}
	open := egress.Policy{AllowPrivate: true}
	for address, allowed := range map[string]bool{
		"http://127.0.0.1:8080/": true, "http://localhost/": true, "http://[::1]:1/": true, "https://10.0.0.1:25/": true, "https://10.0.0.1/": true,
		"http://10.0.0.1/": false, "http://example.com/": false, "http://localhost.example.com/": false,
	} {
		_, err := open.Check(address)
		require.Equal(t, allowed, err == nil, address)
	}
}

// TestPrivateAddressesAreRefusedWhenConnecting: what counts is the address that is connected to, not the text or what the name
// resolved to before.
func TestPrivateAddressesAreRefusedWhenConnecting(t *testing.T) {
	t.Parallel()
	reached := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached = true
		http.Redirect(w, &http.Request{}, "http://127.0.0.1:1/", http.StatusFound)
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	client := egress.Policy{}.Client(5 * time.Second)
	defer client.CloseIdleConnections()
	for host := range strings.FieldsSeq(`127.0.0.1 localhost 127.1 0 [::ffff:127.0.0.1]`) {
		response, err := get(t, client, "http://"+host+":"+port)
		if err == nil {
			response.Body.Close()
		}
		require.Error(t, err, host)
		require.NotContains(t, err.Error(), "refused by", host)
	}
	require.False(t, reached)

	open := egress.Policy{AllowPrivate: true}.Client(5 * time.Second)
	defer open.CloseIdleConnections()
	response, err := get(t, open, server.URL)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusFound, response.StatusCode, "redirects are not followed")
	require.True(t, reached)
}

// TestRebinding: a name that is public when it is checked and private when it is connected to reaches nothing.
func TestRebinding(t *testing.T) {
	t.Parallel()
	accepted := make(chan struct{}, 1)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			conn.Close()
			accepted <- struct{}{}
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	const name = "rebind.example.com"
	_, err = egress.Policy{}.Check("https://" + name + ":" + port)
	require.NoError(t, err)
	client := egress.Policy{}.Client(5 * time.Second)
	defer client.CloseIdleConnections()
	egress.Resolve(client, resolver(t, netip.MustParseAddr("127.0.0.1")))
	_, err = get(t, client, "https://"+name+":"+port)
	require.ErrorIs(t, err, egress.ErrPrivate)
	require.Empty(t, accepted)
}

func get(t *testing.T, client *http.Client, address string) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(t, err)
	return client.Do(request)
}

// resolver answers every question with an address.
func resolver(t *testing.T, address netip.Addr) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(theirs, size[:]); err != nil {
					return
				}
				question := make([]byte, int(size[0])<<8|int(size[1]))
				if _, err := io.ReadFull(theirs, question); err != nil {
					return
				}
				answer := answered(question, address)
				if _, err := theirs.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...)); err != nil {
					return
				}
			}
		}()
		return ours, nil
	}}
}

func answered(question []byte, address netip.Addr) []byte {
	var message dnsmessage.Message
	if message.Unpack(question) != nil {
		return nil
	}
	message.Response, message.RecursionAvailable = true, true
	message.Additionals = nil
	for _, q := range message.Questions {
		if q.Type == dnsmessage.TypeA {
			message.Answers = append(message.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: address.As4()},
			})
		}
	}
	packed, err := message.Pack()
	if err != nil {
		return nil
	}
	return packed
}
