package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answerWait bounds the wait for the answer to a body that never ends: a delivery has 10 s.
const answerWait = time.Minute

// attacker is a connection on which a test says exactly what it wants.
type attacker struct {
	net.Conn

	path   string
	reader *bufio.Reader
}

// attackers are the connections of an attack.
type attackers struct{ all []*attacker }

// address is one of the machine's own that no other client of the tests has.
func address(i int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%200))} }

// dial connects from the i-th of many addresses.
func (c *attackers) dial(t testing.TB, p *product, i int) *attacker {
	t.Helper()
	dialer := net.Dialer{LocalAddr: address(i), Timeout: patience}
	conn, err := dialer.Dial("tcp", strings.TrimPrefix(p.BaseURL, "http://")) //nolint:noctx // it is local
	require.NoError(t, err)
	a := &attacker{Conn: conn, reader: bufio.NewReaderSize(conn, 512)}
	c.all = append(c.all, a)
	return a
}

func (c *attackers) connections() []*attacker { return c.all }

func (c *attackers) close() {
	for _, a := range c.all {
		_ = a.Close()
	}
}

// post begins a request that declares a length, of which no more than body comes.
func (a *attacker) post(t testing.TB, path, header string, length int, body string) {
	t.Helper()
	a.path = path
	if header != "" {
		header += "\r\n"
	}
	_, err := fmt.Fprintf(a, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %d\r\n\r\n%s", path, header, length, body)
	require.NoError(t, err)
}

// answer is the head of what comes back.
func (a *attacker) answer(t testing.TB) *http.Response {
	t.Helper()
	require.NoError(t, a.SetReadDeadline(time.Now().Add(answerWait)))
	response, err := http.ReadResponse(a.reader, nil)
	require.NoError(t, err, a.path)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err, a.path)
	return response
}

// requireClosed requires that the server has closed the connection.
func (a *attacker) requireClosed(t testing.TB) {
	t.Helper()
	_, err := a.reader.ReadByte()
	require.Error(t, err, a.path)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is still open")
}

// from is a client at the i-th of many addresses.
func (a *abused) from(i int) *http.Client {
	dialer := &net.Dialer{LocalAddr: address(i)}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16}}
}

// stall begins a call of which so many bytes arrive, and no more until stop.
func (p *product) stall(t testing.TB, c *customer, bytes int) (stop func()) {
	t.Helper()
	var open attackers
	open.dial(t, p, 0).post(t, chatPath, "Authorization: Bearer "+c.Key, bytes+10_000, strings.Repeat(" ", bytes))
	return open.close
}
