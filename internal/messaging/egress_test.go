package messaging_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// listen serves raw connections, one after the other, with what serve does with each.
func listen(t *testing.T, serve func(n int, conn net.Conn, r *bufio.Reader)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(n, conn, bufio.NewReader(conn))
			conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		done.Wait()
	})
	return "http://" + listener.Addr().String()
}

func readRequest(r *bufio.Reader) {
	if req, err := http.ReadRequest(r); err == nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

const goodAnswer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 38\r\n\r\n" +
	`{"recipient_id":"1","message_id":"m1"}`

func TestNoConnectionIsRetried(t *testing.T) {
	t.Parallel()
	server := platformfake.Start(t)
	client := server.Client(t)
	server.Down()
	_, err := client.Send(t.Context(), outgoing(social.PhotoDM))
	require.Equal(t, platforms.Retry, requireFailure(t, err).Class)
	server.Up(t)
	_, err = client.Send(t.Context(), outgoing(social.PhotoDM))
	require.NoError(t, err)
}

func TestUnresolvableHostIsRetried(t *testing.T) {
	t.Parallel()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: secretToken}
	}}
	client := over(t, transport)
	_, err := client.Send(t.Context(), outgoing(bot.Type))
	failure := requireFailure(t, err)
	require.Equal(t, platforms.Retry, failure.Class)
	require.ErrorContains(t, failure.Cause, "resolved")
}

func TestUntrustedTLSIsRetried(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	_, err := clientOf(t, server.URL).Send(t.Context(), outgoing(bot.Type))
	failure := requireFailure(t, err)
	require.Equal(t, platforms.Retry, failure.Class)
	require.ErrorContains(t, failure.Cause, "TLS")
}

func TestNoTLSThereIsRetried(t *testing.T) {
	t.Parallel()
	base := listen(t, func(_ int, conn net.Conn, r *bufio.Reader) {
		_, _ = r.ReadByte()
		_, _ = io.WriteString(conn, "HTTP/1.1 400 "+secretToken+"\r\n\r\n")
	})
	_, err := clientOf(t, strings.Replace(base, "http", "https", 1)).Send(t.Context(), outgoing(bot.Type))
	require.Equal(t, platforms.Retry, requireFailure(t, err).Class)
}

// A failure after the request was written leaves the delivery unknown.
func TestBrokenAnswersAreUnknown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":       "",
		"not HTTP":      "SSH-2.0-" + secretToken + "\r\n\r\n",
		"half a header": "HTTP/1.1 200 OK\r\nContent-",
		"half a body":   "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"message_id\":\"m1\"}",
		"half an error": "HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{\"error\":{\"code\":2}}",
		"huge headers":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"too long": "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{\"message_id\":\"m1\"}" +
			strings.Repeat(" ", 100000-19),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := listen(t, func(_ int, conn net.Conn, r *bufio.Reader) {
				readRequest(r)
				_, _ = io.WriteString(conn, answer)
			})
			_, err := clientOf(t, base).Send(t.Context(), outgoing(social.Messenger))
			require.Equal(t, platforms.Unknown, requireFailure(t, err).Class)
		})
	}
}

// A connection from the pool that the platform closes with the next request in hand: the request went out, so it is not
// sent again, neither by us nor by net/http.
func TestReusedConnectionThatBreaksIsUnknown(t *testing.T) {
	t.Parallel()
	requests := make(chan int, 10)
	base := listen(t, func(n int, conn net.Conn, r *bufio.Reader) {
		readRequest(r)
		requests <- n
		_, _ = io.WriteString(conn, goodAnswer)
		if _, err := r.Peek(1); err == nil {
			readRequest(r)
			requests <- n
		}
	})
	client := clientOf(t, base)
	_, err := client.Send(t.Context(), outgoing(social.PhotoDM))
	require.NoError(t, err)
	_, err = client.Send(t.Context(), outgoing(social.PhotoDM))
	require.Equal(t, platforms.Unknown, requireFailure(t, err).Class)
	require.Len(t, requests, 2)
	require.Zero(t, <-requests+<-requests, "both on the first connection")
}

// roundTripper is a transport that calls no hooks.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportWithoutHooksIsNeverRetried(t *testing.T) {
	t.Parallel()
	client := over(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		return nil, errors.New("Post \"" + r.URL.String() + "\": connection refused")
	}))
	_, err := client.Send(t.Context(), outgoing(bot.Type))
	require.Equal(t, platforms.Unknown, requireFailure(t, err).Class)
}

