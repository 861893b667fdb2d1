package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/providers"
)

// endpointNames are the providers of a model with several endpoints, in their order.
var endpointNames = []string{"one", "two", "three", "four", "five"}

// onFakeClock runs a test on the fake clock, with a store of its own.
func onFakeClock(t *testing.T, run func(t *testing.T, db *store.DB)) {
	t.Helper()
	location := storetest.Migrated(t, store.SQLite)
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(t.Context(), location, store.Options{Kinds: []store.Kind{billing.Ledger}, Clock: time.Now})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close(context.WithoutCancel(t.Context()))) }()
		run(t, db)
	})
}

// served is a fixture whose model has an endpoint for each script, each in a level of its own.
func served(t *testing.T, db *store.DB, scripts []*script, change ...func([]gateway.Endpoint, []gateway.ProviderEntry)) *fixture {
	t.Helper()
	f := setupAt(t, db, scripts[0])
	model, _ := f.Catalog.Model(modelID)
	m := *model
	var entries []gateway.ProviderEntry
	for i, s := range scripts {
		name := endpointNames[i]
		m.Endpoints = append(m.Endpoints, gateway.Endpoint{
			Provider: name, Upstream: "up-" + name, MaxTokensField: "max_tokens_" + name, Thinking: "think-" + name, Order: int64(i), Weight: 1,
		})
		entries = append(entries, gateway.ProviderEntry{
			Name: name, Provider: s, KeyMode: gateway.KeyOperator, APIKey: "key-" + name, MaxDuration: time.Minute,
		})
	}
	for _, of := range change {
		of(m.Endpoints, entries)
	}
	catalog, err := gateway.NewCatalog([]gateway.Model{m}, entries)
	require.NoError(t, err)
	cfg := f.Config
	cfg.Catalog = catalog
	f.Gateway = gateway.New(cfg)
	return f
}

func fault(f providers.Failure) *providers.Error {
	return &providers.Error{Failure: f, Elsewhere: true, Cause: errors.New("vendor text sk-secret")}
}

// state is the state of the endpoint at a provider.
func (f *fixture) state(provider string) gateway.EndpointState {
	all := f.Endpoints()
	return all[slices.IndexFunc(all, func(s gateway.EndpointState) bool { return s.Provider == provider })]
}

// asked is how often each script was opened.
func asked(scripts []*script) (times []int) {
	for _, s := range scripts {
		times = append(times, len(s.seen()))
	}
	return times
}

// TestCallsOfAKeyWithSeveralEndpoints: a call that goes on to the next endpoint still counts for its key.
func TestCallsOfAKeyWithSeveralEndpoints(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		var f *fixture
		ctx, leave := context.WithCancel(t.Context())
		bounded := func(r *gateway.Request) { r.KeyID, r.KeyConcurrent = "key_1", 1 }
		var second error
		f = served(t, db, []*script{{open: fault(providers.FailureOverloaded)}, {hangOpen: func() {
			if ctx.Err() != nil {
				return
			}
			leave()
			_, second = f.Call(t.Context(), request(bounded), nil)
			f.calls.Cut()
		}}})
		_, err := f.Call(ctx, request(bounded), nil)
		require.Error(t, err)
		requireFailure(t, second, gateway.OutcomeTooManyCalls)
	})
}

