package handlers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// bodyRequest has a body of unknown length when length is -1.
func bodyRequest(body io.Reader, length int64) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(body))
	r.ContentLength = length
	return r
}

func requireInvalid(t *testing.T, err error) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, CodeInvalidRequest, e.Code, "%v", err)
	return e
}

func TestReadBodyReadsAllSizes(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	for _, size := range []int{
		0, 1, firstBuffer - 1, firstBuffer, firstBuffer + 1, trustedLength - 1, trustedLength, trustedLength + 1,
		3 << 20, limit - 1, limit,
	} {
		want := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		for _, length := range []int64{int64(size), -1} {
			budget := NewByteBudget(2 * limit)
			body, release, err := ReadBody(bodyRequest(iotest.HalfReader(bytes.NewReader(want)), length), limit, budget)
			require.NoError(t, err, "%d bytes, declared %d", size, length)
			require.True(t, bytes.Equal(want, body), "%d bytes, declared %d", size, length)
			require.Equal(t, int64(cap(body)), budget.Used())
			release()
			release()
			require.Zero(t, budget.Used())
		}
	}
}

func TestReadBodyRefusesMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	for _, size := range []int64{limit + 1, 2 * limit} {
		for _, length := range []int64{size, -1} {
			budget := NewByteBudget(1 << 30)
			body, release, err := ReadBody(bodyRequest(io.LimitReader(zeros{}, size), length), limit, budget)
			require.Contains(t, requireInvalid(t, err).Message, "larger than 1048576 bytes")
			require.Nil(t, body)
			release()
			require.Zero(t, budget.Used())
		}
	}
}

func TestReadBodyReadsOnSoThatTheClientSeesTheAnswer(t *testing.T) {
	t.Parallel()
	body := strings.NewReader(strings.Repeat("x", 1500))
	_, _, err := ReadBody(bodyRequest(body, 1500), 1000, nil)
	requireInvalid(t, err)
	require.Zero(t, body.Len())

	waiting := strings.NewReader(strings.Repeat("x", 1500))
	r := bodyRequest(waiting, 1500)
	r.Header.Set("Expect", "100-continue")
	_, _, err = ReadBody(r, 1000, nil)
	requireInvalid(t, err)
	require.Equal(t, 1500, waiting.Len(), "a client that waits for 100 Continue must not be asked for its body")
}

func TestReadBodyOfThe33MiBRequest(t *testing.T) {
	t.Parallel()
	_, _, err := ReadBody(bodyRequest(io.LimitReader(zeros{}, 33<<20), -1), MaxChatBody, nil)
	requireInvalid(t, err)
}

func TestReadBodyBroken(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(1 << 30)
	broken := io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF))
	for _, length := range []int64{-1, 10, 1} {
		_, _, err := ReadBody(bodyRequest(broken, length), 100, budget)
		require.ErrorIs(t, requireInvalid(t, err), io.ErrUnexpectedEOF)
		broken = io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	_, _, err := ReadBody(bodyRequest(iotest.ErrReader(&http.MaxBytesError{Limit: 7}), -1), 100, budget)
	require.Contains(t, requireInvalid(t, err).Message, "larger than 7 bytes")
	require.Zero(t, budget.Used())
}

func TestReadBodyContentEncoding(t *testing.T) {
	t.Parallel()
	cases := map[string]bool{
		"": true, "identity": true, "Identity": true, "identity, identity": true, " identity ,": true,
		"gzip": false, "GZIP": false, "br": false, "identity, gzip": false, "deflate": false, "zstd": false, "x": false,
	}
	for value, good := range cases {
		r := bodyRequest(strings.NewReader("{}"), 2)
		r.Header.Set("Content-Encoding", value)
		body, _, err := ReadBody(r, 100, nil)
		if good {
			require.NoError(t, err, value)
			require.Equal(t, "{}", string(body))
			continue
		}
		require.Contains(t, requireInvalid(t, err).Message, "compressed", value)
	}
	r := bodyRequest(strings.NewReader("{}"), 2)
	r.Header["Content-Encoding"] = []string{"identity", "gzip"}
	_, _, err := ReadBody(r, 100, nil)
	requireInvalid(t, err)
}

func TestReadBodyBudget(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(1500)
	_, release, err := ReadBody(bodyRequest(io.LimitReader(zeros{}, 1000), 1000), 10_000, budget)
	require.NoError(t, err)
	require.EqualValues(t, 1000, budget.Used())

	_, releaseNothing, err := ReadBody(bodyRequest(io.LimitReader(zeros{}, 501), 501), 10_000, budget)
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	require.Equal(t, CodeInternalError, e.Code)
	require.Positive(t, e.RetryAfter)
	require.Equal(t, "1", written(t, err, "").header.Get("Retry-After"))
	releaseNothing()
	require.EqualValues(t, 1000, budget.Used())

	_, release500, err := ReadBody(bodyRequest(io.LimitReader(zeros{}, 500), 500), 10_000, budget)
	require.NoError(t, err)
	release()
	release500()
	require.Zero(t, budget.Used())

	budget.SetLimit(100)
	_, _, err = ReadBody(bodyRequest(io.LimitReader(zeros{}, 500), 500), 10_000, budget)
	require.Error(t, err)
	require.Zero(t, budget.Used())
}

// The budget is shared by all, so what is only promised is not charged: little to who has shown a key, nothing worth
// mentioning to who has not.
func TestReadBodyChargesWhatArrivesNotWhatIsPromised(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ctx    context.Context
		atMost int64
	}{
		"with a key": {WithPrincipal(t.Context(), identity.Principal{}), trustedLength},
		"anybody":    {t.Context(), firstBuffer},
	} {
		budget := NewByteBudget(1 << 30)
		reader, writer := io.Pipe()
		done := make(chan error)
		go func() {
			_, _, err := ReadBody(bodyRequest(reader, 32<<20).WithContext(c.ctx), MaxChatBody, budget)
			done <- err
		}()
		_, err := writer.Write([]byte("{"))
		require.NoError(t, err)
		require.LessOrEqual(t, budget.Used(), c.atMost, name)
		require.NoError(t, writer.CloseWithError(io.ErrUnexpectedEOF))
		requireInvalid(t, <-done)
		require.Zero(t, budget.Used())
	}
}

func TestByteBudgetUnderConcurrency(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(10_000)
	var wait sync.WaitGroup
	for range 64 {
		wait.Go(func() {
			for range 50 {
				_, release, err := ReadBody(bodyRequest(io.LimitReader(zeros{}, 1000), 1000), 10_000, budget)
				if used := budget.Used(); err == nil && used < 1000 {
					t.Errorf("%d bytes charged while 1000 are held", used)
				}
				release()
			}
		})
	}
	wait.Wait()
	require.Zero(t, budget.Used())
}

// Over a real connection net/http reports a body that ends early or has broken chunks; both are the client's fault.
func TestReadBodyOverTheWire(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, release, err := ReadBody(r, 1000, nil)
		defer release()
		if err != nil {
			WriteError(w, r, err, "")
		}
	}))
	defer server.Close()
	const head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
	for name, request := range map[string]string{
		"short":            head + "Content-Length: 10\r\n\r\n{}",
		"broken chunk":     head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"unfinished chunk": head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Contains(t, string(text), `"code":"invalid_request"`, name)
		require.NoError(t, conn.Close())
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
