package gateway_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

func keyed(r *gateway.Request) { r.IdempotencyKey = "order-1" }

func answered() []step {
	return []step{text("one "), text("two"), finish("stop"), usage(10, 20, 0)}
}

// TestReplay: the next use of a key gets the same id, text, usage and charge in both response forms, and neither the
// vendor nor the wallet hears of it. It works with an empty wallet, after a price change, and with
// the organization's own key.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(map[bool]string{true: "stream", false: "answer"}[stream], func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: answered()})
			call := func() (*gateway.Result, *client) {
				c := newClient()
				var sink gateway.Sink
				if stream {
					sink = c
				}
				result, err := f.Call(t.Context(), request(keyed, func(r *gateway.Request) { r.Stream = stream }), sink)
				require.NoError(t, err)
				return result, c
			}
			first, firstClient := call()
			require.False(t, first.Replayed)
			require.EqualValues(t, 50, f.spent(t))
			_, err := f.book.Adjust(t.Context(), "test", wallet(), -(credits - 50), "empty", "empty", "")
			require.NoError(t, err)

			again, againClient := call()
			require.True(t, again.Replayed)
			again.Replayed = false
			require.Equal(t, first, again)
			require.Equal(t, strings.Join(firstClient.text, ""), strings.Join(againClient.text, ""))
			if stream {
				require.True(t, againClient.head.Replayed)
				require.Equal(t, firstClient.head.ID, againClient.head.ID)
			}
			require.Len(t, f.script.seen(), 1)
		})
	}
}

// TestKeyIsForOneContent: another content, form or own-key flag under the same key is refused; what doesn't count as
// content (the API key, the request id) is not.
func TestKeyIsForOneContent(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	_, err := f.Call(t.Context(), request(keyed), nil)
	require.NoError(t, err)
	for name, change := range map[string]func(*gateway.Request){
		"content":     func(r *gateway.Request) { r.Messages[0].Content = providers.Quote("hello you") },
		"role":        func(r *gateway.Request) { r.Messages[0].Role = "system" },
		"message":     func(r *gateway.Request) { r.Messages = append(r.Messages, r.Messages[0]) },
		"temperature": func(r *gateway.Request) { r.Temperature = new(0.0) },
		"top_p":       func(r *gateway.Request) { r.TopP = new(0.5) },
		"max_tokens":  func(r *gateway.Request) { r.MaxTokens = 99 },
		"stop":        func(r *gateway.Request) { r.Stop = []string{"x"} },
		"own key":     func(r *gateway.Request) { r.BYOK = true },
		"stream":      func(r *gateway.Request) { r.Stream = true },
	} {
		_, err := f.Call(t.Context(), request(keyed, change), newClient())
		failed := requireFailure(t, err, gateway.OutcomeKeyReused)
		require.True(t, failed.NoRetry, name)
	}
	again, err := f.Call(t.Context(), request(keyed, func(r *gateway.Request) {
		r.KeyID, r.RequestID = "key_2", "req_2"
		r.Messages[0].Content = providers.JSONString(`"\u0068ello there"`)
	}), nil)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Len(t, f.script.seen(), 1)
	require.EqualValues(t, 50, f.spent(t))
}

// TestFailureFreesTheKey: what cost nothing is not kept, so that a resend runs again.
func TestFailureFreesTheKey(t *testing.T) {
	t.Parallel()
	s := &script{open: &providers.Error{Failure: providers.FailureOverloaded}}
	f := setup(t, s)
	_, err := f.Call(t.Context(), request(keyed), nil)
	requireFailure(t, err, gateway.OutcomeProviderOverloaded)
	require.Zero(t, f.spent(t))
	s.open, s.steps = nil, answered()
	result, err := f.Call(t.Context(), request(keyed), nil)
	require.NoError(t, err)
	require.False(t, result.Replayed)
	require.EqualValues(t, 50, f.spent(t))
	require.Len(t, s.seen(), 2)
}

// TestChargedFailureIsReplayed: a stream that broke after the vendor had reported usage was charged; its key gives the
// same part and the same failure again, and never a second charge.
func TestChargedFailureIsReplayed(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{text("one "), usage(10, 5, 0), broken(providers.FailureTimeout)}})
	for i := range 3 {
		c := newClient()
		_, err := f.Call(t.Context(), request(keyed, streamed), c)
		failed := requireFailure(t, err, gateway.OutcomeProviderTimeout)
		require.Equal(t, i > 0, failed.Replayed)
		require.Equal(t, []string{"one "}, c.text)
		require.EqualValues(t, 20, f.spent(t))
	}
	require.Len(t, f.script.seen(), 1)
}

