package providers_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
)

const helloText = "Hello from upstream."

func requireFailure(t *testing.T, err error, want providers.Failure) *providers.Error {
	t.Helper()
	return providertest.RequireFailure(t, err, want, openaitest.Secret, openaitest.OperatorKey)
}

// A stream goes on for minutes after its prompt was sent: the prompt's memory is free by then, which a budget counts on.
func TestSentPromptIsNotKept(t *testing.T) {
	t.Parallel()
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		req := openaitest.Ask("", true)
		text := providers.Quote(strings.Repeat("a", 1<<20))
		freed := make(chan struct{})
		runtime.AddCleanup(&text[0], func(done chan struct{}) { close(done) }, freed)
		req.Messages[0].Content = text
		var sent atomic.Int32
		req.Sent = func() { sent.Add(1) }
		events, err := v.Open(t.Context(), req)
		require.NoError(t, err)
		require.EqualValues(t, 1, sent.Load())
		require.Eventually(t, func() bool {
			runtime.GC()
			select {
			case <-freed:
				return true
			default:
				return false
			}
		}, time.Minute, time.Millisecond)
		came := providertest.Read(t, events)
		require.NoError(t, came.Err)
		events.Close()
	})
}

func TestCloseEndsTheCall(t *testing.T) {
	t.Parallel()
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		events, err := v.Open(t.Context(), openaitest.Ask("ok;gate=never;hold=2", true))
		require.NoError(t, err)
		event, err := events.Next()
		require.NoError(t, err)
		require.Equal(t, "Hello", event.Answer())
		<-v.Reached("never")
		read := make(chan error)
		go func() {
			for {
				if _, err := events.Next(); err != nil {
					read <- err
					return
				}
			}
		}()
		events.Close()
		events.Close()
		requireFailure(t, <-read, providers.FailureCanceled)
		require.True(t, v.Requests()[0].Aborted())
	})
}

func TestCanceledByTheCaller(t *testing.T) {
	t.Parallel()
	gone := errors.New("the client is gone")
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		// Before the call.
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err := v.Open(ctx, openaitest.Ask("ok", true))
		require.ErrorIs(t, requireFailure(t, err, providers.FailureCanceled), gone)
		require.Empty(t, v.Requests())
		// Before the answer, and in the middle of it.
		for name, stream := range map[string]bool{"hang": true, "hang;x=1": false, "stall": true, "truncate;gate=g": false} {
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := make(chan struct{})
			go func() {
				v.Await(t, "scenario:"+name+`"`, 1)
				cancel(gone)
				close(stop)
			}()
			events, err := v.Open(ctx, openaitest.Ask(name, stream))
			if err == nil {
				err = providertest.Read(t, events).Err
				events.Close()
			}
			<-stop
			require.ErrorIs(t, requireFailure(t, err, providers.FailureCanceled), gone, name)
			require.True(t, v.Find(name + `"`)[0].Aborted(), name)
		}
	})
}

// A stream hands each event out when it comes, and says whether the next one is there.
func TestStreamIsIncremental(t *testing.T) {
	t.Parallel()
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		for _, name := range []string{"ok", "gzip", "comments", "crlf", "cr"} {
			events, err := v.Open(t.Context(), openaitest.Ask(name+";gate="+name+";hold=1", true))
			require.NoError(t, err)
			event, err := events.Next()
			require.NoError(t, err)
			require.Equal(t, "Hello", event.Answer())
			<-v.Reached(name)
			require.False(t, events.Buffered(), name)
			v.Release(name)
			came := providertest.Read(t, events)
			require.NoError(t, came.Err)
			require.Equal(t, " from upstream.", came.Text)
			events.Close()
		}
	})
}

// countDials counts the connections a provider makes.
func countDials(p *providers.HTTP) *atomic.Int64 {
	var dials atomic.Int64
	var dialer net.Dialer
	p.Transport().(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return dialer.DialContext(ctx, network, address)
	}
	return &dials
}

// chunked is a body that comes in the given reads.
type chunked struct{ parts []string }

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.parts[0])
	if c.parts[0] = c.parts[0][n:]; c.parts[0] == "" {
		c.parts = c.parts[1:]
	}
	return n, nil
}

func (c *chunked) Close() error { return nil }

// Buffered is true only if the next event is there as a whole; a guess would hold back what the client waits for.
func TestBuffered(t *testing.T) {
	t.Parallel()
	piece := func(text string) string { return `data: {"choices":[{"delta":{"content":"` + text + `"}}]}` + "\n\n" }
	silent := `data: {"choices":[{"delta":{"role":"assistant"}}]}` + "\n\n: comment\n\n"
	events, err := openaitest.BodyOf(t,
		piece("a")+piece("b")+silent+"data: {\"cho", // b is there, c isn't
		`ices":[{"delta":{"content":"c"}}]}`+"\n\n"+silent,
		silent+piece("d")+"data: [DONE]\n\n",
	).Open(t.Context(), openaitest.Ask("ok", true))
	require.NoError(t, err)
	defer events.Close()
	for _, want := range []struct {
		text, finish string
		more         bool
	}{{"a", "", true}, {"b", "", false}, {"c", "", false}, {"d", "", true}, {"", "stop", true}} {
		event, err := events.Next()
		require.NoError(t, err)
		require.Equal(t, want.text, event.Answer())
		require.Equal(t, providers.Event{Quoted: event.Quoted, FinishReason: want.finish}, event)
		require.Equal(t, want.more, events.Buffered(), want.text)
		require.Equal(t, want.more, events.Buffered(), "asking changes nothing")
	}
	_, err = events.Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestWholeAnswerIsBuffered(t *testing.T) {
	t.Parallel()
	v := openaitest.StartVendor(t, 1, openaitest.Long)
	events, err := v.Open(t.Context(), openaitest.Ask("ok", false))
	require.NoError(t, err)
	defer events.Close()
	require.True(t, events.Buffered())
}

// A Content-Encoding that is a lie, or an answer that is broken inside of it.
func TestBrokenGzip(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]providers.Failure{
		"data: plain\n\n":                              providers.FailureRefused,
		"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff":     providers.FailureUnreachable, // cut short
		"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x07": providers.FailureUnreachable, // a reserved block type
		"": providers.FailureUnreachable,
	} {
		for _, stream := range []bool{true, false} {
			p := openaitest.New(t, providers.Config{BaseURL: "http://vendor", Timeouts: openaitest.Long, Transport: openaitest.RoundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: &chunked{[]string{body}}, ContentLength: -1}, nil
			})})
			requireFailure(t, providertest.Ask(t, p, openaitest.Ask("ok", stream)).Err, want)
		}
	}
}
