package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// toxiproxy is a server of Shopify's that stands in front of others and plays a bad network. Start it before the product,
// so that it ends after it.
type toxiproxy struct {
	process
	// api is where its HTTP interface listens.
	api   string
	http  *http.Client
	links atomic.Int64
}

// startToxiproxy runs one until the test's end.
func startToxiproxy(t testing.TB) *toxiproxy {
	t.Helper()
	binary, err := toxiproxyBinary()
	require.NoError(t, err)
	port := freePort(t)
	x := &toxiproxy{
		process: process{t: t, what: "toxiproxy"}, api: fmt.Sprintf("http://127.0.0.1:%d", port),
		http: &http.Client{Transport: &http.Transport{}, Timeout: patience},
	}
	t.Cleanup(x.http.CloseIdleConnections)
	x.run(t.TempDir(), []string{"LOG_LEVEL=error"}, x.kill, binary, "-host", "127.0.0.1", "-port", strconv.Itoa(port))
	x.await("toxiproxy to answer", startWait, func() bool {
		_, err := x.try(http.MethodGet, "/version", nil)
		return err == nil
	})
	return x
}

// try asks the HTTP interface.
func (x *toxiproxy) try(method, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(context.Background(), method, x.api+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	response, err := x.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answered, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("toxiproxy: %s %s: %s: %s", method, path, response.Status, answered)
	}
	return answered, err
}

func (x *toxiproxy) must(method, path string, body any) []byte {
	x.t.Helper()
	answered, err := x.try(method, path, body)
	require.NoError(x.t, err)
	return answered
}

// link is the network between a product and one server. It is well until one of its methods says otherwise.
type link struct {
	*toxiproxy
	path string
	// Address is where the product finds the server, host:port.
	Address string
}

// before puts a link in front of a server that listens at host:port.
func (x *toxiproxy) before(upstream string) *link {
	x.t.Helper()
	name := fmt.Sprintf("link-%d", x.links.Add(1))
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(x.t)))
	x.must(http.MethodPost, "/proxies", map[string]any{"name": name, "listen": address, "upstream": upstream, "enabled": true})
	return &link{toxiproxy: x, path: "/proxies/" + name, Address: address}
}

// The directions of a connection through a link, in toxiproxy's words.
const (
	toServer   = "upstream"
	fromServer = "downstream"
)

// toxic adds a fault to every connection of the link, those that are open and those to come.
func (l *link) toxic(kind, direction string, attributes map[string]any) {
	l.t.Helper()
	l.must(http.MethodPost, l.path+"/toxics", map[string]any{"type": kind, "stream": direction, "attributes": attributes})
}

func (l *link) enable(on bool) {
	l.t.Helper()
	l.must(http.MethodPatch, l.path, map[string]bool{"enabled": on})
}

// gone ends every connection, and refuses new ones.
func (l *link) gone() {
	l.t.Helper()
	l.enable(false)
}

// hang lets everything reach the server, and nothing come back: statements are executed without an answer. Connections are
// accepted and stay open. They end when the link heals.
func (l *link) hang() {
	l.t.Helper()
	l.toxic("timeout", fromServer, map[string]any{"timeout": 0})
}

// slow makes every answer of the server late by latency.
func (l *link) slow(latency time.Duration) {
	l.t.Helper()
	l.toxic("latency", fromServer, map[string]any{"latency": latency.Milliseconds()})
}

// reset lets everything reach the server and cuts the connection when its answer comes, with RST for new connections.
func (l *link) reset() {
	l.t.Helper()
	l.toxic("reset_peer", fromServer, map[string]any{"timeout": 0})
}

// partition lets nothing through in either direction; connections are accepted and stay open. Bytes on their way then arrive when
// the link heals, as TCP's retransmissions do: also for callers that gave up meanwhile.
func (l *link) partition() {
	l.t.Helper()
	const forever = 24 * time.Hour
	for _, direction := range []string{toServer, fromServer} {
		l.toxic("latency", direction, map[string]any{"latency": forever.Milliseconds()})
	}
}

