package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// openAIError is the error of another vendor, which an address of the wrong vendor answers.
const openAIError = `{"error":{"message":"no such path","type":"invalid_request_error","param":null,"code":null}}`

// A stream that breaks off, or just ends, before its finish reason is never a complete answer.
func (s Suite) brokenStreams(t tester) {
	for _, reset := range []bool{true, false} {
		for cut := 0; cut <= len(pieces); cut++ {
			p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, _ *http.Request, _ []byte) {
				begin(w, true)
				w.WriteHeader(http.StatusOK)
				for _, part := range s.parts()[:cut] {
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
			require.True(t, e.Elsewhere)
			if cut > 0 {
				require.Equal(t, providers.FailureUnreachable, e.Failure)
				require.Equal(t, strings.Join(pieces[:cut], ""), answer.Text, "what came is handed out")
			}
		}
	}
}

// An error after the status 200 ends the answer, whatever the vendor sends after it.
func (s Suite) errorsInAnswers(t tester) {
	fault := s.Vendor.Error("unhappy with " + apiKey)
	RequireFailure(t, s.body(t, false, fault).Err, providers.FailureRefused, apiKey)
	var line bytes.Buffer
	require.NoError(t, json.Compact(&line, []byte(fault)), "the vendor's error is JSON")
	event := line.String() + "\n"
	if strings.Contains(s.parts()[0], "data:") {
		event = "data: " + event + "\n"
	}
	for at := range len(pieces) + 1 {
		for _, form := range []string{event, fault + "\n"} {
			answer := s.body(t, true, slices.Insert(s.parts(), at, form)...)
			RequireFailure(t, answer.Err, providers.FailureRefused, apiKey)
			require.Equal(t, strings.Join(pieces[:at], ""), answer.Text, "what came is handed out")
		}
	}
}

// Statuses have their class, whatever the body says about it, and no error holds the key. Another endpoint may answer, unless the
// request itself is at fault.
func (s Suite) statuses(t tester) {
	for status, want := range map[int]providers.Failure{
		400: providers.FailureRefused, 401: providers.FailureRefused, 403: providers.FailureRefused, 404: providers.FailureRefused,
		408: providers.FailureTimeout, 413: providers.FailureRequestTooLarge, 429: providers.FailureOverloaded,
		500: providers.FailureRefused, 502: providers.FailureRefused, 503: providers.FailureOverloaded, 504: providers.FailureTimeout,
		529: providers.FailureOverloaded, 302: providers.FailureRefused,
	} {
		for _, body := range []string{s.Vendor.Error("unhappy with " + apiKey), openAIError, "", "<html>", "\x00\xff{"} {
			p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, _ *http.Request, _ []byte) {
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
				require.Equal(t, status != 400 && status != 413, e.Elsewhere, "another endpoint may answer after %d", status)
			}
		}
	}
}

// A body that isn't an answer is refused, with a good status too.
func (s Suite) noAnswers(t tester) {
	for _, body := range []string{
		"", "{", "{}", "<html><body>Down for maintenance</body></html>", "null", "data: {\"\n\n", "data: 7\n\n", "\xff\xfe", openAIError,
	} {
		for _, stream := range []bool{true, false} {
			e := RequireFailure(t, s.body(t, stream, body).Err, providers.FailureRefused, apiKey)
			require.True(t, body == openAIError || e.Elsewhere, body)
		}
	}
}

// A request that may have reached the vendor is not sent again.
func (s Suite) neverAgain(t tester) {
	for _, stream := range []bool{true, false} {
		var requests atomic.Int64
		p := s.provider(t, longTimeouts(), func(http.ResponseWriter, *http.Request, []byte) {
			requests.Add(1)
			panic(http.ErrAbortHandler)
		})
		for range 2 { // the second one goes over a new connection
			e := RequireFailure(t, Ask(t, p, ask(stream)).Err, providers.FailureUnreachable, apiKey)
			require.True(t, e.Elsewhere)
		}
		require.EqualValues(t, 2, requests.Load())
	}
}

