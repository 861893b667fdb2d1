package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// saying is a request with words times 12 bytes of two tokens.
func saying(words int) func(*gateway.Request) {
	return func(r *gateway.Request) {
		r.Messages[0].Content = providers.Quote(strings.Repeat("hello there ", words))
	}
}

// TestUncountedPrompt: a call whose tokens can't be counted in time leaves the context to its vendor and its max_tokens as
// they were asked.
func TestUncountedPrompt(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	f.RefuseCounts()
	// 12,000 bytes and 2,000 tokens, in a window of 1,000
	_, err := f.Call(t.Context(), request(saying(1000)), nil)
	require.NoError(t, err)
	require.EqualValues(t, 100, f.script.seen()[0].MaxTokens)
	require.EqualValues(t, 50, f.spent(t))
}

// TestUncountedWallet: when only a count could show that the wallet suffices, the client is asked to come again; when no count could,
// the call is refused without counting.
func TestUncountedWallet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		balance int64
		outcome gateway.Outcome
	}{
		// the answer costs up to 200, the prompt 24 or more; by bytes 35
		"a count could save it":  {balance: 226, outcome: gateway.OutcomeInternalError},
		"no count could save it": {balance: 215, outcome: gateway.OutcomeInsufficientCredits},
		"not even an answer":     {balance: 199, outcome: gateway.OutcomeInsufficientCredits},
		"nothing":                {balance: 0, outcome: gateway.OutcomeInsufficientCredits},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: answered()})
			_, err := f.book.Adjust(t.Context(), "test", wallet(), test.balance-credits, "test", "less", "")
			require.NoError(t, err)
			f.RefuseCounts()
			_, err = f.Call(t.Context(), request(), nil)
			failed := requireFailure(t, err, test.outcome)
			if test.outcome == gateway.OutcomeInternalError {
				require.Equal(t, time.Second, failed.RetryAfter)
			}
			require.Empty(t, f.script.seen())
			require.Equal(t, credits-test.balance, f.spent(t))
		})
	}
}

// TestEstimate: what the vendor didn't report is guessed by the bytes without a wait, but for a prompt that was counted
// before; the answer is never guessed longer than the vendor was allowed to make it.
func TestEstimate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		words   int
		answer  string
		charged int64
	}{
		"nothing was counted":         {words: 10, answer: "one two", charged: (120+24)/3 + 2*3},
		"the prompt was counted":      {words: 160, answer: "one two", charged: 321 + 24 + 2*3},
		"longer than it was asked to": {words: 10, answer: strings.Repeat("one two ", 1000), charged: (120+24)/3 + 2*100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{text(test.answer), finish("stop")}})
			_, err := f.Call(t.Context(), request(saying(test.words)), nil)
			require.NoError(t, err)
			require.Equal(t, test.charged, f.spent(t))
		})
	}
}

// TestWhenPromptsAreCounted: a prompt is counted only when half of its bytes and the answer exceed the window.
func TestWhenPromptsAreCounted(t *testing.T) {
	t.Parallel()
	const overhead, answer = 24, 100
	for name, test := range map[string]struct {
		bytes   int
		charged int64
	}{
		"fits by half of its bytes": {bytes: 2*(window-answer) - overhead, charged: 2 * (window - answer) / 3},
		"one byte more":             {bytes: 2*(window-answer) - overhead + 1, charged: 297 + overhead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{text("one two"), finish("stop")}})
			_, err := f.Call(t.Context(), request(func(r *gateway.Request) {
				r.Messages[0].Content = providers.Quote(strings.Repeat("hello ", 1000)[:test.bytes])
			}), nil)
			require.NoError(t, err)
			require.EqualValues(t, answer, f.script.seen()[0].MaxTokens)
			require.Equal(t, test.charged+2*3, f.spent(t))
		})
	}
}

// TestUncountedPromptIsCovered: a call whose prompt isn't counted holds the price of its bytes, which no vendor's count exceeds. A
// prompt that the vendor refuses for its length costs nothing.
func TestUncountedPromptIsCovered(t *testing.T) {
	t.Parallel()
	digits := func(r *gateway.Request) {
		r.Messages[0].Content = providers.Quote(strings.Repeat("7,", 700)) // a token for each byte
	}
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		s := &script{steps: []step{text("x"), finish("stop"), usage(window, 1, 0)}}
		f := setup(t, s)
		s.hangOpen = func() {
			state, err := f.book.Wallet(t.Context(), wallet())
			require.NoError(t, err)
			require.EqualValues(t, 1424+2*100, state.HeldMicros)
		}
		begin := make(chan struct{})
		close(begin)
		s.begin = begin
		_, err := f.Call(t.Context(), request(digits), nil)
		require.NoError(t, err)
		require.EqualValues(t, window+2, f.spent(t))
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &script{open: &providers.Error{Failure: providers.FailureContextTooLong, Permanent: true}})
		_, err := f.Call(t.Context(), request(digits), nil)
		failed := requireFailure(t, err, gateway.OutcomeContextTooLong)
		require.Contains(t, failed.Message, "maximum context length")
		require.Len(t, f.script.seen(), 1)
		require.Zero(t, f.spent(t))
	})
}

// TestReportOfAnUncountedPrompt: a vendor whose window is larger than the configured one may report as many tokens as an uncounted
// prompt has bytes, and not one more.
func TestReportOfAnUncountedPrompt(t *testing.T) {
	t.Parallel()
	const bytes = 1424
	for reported, charged := range map[int64]int64{window + 1: window + 1, bytes: bytes, bytes + 1: (bytes + 2) / 3} {
		f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(reported, 1, 0)}})
		_, err := f.Call(t.Context(), request(func(r *gateway.Request) {
			r.Messages[0].Content = providers.Quote(strings.Repeat("7,", 700))
		}), nil)
		require.NoError(t, err)
		require.Equal(t, charged+2, f.spent(t), "%d reported", reported)
	}
}
