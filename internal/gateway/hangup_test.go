package gateway_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// hangUp runs a call whose client leaves as soon as the vendor was asked. The vendor begins when the call goes on without
// its client.
func hangUp(t *testing.T, s *script, change ...func(*gateway.Request)) (*fixture, error) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	begin := make(chan struct{})
	s.hangOpen, s.begin = leave, begin
	f := setup(t, s)
	_, err := f.book.Credit(t.Context(), "test", billing.WalletID{OrgID: org, Env: store.Test}, credits, "start")
	require.NoError(t, err)
	req := request(change...)
	var sink gateway.Sink
	if req.Stream {
		sink = newClient()
	}
	ended := make(chan error, 1)
	go func() {
		_, err := f.Call(ctx, req, sink)
		ended <- err
	}()
	require.Eventually(t, func() bool { return f.Detached() == 1 || len(ended) == 1 }, time.Minute, time.Millisecond)
	close(begin)
	err = <-ended
	require.Zero(t, f.Detached(), "the place is given back")
	return f, err
}

// TestHangingUpBeforeTheVendorBegins: a call goes on until its vendor begins. A stream without a key is then charged its prompt at
// least, and cancelled; an answer in one piece is charged what its vendor reports; what never begins is free.
func TestHangingUpBeforeTheVendorBegins(t *testing.T) {
	t.Parallel()
	const prompt = 12 // a third of 35 bytes
	closed := make(chan struct{})
	close(closed)
	for name, test := range map[string]struct {
		open    error
		steps   []step
		stream  bool
		outcome gateway.Outcome
		charged int64
		source  billing.UsageSource
	}{
		"stream, some text": {
			steps: []step{text("one two"), {hang: true}}, stream: true,
			outcome: gateway.OutcomeClientGone, charged: prompt + 2*3, source: billing.UsageEstimated,
		},
		"stream, no text yet": {
			steps: []step{{}, {hang: true}}, stream: true,
			outcome: gateway.OutcomeClientGone, charged: prompt, source: billing.UsageEstimated,
		},
		"stream, nothing at hand": {
			steps: []step{{hang: true}}, stream: true,
			outcome: gateway.OutcomeClientGone, charged: prompt, source: billing.UsageEstimated,
		},
		"stream, whole at once": {
			steps: answered(), stream: true,
			outcome: gateway.OutcomeCompleted, charged: 50, source: billing.UsageProvider,
		},
		"stream, breaks off at once": {
			steps: []step{broken(providers.FailureUnreachable)}, stream: true,
			outcome: gateway.OutcomeProviderError, source: billing.UsageNone,
		},
		"stream, refused": {
			open: &providers.Error{Failure: providers.FailureOverloaded}, stream: true,
			outcome: gateway.OutcomeProviderOverloaded, source: billing.UsageNone,
		},
		"stream, silence": {
			open: &providers.Error{Failure: providers.FailureTimeout}, stream: true,
			outcome: gateway.OutcomeProviderTimeout, source: billing.UsageNone,
		},
		"answer": {
			steps:   answered(),
			outcome: gateway.OutcomeCompleted, charged: 50, source: billing.UsageProvider,
		},
		"answer without usage": {
			steps:   answered()[:3],
			outcome: gateway.OutcomeCompleted, charged: prompt + 2*3, source: billing.UsageEstimated,
		},
		"answer after its headers": {
			steps:   append([]step{{until: closed}}, answered()[1:]...),
			outcome: gateway.OutcomeCompleted, charged: 50, source: billing.UsageProvider,
		},
		"answer, silence": {
			open:    &providers.Error{Failure: providers.FailureTimeout},
			outcome: gateway.OutcomeProviderTimeout, source: billing.UsageNone,
		},
	} {
		for _, env := range []store.Env{store.Live, store.Test} {
			t.Run(name+", "+string(env), func(t *testing.T) {
				t.Parallel()
				f, err := hangUp(t, &script{open: test.open, steps: test.steps}, func(r *gateway.Request) { r.Stream, r.Env = test.stream, env })
				if test.outcome != gateway.OutcomeCompleted {
					requireFailure(t, err, test.outcome)
				} else {
					require.NoError(t, err)
				}
				ended := f.ended(t)
				require.Equal(t, test.outcome, ended.Outcome)
				require.Equal(t, test.source, ended.UsageSource)
				spent := f.spent(t)
				if env == store.Test {
					require.Zero(t, spent, "the live wallet")
					w, err := f.book.Wallet(t.Context(), billing.WalletID{OrgID: org, Env: store.Test})
					require.NoError(t, err)
					require.Zero(t, w.HeldMicros)
					spent = credits - w.BalanceMicros
				}
				require.Equal(t, test.charged, spent)
			})
		}
	}
}

