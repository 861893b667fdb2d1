// Package providertest checks adapters of package providers against the contract. A test of an adapter calls [Run]:
//
//	func TestContract(t *testing.T) {
//		providertest.Run(t, providertest.Suite{Driver: Driver{}, Vendor: &providertest.Vendor{Answer: …, Stream: …, Error: …}})
//	}
//
// The suite plays the vendor over HTTP; the adapter's package only writes what its vendor would send. What is special about
// the dialect (usage, odd forms, error codes) is for the adapter's own tests.
package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Suite describes an adapter to the checks.
type Suite struct {
	Driver providers.Driver
	// Options are values for the driver's options, as in [providers.Config].
	Options map[string]string
	// Vendor writes the vendor's response. It is nil for a local protocol.
	Vendor *Vendor
}

// Vendor writes in a vendor's dialect.
type Vendor struct {
	// Answer returns the body of a whole answer.
	Answer func(text, finishReason string, usage providers.Usage) string
	// Stream returns the body of a stream in parts: one for each piece of the text, which the adapter must be able to read
	// when it comes, and at least one more that ends the answer.
	Stream func(pieces []string, finishReason string, usage providers.Usage) []string
	// Error returns the body of an error status.
	Error func(message string) string
}

const (
	apiKey  = "sk-conformance-0123456789"
	marker  = "conformance-marker"
	patient = time.Minute
	hasty   = 50 * time.Millisecond
)

var (
	errGone = errors.New("the caller is gone")
	usual   = providers.Usage{PromptTokens: 11, CompletionTokens: 7}
	pieces  = []string{"Hello", " from", " 日本語 👋\n"}
)

// Run checks the adapter.
func Run(t *testing.T, s Suite) {
	t.Helper()
	t.Run("description", s.description)
	if s.Driver.Describe().Local {
		s.local(t)
		return
	}
	require.NotNil(t, s.Vendor, "only a local protocol has no vendor")
	for name, check := range map[string]func(*testing.T){
		"request": s.request, "whole answer": s.wholeAnswer, "stream": s.stream, "broken streams": s.brokenStreams,
		"statuses": s.statuses, "no answers": s.noAnswers, "never sent again": s.neverAgain, "timeouts": s.timeouts,
		"cancel": s.cancel, "close": s.close, "concurrency": s.concurrency,
	} {
		t.Run(name, check)
	}
}

func ask(stream bool) *providers.Request {
	return &providers.Request{
		Model: "vendor-model", MaxTokensField: "max_tokens", MaxTokens: 100, Stream: stream, APIKey: apiKey,
		Messages: []providers.Message{{Role: "user", Content: providers.Quote(marker + " \"\n")}},
	}
}

// provider makes the adapter for a vendor that answers with serve.
func (s Suite) provider(t *testing.T, timeouts providers.Timeouts, serve http.HandlerFunc) providers.Provider {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			serve(w, r)
		}
	}))
	t.Cleanup(server.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return s.new(t, &providers.Config{BaseURL: server.URL + "/v1", Transport: transport, Timeouts: timeouts})
}

func (s Suite) new(t *testing.T, config *providers.Config) providers.Provider {
	t.Helper()
	config.Options = s.Options
	p, err := s.Driver.New(config)
	require.NoError(t, err)
	return p
}

func longTimeouts() providers.Timeouts {
	return providers.Timeouts{Connect: patient, FirstByte: patient, Idle: patient, Response: patient, MaxDuration: patient}
}

// send writes a part of an answer.
func send(w http.ResponseWriter, part string) {
	_, _ = io.WriteString(w, part)
	_ = http.NewResponseController(w).Flush()
}

func begin(w http.ResponseWriter, stream bool) {
	w.Header().Set("Content-Type", "application/json")
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
}

// answers serves a good answer.
func (s Suite) answers(stream bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		begin(w, stream)
		if !stream {
			send(w, s.Vendor.Answer(strings.Join(pieces, ""), "stop", usual))
			return
		}
		for _, part := range s.Vendor.Stream(pieces, "stop", usual) {
			send(w, part)
		}
	}
}

// aborted serves with a function that must wait for the end of the request, and returns a channel that is closed after it.
func aborted(serve http.HandlerFunc) (handler http.HandlerFunc, done <-chan struct{}) {
	ended := make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		serve(w, r)
		<-r.Context().Done()
	}, ended
}

func requireGood(t *testing.T, answer Answer) {
	t.Helper()
	require.NoError(t, answer.Err)
	require.Equal(t, strings.Join(pieces, ""), answer.Text)
	require.Equal(t, "stop", answer.FinishReason)
	if answer.Usage != nil {
		require.Equal(t, usual, *answer.Usage)
	}
}

func (s Suite) description(t *testing.T) {
	require.NoError(t, s.Driver.Describe().Check())
}

