// Package abuse is how clients misbehave, for the end-to-end tests and the bench: bodies and readers that are slow,
// connections that do nothing, and requests that are expensive to read, to count or to check. An attack judges only the
// answers that the attacker gets. What others feel of it, and what the product takes meanwhile, its caller measures.
package abuse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// answerWait bounds the wait for the answer to a body that never ends.
	answerWait = time.Minute
	// closeWait bounds the wait for the end of a connection whose request was answered.
	closeWait = 30 * time.Second
	// mostBusy is of how many answers to an attacker one may be that the product is busy: it owes them no better ones on a
	// machine that has too much to do, but has to notice what they are in general.
	mostBusy = 10
	// smallWindow is the receive buffer of slow readers, in bytes.
	smallWindow = 4 << 10
	// segment is the largest TCP payload over Ethernet. That of the loopback interface is 64 KiB, and a kernel buffers
	// at least 20 segments of what a client doesn't read.
	segment = 1460
	// dialWait bounds the wait for a connection.
	dialWait = 30 * time.Second
)

// errBusy is the answer of a product that has too much to do.
var errBusy = errors.New("the product is busy")

func isBusy(status int, retryAfter string) bool {
	return status == http.StatusInternalServerError && retryAfter == "1"
}

// Address is the i-th of 200 addresses of this machine from which no other client of the tests comes.
func Address(i int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%200))} }

// Client returns a client at the i-th address.
func Client(i int) *http.Client {
	dialer := &net.Dialer{LocalAddr: Address(i)}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16}}
}

// Conn is a connection on which an attacker says exactly what it wants.
type Conn struct {
	net.Conn

	route  Route
	reader *bufio.Reader
}

// Crowd is the connections of an attack. It may be used by several goroutines.
type Crowd struct {
	// slow makes the connections those of distant clients, which read little at a time.
	slow bool

	mu   sync.Mutex
	all  []*Conn
	over bool
}

// Dial connects to a host and port from the i-th address.
func (c *Crowd) Dial(ctx context.Context, target string, i int) (*Conn, error) {
	dialer := net.Dialer{LocalAddr: Address(i), Timeout: dialWait}
	if c.slow {
		dialer.Control = narrow
	}
	conn, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	one := &Conn{Conn: conn, reader: bufio.NewReaderSize(conn, 512)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	c.all = append(c.all, one)
	return one, nil
}

// Close ends all connections.
func (c *Crowd) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, one := range c.all {
		_ = one.Close()
	}
}

// Begin begins a request that declares a length, of which no more than body comes.
func (c *Conn) Begin(route Route, length int, body string) error {
	c.route = route
	header := ""
	if route.Header != "" {
		header = route.Header + "\r\n"
	}
	_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %d\r\n\r\n%s", route.Method, route.Path, header, length, body)
	if err != nil {
		return fmt.Errorf("beginning %s: %w", route, err)
	}
	return nil
}

// narrow sets the receive window and the segment size before a connection is made: a kernel keeps those it began with.
func narrow(_, _ string, raw syscall.RawConn) error {
	var err error
	controlErr := raw.Control(func(fd uintptr) {
		err = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, smallWindow),
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, segment))
	})
	if err = errors.Join(controlErr, err); err != nil {
		return fmt.Errorf("making the window small: %w", err)
	}
	return nil
}

// requireRefused waits for the answer to a body that never ends. It must be the route's, rate_limited, or [errBusy], and the last on the
// connection.
func (c *Conn) requireRefused() error {
	if err := c.SetReadDeadline(time.Now().Add(answerWait)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return fmt.Errorf("the answer of %s: %w", c.route, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return fmt.Errorf("the answer of %s: %w", c.route, err)
	case isBusy(response.StatusCode, response.Header.Get("Retry-After")):
		return errBusy
	case response.StatusCode == http.StatusTooManyRequests && strings.Contains(string(text), `"code":"rate_limited"`) && response.Close:
		// more requests of the attacker wait than may
	case response.StatusCode != c.route.Status || c.route.Code != "" && !strings.Contains(string(text), `"code":"`+c.route.Code+`"`):
		return fmt.Errorf("%s answered %d %.300s instead of %d %s", c.route, response.StatusCode, text, c.route.Status, c.route.Code)
	case !response.Close:
		return fmt.Errorf("%s keeps the connection of a body that never came", c.route)
	}
	if err := c.SetReadDeadline(time.Now().Add(closeWait)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := c.reader.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s leaves the connection open", c.route)
	}
	return nil
}
