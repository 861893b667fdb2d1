package handlers

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// trickle is a body of which so many bytes arrive every second.
type trickle struct {
	w      *readDeadlines
	began  time.Time
	rate   int
	size   int
	passed int
}

func (b *trickle) Read(into []byte) (int, error) {
	for {
		if at := b.w.read[len(b.w.read)-1]; time.Now().After(at) {
			return 0, &net.OpError{Op: "read", Err: errDeadline{}}
		}
		arrived := min(b.size, b.rate*int(time.Since(b.began)/time.Second))
		if b.passed == b.size {
			return 0, io.EOF
		}
		if n := min(arrived-b.passed, len(into)); n > 0 {
			b.passed += n
			return n, nil
		}
		<-time.After(time.Second) // on the fake clock
	}
}

// errDeadline is the error of a connection whose deadline has passed.
type errDeadline struct{}

func (errDeadline) Error() string { return "i/o timeout" }

func (errDeadline) Is(target error) bool {
	return target == os.ErrDeadlineExceeded
}

// After t seconds (t - grace) · rate bytes must have arrived, and no more.
func TestBodyPace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		org        string
		rate, size int
		late       bool
		took       time.Duration
	}{
		"nothing":                 {"", 0, 1 << 20, true, 11 * time.Second},
		"nothing, with a key":     {"org_1", 0, 1 << 20, true, 31 * time.Second},
		"half of the rate":        {"", 32 << 10, 2 << 20, true, 20 * time.Second},
		"the rate":                {"", 64 << 10, 2 << 20, false, 0},
		"half, but soon there":    {"", 32 << 10, 600 << 10, false, 0},
		"half, but with a key":    {"org_1", 32 << 10, 1600 << 10, false, 0},
		"half for long, with key": {"org_1", 32 << 10, 4 << 20, true, 60 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := &readDeadlines{ResponseWriter: httptest.NewRecorder()}
				r := from(bodyRequest(&trickle{w: w, began: began, rate: c.rate, size: c.size}, int64(c.size)), c.org, "192.0.2.1")
				budget := NewByteBudget(256 << 20)
				_, release, err := readBody(w, r, MaxChatBody, budget)
				release()
				if !c.late {
					require.NoError(t, err)
					require.True(t, w.read[len(w.read)-1].IsZero(), "the next request has its own deadline")
					return
				}
				require.Contains(t, mustBeInvalid(t, err).Message, "too slowly")
				require.Equal(t, c.took, time.Since(began))
				require.Equal(t, "close", w.Header().Get("Connection"))
				require.Zero(t, budget.Used())
			})
		})
	}
}

// slowServer serves bodies that must be there within 20 ms, by HTTP/1 and HTTP/2; those of /patient have more time.
func slowServer(t *testing.T) *httptest.Server {
	t.Helper()
	patient, hasty := NewByteBudget(1<<20), NewByteBudget(1<<20)
	patient.SetLimit(1<<20, Pace{Grace: time.Minute, GraceWithKey: time.Minute, Rate: 1 << 30})
	hasty.SetLimit(1<<20, Pace{Grace: 20 * time.Millisecond, GraceWithKey: 20 * time.Millisecond, Rate: 1 << 30})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		budget := hasty
		if r.URL.Path == "/patient" {
			budget = patient
		}
		_, release, err := readBody(w, r, 1000, budget)
		release()
		if err != nil {
			WriteError(w, r, err, "")
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestSlowBodyOverTheWire(t *testing.T) {
	t.Parallel()
	server := slowServer(t)
	for name, request := range map[string]string{
		"nothing":     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"a part":      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"chunked":     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
		"too large":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n{",
		"an encoding": "POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test's own server
		require.NoError(t, err)
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, name)
		require.Equal(t, http.StatusBadRequest, answer.StatusCode, name)
		require.True(t, answer.Close, name)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed), "%s: the connection is closed: %v", name, err)
		require.NoError(t, conn.Close())
	}
}

// TestUnreadBodyOverTheWire: a handler that doesn't read the body of its request is answered all the same, and the
// connection ends; one whose body came goes on.
func TestUnreadBodyOverTheWire(t *testing.T) {
	t.Parallel()
	const grace = 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		BoundUnread(w, r, grace)
		if r.URL.Path == "/begun" {
			body := NewPacedBody(w, r, grace, 0)
			_, _ = body.Read(make([]byte, 1))
			body.Finish()
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	for name, request := range map[string]string{
		"nothing": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"a part":  "POST /begun HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{",
		"chunked": "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, name)
		require.Equal(t, http.StatusTeapot, answer.StatusCode, name)
		require.True(t, answer.Close, name)
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err, "%s: the connection is closed", name)
		require.NoError(t, conn.Close())
	}

	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	for range 3 {
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		require.NoError(t, err)
		answer, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		require.False(t, answer.Close)
		<-time.After(2 * grace) // the next request is not bound by this one's deadline
	}
	require.NoError(t, conn.Close())
}

// Of an HTTP/2 connection only the stream ends; the others on it go on.
func TestSlowBodyOverHTTP2(t *testing.T) {
	t.Parallel()
	server := slowServer(t)
	client := server.Client()
	for range 2 {
		body, writer := io.Pipe()
		r, err := http.NewRequest(http.MethodPost, server.URL, body)
		require.NoError(t, err)
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.Equal(t, 2, answer.ProtoMajor)
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Contains(t, string(text), "too slowly")
		require.NoError(t, answer.Body.Close())
		require.NoError(t, writer.Close())
		answer, err = client.Post(server.URL+"/patient", "", strings.NewReader("{}"))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.NoError(t, answer.Body.Close())
	}
}
