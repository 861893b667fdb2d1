package providers_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
)

// pipeListener accepts in-memory connections, so that a whole HTTP exchange runs on a fake clock.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// onFakeClock runs a test with a vendor behind in-memory connections and a clock that jumps.
func onFakeClock(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error), f func(t *testing.T, v openaitest.Vendor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		if dial == nil {
			dial = l.dial
		}
		u := &openaitest.Upstream{}
		server := &http.Server{Handler: u, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(l)
		}()
		transport := &http.Transport{DialContext: dial}
		f(t, openaitest.Vendor{Upstream: u, HTTP: openaitest.New(t, providers.Config{BaseURL: "http://vendor/v1", Transport: transport})})
		transport.CloseIdleConnections()
		u.Close()
		require.NoError(t, server.Close())
		<-served
	})
}

// The default limits, each met exactly and each by its own cause (gateways §3 lesson 15).
func TestTimers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scenario string
		stream   bool
		after    time.Duration
		says     string
	}{
		"no headers":                    {"hang", true, 60 * time.Second, "no answer began"},
		"headers, then silence":         {"hang-after-headers", true, 60 * time.Second, "no answer began"},
		"only heartbeats":               {"heartbeats-only;delay=7000", true, 60 * time.Second, "no answer began"},
		"a piece, then silence":         {"stall;delay=10000", true, 80 * time.Second, "paused"},
		"a piece, then heartbeats":      {"heartbeats;delay=7000", true, 74 * time.Second, "paused"},
		"unending":                      {"ok;n=100;delay=30000", true, 10 * time.Minute, "did not end"},
		"non-stream without headers":    {"hang", false, 300 * time.Second, "no complete answer"},
		"non-stream without a body":     {"hang-after-headers", false, 300 * time.Second, "no complete answer"},
		"non-stream with endless bytes": {"heartbeats-only;delay=7000", false, 300 * time.Second, "no complete answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onFakeClock(t, nil, func(t *testing.T, v openaitest.Vendor) {
				started := time.Now()
				came := providertest.Ask(t, v, openaitest.Ask(test.scenario, test.stream))
				e := requireFailure(t, came.Err, providers.FailureTimeout)
				require.Equal(t, test.after, time.Since(started))
				require.Contains(t, e.Error(), test.says)
				require.True(t, v.Requests()[0].Aborted())
			})
		})
	}
}

func TestConnectTimer(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{true, false} {
		var dials atomic.Int64
		hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials.Add(1)
			<-ctx.Done()
			return nil, errors.New("dialing was given up")
		}
		onFakeClock(t, hang, func(t *testing.T, v openaitest.Vendor) {
			started := time.Now()
			e := requireFailure(t, providertest.Ask(t, v, openaitest.Ask("ok", stream)).Err, providers.FailureTimeout)
			require.Equal(t, 5*time.Second, time.Since(started))
			require.Contains(t, e.Error(), "no connection")
			require.EqualValues(t, 1, dials.Load(), "a timeout is not tried again")
		})
	}
}

// What may take its time, may.
func TestPatience(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scenario string
		stream   bool
		after    time.Duration
	}{
		"long answers":               {"ok;n=9;delay=59000", true, 590 * time.Second},
		"a slow whole answer":        {"ok;delay=299000", false, 299 * time.Second},
		"an end without [DONE]":      {"no-done-open", true, 2 * time.Second},
		"[DONE] and an open stream":  {"done-open", true, 0},
		"empty events after the end": {"empty-after-finish;delay=1500", true, 2 * time.Second},
		"text after a finish reason": {"finish-each;delay=1900", true, 5 * 1900 * time.Millisecond},
		"usage late in the grace":    {"usage-late;delay=950", true, 1900 * time.Millisecond},
		"an error with an open body": {"error-hang", false, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onFakeClock(t, nil, func(t *testing.T, v openaitest.Vendor) {
				started := time.Now()
				came := providertest.Ask(t, v, openaitest.Ask(test.scenario, test.stream))
				if came.Err != nil {
					requireFailure(t, came.Err, providers.FailureOverloaded)
				} else {
					require.Equal(t, "stop", came.FinishReason)
				}
				require.Equal(t, test.after, time.Since(started))
			})
		})
	}
}