// TestFailover: a failure before the first text is answered by the next endpoint, with its key, its name of the model and the whole
// prompt; the failed attempt costs nothing. The request's own fault and a client that left never move.
func TestFailover(t *testing.T) {
	t.Parallel()
	own := fault(providers.FailureRefused)
	own.Elsewhere = false
	for name, test := range map[string]struct {
		open  error
		steps []step
		stays gateway.Outcome
	}{
		"refused":                   {open: fault(providers.FailureRefused)},
		"unreachable":               {open: fault(providers.FailureUnreachable)},
		"overloaded":                {open: fault(providers.FailureOverloaded)},
		"timeout":                   {open: fault(providers.FailureTimeout)},
		"not the contract's error":  {open: errors.New("a guest's error")},
		"error after usage":         {steps: []step{usage(10, 1, 0), {err: fault(providers.FailureOverloaded)}}},
		"error after an empty step": {steps: []step{{}, {err: fault(providers.FailureUnreachable)}}},
		"panic":                     {steps: []step{{panics: true}}},
		"end of an empty stream":    {steps: []step{{}}},
		"empty answer":              {steps: []step{finish("stop"), usage(10, 0, 0)}},
		"client's fault":            {open: own, stays: gateway.OutcomeProviderError},
		"context":                   {open: fault(providers.FailureContextTooLong), stays: gateway.OutcomeContextTooLong},
		"size":                      {open: fault(providers.FailureRequestTooLarge), stays: gateway.OutcomeRequestTooLarge},
		"unwritable":                {open: providers.Unwritable("messages", "No."), stays: gateway.OutcomeInvalidRequest},
		"after text":                {steps: []step{text("half"), {err: fault(providers.FailureUnreachable)}}, stays: gateway.OutcomeProviderError},
		"filtered":                  {steps: []step{finish("content_filter"), usage(10, 0, 0)}, stays: gateway.OutcomeCompleted},
		"thought only":              {steps: []step{finish("length"), usage(10, 0, 0)}, stays: gateway.OutcomeCompleted},
		"silent by choice":          {steps: []step{finish("stop"), usage(10, 1, 0)}, stays: gateway.OutcomeCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onFakeClock(t, func(t *testing.T, db *store.DB) {
				scripts := []*script{{open: test.open, steps: test.steps}, {steps: answered()}}
				f := served(t, db, scripts)
				for i, change := range []func(*gateway.Request){func(*gateway.Request) {}, streamed, keyed} {
					sent := 0
					req := request(change, func(r *gateway.Request) { r.Sent = func() { sent++ } })
					var sink gateway.Sink
					client := newClient()
					if req.Stream {
						sink = client
					}
					result, err := f.Call(t.Context(), req, sink)
					if test.stays != "" {
						require.Equal(t, []int{1 + i, 0}, asked(scripts))
						if test.stays != gateway.OutcomeCompleted {
							requireFailure(t, err, test.stays)
						}
						time.Sleep(time.Minute) //nolint:forbidigo // on the fake clock, until the endpoint is asked again
						continue
					}
					require.NoError(t, err)
					require.Equal(t, []int{1 + i, 1 + i}, asked(scripts))
					if req.Stream {
						require.Equal(t, []string{"one ", "two"}, client.text)
					} else {
						require.Equal(t, "one two", result.Text)
					}
					require.Positive(t, sent)
					require.Nil(t, req.Messages)
					require.EqualValues(t, 50*(1+i), f.spent(t))
					require.Equal(t, "two", f.observed.ended[i].Provider)
					for n, s := range scripts {
						seen, name := s.seen()[i], endpointNames[n]
						require.Equal(t, []string{"up-" + name, "key-" + name, "max_tokens_" + name, "think-" + name},
							[]string{seen.Model, seen.APIKey, seen.MaxTokensField, seen.Thinking})
						require.Equal(t, "hello there", seen.Messages[0].Content.Text())
					}
					if test.open == nil {
						require.Equal(t, 1+i, scripts[0].closings())
					}
					time.Sleep(time.Minute) //nolint:forbidigo // on the fake clock, until the endpoint is asked again
				}
			})
		})
	}
}

