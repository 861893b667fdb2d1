package providertest

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Answer is an answer that was read to its end.
type Answer struct {
	Text, FinishReason string
	// Usage is the last reported usage.
	Usage *providers.Usage
	// Err is nil after a complete answer.
	Err error
}

// Ask sends the request and reads the answer.
func Ask(t testing.TB, p providers.Provider, req *providers.Request) Answer {
	t.Helper()
	events, err := p.Open(t.Context(), req)
	if err != nil {
		require.Nil(t, events, "Open returns events or an error")
		return Answer{Err: err}
	}
	defer events.Close()
	return Read(t, events)
}

// Read reads the rest of an answer, and checks that the events keep their order and the end stays the end.
func Read(t testing.TB, events providers.Events) (answer Answer) {
	t.Helper()
	for {
		event, err := events.Next()
		if err != nil {
			again, same := events.Next()
			require.Equal(t, providers.Event{}, again)
			require.Equal(t, err, same, "the end stays the end")
			if !errors.Is(err, io.EOF) || errors.As(err, new(*providers.Error)) {
				answer.Err = err
			}
			return answer
		}
		require.NotEqual(t, providers.Event{}, event, "an event has content")
		require.Empty(t, answer.FinishReason, "nothing follows the finish reason")
		if event.Quoted != nil {
			require.Empty(t, event.Text, "a piece comes once")
			require.Equal(t, string(providers.Quote(event.Answer())), string(event.Quoted))
		}
		answer.Text += event.Answer()
		answer.FinishReason = event.FinishReason
		if event.Usage != nil {
			answer.Usage = event.Usage
		}
	}
}

// RequireFailure checks that err is an error of the contract, of the given class, and returns it. Secrets may be nowhere in
// it.
func RequireFailure(t testing.TB, err error, class providers.Failure, secrets ...string) *providers.Error {
	t.Helper()
	var e *providers.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, class, e.Failure, "%v", err)
	require.LessOrEqual(t, len(e.Detail), 512)
	if class != providers.FailureOverloaded {
		require.Zero(t, e.RetryAfter)
	}
	for _, secret := range secrets {
		require.NotContains(t, err.Error(), secret)
		require.NotContains(t, e.Detail, secret)
	}
	return e
}
