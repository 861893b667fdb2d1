package openaitest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Secret is in every error text of the vendor.
const Secret = "sk-upstream-secret-1234"

// Request is one request the vendor saw.
type Request struct {
	// Method, Path (with the query) and Proto are those of the request line.
	Method, Path, Proto string
	// Header are the headers as they came; Body is the whole body.
	Header http.Header
	Body   []byte
	// Scenario is the scenario that the prompt named.
	Scenario string

	options options
	done    chan struct{}
	aborted bool
}

// Done is closed when the vendor has finished with the request.
func (r *Request) Done() <-chan struct{} { return r.done }

// Aborted says, after Done, whether the client left before the vendor had sent all it wanted to.
func (r *Request) Aborted() bool {
	<-r.done
	return r.aborted
}

// Upstream is the vendor. The zero value is ready to serve; it is safe for concurrent use.
type Upstream struct {
	mu       sync.Mutex
	requests []*Request
	arrival  chan struct{} // closed and replaced at each arrival
	gates    map[string]*gate
	closed   chan struct{}
}

// gate is where handlers wait for the test.
type gate struct {
	reached, open chan struct{}
	once, opened  sync.Once
}

// Start serves an Upstream over HTTP/1.1 on a free port of the loopback interface until the test ends, and returns
// the base URL for a provider's configuration.
func Start(t testing.TB) (u *Upstream, baseURL string) {
	t.Helper()
	u = &Upstream{}
	server := httptest.NewServer(u)
	t.Cleanup(func() {
		u.Close()
		server.Close()
	})
	return u, server.URL + "/v1"
}

// StartHTTP2 is Start with TLS and HTTP/2; transport trusts its certificate and is closed at the end of the test.
func StartHTTP2(t testing.TB) (u *Upstream, baseURL string, transport *http.Transport) {
	t.Helper()
	u = &Upstream{}
	server := httptest.NewUnstartedServer(u)
	server.EnableHTTP2 = true
	server.StartTLS()
	transport = server.Client().Transport.(*http.Transport)
	t.Cleanup(func() {
		u.Close()
		transport.CloseIdleConnections()
		server.Close()
	})
	return u, server.URL + "/v1", transport
}

// init makes what the zero value lacks; the caller holds the mutex.
func (u *Upstream) init() {
	if u.arrival == nil {
		u.arrival = make(chan struct{})
		u.closed = make(chan struct{})
		u.gates = map[string]*gate{}
	}
}

// Close ends every wait of the vendor. Servers are closed after it.
func (u *Upstream) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.init()
	select {
	case <-u.closed:
	default:
		close(u.closed)
	}
}

// Requests returns all requests so far, the oldest first.
func (u *Upstream) Requests() []*Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*Request(nil), u.requests...)
}

// Find returns the requests so far whose body contains text.
func (u *Upstream) Find(text string) []*Request {
	var found []*Request
	for _, r := range u.Requests() {
		if strings.Contains(string(r.Body), text) {
			found = append(found, r)
		}
	}
	return found
}

// Await waits until n requests whose body contains text have arrived and returns them. The test fails after 30 s.
func (u *Upstream) Await(t testing.TB, text string, n int) []*Request {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		u.mu.Lock()
		u.init()
		arrival := u.arrival
		u.mu.Unlock()
		if found := u.Find(text); len(found) >= n {
			return found
		}
		select {
		case <-arrival:
		case <-timeout.C:
			t.Fatalf("openaitest: fewer than %d requests with %q arrived", n, text)
		}
	}
}

// Release opens a gate for requests that wait at it and for later ones.
func (u *Upstream) Release(name string) {
	g := u.gate(name)
	g.opened.Do(func() { close(g.open) })
}

// Reached is closed when a request waits at the gate, or has passed it.
func (u *Upstream) Reached(name string) <-chan struct{} { return u.gate(name).reached }

func (u *Upstream) gate(name string) *gate {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.init()
	g := u.gates[name]
	if g == nil {
		g = &gate{reached: make(chan struct{}), open: make(chan struct{})}
		u.gates[name] = g
	}
	return g
}

// ServeHTTP implements [http.Handler].
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name, opts := parseScenario(string(body))
	req := &Request{
		Method: r.Method, Path: r.URL.RequestURI(), Proto: r.Proto, Header: r.Header.Clone(), Body: body,
		Scenario: name, options: opts, done: make(chan struct{}),
	}
	u.note(req)
	defer func() {
		req.aborted = r.Context().Err() != nil
		close(req.done)
	}()
	x := &exchange{upstream: u, w: w, ctx: r.Context(), req: req, options: opts}
	x.stream = strings.Contains(string(body), `"stream":true`)
	x.serve(name)
}

func (u *Upstream) note(req *Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.init()
	u.requests = append(u.requests, req)
	close(u.arrival)
	u.arrival = make(chan struct{})
}

// wait blocks at a gate; it returns false when the client is gone or the vendor closed.
func (u *Upstream) wait(ctx context.Context, name string) bool {
	g := u.gate(name)
	g.once.Do(func() { close(g.reached) })
	select {
	case <-g.open:
		return true
	case <-ctx.Done():
	case <-u.closed:
	}
	return false
}

// hang blocks until the client is gone or the vendor closed.
func (u *Upstream) hang(ctx context.Context) {
	u.mu.Lock()
	u.init()
	closed := u.closed
	u.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-closed:
	}
}
