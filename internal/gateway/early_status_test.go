package gateway_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// early makes a gateway flush the status of a stream that has no text after wait.
func (f *fixture) early(wait time.Duration) *fixture {
	f.Gateway = gateway.New(gateway.Config{
		Catalog: f.Catalog, Book: f.book, DB: f.db, Ring: f.Ring, Calls: f.calls, HoldTTL: time.Minute, Observer: f.observed,
		EarlyStatus: wait,
	})
	return f
}

// TestEarlyStatus: a client whose model takes long for its first text gets status and first chunk, whether the vendor is
// silent before its headers or after them, and whatever comes of the call.
func TestEarlyStatus(t *testing.T) {
	t.Parallel()
	refused := &providers.Error{Failure: providers.FailureRefused}
	for name, test := range map[string]struct {
		script  func(flushed <-chan struct{}) *script
		text    []string
		outcome gateway.Outcome
		charged int64
	}{
		"silence before the headers": {
			script: func(flushed <-chan struct{}) *script {
				return &script{openAfter: flushed, steps: []step{text("a"), finish("stop"), usage(10, 20, 0)}}
			},
			text: []string{"a"}, outcome: gateway.OutcomeCompleted, charged: 50,
		},
		"silence before the first text": {
			script: func(flushed <-chan struct{}) *script {
				return &script{steps: []step{usage(1, 1, 0), {until: flushed}, text("a"), finish("stop"), usage(10, 20, 0)}}
			},
			text: []string{"a"}, outcome: gateway.OutcomeCompleted, charged: 50,
		},
		"a refusal after it": {
			script:  func(flushed <-chan struct{}) *script { return &script{openAfter: flushed, open: refused} },
			outcome: gateway.OutcomeProviderError,
		},
		"a break after it": {
			script: func(flushed <-chan struct{}) *script {
				return &script{steps: []step{{until: flushed}, broken(providers.FailureUnreachable)}}
			},
			outcome: gateway.OutcomeProviderError,
		},
		"an empty answer after it": {
			script: func(flushed <-chan struct{}) *script {
				return &script{steps: []step{{until: flushed}, finish("stop"), usage(10, 0, 0)}}
			},
			outcome: gateway.OutcomeCompleted, charged: 10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flushed := make(chan struct{})
			f := setup(t, test.script(flushed)).early(time.Millisecond)
			sink := newClient()
			textAtFlush := -1
			once := sync.OnceFunc(func() {
				textAtFlush = len(sink.text)
				close(flushed)
			})
			sink.onFlush = once
			_, err := f.Call(t.Context(), request(streamed), sink)
			if test.outcome == gateway.OutcomeCompleted {
				require.NoError(t, err)
			} else {
				requireFailure(t, err, test.outcome)
			}
			require.True(t, sink.begun)
			require.Zero(t, textAtFlush, "the status went out alone")
			require.Equal(t, test.text, sink.text)
			require.Equal(t, 1+len(test.text), sink.flushes)
			require.Equal(t, test.charged, f.spent(t))
		})
	}
}

// TestNoEarlyStatus: as long as there is no text and the time isn't over, a failure can have a status of its own, whatever else
// the vendor has sent.
func TestNoEarlyStatus(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	close(done)
	f := setup(t, &script{steps: []step{usage(1, 1, 0), {until: done}, usage(2, 2, 0), {until: done}, broken(providers.FailureRefused)}})
	sink := newClient()
	_, err := f.Call(t.Context(), request(streamed), sink)
	requireFailure(t, err, gateway.OutcomeProviderError)
	require.Zero(t, sink.flushes)
}

// TestEarlyStatusOfALostClient: an early write that fails ends the call at its first text, and one that panics does so where a
// panic belongs.
func TestEarlyStatusOfALostClient(t *testing.T) {
	t.Parallel()
	t.Run("an error", func(t *testing.T) {
		t.Parallel()
		flushed := make(chan struct{})
		f := setup(t, &script{steps: []step{{until: flushed}, text("one two"), {hang: true}}}).early(time.Millisecond)
		_, err := f.Call(t.Context(), request(streamed), &lost{flushed: flushed})
		requireFailure(t, err, gateway.OutcomeClientGone)
		require.EqualValues(t, 12+2*3, f.spent(t))
	})
	t.Run("a panic", func(t *testing.T) {
		t.Parallel()
		flushed := make(chan struct{})
		f := setup(t, &script{steps: []step{{until: flushed}, text("one two"), {hang: true}}}).early(time.Millisecond)
		require.PanicsWithValue(t, "the writer is broken", func() {
			_, _ = f.Call(t.Context(), request(streamed), &lost{flushed: flushed, panics: true})
		})
		require.Zero(t, f.spent(t))
	})
}

// lost is a sink whose first flush fails.
type lost struct {
	client
	flushed chan struct{}
	panics  bool
}

func (l *lost) Flush() error {
	defer close(l.flushed)
	if l.panics {
		panic("the writer is broken")
	}
	return errors.New("broken pipe")
}

func (l *lost) Text(string) error { return nil }

// TestTextIsFlushedBeforeTheSettlement: text that came together with the end of the answer doesn't wait for the commit.
func TestTextIsFlushedBeforeTheSettlement(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{text("a"), text("b"), finish("stop"), usage(10, 20, 0)}})
	sink := newClient()
	var heldAtFlush []int64
	sink.onFlush = func() {
		w, err := f.book.Wallet(t.Context(), wallet())
		require.NoError(t, err)
		heldAtFlush = append(heldAtFlush, w.HeldMicros)
	}
	_, err := f.Call(t.Context(), request(streamed), sink)
	require.NoError(t, err)
	require.Len(t, heldAtFlush, 1)
	require.Positive(t, heldAtFlush[0], "not settled yet")
	require.EqualValues(t, 50, f.spent(t))
	require.Equal(t, billing.UsageProvider, f.ended(t).UsageSource)
}