// TestOwnKeyReplay: a call that costs nothing is kept, too.
func TestOwnKeyReplay(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()}, func(_ *gateway.Model, p *gateway.ProviderEntry) { p.KeyMode = gateway.KeyNone },
		func(m *gateway.Model, _ *gateway.ProviderEntry) { m.Price = billing.Price{} })
	first, err := f.Call(t.Context(), request(keyed), nil)
	require.NoError(t, err)
	again, err := f.Call(t.Context(), request(keyed), nil)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.ID, again.ID)
	require.Len(t, f.script.seen(), 1)
	require.Zero(t, f.spent(t))
}

// TestClientThatLeftGetsItsAnswerLater: with a key the call goes on without its client and is stored; the resend gets
// the whole answer for one charge.
func TestClientThatLeftGetsItsAnswerLater(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*client, context.CancelFunc){
		"the connection ends": func(c *client, cancel context.CancelFunc) { c.onText = func(int) { cancel() } },
		"a write fails":       func(c *client, _ context.CancelFunc) { c.leaveAfter = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: answered()})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			gone := newClient()
			leave(gone, cancel)
			_, err := f.Call(ctx, request(keyed, streamed), gone)
			require.NoError(t, err, "the call went on to its end")
			require.EqualValues(t, 50, f.spent(t))

			back := newClient()
			result, err := f.Call(t.Context(), request(keyed, streamed), back)
			require.NoError(t, err)
			require.True(t, result.Replayed)
			require.Equal(t, "one two", strings.Join(back.text, ""))
			require.EqualValues(t, 50, f.spent(t))
			require.Len(t, f.script.seen(), 1)
		})
	}
}

// TestDuplicatesInFlight: 50 identical keyed calls at once make one call to the vendor and one charge; the others wait
// and get the same answer.
func TestDuplicatesInFlight(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	var group sync.WaitGroup
	ids := make([]string, 50)
	faults := make([]error, 50)
	for i := range 50 {
		group.Go(func() {
			result, err := f.Call(t.Context(), request(keyed), nil)
			if faults[i] = err; err == nil {
				ids[i] = result.ID
			}
		})
	}
	group.Wait()
	for i := range 50 {
		require.NoError(t, faults[i])
		require.Equal(t, ids[0], ids[i])
	}
	require.Len(t, f.script.seen(), 1)
	require.EqualValues(t, 50, f.spent(t))
}

// TestDuplicateGivesUpWithItsClient: a duplicate that waits ends with its client, without a trace.
func TestDuplicateGivesUpWithItsClient(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	f := setup(t, &script{steps: []step{{until: release}, text("one two"), finish("stop"), usage(10, 20, 0)}})
	first := make(chan error, 1)
	go func() {
		_, err := f.Call(t.Context(), request(keyed), nil)
		first <- err
	}()
	require.Eventually(t, func() bool { return len(f.script.seen()) == 1 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := f.Call(ctx, request(keyed), nil)
	require.Error(t, err)
	close(release)
	require.NoError(t, <-first)
	require.EqualValues(t, 50, f.spent(t))
}

// TestAnswerTooLongToKeep: it was charged, so its key never runs again: conflict instead of a second charge.
func TestAnswerTooLongToKeep(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{text(strings.Repeat("x", 1<<20)), finish("stop"), usage(10, 20, 0)}})
	first, err := f.Call(t.Context(), request(keyed), nil)
	require.NoError(t, err)
	require.Len(t, first.Text, 1<<20)
	_, err = f.Call(t.Context(), request(keyed), nil)
	failed := requireFailure(t, err, gateway.OutcomeNotKept)
	require.True(t, failed.NoRetry)
	require.EqualValues(t, 50, f.spent(t))
	require.Len(t, f.script.seen(), 1)
}

// TestMissingKeyOfTheProviderFreesTheClaim: the call is refused after its hold, so nothing may stay of it.
func TestMissingKeyOfTheProviderFreesTheClaim(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()}, func(_ *gateway.Model, p *gateway.ProviderEntry) { p.KeyMode, p.APIKey = gateway.KeyMissing, "" })
	for range 2 {
		_, err := f.Call(t.Context(), request(keyed), nil)
		requireFailure(t, err, gateway.OutcomeProviderError)
		require.Zero(t, f.spent(t))
	}
}
