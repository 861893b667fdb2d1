package caddymodule

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
)

const wholeAnswer = `{"choices":[{"message":{"content":"read"},"finish_reason":"stop"}]}`

// plainVendor serves each connection over plain HTTP/1 with serve, through a receive buffer that holds little, and returns a provider
// before it with the transport of the configuration, and the number of connections.
func plainVendor(t *testing.T, serve func(conn net.Conn, reader *bufio.Reader)) (*providers.HTTP, *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conns, served := new(atomic.Int64), new(atomic.Int64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
			go func() {
				defer served.Add(1)
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			}()
		}
	}()
	transport, err := loadTransport(testContext(t), nil, time.Minute)
	require.NoError(t, err)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, listener.Close())
		require.Eventually(t, func() bool { return served.Load() == conns.Load() }, time.Minute, time.Millisecond)
	})
	return openaitest.New(t, providers.Config{
		BaseURL: "http://" + listener.Addr().String(), Timeouts: openaitest.Long, Transport: transport,
	}), conns
}

// largeRequest has a prompt of some megabytes in two messages, more than the system keeps for a connection.
func largeRequest(stream bool) *providers.Request {
	request := openaitest.Ask("", stream)
	text := strings.Repeat("0123456789abcde\n", 1<<18)
	request.Messages = []providers.Message{{Role: "system", Content: providers.Quote(text)}, {Role: "user", Content: providers.Quote(text)}}
	return request
}

// answer writes an answer of one piece.
func answer(conn net.Conn) {
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 67\r\n\r\n"+wholeAnswer)
}

// A large prompt arrives whole, however little the vendor reads at a time, and its connection serves the next call.
func TestLargePromptArrives(t *testing.T) {
	t.Parallel()
	bodies := make(chan []byte, 2)
	provider, conns := plainVendor(t, func(conn net.Conn, reader *bufio.Reader) {
		for {
			request, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			body, err := io.ReadAll(request.Body)
			if err != nil || int64(len(body)) != request.ContentLength {
				t.Errorf("%d bytes of %d: %v", len(body), request.ContentLength, err)
				return
			}
			bodies <- body
			answer(conn)
		}
	})
	for range 2 {
		request := largeRequest(false)
		sent, messages := false, request.Messages
		request.Sent = func() { sent = true }
		got := providertest.Ask(t, provider, request)
		require.NoError(t, got.Err)
		require.Equal(t, "read", got.Text)
		require.True(t, sent)
		body := <-bodies
		for _, message := range messages {
			require.True(t, bytes.Contains(body, message.Content))
		}
	}
	require.EqualValues(t, 1, conns.Load())
}

// A vendor that answers early, and reads on only then, gets no byte of what the prompt's memory is used for next: the call doesn't end
// before the connection has let go of it.
func TestLargePromptAnsweredEarly(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"answered": "HTTP/1.1 200 OK\r\nContent-Length: 67\r\n\r\n" + wholeAnswer,
		"refused":  "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\n{}",
		"streamed": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"read\"}}]}\n\ndata: [DONE]\n\n",
		"broken":   "HTTP/1.1 200 OK\r\nContent-Length: 67\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over, rest := make(chan struct{}), make(chan []byte, 1)
			provider, _ := plainVendor(t, func(conn net.Conn, reader *bufio.Reader) {
				_, _ = reader.Discard(8 << 10)
				_, _ = io.WriteString(conn, head)
				if name == "broken" {
					_ = conn.(*net.TCPConn).CloseWrite()
				}
				<-over
				read, _ := io.ReadAll(reader) // the connection is closed or reset
				rest <- read
			})
			request := largeRequest(name == "streamed")
			messages := request.Messages
			defer close(over)
			got := providertest.Ask(t, provider, request)
			require.Equal(t, name == "refused" || name == "broken", got.Err != nil, "%v", got.Err)
			for _, message := range messages {
				clear(message.Content)
			}
			over <- struct{}{}
			require.False(t, bytes.Contains(<-rest, []byte{0}))
		})
	}
}

// A kept connection that ends while the next prompt is written fails the call. The prompt isn't sent again, because the vendor may have
// begun to answer it.
func TestLargePromptOnStaleConnection(t *testing.T) {
	t.Parallel()
	provider, conns := plainVendor(t, func(conn net.Conn, reader *bufio.Reader) {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		answer(conn)
		_, _ = reader.Discard(8 << 10) // of the next one
	})
	require.NoError(t, providertest.Ask(t, provider, openaitest.Ask("", false)).Err)
	got := providertest.Ask(t, provider, largeRequest(false))
	var failure *providers.Error
	require.ErrorAs(t, got.Err, &failure)
	require.Equal(t, providers.FailureUnreachable, failure.Failure)
	require.EqualValues(t, 1, conns.Load())
}

// slicesBody is a body as a call has it. It counts what is copied of it.
type slicesBody struct {
	*bytes.Reader

	copied, written int64
}

func (b *slicesBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.copied += int64(n)
	return n, err
}

func (b *slicesBody) WriteTo(w io.Writer) (int64, error) {
	n, err := b.Reader.WriteTo(w)
	if w != io.Discard {
		b.written += n
	}
	return n, err
}

func (b *slicesBody) Left() int64  { return int64(b.Len()) }
func (b *slicesBody) Close() error { return nil }

// Only the bytes beside the headers are copied of a large prompt, and none of it is left out or written twice.
func TestLargePromptIsNotCopied(t *testing.T) {
	t.Parallel()
	const size = 200_000
	got := make(chan int64, 1)
	vendor := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got <- n
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = vendor.Serve(listener) }()
	t.Cleanup(func() { _ = vendor.Close() })
	transport, err := loadTransport(testContext(t), nil, time.Minute)
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	body := &slicesBody{Reader: bytes.NewReader(make([]byte, size))}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener.Addr().String(), body)
	require.NoError(t, err)
	request.ContentLength = size
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.EqualValues(t, size, <-got)
	require.Less(t, body.copied, int64(8<<10))
	require.EqualValues(t, size, body.copied+body.written)
}