// TestAllEndpointsFail: the client waits as briefly as any endpoint demands, if one was overloaded; a timeout means that all timed out.
// No more than four endpoints are asked, each once, and nothing is charged.
func TestAllEndpointsFail(t *testing.T) {
	t.Parallel()
	overloaded := func(wait time.Duration) *providers.Error {
		return &providers.Error{Failure: providers.FailureOverloaded, RetryAfter: wait, Elsewhere: true}
	}
	permanent := &providers.Error{Failure: providers.FailureRefused, Permanent: true, Elsewhere: true}
	for name, test := range map[string]struct {
		opens   []error
		outcome gateway.Outcome
		wait    time.Duration
		noRetry bool
		asked   []int
	}{
		"overloaded and refused": {
			opens:   []error{overloaded(30 * time.Second), fault(providers.FailureRefused), overloaded(20 * time.Second)},
			outcome: gateway.OutcomeProviderOverloaded, wait: 20 * time.Second, asked: []int{1, 1, 1},
		},
		"timeouts": {
			opens:   []error{fault(providers.FailureTimeout), fault(providers.FailureTimeout)},
			outcome: gateway.OutcomeProviderTimeout, asked: []int{1, 1},
		},
		"a timeout and a refusal": {
			opens:   []error{fault(providers.FailureTimeout), fault(providers.FailureRefused)},
			outcome: gateway.OutcomeProviderError, asked: []int{1, 1},
		},
		"a refusal and a timeout": {
			opens:   []error{fault(providers.FailureRefused), fault(providers.FailureTimeout)},
			outcome: gateway.OutcomeProviderError, asked: []int{1, 1},
		},
		"permanently": {opens: []error{permanent, permanent}, outcome: gateway.OutcomeProviderError, noRetry: true, asked: []int{1, 1}},
		"in the end":  {opens: []error{fault(providers.FailureRefused), permanent}, outcome: gateway.OutcomeProviderError, asked: []int{1, 1}},
		"five": {
			opens: []error{
				fault(providers.FailureRefused), fault(providers.FailureRefused), fault(providers.FailureRefused), fault(providers.FailureRefused), nil,
			},
			outcome: gateway.OutcomeProviderError, asked: []int{1, 1, 1, 1, 0},
		},
		"the client's fault at last": {
			opens:   []error{overloaded(time.Second), fault(providers.FailureContextTooLong), nil},
			outcome: gateway.OutcomeContextTooLong, noRetry: true, asked: []int{1, 1, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onFakeClock(t, func(t *testing.T, db *store.DB) {
				var scripts []*script
				for _, open := range test.opens {
					scripts = append(scripts, &script{open: open, steps: answered()})
				}
				f := served(t, db, scripts)
				_, err := f.Call(t.Context(), request(streamed), newClient())
				failed := requireFailure(t, err, test.outcome)
				require.Equal(t, test.wait, failed.RetryAfter)
				require.Equal(t, test.noRetry, failed.NoRetry)
				require.Equal(t, test.asked, asked(scripts))
				require.Zero(t, f.spent(t))
				require.Equal(t, billing.UsageNone, f.ended(t).UsageSource)
			})
		})
	}
}

// TestCoolDown: an endpoint that failed isn't asked again before the time that it said, or a second that doubles; then one call asks it
// while the others go elsewhere.
func TestCoolDown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		open *providers.Error
		cool time.Duration // at least; a fifth more at most
	}{
		"as it said":        {open: &providers.Error{Failure: providers.FailureOverloaded, RetryAfter: time.Minute, Cool: time.Hour, Elsewhere: true}, cool: time.Hour},
		"at most a day":     {open: &providers.Error{Failure: providers.FailureRefused, Cool: 1000 * time.Hour, Elsewhere: true}, cool: 24 * time.Hour},
		"a wrong key":       {open: &providers.Error{Failure: providers.FailureRefused, Permanent: true, Elsewhere: true}, cool: 10 * time.Minute},
		"any other failure": {open: fault(providers.FailureUnreachable), cool: 750 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onFakeClock(t, func(t *testing.T, db *store.DB) {
				begin := make(chan struct{})
				scripts := []*script{{open: test.open}, {steps: answered()}}
				f := served(t, db, scripts)
				call := func() {
					_, err := f.Call(t.Context(), request(), nil)
					require.NoError(t, err)
				}
				call()
				require.InEpsilon(t, test.cool, f.state("one").Cooled, 0.7)
				require.Equal(t, test.open.Failure, f.state("one").Failure)
				time.Sleep(test.cool - time.Nanosecond) //nolint:forbidigo // on the fake clock
				call()
				require.Equal(t, []int{1, 2}, asked(scripts))

				time.Sleep(test.cool) //nolint:forbidigo // on the fake clock
				scripts[0].open, scripts[0].steps = nil, answered()
				scripts[0].hangOpen, scripts[0].begin = func() {}, begin
				go call()
				synctest.Wait()
				require.True(t, f.state("one").Probing)
				call()
				require.Equal(t, []int{2, 3}, asked(scripts), "one call probes")
				close(begin)
				synctest.Wait()
				require.Zero(t, f.state("one").Cooled)
				require.EqualValues(t, 1, f.state("one").Attempts[gateway.AttemptAnswered])
				call()
				require.Equal(t, []int{3, 3}, asked(scripts), "the first level again")
			})
		})
	}
}

