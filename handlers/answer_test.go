package handlers_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

const answerBytes = 256 << 10

// answers serves answers of answerBytes at /, charged to the organization that X-Org names or else to the address in X-Address.
// One account has room for four of them, alone.
func answers(t *testing.T) (server handlertest.Pipes, budget *handlers.ByteBudget) {
	t.Helper()
	budget = handlers.NewByteBudget(16 * answerBytes)
	text := bytes.Repeat([]byte("0123456789abcdef"), answerBytes/16)
	return handlertest.Serve(t, handlertest.Handler(func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.Path == "/another" { // of another module
			_, err := w.Write(text)
			return err
		}
		if org := r.Header.Get("X-Org"); org != "" {
			r = r.WithContext(handlers.WithPrincipal(r.Context(), identity.Principal{OrgID: org}))
		}
		r = handlers.WithClientAddress(r, r.Header.Get("X-Address"))
		return budget.Send(w, r, http.StatusOK, "application/json", text)
	})), budget
}

// unread is a client by HTTP/1 that reads nothing of the answer to its request.
func unread(t *testing.T, server handlertest.Pipes, header string) net.Conn {
	t.Helper()
	conn := server.Dial()
	t.Cleanup(func() { _ = conn.Close() })
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n"+header+"\r\n\r\n")
	require.NoError(t, err)
	return conn
}

// read reads the whole answer and returns its status and the length of its body.
func read(t *testing.T, conn net.Conn) (status, size int) {
	t.Helper()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, len(text)
}

// Every whole answer says how long it is, also where the server counts, in both versions of HTTP and to HEAD.
func TestAnswersHaveTheirLength(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.URL.Query().Get("size"))
		if err != nil {
			panic(err)
		}
		w.Header().Set("Content-Length", "7") // of a handler before
		handlers.WriteJSON(w, http.StatusTeapot, bytes.Repeat([]byte("1"), size))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	two := server.Client()
	one := &http.Client{Transport: &http.Transport{TLSClientConfig: two.Transport.(*http.Transport).TLSClientConfig.Clone()}}
	one.Transport.(*http.Transport).TLSClientConfig.NextProtos = nil
	defer one.CloseIdleConnections()
	for major, client := range map[int]*http.Client{1: one, 2: two} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			for _, size := range []int{1, 2047, 2048, 2049, 4096, 4097, 100_000} {
				request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"?size="+strconv.Itoa(size), http.NoBody)
				require.NoError(t, err)
				answer, err := client.Do(request)
				require.NoError(t, err)
				body, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, major, answer.ProtoMajor)
				require.Equal(t, []string{strconv.Itoa(size)}, answer.Header["Content-Length"], "HTTP/%d %s", major, method)
				require.Empty(t, answer.TransferEncoding)
				if method == http.MethodGet {
					require.Len(t, body, size)
				}
			}
		}
	}
}

// Answers that are not read are charged to their owner from one connection as from many, up to exactly its room. Then the owner is
// refused, nobody else is, and after 10 s without a byte the connections end and the room is free.
func TestUnreadAnswersEndAndAreCharged(t *testing.T) {
	t.Parallel()
	for owner, other := range map[string]string{"X-Org: org_1": "X-Org: org_2", "X-Address: 192.0.2.1": "X-Address: 192.0.2.2"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, budget := answers(t)
				share := 2 // of an address, whose share is half of that of the organizations
				if strings.HasPrefix(owner, "X-Org") {
					share = 4
				}
				var conns []net.Conn
				for i := range share {
					conns = append(conns, unread(t, server, owner))
					synctest.Wait()
					require.Equal(t, int64(i+1)*answerBytes, budget.Used())
				}
				status, _ := read(t, unread(t, server, owner))
				require.Equal(t, http.StatusTooManyRequests, status)
				status, size := read(t, unread(t, server, other))
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, answerBytes, size)

				time.Sleep(9 * time.Second) //nolint:forbidigo // the fake clock
				synctest.Wait()
				require.Equal(t, int64(share)*answerBytes, budget.Used())
				time.Sleep(time.Second) //nolint:forbidigo // as above
				synctest.Wait()
				require.Zero(t, budget.Used())
				for _, conn := range conns {
					_, err := io.Copy(io.Discard, conn)
					require.NoError(t, err, "the server has closed the connection")
				}
			})
		})
	}
}