// The caller's end is the caller's end, also between the finish reason and the vendor's.
func TestCanceledAfterTheFinishReason(t *testing.T) {
	t.Parallel()
	onFakeClock(t, nil, func(t *testing.T, v openaitest.Vendor) {
		gone := errors.New("the client is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) }) // of 2 s of grace
		events, err := v.Open(ctx, openaitest.Ask("no-done-open", true))
		require.NoError(t, err)
		defer events.Close()
		came := providertest.Read(t, events)
		require.Equal(t, helloText, came.Text)
		require.Empty(t, came.FinishReason)
		require.NotNil(t, came.Usage, "what the vendor reported was handed out")
		require.ErrorIs(t, requireFailure(t, came.Err, providers.FailureCanceled), gone)
	})
}

// providers.Usage within the grace counts, however long a slow client takes between two events: only the waits for the vendor are timed.
func TestSlowReaderOfUsage(t *testing.T) {
	t.Parallel()
	onFakeClock(t, nil, func(t *testing.T, v openaitest.Vendor) {
		events, err := v.Open(t.Context(), openaitest.Ask("usage-late;delay=10900", true))
		require.NoError(t, err)
		defer events.Close()
		for _, want := range []providers.Event{{Text: helloText}, {Usage: &providers.Usage{PromptTokens: 1, CompletionTokens: 1}}} {
			event, err := events.Next()
			require.NoError(t, err)
			require.Equal(t, want, providers.Event{Text: event.Answer(), Usage: event.Usage})
			time.Sleep(10 * time.Second) //nolint:forbidigo // on the fake clock
		}
		came := providertest.Read(t, events)
		require.NoError(t, came.Err)
		require.Equal(t, &providers.Usage{PromptTokens: 11, CompletionTokens: 7}, came.Usage)
	})
}

// A client that takes its time is not the vendor's silence.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	onFakeClock(t, nil, func(t *testing.T, v openaitest.Vendor) {
		events, err := v.Open(t.Context(), openaitest.Ask("ok", true))
		require.NoError(t, err)
		defer events.Close()
		text := ""
		for {
			time.Sleep(100 * time.Second) //nolint:forbidigo // on the fake clock
			event, err := events.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			text += event.Answer()
		}
		require.Equal(t, helloText, text)
	})
}

// A connect that failed is tried once more, visibly; nothing else is.
func TestRetriesAFailedConnectOnce(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int64]providers.Failure{1: "", 2: providers.FailureUnreachable} {
		var dialer net.Dialer
		u, baseURL := openaitest.Start(t)
		var dials atomic.Int64
		var logs strings.Builder
		transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) <= failures {
				return nil, errors.New("connection refused")
			}
			return dialer.DialContext(ctx, network, address)
		}}
		t.Cleanup(transport.CloseIdleConnections)
		p := openaitest.New(t, providers.Config{
			BaseURL: baseURL, Transport: transport, Timeouts: openaitest.Long,
			Logger: slog.New(slog.NewTextHandler(&logs, nil)),
		})
		came := providertest.Ask(t, p, openaitest.Ask("ok", false))
		require.EqualValues(t, 2, dials.Load())
		require.Equal(t, 1, strings.Count(logs.String(), "trying once more"))
		if want == "" {
			require.NoError(t, came.Err)
			require.Len(t, u.Requests(), 1)
			continue
		}
		requireFailure(t, came.Err, want)
		require.Empty(t, u.Requests())
	}
}

// dialTimeout is how a dialer's own limit shows.
type dialTimeout struct{}

func (dialTimeout) Error() string   { return "i/o timeout" }
func (dialTimeout) Timeout() bool   { return true }
func (dialTimeout) Temporary() bool { return true }

func TestTransportTimeout(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, &net.OpError{Op: "dial", Err: dialTimeout{}}
	}}
	p := openaitest.New(t, providers.Config{BaseURL: "http://vendor.invalid", Transport: transport, Timeouts: openaitest.Long})
	requireFailure(t, providertest.Ask(t, p, openaitest.Ask("ok", true)).Err, providers.FailureTimeout)
	require.EqualValues(t, 1, dials.Load())
}

// A request that may have been read is never sent again, whatever the transport says (reliability F1, L12).
func TestNeverResends(t *testing.T) {
	t.Parallel()
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		require.NoError(t, providertest.Ask(t, v, openaitest.Ask("ok", false)).Err) // a warm connection
		for _, name := range []string{"drop", "rst", "reset;at=0"} {
			for _, stream := range []bool{true, false} {
				text := name + ";once=" + map[bool]string{true: "s", false: "n"}[stream]
				requireFailure(t, providertest.Ask(t, v, openaitest.Ask(text, stream)).Err, providers.FailureUnreachable)
				require.Len(t, v.Find(text), 1, text)
			}
		}
	})
	// A transport without traces that broke after it had read the request.
	calls := 0
	p := openaitest.New(t, providers.Config{BaseURL: "http://vendor", Timeouts: openaitest.Long, Transport: openaitest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		calls++
		require.Nil(t, r.GetBody)
		_, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return nil, errors.New("broken")
	})})
	requireFailure(t, providertest.Ask(t, p, openaitest.Ask("ok", true)).Err, providers.FailureUnreachable)
	require.Equal(t, 1, calls)
}

// The prompt's memory belongs to the caller again when the call is over, even if the transport goes on reading.
func TestGivesThePromptBack(t *testing.T) {
	t.Parallel()
	var kept io.Reader
	p := openaitest.New(t, providers.Config{BaseURL: "http://vendor", Timeouts: openaitest.Long, Transport: openaitest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		kept = r.Body
		var some [10]byte
		n, err := kept.Read(some[:])
		require.NoError(t, err)
		require.Equal(t, `{"model":"`, string(some[:n]))
		return &http.Response{StatusCode: 400, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}, nil
	})})
	requireFailure(t, providertest.Ask(t, p, openaitest.Ask("ok", true)).Err, providers.FailureRefused)
	_, err := kept.Read(make([]byte, 1))
	require.ErrorIs(t, err, providers.ErrTakenBack)
}