// TestCoolDownGrows: each fault in a row doubles the time, up to a minute, and an answer begins anew.
func TestCoolDownGrows(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		scripts := []*script{{open: fault(providers.FailureTimeout)}, {steps: answered()}}
		f := served(t, db, scripts)
		for _, want := range []float64{1, 2, 4, 8, 16, 32, 60, 60, 0, 1} {
			scripts[0].open = fault(providers.FailureTimeout)
			if want == 0 {
				scripts[0].open, scripts[0].steps = nil, answered()
			}
			_, err := f.Call(t.Context(), request(), nil)
			require.NoError(t, err)
			cooled := f.state("one").Cooled
			require.InDelta(t, want, cooled.Seconds(), want/4)
			time.Sleep(cooled) //nolint:forbidigo // on the fake clock
		}
	})
}

// TestOutageIsOneFault: calls that fail beside each other, and calls that began before the last fault, say nothing new.
func TestOutageIsOneFault(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		first, late := make(chan struct{}), make(chan struct{})
		scripts := []*script{{open: fault(providers.FailureTimeout), openAfter: first}, {steps: answered()}}
		f := served(t, db, scripts)
		calls := func(n int) {
			for range n {
				go func() { _, _ = f.Call(t.Context(), request(), nil) }()
			}
			synctest.Wait()
		}
		calls(64)
		scripts[0].openAfter = late
		calls(1)
		time.Sleep(time.Nanosecond) //nolint:forbidigo // on the fake clock
		close(first)
		synctest.Wait()
		require.InDelta(t, 1, f.state("one").Cooled.Seconds(), 0.25)
		time.Sleep(10 * time.Second) //nolint:forbidigo // on the fake clock
		close(late)
		synctest.Wait()
		require.Zero(t, f.state("one").Cooled, "the call began before the first fault")
		require.Equal(t, []int{65, 65}, asked(scripts))
	})
}

// TestAllEndpointsCool: a call then asks the endpoint that is free first, and only that; its wait is the shortest of all.
func TestAllEndpointsCool(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		cooling := func(wait time.Duration) *script {
			return &script{open: &providers.Error{Failure: providers.FailureOverloaded, RetryAfter: min(wait, time.Minute), Cool: wait, Elsewhere: true}}
		}
		scripts := []*script{cooling(2 * time.Hour), cooling(time.Hour), cooling(3 * time.Hour)}
		f := served(t, db, scripts)
		_, err := f.Call(t.Context(), request(), nil)
		require.Equal(t, time.Minute, requireFailure(t, err, gateway.OutcomeProviderOverloaded).RetryAfter)
		require.Equal(t, []int{1, 1, 1}, asked(scripts))
		scripts[1].open = fault(providers.FailureUnreachable)
		time.Sleep(2*time.Hour - 5*time.Second) //nolint:forbidigo // on the fake clock
		_, err = f.Call(t.Context(), request(), nil)
		require.Equal(t, []int{2, 2, 1}, asked(scripts), "the second, whose time is over, and the first, which is free soonest")
		require.Equal(t, time.Minute, requireFailure(t, err, gateway.OutcomeProviderOverloaded).RetryAfter)
		scripts[1].open, scripts[1].steps = nil, answered()
		_, err = f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
		require.Equal(t, []int{2, 3, 1}, asked(scripts))
		require.Zero(t, f.state("two").Cooled, "it has answered")
		_, err = f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
		require.Equal(t, []int{2, 4, 1}, asked(scripts))
	})
}

