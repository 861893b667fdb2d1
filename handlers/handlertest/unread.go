package handlertest

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// Pipes is a listener of a server with connections in memory that buffer nothing: a write waits until it is read. In a bubble of
// package synctest the deadlines follow the fake clock.
type Pipes chan net.Conn

// Accept implements net.Listener.
func (p Pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// Close implements net.Listener.
func (p Pipes) Close() error { close(p); return nil }

// Addr implements net.Listener.
func (Pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Dial returns the client's end of a new connection.
func (p Pipes) Dial() net.Conn {
	client, server := net.Pipe()
	p <- server
	return client
}

// Serve serves h over connections in memory, by HTTP/1 and, for clients that begin with it, HTTP/2.
func Serve(t *testing.T, h http.Handler) Pipes {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	listener := make(Pipes)
	server := &http.Server{ //nolint:gosec // the client is the test
		Protocols: protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&hangUpper{w, r}, r)
		}),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	go server.Serve(listener) //nolint:errcheck // it ends with the listener
	t.Cleanup(func() { _ = server.Close() })
	return listener
}

type connKey struct{}

// hangUpper ends connections as the server's own response writer does.
type hangUpper struct {
	http.ResponseWriter

	r *http.Request
}

// Unwrap lets an [http.ResponseController] find the connection.
func (w *hangUpper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// HangUp implements [handlers.HangUpper].
func (w *hangUpper) HangUp() func() {
	if w.r.ProtoMajor != 2 {
		return nil
	}
	return func() { _ = w.r.Context().Value(connKey{}).(net.Conn).Close() } //nolint:forcetypeassert,errcheck // Serve sets it
}

// Handler is the http.Handler of a handler, with WriteError for its error.
func Handler(h handlers.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			handlers.WriteError(w, r, err, "")
		}
	})
}

// NoWindow is an HTTP/2 client that reads everything but the bodies of answers: their window stays 0.
type NoWindow struct {
	t    *testing.T
	conn net.Conn
	// window is that of each stream; with one the client reads nothing after its first answer's headers.
	window uint32

	write   sync.Mutex
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32

	state    sync.Mutex
	statuses map[uint32]chan string
	reset    map[uint32]bool
	ended    bool
}

// OpenNoWindow connects a client that gives no window.
func OpenNoWindow(t *testing.T, server Pipes) *NoWindow {
	t.Helper()
	return open(t, server, 0)
}

// OpenStalled connects an HTTP/2 client that gives a window and stops reading at the first answer.
func OpenStalled(t *testing.T, server Pipes) *NoWindow {
	t.Helper()
	return open(t, server, 1<<20)
}

func open(t *testing.T, server Pipes, window uint32) *NoWindow {
	t.Helper()
	c := &NoWindow{t: t, conn: server.Dial(), window: window, next: 1, statuses: map[uint32]chan string{}, reset: map[uint32]bool{}}
	t.Cleanup(c.Close)
	c.framer = http2.NewFramer(c.conn, c.conn)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	_, err := c.conn.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	go c.read()
	c.write.Lock()
	defer c.write.Unlock()
	require.NoError(t, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	return c
}

// Close ends the connection, as a client does that leaves.
func (c *NoWindow) Close() { _ = c.conn.Close() }

func (c *NoWindow) read() {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			c.state.Lock()
			c.ended = true
			c.state.Unlock()
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				c.write.Lock()
				_ = c.framer.WriteSettingsAck()
				c.write.Unlock()
			}
		case *http2.MetaHeadersFrame:
			c.status(frame.StreamID) <- frame.PseudoValue("status")
			if c.window > 0 {
				return
			}
		case *http2.RSTStreamFrame:
			c.state.Lock()
			c.reset[frame.StreamID] = true
			c.state.Unlock()
		}
	}
}

func (c *NoWindow) status(stream uint32) chan string {
	c.state.Lock()
	defer c.state.Unlock()
	if c.statuses[stream] == nil {
		c.statuses[stream] = make(chan string, 1)
	}
	return c.statuses[stream]
}

// Send sends a request and returns its stream. header has names and values in turn.
func (c *NoWindow) Send(method, path, body string, header ...string) (stream uint32) {
	c.t.Helper()
	c.write.Lock()
	defer c.write.Unlock()
	stream, c.next = c.next, c.next+2
	c.block.Reset()
	fields := append([]string{":method", method, ":path", path, ":scheme", "http", ":authority", "example.com"}, header...)
	for i := 0; i < len(fields); i += 2 {
		require.NoError(c.t, c.encoder.WriteField(hpack.HeaderField{Name: strings.ToLower(fields[i]), Value: fields[i+1]}))
	}
	require.NoError(c.t, c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: body == "",
	}))
	if body != "" {
		require.NoError(c.t, c.framer.WriteData(stream, true, []byte(body)))
	}
	return stream
}

// Status waits for the status of a stream's answer.
func (c *NoWindow) Status(stream uint32) string {
	c.t.Helper()
	return <-c.status(stream)
}

// Reset reports whether the server has ended the stream.
func (c *NoWindow) Reset(stream uint32) bool {
	c.state.Lock()
	defer c.state.Unlock()
	return c.reset[stream]
}