// The prompt and the key arrive; without a key none is sent.
func (s Suite) request(t *testing.T) {
	for _, stream := range []bool{true, false} {
		var seen []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			var all strings.Builder
			_ = r.Header.Write(&all)
			seen = append(seen, r.URL.RequestURI()+"\n"+all.String()+"\n"+string(body))
			s.answers(stream)(w, r)
		}))
		t.Cleanup(server.Close)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		p := s.new(t, &providers.Config{BaseURL: server.URL + "/some/base", Transport: transport, Timeouts: longTimeouts()})
		requireGood(t, Ask(t, p, ask(stream)))
		without := ask(stream)
		without.APIKey = ""
		requireGood(t, Ask(t, p, without))
		require.Len(t, seen, 2, "one request is one on the wire")
		for i, request := range seen {
			require.True(t, strings.HasPrefix(request, "/some/base/"), "the base URL's path is kept")
			require.Contains(t, request, marker)
			require.Contains(t, request, "vendor-model")
			require.Equal(t, i == 0, strings.Contains(request, apiKey))
		}
	}
}

func (s Suite) wholeAnswer(t *testing.T) {
	p := s.provider(t, longTimeouts(), s.answers(false))
	events, err := p.Open(t.Context(), ask(false))
	require.NoError(t, err)
	defer events.Close()
	require.True(t, events.Buffered(), "a whole answer is there when Open returns")
	requireGood(t, Read(t, events))
}

// Each piece is handed out when it comes, and Buffered is false while the vendor is waited for.
func (s Suite) stream(t *testing.T) {
	next := make(chan struct{})
	p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, r *http.Request) {
		begin(w, true)
		for _, part := range s.Vendor.Stream(pieces, "stop", usual) {
			send(w, part)
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	events, err := p.Open(t.Context(), ask(true))
	require.NoError(t, err)
	defer events.Close()
	for _, piece := range pieces {
		text := ""
		for text != piece {
			event, err := events.Next()
			require.NoError(t, err)
			require.Empty(t, event.FinishReason)
			text += event.Answer()
			require.True(t, strings.HasPrefix(piece, text), "%q is no piece of the answer", text)
		}
		require.False(t, events.Buffered(), "the vendor has sent nothing more")
		next <- struct{}{}
	}
	close(next)
	rest := Read(t, events)
	require.NoError(t, rest.Err)
	require.Empty(t, rest.Text)
	require.Equal(t, "stop", rest.FinishReason)
}

// A stream that breaks off, or just ends, before its finish reason is never a complete answer.
func (s Suite) brokenStreams(t *testing.T) {
	for _, reset := range []bool{true, false} {
		for cut := 0; cut <= len(pieces); cut++ {
			p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, _ *http.Request) {
				begin(w, true)
				w.WriteHeader(http.StatusOK)
				for _, part := range s.Vendor.Stream(pieces, "stop", usual)[:cut] {
					send(w, part)
				}
				if reset {
					panic(http.ErrAbortHandler)
				}
			})
			answer := Ask(t, p, ask(true))
			require.Error(t, answer.Err, "cut after %d parts, reset %v", cut, reset)
			require.Empty(t, answer.FinishReason)
			var e *providers.Error
			require.ErrorAs(t, answer.Err, &e)
			if cut > 0 {
				require.Equal(t, providers.FailureUnreachable, e.Failure)
				require.Equal(t, strings.Join(pieces[:cut], ""), answer.Text, "what came is handed out")
			}
		}
	}
}

// Statuses have their class, whatever the body says about it, and no error holds the key.
func (s Suite) statuses(t *testing.T) {
	for status, want := range map[int]providers.Failure{
		400: providers.FailureRefused, 401: providers.FailureRefused, 403: providers.FailureRefused, 404: providers.FailureRefused,
		408: providers.FailureTimeout, 413: providers.FailureRequestTooLarge, 429: providers.FailureOverloaded,
		500: providers.FailureRefused, 503: providers.FailureOverloaded, 504: providers.FailureTimeout,
		302: providers.FailureRefused,
	} {
		for _, body := range []string{s.Vendor.Error("wrong key " + apiKey), "", "<html>", "\x00\xff{"} {
			p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				send(w, body)
			})
			for _, stream := range []bool{true, false} {
				answer := Ask(t, p, ask(stream))
				e := RequireFailure(t, answer.Err, want, apiKey)
				require.Equal(t, status, e.Status)
				if want == providers.FailureOverloaded {
					require.Equal(t, 7*time.Second, e.RetryAfter)
				}
				if status < 500 && want == providers.FailureRefused {
					require.True(t, e.Permanent, "%d can't succeed later", status)
				}
			}
		}
	}
}

// What isn't an answer is refused, with a good status too.
func (s Suite) noAnswers(t *testing.T) {
	for _, body := range []string{"", "{", "<html><body>Down for maintenance</body></html>", "null", "data: {\"\n\n", "data: 7\n\n", "\xff\xfe"} {
		for _, stream := range []bool{true, false} {
			p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, _ *http.Request) {
				begin(w, stream)
				send(w, body)
			})
			RequireFailure(t, Ask(t, p, ask(stream)).Err, providers.FailureRefused, apiKey)
		}
	}
}