// aborted serves with a function that must wait for the end of the request, and returns a channel that is closed after it.
func aborted(serve func(w http.ResponseWriter)) (handler vendorFunc, done <-chan struct{}) {
	ended := make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request, _ []byte) {
		defer close(ended)
		serve(w)
		<-r.Context().Done()
	}, ended
}

// Each wait has its bound.
func (s Suite) timeouts(t tester) {
	tests := []struct {
		name   string
		stream bool
		parts  int // below 0 for the status of an error
		set    func(*providers.Timeouts)
		events providers.Events
		err    error
	}{
		{name: "before a stream", stream: true, set: func(l *providers.Timeouts) { l.FirstByte = hasty }},
		{name: "within a stream", stream: true, parts: 1, set: func(l *providers.Timeouts) { l.Idle = hasty }},
		{name: "over a stream", stream: true, parts: 1, set: func(l *providers.Timeouts) { l.MaxDuration = hasty }},
		{name: "for a whole answer", set: func(l *providers.Timeouts) { l.Response = hasty }},
		{name: "over a whole answer", set: func(l *providers.Timeouts) { l.MaxDuration = hasty }},
		{name: "for an error's body", parts: -1, set: func(l *providers.Timeouts) { l.Idle = hasty }},
		{name: "for a stream's error", stream: true, parts: -1, set: func(l *providers.Timeouts) { l.Idle = hasty }},
	}
	var all sync.WaitGroup
	for i := range tests {
		test := &tests[i]
		limits := longTimeouts()
		test.set(&limits)
		hang, _ := aborted(func(w http.ResponseWriter) {
			begin(w, test.stream)
			if test.parts < 0 {
				w.WriteHeader(http.StatusInternalServerError)
				send(w, "")
				return
			}
			for _, part := range s.parts()[:test.parts] {
				send(w, part)
			}
		})
		p := s.provider(t, limits, hang)
		all.Go(func() { test.events, test.err = p.Open(t.Context(), ask(test.stream)) })
	}
	all.Wait()
	for _, test := range tests {
		if test.err == nil {
			test.err = Read(t, test.events).Err
			test.events.Close()
		}
		want := providers.FailureTimeout
		if test.parts < 0 {
			want = providers.FailureRefused // the status is known already
		}
		require.Error(t, test.err, test.name)
		require.True(t, RequireFailure(t, test.err, want, apiKey).Elsewhere, test.name)
	}
}

func gone(t tester) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(t.Context())
}

// The end of the caller's context ends the call with its cause, and the vendor notices it.
func (s Suite) cancel(t tester) {
	ctx, cancel := gone(t)
	cancel(errGone)
	p := s.provider(t, longTimeouts(), func(http.ResponseWriter, *http.Request, []byte) { t.Error("nothing is sent for a caller who is gone") })
	_, err := p.Open(ctx, ask(true))
	require.ErrorIs(t, RequireFailure(t, err, providers.FailureCanceled), errGone)

	for _, stream := range []bool{true, false} {
		ctx, cancel := gone(t)
		serve, ended := aborted(func(w http.ResponseWriter) {
			if stream {
				begin(w, true)
				send(w, s.parts()[0])
			}
			cancel(errGone)
		})
		events, err := s.provider(t, longTimeouts(), serve).Open(ctx, ask(stream))
		if err == nil {
			err = Read(t, events).Err
			events.Close()
		}
		e := RequireFailure(t, err, providers.FailureCanceled)
		require.ErrorIs(t, e, errGone)
		require.False(t, e.Elsewhere, "nobody waits for another endpoint")
		<-ended
	}
}

// Close ends the vendor's work, may come twice and from another goroutine.
func (s Suite) close(t tester) {
	serve, ended := aborted(func(w http.ResponseWriter) {
		begin(w, true)
		send(w, s.parts()[0])
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
