package providers_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
)

// TestEndedCallReadsNoPrompt guarantees that the memory of a prompt can serve another request once the call has ended: a
// transport that still sends the request, because the vendor answered before it had all of it, gets no further byte.
func TestEndedCallReadsNoPrompt(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]*http.Response{
		"answered": {StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"choices":[{"message":{"content":"early"}}]}`)), ContentLength: -1},
		"refused":  {StatusCode: http.StatusRequestEntityTooLarge, Body: io.NopCloser(strings.NewReader(`{}`)), ContentLength: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sending io.Reader
			p := openaitest.New(t, providers.Config{
				BaseURL: "http://vendor", Timeouts: openaitest.Long,
				Transport: openaitest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					sending = r.Body
					_, err := io.CopyN(io.Discard, r.Body, 1000)
					return answer, err
				}),
			})
			request := openaitest.Ask("", false)
			request.Messages = []providers.Message{{Role: "user", Content: providers.Quote(strings.Repeat("a", 100_000))}}
			_ = providertest.Ask(t, p, request)
			rest, err := io.ReadAll(sending)
			require.Error(t, err)
			require.Empty(t, rest)
		})
	}
}

// countedConn counts the packets that are sent.
type countedConn struct {
	net.Conn

	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// A small request is one packet, with its headers. The retry after a failed connect has all of it, too.
func TestSmallRequestIsOnePacket(t *testing.T) {
	t.Parallel()
	bodies, sent := make(chan []byte, 1), make(chan struct{}, 1)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || int64(len(body)) != r.ContentLength {
			t.Errorf("%d bytes of %d: %v", len(body), r.ContentLength, err)
		}
		bodies <- body
		<-sent // whatever its size, the client's request isn't needed any more
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"read"}}]}`)
	}))
	t.Cleanup(vendor.Close)
	var writes, dials atomic.Int64
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return nil, errors.New("refused once")
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return countedConn{conn, &writes}, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	p := openaitest.New(t, providers.Config{BaseURL: vendor.URL, Timeouts: openaitest.Long, Transport: transport})
	ask := func(prompt string) (size int, packets int64) {
		request, before := openaitest.Ask("", false), writes.Load()
		request.Messages[0].Content, request.Sent = providers.Quote(prompt), func() { sent <- struct{}{} }
		require.Equal(t, "read", providertest.Ask(t, p, request).Text)
		body := <-bodies
		require.Contains(t, string(body), `"`+prompt+`"`)
		return len(body), writes.Load() - before
	}
	beside, _ := ask("") // which connects
	for _, size := range []int{beside, 1000, providers.SmallBody} {
		got, packets := ask(strings.Repeat("a", size-beside))
		require.Equal(t, size, got)
		require.EqualValues(t, 1, packets, size)
	}
	got, packets := ask(strings.Repeat("a", providers.SmallBody+1-beside))
	require.Equal(t, providers.SmallBody+1, got)
	require.EqualValues(t, 2, packets)
	require.EqualValues(t, 2, dials.Load())
}
