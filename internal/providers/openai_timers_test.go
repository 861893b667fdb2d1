package providers

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

	"github.com/caddy-svc/caddy-svc/internal/providers/providertest"
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
func onFakeClock(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error), f func(t *testing.T, v vendor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		if dial == nil {
			dial = l.dial
		}
		u := &providertest.Upstream{}
		server := &http.Server{Handler: u, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(l)
		}()
		transport := &http.Transport{DialContext: dial}
		f(t, vendor{u, NewOpenAI(OpenAIConfig{BaseURL: "http://vendor/v1", Transport: transport})})
		transport.CloseIdleConnections()
		u.Close()
		require.NoError(t, server.Close())
		<-served
	})
}

// The default limits, each met exactly and each by its own cause (gateways §3 lesson 15).
func TestOpenAITimers(t *testing.T) {
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
			onFakeClock(t, nil, func(t *testing.T, v vendor) {
				started := time.Now()
				came := call1(t, v, scenario(test.scenario, test.stream))
				e := requireFailure(t, came.err, FailureTimeout)
				require.Equal(t, test.after, time.Since(started))
				require.Contains(t, e.Error(), test.says)
				require.True(t, v.Requests()[0].Aborted())
			})
		})
	}
}

func TestOpenAIConnectTimer(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{true, false} {
		var dials atomic.Int64
		hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials.Add(1)
			<-ctx.Done()
			return nil, errors.New("dialing was given up")
		}
		onFakeClock(t, hang, func(t *testing.T, v vendor) {
			started := time.Now()
			e := requireFailure(t, call1(t, v, scenario("ok", stream)).err, FailureTimeout)
			require.Equal(t, 5*time.Second, time.Since(started))
			require.Contains(t, e.Error(), "no connection")
			require.EqualValues(t, 1, dials.Load(), "a timeout is not tried again")
		})
	}
}

// What may take its time, may.
func TestOpenAIPatience(t *testing.T) {
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
			onFakeClock(t, nil, func(t *testing.T, v vendor) {
				started := time.Now()
				came := call1(t, v, scenario(test.scenario, test.stream))
				if came.err != nil {
					requireFailure(t, came.err, FailureOverloaded)
				} else {
					require.Equal(t, "stop", came.finish)
				}
				require.Equal(t, test.after, time.Since(started))
			})
		})
	}
}

// The caller's end is the caller's end, also between the finish reason and the vendor's.
func TestOpenAICanceledAfterTheFinishReason(t *testing.T) {
	t.Parallel()
	onFakeClock(t, nil, func(t *testing.T, v vendor) {
		gone := errors.New("the client is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) }) // of 2 s of grace
		events, err := v.Open(ctx, scenario("no-done-open", true))
		require.NoError(t, err)
		defer events.Close()
		came := readOut(t, events)
		require.Equal(t, helloText, came.text)
		require.Empty(t, came.finish)
		require.NotNil(t, came.usage, "what the vendor reported was handed out")
		require.ErrorIs(t, requireFailure(t, came.err, FailureCanceled), gone)
	})
}

// Usage within the grace counts, however long a slow client takes between two events: only the waits for the vendor are timed.
func TestOpenAISlowReaderOfUsage(t *testing.T) {
	t.Parallel()
	onFakeClock(t, nil, func(t *testing.T, v vendor) {
		events, err := v.Open(t.Context(), scenario("usage-late;delay=10900", true))
		require.NoError(t, err)
		defer events.Close()
		for _, want := range []Event{{Text: helloText}, {Usage: &Usage{PromptTokens: 1, CompletionTokens: 1}}} {
			event, err := events.Next()
			require.NoError(t, err)
			require.Equal(t, want, event)
			time.Sleep(10 * time.Second) //nolint:forbidigo // on the fake clock
		}
		came := readOut(t, events)
		require.NoError(t, came.err)
		require.Equal(t, &Usage{PromptTokens: 11, CompletionTokens: 7}, came.usage)
	})
}

// A client that takes its time is not the vendor's silence.
func TestOpenAISlowReader(t *testing.T) {
	t.Parallel()
	onFakeClock(t, nil, func(t *testing.T, v vendor) {
		events, err := v.Open(t.Context(), scenario("ok", true))
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
			text += event.Text
		}
		require.Equal(t, helloText, text)
	})
}