// A request that may have reached the vendor is not sent again.
func (s Suite) neverAgain(t *testing.T) {
	for _, stream := range []bool{true, false} {
		var mu sync.Mutex
		requests := 0
		p := s.provider(t, longTimeouts(), func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			requests++
			panic(http.ErrAbortHandler)
		})
		for range 2 { // the second one goes over a new connection
			RequireFailure(t, Ask(t, p, ask(stream)).Err, providers.FailureUnreachable, apiKey)
		}
		mu.Lock()
		require.Equal(t, 2, requests)
		mu.Unlock()
	}
}

// Each wait has its bound.
func (s Suite) timeouts(t *testing.T) {
	for name, test := range map[string]struct {
		stream bool
		parts  int
		set    func(*providers.Timeouts)
	}{
		"before a stream":      {true, 0, func(l *providers.Timeouts) { l.FirstByte = hasty }},
		"within a stream":      {true, 1, func(l *providers.Timeouts) { l.Idle = hasty }},
		"over a stream":        {true, 1, func(l *providers.Timeouts) { l.MaxDuration = hasty }},
		"for a whole answer":   {false, 0, func(l *providers.Timeouts) { l.Response = hasty }},
		"over a whole answer":  {false, 0, func(l *providers.Timeouts) { l.MaxDuration = hasty }},
		"for an error's body":  {false, -1, func(l *providers.Timeouts) { l.Idle = hasty }},
		"for a stream's error": {true, -1, func(l *providers.Timeouts) { l.Idle = hasty }},
	} {
		limits := longTimeouts()
		test.set(&limits)
		hang, _ := aborted(func(w http.ResponseWriter, _ *http.Request) {
			begin(w, test.stream)
			switch {
			case test.parts < 0:
				w.WriteHeader(http.StatusInternalServerError)
				send(w, "")
			case test.parts > 0:
				for _, part := range s.Vendor.Stream(pieces, "stop", usual)[:test.parts] {
					send(w, part)
				}
			}
		})
		err := Ask(t, s.provider(t, limits, hang), ask(test.stream)).Err
		want := providers.FailureTimeout
		if test.parts < 0 {
			want = providers.FailureRefused // the status is known already
		}
		require.Error(t, err, name)
		RequireFailure(t, err, want, apiKey)
	}
}

// The end of the caller's context ends the call with its cause, and the vendor notices it.
func (s Suite) cancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	p := s.provider(t, longTimeouts(), func(http.ResponseWriter, *http.Request) { t.Error("nothing is sent for a caller who is gone") })
	_, err := p.Open(ctx, ask(true))
	require.ErrorIs(t, RequireFailure(t, err, providers.FailureCanceled), errGone)

	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		serve, ended := aborted(func(w http.ResponseWriter, _ *http.Request) {
			if stream {
				begin(w, true)
				send(w, s.Vendor.Stream(pieces, "stop", usual)[0])
			}
			cancel(errGone)
		})
		events, err := s.provider(t, longTimeouts(), serve).Open(ctx, ask(stream))
		if err == nil {
			err = Read(t, events).Err
			events.Close()
		}
		require.ErrorIs(t, RequireFailure(t, err, providers.FailureCanceled), errGone)
		<-ended
	}
}

// Close ends the vendor's work, may come twice and from another goroutine.
func (s Suite) close(t *testing.T) {
	serve, ended := aborted(func(w http.ResponseWriter, _ *http.Request) {
		begin(w, true)
		send(w, s.Vendor.Stream(pieces, "stop", usual)[0])
	})
	events, err := s.provider(t, longTimeouts(), serve).Open(t.Context(), ask(true))
	require.NoError(t, err)
	go func() {
		events.Close()
		events.Close()
	}()
	RequireFailure(t, Read(t, events).Err, providers.FailureCanceled)
	<-ended
}

// Calls at the same time don't disturb each other.
func (s Suite) concurrency(t *testing.T) {
	for _, stream := range []bool{true, false} {
		p := s.provider(t, longTimeouts(), s.answers(stream))
		t.Run(fmt.Sprintf("stream %t", stream), func(t *testing.T) {
			for range 16 {
				t.Run("call", func(t *testing.T) {
					t.Parallel()
					requireGood(t, Ask(t, p, ask(stream)))
				})
			}
		})
	}
}

// local checks a protocol without a network.
func (s Suite) local(t *testing.T) {
	p := s.new(t, &providers.Config{})
	for _, stream := range []bool{true, false} {
		answer := Ask(t, p, ask(stream))
		require.NoError(t, answer.Err)
		require.NotEmpty(t, answer.FinishReason)

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errGone)
		_, err := p.Open(ctx, ask(stream))
		require.ErrorIs(t, RequireFailure(t, err, providers.FailureCanceled), errGone)

		events, err := p.Open(t.Context(), ask(stream))
		require.NoError(t, err)
		events.Close()
		events.Close()
		if err := Read(t, events).Err; err != nil {
			RequireFailure(t, err, providers.FailureCanceled)
		}
	}
}