// heal ends every fault of the link.
func (l *link) heal() {
	l.t.Helper()
	var about struct{ Toxics []struct{ Name string } }
	require.NoError(l.t, json.Unmarshal(l.must(http.MethodGet, l.path, nil), &about))
	for _, toxic := range about.Toxics {
		l.must(http.MethodDelete, l.path+"/toxics/"+toxic.Name, nil)
	}
	l.enable(true)
}

// during runs f under a fault, which is over afterwards, also when the test ends in f.
func (l *link) during(fault func(*link), f func()) {
	l.t.Helper()
	defer l.heal()
	fault(l)
	f()
}

// TestToxiproxy guarantees the meaning of the faults that other tests stand on, against a server that says back what it
// hears.
func TestToxiproxy(t *testing.T) {
	t.Parallel()
	server := startParrot(t)
	x := startToxiproxy(t)
	for _, tc := range []struct {
		name  string
		fault func(*link)
		// heard: what is said under the fault reaches the server before the fault is over.
		heard bool
		// ends: a connection that speaks under the fault ends; revives: its answer comes once the link has healed.
		ends, revives bool
		// refused: no new connection is accepted.
		refused bool
	}{
		{name: "gone", fault: (*link).gone, ends: true, refused: true},
		{name: "hang", fault: (*link).hang, heard: true},
		{name: "reset", fault: (*link).reset, heard: true, ends: true},
		{name: "partition", fault: (*link).partition, revives: true},
		{name: "slow", fault: func(l *link) { l.slow(time.Second) }, heard: true, revives: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := x.before(server.address)
			old, before := dialParrot(t, l.Address), "before "+tc.name
			require.NoError(t, old.says(before))
			require.Equal(t, before, old.hears(t))
			under := "under " + tc.name
			l.during(tc.fault, func() {
				fresh, err := net.Dial("tcp", l.Address) //nolint:noctx // it is local
				require.Equal(t, tc.refused, err != nil, "%v", err)
				if err == nil {
					require.NoError(t, fresh.Close())
				}
				err = old.says(under) // may fail at once, or later
				if tc.ends {
					require.Equal(t, ended, old.hears(t))
				} else {
					require.NoError(t, err)
				}
				if tc.heard {
					server.awaitHeard(t, under)
				} else {
					require.NotContains(t, server.heard(), under)
				}
			})
			if tc.revives {
				require.Equal(t, under, old.hears(t))
			} else {
				require.Equal(t, ended, old.hears(t))
			}
			anew := dialParrot(t, l.Address)
			require.NoError(t, anew.says("after "+tc.name))
			require.Equal(t, "after "+tc.name, anew.hears(t))
		})
	}
}

// parrot is a server that says back every line.
type parrot struct {
	address string

	mu    sync.Mutex
	lines []string
}

func startParrot(t testing.TB) *parrot {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is local
	require.NoError(t, err)
	s := &parrot{address: listener.Addr().String()}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(conn) })
			t.Cleanup(func() { _ = conn.Close() })
		}
	})
	return s
}

func (s *parrot) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		s.mu.Lock()
		s.lines = append(s.lines, lines.Text())
		s.mu.Unlock()
		if _, err := fmt.Fprintln(conn, lines.Text()); err != nil {
			return
		}
	}
}

func (s *parrot) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

func (s *parrot) awaitHeard(t testing.TB, line string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !slices.Contains(s.heard(), line); betweenLooks() {
		require.True(t, time.Now().Before(deadline), "the server never heard %q", line)
	}
}

// talk is a connection to a parrot.
type talk struct {
	net.Conn
	lines *bufio.Reader
}

func dialParrot(t testing.TB, address string) talk {
	t.Helper()
	conn, err := net.Dial("tcp", address) //nolint:noctx // it is local
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return talk{conn, bufio.NewReader(conn)}
}

func (c talk) says(line string) error {
	_, err := fmt.Fprintln(c, line)
	return err
}

// ended is what is heard from a connection that has ended.
const ended = "(ended)"

func (c talk) hears(t testing.TB) string {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	line, err := c.lines.ReadString('\n')
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	if err != nil {
		return ended
	}
	return strings.TrimSuffix(line, "\n")
}