// A connect that failed is tried once more, visibly; nothing else is.
func TestOpenAIRetriesAFailedConnectOnce(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int64]Failure{1: "", 2: FailureUnreachable} {
		var dialer net.Dialer
		u, baseURL := providertest.Start(t)
		var dials atomic.Int64
		var logs strings.Builder
		transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) <= failures {
				return nil, errors.New("connection refused")
			}
			return dialer.DialContext(ctx, network, address)
		}}
		t.Cleanup(transport.CloseIdleConnections)
		p := NewOpenAI(OpenAIConfig{
			BaseURL: baseURL, Transport: transport, Timeouts: long,
			Logger: slog.New(slog.NewTextHandler(&logs, nil)),
		})
		came := call1(t, p, scenario("ok", false))
		require.EqualValues(t, 2, dials.Load())
		require.Equal(t, 1, strings.Count(logs.String(), "trying once more"))
		if want == "" {
			require.NoError(t, came.err)
			require.Len(t, u.Requests(), 1)
			continue
		}
		requireFailure(t, came.err, want)
		require.Empty(t, u.Requests())
	}
}

// dialTimeout is how a dialer's own limit shows.
type dialTimeout struct{}

func (dialTimeout) Error() string   { return "i/o timeout" }
func (dialTimeout) Timeout() bool   { return true }
func (dialTimeout) Temporary() bool { return true }

func TestOpenAITransportTimeout(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, &net.OpError{Op: "dial", Err: dialTimeout{}}
	}}
	p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor.invalid", Transport: transport, Timeouts: long})
	requireFailure(t, call1(t, p, scenario("ok", true)).err, FailureTimeout)
	require.EqualValues(t, 1, dials.Load())
}

// A request that may have been read is never sent again, whatever the transport says (reliability F1, L12).
func TestOpenAINeverResends(t *testing.T) {
	t.Parallel()
	eachVersion(t, long, func(t *testing.T, v vendor) {
		require.NoError(t, call1(t, v, scenario("ok", false)).err) // a warm connection
		for _, name := range []string{"drop", "rst", "reset;at=0"} {
			for _, stream := range []bool{true, false} {
				text := name + ";once=" + map[bool]string{true: "s", false: "n"}[stream]
				requireFailure(t, call1(t, v, scenario(text, stream)).err, FailureUnreachable)
				require.Len(t, v.Find(text), 1, text)
			}
		}
	})
	// A transport without traces that broke after it had read the request.
	calls := 0
	p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		calls++
		require.Nil(t, r.GetBody)
		_, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return nil, errors.New("broken")
	})})
	requireFailure(t, call1(t, p, scenario("ok", true)).err, FailureUnreachable)
	require.Equal(t, 1, calls)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The prompt's memory belongs to the caller again when the call is over, even if the transport goes on reading.
func TestOpenAIGivesThePromptBack(t *testing.T) {
	t.Parallel()
	var kept io.Reader
	p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		kept = r.Body
		var some [10]byte
		n, err := kept.Read(some[:])
		require.NoError(t, err)
		require.Equal(t, `{"model":"`, string(some[:n]))
		return &http.Response{StatusCode: 400, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}, nil
	})})
	requireFailure(t, call1(t, p, scenario("ok", true)).err, FailureRefused)
	_, err := kept.Read(make([]byte, 1))
	require.ErrorIs(t, err, errTakenBack)
}

// A stream that sends more than any answer can be long ends as no answer.
func TestCappedReader(t *testing.T) {
	t.Parallel()
	got, err := io.ReadAll(&cappedReader{strings.NewReader("12345"), 5})
	require.NoError(t, err)
	require.Equal(t, "12345", string(got))
	_, err = io.ReadAll(&cappedReader{strings.NewReader("123456"), 5})
	require.ErrorIs(t, err, errAnswerTooLarge)
}