// The same with HTTP/2, where the client gives no window: of a connection only the streams of the answers end.
func TestUnreadStreamsEndAndAreCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, budget := answers(t)
		one, two := handlertest.OpenNoWindow(t, server), handlertest.OpenNoWindow(t, server)
		var streams []uint32
		for range 2 {
			stream := one.Send(http.MethodGet, "/", "", "X-Org", "org_1")
			require.Equal(t, "200", one.Status(stream))
			streams = append(streams, stream)
			require.Equal(t, "200", two.Status(two.Send(http.MethodGet, "/", "", "X-Org", "org_1")))
		}
		synctest.Wait()
		require.Equal(t, int64(4*answerBytes), budget.Used())
		require.Equal(t, "429", two.Status(two.Send(http.MethodGet, "/", "", "X-Org", "org_1")))
		require.Equal(t, "200", one.Status(one.Send(http.MethodGet, "/", "", "X-Org", "org_2")))

		time.Sleep(11 * time.Second) //nolint:forbidigo // the fake clock
		synctest.Wait()
		require.Zero(t, budget.Used())
		for _, stream := range streams {
			require.True(t, one.Reset(stream))
		}
		require.Equal(t, "200", one.Status(one.Send(http.MethodGet, "/", "", "X-Org", "org_1")))
	})
}

// A client that reads slowly gets the whole answer, however long that takes, and its connection goes on without a deadline.
func TestSlowReadersGetTheWholeAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, budget := answers(t)
		conn := unread(t, server, "X-Org: org_1")
		slow := bufio.NewReaderSize(&slowReader{conn, 16 << 10, 2 * time.Second}, 16<<10)
		for range 2 {
			began := time.Now()
			answer, err := http.ReadResponse(slow, nil)
			require.NoError(t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Len(t, text, answerBytes)
			require.Greater(t, time.Since(began), 30*time.Second)
			synctest.Wait()
			require.Zero(t, budget.Used())
			time.Sleep(time.Minute) //nolint:forbidigo // the fake clock: no deadline is left on the connection
			_, err = io.WriteString(conn, "GET /another HTTP/1.1\r\nHost: x\r\nX-Org: org_1\r\n\r\n")
			require.NoError(t, err)
		}
	})
}

// slowReader pauses after every size bytes.
type slowReader struct {
	from  io.Reader
	size  int
	pause time.Duration
}

func (s *slowReader) Read(into []byte) (int, error) {
	time.Sleep(s.pause) //nolint:forbidigo // the fake clock
	return s.from.Read(into[:min(len(into), s.size)])
}

// Small answers, such as errors, are the server's own memory. Their connections and streams end all the same.
func TestUnreadErrorsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := handlertest.Serve(t, handlertest.Handler(handlers.ServeNotFound))
		conn := unread(t, server, "X: y")
		client := handlertest.OpenNoWindow(t, server)
		stream := client.Send(http.MethodGet, "/", "")
		require.Equal(t, "404", client.Status(stream))
		time.Sleep(11 * time.Second) //nolint:forbidigo // the fake clock
		synctest.Wait()
		require.True(t, client.Reset(stream))
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Empty(t, text)
	})
}