// TestHangingUpCoolsNothing: a client that leaves, and our own limits, are no fault of an endpoint. A call whose client left isn't moved.
func TestHangingUpCoolsNothing(t *testing.T) {
	t.Parallel()
	for _, key := range []func(*gateway.Request){streamed, keyed} {
		onFakeClock(t, func(t *testing.T, db *store.DB) {
			ctx, leave := context.WithCancel(t.Context())
			begin := make(chan struct{})
			scripts := []*script{{hangOpen: leave, begin: begin, open: fault(providers.FailureUnreachable)}, {steps: answered()}}
			f := served(t, db, scripts)
			go func() { _, _ = f.Call(ctx, request(key), newClient()) }()
			synctest.Wait()
			require.Equal(t, 1, f.Detached())
			close(begin)
			synctest.Wait()
			require.Equal(t, []int{1, 0}, asked(scripts))
			require.Zero(t, f.Detached(), "the place is given back")

			scripts[0].open = nil
			f.FillDrains()
			ctx, leave = context.WithCancel(t.Context())
			scripts[0].hangOpen, scripts[0].begin = leave, nil
			time.Sleep(time.Minute) //nolint:forbidigo // on the fake clock
			_, err := f.Call(ctx, request(key, func(r *gateway.Request) { r.IdempotencyKey += "2" }), newClient())
			requireFailure(t, err, gateway.OutcomeClientGone)
			require.Zero(t, f.state("one").Cooled)
			require.EqualValues(t, 1, f.state("one").Attempts[gateway.AttemptCanceled])
			require.False(t, f.state("one").Probing, "the next call may probe")
		})
	}
}

// TestBusyProviderIsPassedOver: the bound of calls to one provider sends the others elsewhere, and cools nothing.
func TestBusyProviderIsPassedOver(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		begin := make(chan struct{})
		scripts := []*script{{hangOpen: func() {}, begin: begin, steps: answered()}, {steps: answered()}}
		f := served(t, db, scripts, func(_ []gateway.Endpoint, entries []gateway.ProviderEntry) { entries[0].MaxCalls = 1 })
		for range 3 {
			go func() { _, _ = f.Call(t.Context(), request(), nil) }()
			synctest.Wait()
		}
		_, err := f.Call(t.Context(), request(keyed), nil)
		require.NoError(t, err)
		require.Equal(t, []int{1, 3}, asked(scripts))
		require.Zero(t, f.state("one").Cooled)
		scripts[1].open = fault(providers.FailureRefused)
		_, err = f.Call(t.Context(), request(), nil)
		requireFailure(t, err, gateway.OutcomeProviderError)
		require.Equal(t, 1, f.calls.CallsAt("one"))
		require.Zero(t, f.calls.CallsAt("two"))
		close(begin)
		synctest.Wait()
		require.Zero(t, f.calls.CallsAt("one"))
	})
}

// TestBudgetOfTime: all attempts of a call together last no longer than its hold.
func TestBudgetOfTime(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		slow := func() *script {
			s := &script{open: fault(providers.FailureTimeout)}
			s.hangOpen, s.begin = func() {}, nil
			return s
		}
		scripts := []*script{slow(), slow(), {steps: answered()}}
		f := served(t, db, scripts, func(_ []gateway.Endpoint, entries []gateway.ProviderEntry) {
			entries[0].MaxDuration = 40 * time.Second // of 60
		})
		began := time.Now()
		_, err := f.Call(t.Context(), request(streamed), newClient())
		requireFailure(t, err, gateway.OutcomeProviderTimeout)
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, []int{1, 1, 0}, asked(scripts))
		require.Zero(t, f.spent(t))
	})
}