// TestHangingUpInTheMiddle: a client that leaves while its answer is coming ends the vendor's call, unless the call has a key, the
// model reasons, or the finish reason has come. Such a call is read to its end and costs the reported usage. Without a free
// place it is cut and estimated like the others.
func TestHangingUpInTheMiddle(t *testing.T) {
	t.Parallel()
	texts := []step{text("one "), text("two")}
	finished := append(texts[:2:2], finish("stop"))
	for name, test := range map[string]struct {
		// before are the vendor's steps until the client leaves.
		before []step
		model  func(*gateway.Model)
		change func(*gateway.Request)
		// fails: the client's connection isn't known to have ended, but the second write fails.
		fails   bool
		noPlace bool
		cut     bool
	}{
		"after the text":                        {before: texts, cut: true},
		"a write fails":                         {before: texts, fails: true, cut: true},
		"after the finish":                      {before: finished},
		"after the finish, no place":            {before: finished, noPlace: true, cut: true},
		"key":                                   {before: texts, change: keyed},
		"key, a write fails":                    {before: texts, change: keyed, fails: true},
		"key, no place":                         {before: texts, change: keyed, noPlace: true, cut: true},
		"reasoning":                             {before: texts, model: reasons},
		"reasoning, key":                        {before: texts, model: reasons, change: keyed},
		"reasoning, before the text":            {before: []step{{}}, model: reasons},
		"reasoning, a write fails":              {before: texts, model: reasons, fails: true},
		"reasoning, no place":                   {before: texts, model: reasons, noPlace: true, cut: true},
		"reasoning, a write fails and no place": {before: texts, model: reasons, fails: true, noPlace: true, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			s := &script{}
			f := setup(t, s, func(m *gateway.Model, _ *gateway.ProviderEntry) {
				if test.model != nil {
					test.model(m)
				}
			})
			if test.noPlace {
				f.FillDrains()
			}
			leaves := func() {
				leave()
				if !test.cut {
					require.Eventually(t, func() bool { return f.Detached() == 1 }, time.Minute, time.Millisecond)
				}
			}
			sink := newClient()
			if test.fails {
				leaves, sink.leaveAfter = func() {}, 1
			}
			s.steps = slices.Concat(test.before, []step{{do: leaves}})
			if test.cut {
				s.steps = append(s.steps, step{hang: true})
			}
			s.steps = append(s.steps, finish("stop"), usage(10, 100, 0))
			change := test.change
			if change == nil {
				change = streamed
			}
			_, err := f.Call(ctx, request(streamed, change), sink)
			if test.cut {
				requireFailure(t, err, gateway.OutcomeClientGone)
				require.EqualValues(t, 12+2*3, f.spent(t))
				require.Equal(t, billing.UsageEstimated, f.ended(t).UsageSource)
				return
			}
			require.NoError(t, err)
			require.EqualValues(t, 10+2*100, f.spent(t))
			require.Equal(t, billing.UsageProvider, f.ended(t).UsageSource)
			require.Zero(t, f.Detached(), "the place is given back")
		})
	}
}

func reasons(m *gateway.Model) { m.Reasoning = true }

// TestHangingUpWithoutAPlace: when all places are taken the vendor's call ends with its client, and costs nothing.
func TestHangingUpWithoutAPlace(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*gateway.Request){"no key": streamed, "key": keyed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, leave := context.WithCancel(t.Context())
			f := setup(t, &script{hangOpen: leave})
			f.FillDrains()
			_, err := f.Call(ctx, request(change), newClient())
			requireFailure(t, err, gateway.OutcomeClientGone)
			require.Zero(t, f.spent(t))
		})
	}
}

// TestHangingUpOnAFreeCall: what costs nothing anyway ends with its client.
func TestHangingUpOnAFreeCall(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	f := setup(t, &script{hangOpen: leave}, func(m *gateway.Model, _ *gateway.ProviderEntry) { m.Price = billing.Price{} })
	_, err := f.Call(ctx, request(), nil)
	requireFailure(t, err, gateway.OutcomeClientGone)
	require.Zero(t, f.Detached())
}

// TestExitEndsWhatGoesOnWithoutItsClient: and charges only what the vendor reported, which is nothing.
func TestExitEndsWhatGoesOnWithoutItsClient(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	f := setup(t, &script{hangOpen: leave})
	ended := make(chan error, 1)
	go func() {
		_, err := f.Call(ctx, request(), nil)
		ended <- err
	}()
	require.Eventually(t, func() bool { return f.Detached() == 1 }, time.Minute, time.Millisecond)
	f.calls.Cut()
	requireFailure(t, <-ended, gateway.OutcomeExiting)
	require.Zero(t, f.spent(t))
}

// TestHangUpsAreBounded: one organization's hang-ups take half of the places at most; the others are cancelled at once and
// another organization still gets its place.
func TestHangUpsAreBounded(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	begin, steps := make(chan struct{}), []step{text("one two"), {hang: true}}
	f := setup(t, &script{hangOpen: func() {}, begin: begin, steps: steps})
	const calls = 200
	var group sync.WaitGroup
	for range calls {
		group.Go(func() { _, _ = f.Call(ctx, request(streamed), newClient()) })
	}
	require.Eventually(t, func() bool { return len(f.script.seen()) == calls }, time.Minute, time.Millisecond)
	leave()
	require.Eventually(t, func() bool { return f.calls.Running() == gateway.MaxDrains/2 }, time.Minute, time.Millisecond)
	require.Equal(t, gateway.MaxDrains/2, f.Detached())
	close(begin)
	group.Wait()
	require.Zero(t, f.Detached())
	require.EqualValues(t, gateway.MaxDrains/2*(12+2*3), f.spent(t))
}

// TestUnknownSettlementOfAKey: with a key the charge may still be made, so the error doesn't say that there was none.
func TestUnknownSettlementOfAKey(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*gateway.Request)
		says   string
	}{
		"no key": {change: func(*gateway.Request) {}, says: "was not charged"},
		"key":    {change: keyed, says: "same Idempotency-Key again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{steps: answered()}
			f := setup(t, s)
			s.steps = append([]step{{do: func() { _ = f.db.Close(context.Background()) }}}, s.steps...)
			_, err := f.Call(t.Context(), request(test.change), nil)
			failed := requireFailure(t, err, gateway.OutcomeInternalError)
			require.Contains(t, failed.Message, test.says)
			f.calls.Cut() // ends the late settlement
			require.NoError(t, f.calls.Wait(t.Context()))
		})
	}
}