// An answer that must be given is charged to its owner even if the share has no room, and others keep theirs.
func TestRoomForWhatMustBeAnswered(t *testing.T) {
	t.Parallel()
	const free = 1 << 20 // of the organizations' share; one alone may have half of it
	budget := handlers.NewByteBudget(2 * free)
	one, two := handlers.Account{Owner: "org_1"}, handlers.Account{Owner: "org_2"}
	room := handlers.NewRoom(budget, one)
	require.True(t, room.Grow(free/2))
	require.False(t, room.Grow(free/2+1), "one byte more")
	require.True(t, room.Grow(free/4), "it has more")
	require.Equal(t, int64(free/2), budget.Used())

	w := &usedWhenWritten{budget: budget}
	room.Send(w, http.StatusOK, "text/plain", make([]byte, 10*free))
	require.Equal(t, int64(10*free), w.used)
	require.True(t, w.others, "another organization has its room")
	require.False(t, w.own, "the owner has none")
	require.Zero(t, budget.Used())
	room.Close()
	require.True(t, budget.Take(two, free/2))

	budget = handlers.NewByteBudget(2 * free)
	room = handlers.NewRoom(budget, one)
	require.True(t, room.Grow(free/2))
	w = &usedWhenWritten{budget: budget}
	room.Send(w, http.StatusOK, "text/plain", []byte("small"))
	require.Equal(t, int64(len("small")), w.used, "what was reserved in excess is free before the client reads")
	var none *handlers.Room
	none.Close()
}

// usedWhenWritten notes what is charged while an answer is written.
type usedWhenWritten struct {
	budget      *handlers.ByteBudget
	used        int64
	own, others bool
}

func (*usedWhenWritten) Header() http.Header { return http.Header{} }

func (*usedWhenWritten) WriteHeader(int) {}

func (w *usedWhenWritten) Write(text []byte) (int, error) {
	w.used = w.budget.Used()
	w.own, w.others = w.tries("org_1"), w.tries("org_2")
	return len(text), nil
}

func (w *usedWhenWritten) tries(org string) bool {
	account := handlers.Account{Owner: org}
	if !w.budget.Take(account, 1) {
		return false
	}
	w.budget.Give(account, 1)
	return true
}

func BenchmarkWriteJSON(b *testing.B) {
	for _, size := range []int{200, 2000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			text := bytes.Repeat([]byte("x"), size)
			budget := handlers.NewByteBudget(1 << 30)
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = budget.Send(w, r, http.StatusOK, "text/plain", text)
			})}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			go server.Serve(listener) //nolint:errcheck // it ends with the listener
			defer server.Close()      //nolint:errcheck // as above
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(b, err)
			answers := bufio.NewReader(conn)
			for b.Loop() {
				_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				require.NoError(b, err)
				answer, err := http.ReadResponse(answers, nil)
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(b, err)
			}
		})
	}
}

// A body that is written in pieces may pause for as long as it likes between two of them; a client that reads nothing ends it.
func TestPausesOfABodyInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := handlertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			body := handlers.NewAnswerWriter(w)
			_, _ = body.Write([]byte("some"))
			time.Sleep(time.Minute) //nolint:forbidigo // the fake clock
			if _, err := body.Write(make([]byte, answerBytes)); err == nil {
				t.Error("the client has read nothing")
			}
		}))
		client := handlertest.OpenNoWindow(t, server)
		stream := client.Send(http.MethodGet, "/", "")
		time.Sleep(59 * time.Second) //nolint:forbidigo // the fake clock
		require.False(t, client.Reset(stream))
		time.Sleep(12 * time.Second) //nolint:forbidigo // as above
		synctest.Wait()
		require.True(t, client.Reset(stream))
	})
}

// A client of HTTP/2 that reads nothing from its connection doesn't get the end of its stream either: the connection ends.
func TestStalledConnectionsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, budget := answers(t)
		client := handlertest.OpenStalled(t, server)
		require.Equal(t, "200", client.Status(client.Send(http.MethodGet, "/", "", "X-Org", "org_1")))
		time.Sleep(14 * time.Second) //nolint:forbidigo // the fake clock
		synctest.Wait()
		require.Equal(t, int64(answerBytes), budget.Used())
		time.Sleep(2 * time.Second) //nolint:forbidigo // as above
		synctest.Wait()
		require.Zero(t, budget.Used())
	})
}