// TestEarlyStatusOutlastsAnAttempt: status and role go out once, while attempts fail, and the text that follows is the last endpoint's.
func TestEarlyStatusOutlastsAnAttempt(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		slow := make(chan struct{})
		time.AfterFunc(gateway.DefaultEarlyStatus+time.Second, func() { close(slow) })
		scripts := []*script{{open: fault(providers.FailureTimeout), openAfter: slow}, {steps: answered()}}
		f := served(t, db, scripts)
		sink := newClient()
		var textAtFlush []int
		sink.onFlush = func() { textAtFlush = append(textAtFlush, len(sink.text)) }
		_, err := f.Call(t.Context(), request(streamed), sink)
		require.NoError(t, err)
		require.Equal(t, []int{0, 2}, textAtFlush)
		require.EqualValues(t, 50, f.spent(t))
	})
}

// TestKeysOfFailover: a call with the organization's own keys goes only where the organization has one, and never with the house's; a
// house call never uses the organization's.
func TestKeysOfFailover(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		scripts := []*script{{steps: answered()}, {open: fault(providers.FailureRefused)}, {steps: answered()}, {steps: answered()}}
		f := served(t, db, scripts, func(_ []gateway.Endpoint, entries []gateway.ProviderEntry) {
			entries[0].KeyMode, entries[0].APIKey = gateway.KeyMissing, ""
		})
		for _, name := range []string{"two", "four"} {
			sealed := f.Ring.Seal([]byte("own-"+name), vault.ProviderKey(org, name))
			require.NoError(t, db.ProviderKeys.Put(t.Context(), "test", store.ProviderKey{OrgID: org, Provider: name, Sealed: sealed}))
		}
		byok := func(r *gateway.Request) { r.BYOK = true }
		_, err := f.Call(t.Context(), request(byok), nil)
		require.NoError(t, err)
		require.Equal(t, []int{0, 1, 0, 1}, asked(scripts))
		require.Equal(t, "own-two", scripts[1].seen()[0].APIKey)
		require.Equal(t, "own-four", scripts[3].seen()[0].APIKey)

		require.Zero(t, f.state("two").Cooled, "the house's key has no fault")
		_, err = f.Call(t.Context(), request(byok), nil)
		require.NoError(t, err)
		require.Equal(t, []int{0, 1, 0, 2}, asked(scripts), "the organization's key cools")

		_, err = f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
		require.Equal(t, []int{0, 2, 1, 2}, asked(scripts))
		require.Equal(t, "key-two", scripts[1].seen()[1].APIKey)
		require.Equal(t, "key-three", scripts[2].seen()[0].APIKey)

		scripts[3].open = fault(providers.FailureRefused)
		_, err = f.Call(t.Context(), request(byok), nil)
		requireFailure(t, err, gateway.OutcomeProviderError)
		require.Zero(t, f.calls.CallsAt("one")+f.calls.CallsAt("two")+f.calls.CallsAt("three")+f.calls.CallsAt("four"))
	})
}

// TestWeights: conversations are shared out by weight, each stays at its endpoint, and a drained endpoint gets none, even if all others
// fail. Without a conversation the beginning of the prompt decides.
func TestWeights(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		scripts := []*script{{steps: answered()}, {steps: answered()}, {steps: answered()}}
		f := served(t, db, scripts, func(endpoints []gateway.Endpoint, _ []gateway.ProviderEntry) {
			for i, weight := range []int64{1, 3, 0} {
				endpoints[i].Order, endpoints[i].Weight = 0, weight
			}
		})
		const conversations = 60
		for _, of := range []func(*gateway.Request, int){
			func(r *gateway.Request, n int) { r.Conversation = fmt.Sprint("cnv_", n) },
			func(r *gateway.Request, n int) {
				r.Messages[0].Content = providers.Quote(fmt.Sprint("hello, I am ", n))
			},
		} {
			before := asked(scripts)
			for n := range conversations {
				first := asked(scripts)
				for turn := range 2 {
					_, err := f.Call(t.Context(), request(func(r *gateway.Request) {
						of(r, n)
						for i := range turn {
							r.Messages = append(r.Messages, r.Messages[0], providers.Message{Role: "user", Content: providers.Quote(fmt.Sprint(i))})
						}
					}), nil)
					require.NoError(t, err)
				}
				now := asked(scripts)
				require.Contains(t, []int{0, 2}, now[0]-first[0], "both turns at one endpoint")
			}
			require.InDelta(t, conversations*2/4, asked(scripts)[0]-before[0], conversations*2/8)
		}
		require.Zero(t, asked(scripts)[2])
		scripts[0].open, scripts[1].open = fault(providers.FailureRefused), fault(providers.FailureRefused)
		_, err := f.Call(t.Context(), request(), nil)
		requireFailure(t, err, gateway.OutcomeProviderError)
		require.Zero(t, asked(scripts)[2])
	})
}