// How far the request got decides, as the transport's hooks tell it.
func TestOnlyWhatSurelyWasNotSentIsRetried(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		connected, wrote, ended bool
		want                    platforms.Class
	}{
		"no connection":                          {want: platforms.Retry},
		"no connection in time":                  {ended: true, want: platforms.Retry},
		"a kept connection was closed before":    {connected: true, want: platforms.Retry},
		"our time ran out with one in hand":      {connected: true, ended: true, want: platforms.Unknown},
		"the headers were written":               {connected: true, wrote: true, want: platforms.Unknown},
		"the headers were written, time ran out": {connected: true, wrote: true, ended: true, want: platforms.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			client := over(t, roundTripper(func(r *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(r.Context())
				trace.GetConn("platform.test:443")
				if test.connected {
					trace.GotConn(httptrace.GotConnInfo{Reused: true})
				}
				if test.wrote {
					trace.WroteHeaders()
				}
				if test.ended {
					cancel()
				}
				return nil, errors.New("broken by " + secretToken)
			}))
			defer cancel()
			_, err := client.Send(ctx, outgoing(bot.Type))
			require.Equal(t, test.want, requireFailure(t, err).Class)
		})
	}
}

func TestRequestsCannotBeRepeatedByTheTransport(t *testing.T) {
	t.Parallel()
	client := over(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.GetBody != nil || r.Body == nil || r.ContentLength <= 0 {
			return nil, errors.New("repeatable")
		}
		body := `{"ok":true,"result":{"message_id":1}}`
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}))
	_, err := client.Send(t.Context(), outgoing(bot.Type))
	require.NoError(t, err)
}

// pipeTransport connects to a server that reads and never answers, inside of a synctest bubble.
func pipeTransport(connect bool) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if !connect {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		return ours, nil
	}}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		connect bool
		timeout time.Duration // 0: the default
		want    platforms.Class
	}{
		"no answer":             {true, time.Second, platforms.Unknown},
		"no answer, default":    {true, 0, platforms.Unknown},
		"no connection in time": {false, time.Second, platforms.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				transport := pipeTransport(test.connect)
				client := setOf(t, messaging.Config{
					Client:  platforms.NewClient(platforms.ClientConfig{Transport: transport, Timeout: test.timeout}),
					Options: map[string]map[string]string{"bot": {"api_base": "http://platform.test"}},
				})
				start := time.Now()
				_, err := client.Send(t.Context(), outgoing(bot.Type))
				failure := requireFailure(t, err)
				require.Equal(t, test.want, failure.Class)
				require.ErrorContains(t, failure, "in time")
				limit := test.timeout
				if limit == 0 {
					limit = platforms.DefaultTimeout
				}
				require.Equal(t, limit, time.Since(start))
				transport.CloseIdleConnections()
			})
		})
	}
}

func TestCallerEndsTheCall(t *testing.T) {
	t.Parallel()
	server := platformfake.Start(t)
	server.Script("", platformfake.Hang)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		server.WaitAttempts(t, "", 1)
		cancel()
	}()
	_, err := server.Client(t).Send(ctx, outgoing(bot.Type))
	require.Equal(t, platforms.Unknown, requireFailure(t, err).Class)
	require.ErrorIs(t, err, context.Canceled)

	_, err = server.Client(t).Send(ctx, outgoing(bot.Type))
	require.Equal(t, platforms.Retry, requireFailure(t, err).Class, "nothing is sent under a context that has ended")
	require.Equal(t, 1, server.Attempts(""))
}

func TestFaultyAddressesAreNamedWithoutQuotingThem(t *testing.T) {
	t.Parallel()
	_, err := messaging.New(messaging.Config{Drivers: builtin.Platforms(), Options: map[string]map[string]string{
		"bot":       {"api_base": "ftp://x"},
		"social":    {"api_base": "https://user:" + secretToken + "@host"},
		"localchat": {"auth_base": "https://host/?q=" + secretToken},
		"market_a":  {"api_base": "https://"},
		"market_b":  {"api_base": ":"},
	}})
	require.Error(t, err)
	require.NotContains(t, err.Error(), secretToken)
	require.Len(t, strings.Split(err.Error(), "\n"), 5)
	setOf(t, messaging.Config{Options: map[string]map[string]string{
		"market_a": {"api_base": "http://10.0.0.1:8080/prefix/"}, "localchat": {"auth_base": "http://[::1]:1"},
	}})
}
