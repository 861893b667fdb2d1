package handlers

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// bodyRequest has a body of unknown length when length is -1.
func bodyRequest(body io.Reader, length int64) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(body))
	r.ContentLength = length
	return r
}

func TestReadBodyReadsAllSizes(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	for _, size := range []int{
		0, 1, firstBuffer - 1, firstBuffer, firstBuffer + 1, quadrupled - 1, quadrupled, quadrupled + 1,
		3 << 20, limit - 1, limit,
	} {
		want := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		for _, length := range []int64{int64(size), -1} {
			budget := NewByteBudget(16 * limit)
			body, release, err := readBody(httptest.NewRecorder(), bodyRequest(iotest.HalfReader(bytes.NewReader(want)), length), limit, budget)
			require.NoError(t, err, "%d bytes, declared %d", size, length)
			require.True(t, bytes.Equal(want, body), "%d bytes, declared %d", size, length)
			if size > 0 {
				require.Equal(t, int64(cap(body)), budget.Used())
			}
			release()
			release()
			require.Zero(t, budget.Used())
		}
	}
}

// Of an organization's body of up to 256 KiB the whole is charged as soon as 8 KiB have arrived, and allocated once; of a longer one and of a
// stranger's only what arrives.
func TestReadBodyAllocatesOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		share    Share
		declared int64
		charged  int64 // when 8 KiB have arrived
	}{
		{ShareOrganizations, wholeBuffer, wholeBuffer},
		{ShareOrganizations, wholeBuffer + 1, 4 * begun},
		{ShareStrangers, wholeBuffer, 4 * begun},
	} {
		budget := NewByteBudget(1 << 30)
		var used int64
		asked := readerFunc(func([]byte) (int, error) {
			used = max(used, budget.Used())
			return 0, io.ErrUnexpectedEOF
		})
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", begun)), asked)
		_, _, err := ReadBody(httptest.NewRecorder(), bodyRequest(body, c.declared), 1<<20, budget, Account{Share: c.share, Owner: "org_1"})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, c.charged, used)
	}
}

// readerFunc is a reader that is asked.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReadBodyRefusesMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	for _, size := range []int64{limit + 1, 2 * limit} {
		for _, length := range []int64{size, -1} {
			budget := NewByteBudget(1 << 30)
			body, release, err := readBody(httptest.NewRecorder(), bodyRequest(io.LimitReader(zeros{}, size), length), limit, budget)
			require.Contains(t, mustBeInvalid(t, err).Message, "larger than 1048576 bytes")
			require.Nil(t, body)
			release()
			require.Zero(t, budget.Used())
		}
	}
}

func TestReadBodyReadsOnSoThatTheClientSeesTheAnswer(t *testing.T) {
	t.Parallel()
	body := strings.NewReader(strings.Repeat("x", 1500))
	_, _, err := readBody(httptest.NewRecorder(), bodyRequest(body, 1500), 1000, nil)
	mustBeInvalid(t, err)
	require.Zero(t, body.Len())

	waiting := strings.NewReader(strings.Repeat("x", 1500))
	r := bodyRequest(waiting, 1500)
	r.Header.Set("Expect", "100-continue")
	_, _, err = readBody(httptest.NewRecorder(), r, 1000, nil)
	mustBeInvalid(t, err)
	require.Equal(t, 1500, waiting.Len(), "a client that waits for 100 Continue must not be asked for its body")
}

func TestReadBodyOfThe33MiBRequest(t *testing.T) {
	t.Parallel()
	_, _, err := readBody(httptest.NewRecorder(), bodyRequest(io.LimitReader(zeros{}, 33<<20), -1), MaxChatBody, nil)
	mustBeInvalid(t, err)
}

func TestReadBodyBroken(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(1 << 30)
	broken := io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF))
	for _, length := range []int64{-1, 10, 1} {
		_, _, err := readBody(httptest.NewRecorder(), bodyRequest(broken, length), 100, budget)
		require.ErrorIs(t, mustBeInvalid(t, err), io.ErrUnexpectedEOF)
		broken = io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	_, _, err := readBody(httptest.NewRecorder(), bodyRequest(iotest.ErrReader(&http.MaxBytesError{Limit: 7}), -1), 100, budget)
	require.Contains(t, mustBeInvalid(t, err).Message, "larger than 7 bytes")
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
		body, _, err := readBody(httptest.NewRecorder(), r, 100, nil)
		if good {
			require.NoError(t, err, value)
			require.Equal(t, "{}", string(body))
			continue
		}
		require.Contains(t, mustBeInvalid(t, err).Message, "compressed", value)
	}
	r := bodyRequest(strings.NewReader("{}"), 2)
	r.Header["Content-Encoding"] = []string{"identity", "gzip"}
	_, _, err := readBody(httptest.NewRecorder(), r, 100, nil)
	mustBeInvalid(t, err)
}

// Over a real connection net/http reports a body that ends early or has broken chunks; both are the client's fault.
func TestReadBodyOverTheWire(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, release, err := readBody(w, r, 1000, nil)
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

// Bodies grow through the same buffers, and none of them has a byte of another, whether it is held or has gone.
func TestBodiesShareNoMemory(t *testing.T) {
	t.Parallel()
	type held struct {
		body []byte
		fill string
	}
	var bodies []held
	for round := range 3 {
		for i, size := range []int{200_000, 1, 500, 2048, 5000, 8192, 30_000, 100_000, 131_072, 300_000} {
			for _, declared := range []int64{int64(size), -1} {
				fill := string(rune('a' + (round*10+i)%26))
				body, release, err := readBody(httptest.NewRecorder(), bodyRequest(strings.NewReader(strings.Repeat(fill, size)), declared), 1<<20, nil)
				require.NoError(t, err)
				require.Len(t, body, size)
				require.Empty(t, bytes.Trim(body[size:cap(body)], "\x00"), "nothing of another body is behind it")
				if i%2 == 0 {
					release()
				}
				bodies = append(bodies, held{body, fill})
			}
		}
	}
	for _, h := range bodies {
		require.Empty(t, strings.Trim(string(h.body), h.fill))
	}
}

// A body in recycled memory has its own bytes and no others, and recycled memory has no byte of the body that it held. The test looks at
// memory that it has given back, so no other test may run beside it.
//
//nolint:paralleltest // see above
func TestRecycledBodiesShareNothing(t *testing.T) {
	for round := range 3 {
		for _, size := range []int{300, 2000, 30_000, 70_000, 131_072, 150_000, 262_144, 300_000, 600_000} {
			fill := string(rune('a' + round))
			body, release, err := readBody(httptest.NewRecorder(), bodyRequest(strings.NewReader(strings.Repeat(fill, size)), int64(size)), 1<<20, nil)
			require.NoError(t, err)
			require.Equal(t, strings.Repeat(fill, size), string(body))
			require.Empty(t, bytes.Trim(body[size:cap(body)], "\x00"), "nothing of another body is behind it")
			require.LessOrEqual(t, cap(body), size+size/2)
			release()
			Recycle(body)
			require.Empty(t, bytes.Trim(body, "\x00"))
		}
	}
}