// TestStopsOfEndpoints: every endpoint gets the stop sequences that all of them accept, and the others end the text at any of them.
func TestStopsOfEndpoints(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		scripts := []*script{{open: fault(providers.FailureRefused)}, {steps: answered()}}
		f := served(t, db, scripts, func(_ []gateway.Endpoint, entries []gateway.ProviderEntry) {
			entries[0].MaxStops, entries[1].MaxStops, entries[1].RefusesBlankStops = -1, 1, true
		})
		result, err := f.Call(t.Context(), request(func(r *gateway.Request) { r.Stop = []string{" ", "END", "wo"} }), nil)
		require.NoError(t, err)
		require.Equal(t, "one", result.Text)
		for _, s := range scripts {
			require.Equal(t, []string{"END"}, s.seen()[0].Stop)
		}
	})
}

// TestReloadKeepsCoolDowns: another configuration of the same process goes on with the state of an endpoint, unless its key or address
// has changed.
func TestReloadKeepsCoolDowns(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		scripts := []*script{{open: fault(providers.FailureRefused)}, {steps: answered()}}
		account := "a"
		f := served(t, db, scripts, func(_ []gateway.Endpoint, entries []gateway.ProviderEntry) { entries[0].Account = account })
		_, err := f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
		reload := func() []gateway.EndpointState {
			model, _ := f.Catalog.Model(modelID)
			catalog, err := gateway.NewCatalog([]gateway.Model{*model}, []gateway.ProviderEntry{
				{Name: "one", Provider: scripts[0], Account: account}, {Name: "two", Provider: scripts[1]},
			})
			require.NoError(t, err)
			cfg := f.Config
			cfg.Catalog = catalog
			return gateway.New(cfg).Endpoints()
		}
		require.Positive(t, reload()[0].Cooled)
		account = "b"
		require.Zero(t, reload()[0].Cooled)
	})
}

// TestSpanOfEachAttempt: every attempt has a span of its own with its endpoint's model and its end.
func TestSpanOfEachAttempt(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		ctx, recorder := traced(t)
		f := served(t, db, []*script{{open: fault(providers.FailureOverloaded)}, {steps: answered()}},
			func(_ []gateway.Endpoint, entries []gateway.ProviderEntry) { entries[0].SendTraceparent = true })
		_, err := f.Call(ctx, request(), nil)
		require.NoError(t, err)
		spans := recorder.Ended()
		require.Len(t, spans, 2)
		require.Equal(t, []string{"chat up-one", "chat up-two"}, []string{spans[0].Name(), spans[1].Name()})
		require.Equal(t, codes.Error, spans[0].Status().Code)
		require.Equal(t, codes.Unset, spans[1].Status().Code)
	})
}

// TestSilentEndpoint: a stream that has events and no text moves when the wait for its first byte would be over, unless its model reasons
// or it is at its last endpoint.
func TestSilentEndpoint(t *testing.T) {
	t.Parallel()
	for _, reasoning := range []bool{false, true} {
		onFakeClock(t, func(t *testing.T, db *store.DB) {
			slow := func() *script {
				thought := make(chan struct{})
				time.AfterFunc(50*time.Second, func() { close(thought) })
				return &script{steps: append([]step{usage(1, 0, 0), {until: thought}}, answered()...)}
			}
			silent := &script{steps: []step{usage(1, 0, 0), {hang: true}}}
			first := silent
			if reasoning {
				first = slow()
			}
			scripts := []*script{first, slow()}
			f := served(t, db, scripts, func(_ []gateway.Endpoint, entries []gateway.ProviderEntry) {
				entries[0].FirstText, entries[1].FirstText = 20*time.Second, 20*time.Second
			})
			model, _ := f.Catalog.Model(modelID)
			model.Reasoning = reasoning
			began, client := time.Now(), newClient()
			_, err := f.Call(t.Context(), request(streamed), client)
			require.NoError(t, err)
			require.Equal(t, []string{"one ", "two"}, client.text)
			require.Equal(t, 50*time.Second, time.Since(began))
			if reasoning {
				require.Equal(t, []int{1, 0}, asked(scripts))
				return
			}
			require.Equal(t, []int{1, 1}, asked(scripts))
			require.Equal(t, providers.FailureTimeout, f.state("one").Failure)
		})
	}
}

// TestOtherModel: an endpoint that answers with another model than the requested one is shown, until it answers with that or a version
// of it. An answer without a name changes nothing.
func TestOtherModel(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		s := &script{}
		f := served(t, db, []*script{s}, func(endpoints []gateway.Endpoint, _ []gateway.ProviderEntry) {
			endpoints[0].Upstream = "acme/gpt-5-latest"
		})
		for _, row := range [][2]string{
			{"acme/gpt-5-latest", ""},
			{"gpt-5", ""},
			{"GPT-5-2026-08-07", ""},
			{"other/gpt-5@20260807", ""},
			{"gpt-5.001", ""},
			{"gpt-5-mini", "gpt-5-mini"},
			{"", "gpt-5-mini"},
			{"gpt-50", "gpt-50"},
			{"gpt", "gpt"},
			{"gpt-5-2", ""},
		} {
			s.steps = append([]step{{event: providers.Event{Text: "x", Model: row[0]}}}, answered()...)
			_, err := f.Call(t.Context(), request(), nil)
			require.NoError(t, err)
			require.Equal(t, row[1], f.state("one").Other, row[0])
		}
	})
}

// TestFaultyEndpoints: a catalog names every fault.
func TestFaultyEndpoints(t *testing.T) {
	t.Parallel()
	entries := []gateway.ProviderEntry{{Name: "one"}, {Name: "two"}}
	for want, endpoints := range map[string][]gateway.Endpoint{
		`names the unknown provider "three"`:    {{Provider: "one", Weight: 1}, {Provider: "three", Weight: 1}},
		"has the endpoint one/m twice":          {{Provider: "one", Upstream: "m", Weight: 1}, {Provider: "one", Upstream: "m"}},
		"has no endpoint with a weight above 0": {{Provider: "one"}, {Provider: "two"}},
		"has more than 32 endpoints":            make([]gateway.Endpoint, 33),
	} {
		_, err := gateway.NewCatalog([]gateway.Model{{ID: "a/b", Endpoints: endpoints}}, entries)
		require.ErrorContains(t, err, want)
	}
	_, err := gateway.NewCatalog([]gateway.Model{{ID: "a/b", Endpoints: []gateway.Endpoint{
		{Provider: "one", Upstream: "m", Weight: 1}, {Provider: "one", Upstream: strings.Repeat("m", 2), Weight: 1},
	}}}, entries)
	require.NoError(t, err, "two endpoints of one account")
}

// TestCoolingEndpointsAreTheLastResort: while all endpoints cool after faults of their own, a call asks them one after the other, and
// gets its answer from whichever works again.
func TestCoolingEndpointsAreTheLastResort(t *testing.T) {
	t.Parallel()
	for well := range 3 {
		onFakeClock(t, func(t *testing.T, db *store.DB) {
			var scripts []*script
			for range 3 {
				scripts = append(scripts, &script{open: fault(providers.FailureUnreachable)})
			}
			f := served(t, db, scripts)
			_, err := f.Call(t.Context(), request(), nil)
			requireFailure(t, err, gateway.OutcomeProviderError)
			require.Equal(t, []int{1, 1, 1}, asked(scripts))
			scripts[well].open, scripts[well].steps = nil, answered()
			_, err = f.Call(t.Context(), request(), nil)
			require.NoError(t, err)
			require.Equal(t, 2, asked(scripts)[well])
		})
	}
}
