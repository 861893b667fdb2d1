package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/providers"
)

type failure = gateway.Failure

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	org      = "org_1"
	modelID  = "acme/std"
	credits  = 1_000_000_000
	masterK  = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	window   = 1000
	maxOut   = 200
	priceIn  = 1_000_000 // one micro a token
	priceOut = 2_000_000
)

// fixture is a gateway on a fresh SQLite store with one funded organization; the store's conformance suite covers
// the engines, so one is enough here.
type fixture struct {
	*gateway.Gateway
	db       *store.DB
	book     *billing.Book
	script   *script
	observed *observed
	calls    *gateway.InFlight
}

type observed struct {
	mu    sync.Mutex
	ended []gateway.Ended
	late  int
	all   billing.Settled // the sums of all calls
}

func (o *observed) settled() billing.Settled {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all
}

func (o *observed) CallEnded(e gateway.Ended) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, e)
	o.add(e.Settled)
}

func (o *observed) SettledLate(_ string, settled billing.Settled) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(settled)
}

func (o *observed) add(settled billing.Settled) {
	o.all.ChargedMicros += settled.ChargedMicros
	o.all.ShortfallMicros += settled.ShortfallMicros
}

func (o *observed) SettleLate() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late++
}

func setup(t testing.TB, s *script, change ...func(*gateway.Model, *gateway.ProviderEntry)) *fixture {
	t.Helper()
	return setupAt(t, storetest.Open(t, store.SQLite, billing.Ledger), s, change...)
}

// setupAt is setup on a fresh store of the test's own.
func setupAt(t testing.TB, db *store.DB, s *script, change ...func(*gateway.Model, *gateway.ProviderEntry)) *fixture {
	t.Helper()
	book := billing.NewBook(db)
	ctx := t.Context()
	require.NoError(t, db.Organizations.Create(ctx, "test", store.Organization{ID: org, Name: "Acme", Plan: "free"}))
	_, err := book.Credit(ctx, "test", wallet(), credits, "start")
	require.NoError(t, err)
	ring, err := vault.ParseRing(masterK)
	require.NoError(t, err)

	model := gateway.Model{
		ID: modelID, Provider: "acme", Upstream: "std-1", ContextWindow: window, MaxOutputTokens: maxOut,
		MaxTokensField: "max_tokens", Price: billing.Price{Input: priceIn, Output: priceOut, CachedInput: priceIn / 2},
	}
	entry := gateway.ProviderEntry{
		Name: "acme", Provider: s, KeyMode: gateway.KeyOperator, APIKey: "house-key", MaxDuration: time.Minute,
	}
	for _, f := range change {
		f(&model, &entry)
	}
	catalog, err := gateway.NewCatalog([]gateway.Model{model}, []gateway.ProviderEntry{entry})
	require.NoError(t, err)
	watch, calls := &observed{}, gateway.NewInFlight()
	return &fixture{
		Gateway: gateway.New(gateway.Config{
			Catalog: catalog, Book: book, DB: db, Ring: ring, Calls: calls, HoldTTL: time.Minute, Observer: watch,
		}),
		db: db, book: book, script: s, observed: watch, calls: calls,
	}
}

func wallet() billing.WalletID { return billing.WalletID{OrgID: org, Env: store.Live} }

func request(change ...func(*gateway.Request)) *gateway.Request {
	req := &gateway.Request{
		RequestID: "req_1", OrgID: org, Env: store.Live, Model: modelID,
		Messages: []providers.Message{{Role: "user", Content: providers.Quote("hello there")}}, MaxTokens: 100,
	}
	for _, f := range change {
		f(req)
	}
	return req
}

func streamed(req *gateway.Request) { req.Stream = true }

// spent is what the wallet lost since the start; the books must be in order and nothing may be held.
func (f *fixture) spent(t *testing.T) int64 {
	t.Helper()
	require.NoError(t, f.calls.Wait(t.Context()))
	w, err := f.book.Wallet(t.Context(), wallet())
	require.NoError(t, err)
	require.Zero(t, w.HeldMicros, "something is still held")
	report, err := billing.Check(t.Context(), f.db)
	require.NoError(t, err)
	require.True(t, report.OK(), "%v", report)
	return credits - w.BalanceMicros
}

// ended is the only ending that the metrics received.
func (f *fixture) ended(t *testing.T) gateway.Ended {
	t.Helper()
	require.Len(t, f.observed.ended, 1, "a call ends exactly once")
	return f.observed.ended[0]
}

// TestUsageOfAnEmptyAnswer: an answer without text may have no completion tokens, but its prompt has tokens.
func TestUsageOfAnEmptyAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		report  step
		charged int64
		source  billing.UsageSource
	}{
		"no completion":  {report: usage(10, 0, 0), charged: 10, source: billing.UsageProvider},
		"only reasoning": {report: usage(10, 60, 0), charged: 10 + 2*60, source: billing.UsageProvider},
		"zeros":          {report: usage(0, 0, 0), charged: 12, source: billing.UsageEstimated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{finish("stop"), test.report}})
			_, err := f.Call(t.Context(), request(), nil)
			require.NoError(t, err)
			require.Equal(t, test.source, f.ended(t).UsageSource)
			require.Equal(t, test.charged, f.spent(t))
		})
	}
}

// TestReportedUsageIsKept: up to the model's window the vendor's report is recorded as it came, whatever was reserved.
func TestReportedUsageIsKept(t *testing.T) {
	t.Parallel()
	for _, report := range []billing.Usage{
		{PromptTokens: window, CompletionTokens: 20, CachedPromptTokens: window},
		{PromptTokens: 10, CompletionTokens: window},
		{PromptTokens: 500, CompletionTokens: maxOut + 1},
	} {
		f := setup(t, &script{steps: []step{
			text("one two"), finish("stop"), usage(report.PromptTokens, report.CompletionTokens, report.CachedPromptTokens),
		}})
		result, err := f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
		require.Equal(t, report, result.Usage)
		require.Equal(t, report, f.ended(t).Usage)
		require.Equal(t, billing.UsageProvider, f.ended(t).UsageSource)
	}
}

// TestEndings: what the caller gets in both response forms, what it costs, and that nothing stays held. TestTableOfEndings has the rows of
// docs/billing.md#what-each-ending-costs.
func TestEndings(t *testing.T) {
	t.Parallel()
	answer := []step{text("one "), text("two"), finish("stop")}
	tests := map[string]struct {
		steps []step
		open  error
		// streamOnly endings can't come up in the other form.
		streamOnly bool
		leaveAfter int
		outcome    gateway.Outcome
		charged    int64
		source     billing.UsageSource
	}{
		"complete with usage": {
			steps: append(answer[:3:3], usage(10, 20, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 10 + 2*20, source: billing.UsageProvider,
		},
		"cached prompt tokens have their own price": {
			steps: append(answer[:3:3], usage(10, 20, 4)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 6 + 4/2 + 2*20, source: billing.UsageProvider,
		},
		"the largest report counts": {
			steps: append(answer[:3:3], usage(1, 1, 0), usage(10, 20, 4), usage(12, 3, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 8 + 4/2 + 2*20, source: billing.UsageProvider,
		},
		"zeros after a report change nothing": {
			steps: append(answer[:3:3], usage(10, 20, 0), usage(0, 0, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 50, source: billing.UsageProvider,
		},
		"an absurd report after a good one changes nothing": {
			steps: append(answer[:3:3], usage(10, 20, 0), usage(-5, window+1, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 50, source: billing.UsageProvider,
		},
		"zeros beside a text are estimated": {
			steps: append(answer[:3:3], usage(0, 0, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 12 + 2*3, source: billing.UsageEstimated,
		},
		"no completion beside a text is estimated": {
			steps: append(answer[:3:3], usage(10, 0, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 10 + 2*3, source: billing.UsageEstimated,
		},
		"no prompt is estimated": {
			steps: append(answer[:3:3], usage(0, 20, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 12 + 2*20, source: billing.UsageEstimated,
		},
		"prompt and completion may be reported apart": {
			steps: append(append([]step{usage(10, 1, 4)}, answer...), usage(0, 20, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 6 + 4/2 + 2*20, source: billing.UsageProvider,
		},
		"text after the last count is estimated": {
			steps:   []step{text("one "), usage(10, 20, 0), text("two"), finish("stop"), usage(0, 0, 0)},
			outcome: gateway.OutcomeCompleted, leaveAfter: -1, charged: 10 + 2*(20+1), source: billing.UsageEstimated,
		},
		"a smaller count covers no text": {
			steps:   []step{text("one "), usage(10, 20, 0), text("two"), finish("stop"), usage(10, 19, 0)},
			outcome: gateway.OutcomeCompleted, leaveAfter: -1, charged: 10 + 2*(20+1), source: billing.UsageEstimated,
		},
		"the same count again covers the text": {
			steps:   []step{text("one "), usage(10, 20, 0), text("two"), finish("stop"), usage(10, 20, 0)},
			outcome: gateway.OutcomeCompleted, leaveAfter: -1, charged: 50, source: billing.UsageProvider,
		},
		"no usage is estimated": {
			steps: answer, leaveAfter: -1, outcome: gateway.OutcomeCompleted,
			// a third of the bytes: "hello there" with 24 of overhead, and "one two"
			charged: 12 + 2*3, source: billing.UsageEstimated,
		},
		"negative usage is estimated": {
			steps: append(answer[:3:3], usage(-5, 20, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 18, source: billing.UsageEstimated,
		},
		"a prompt above the window is estimated": {
			steps: append(answer[:3:3], usage(window+1, 20, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 18, source: billing.UsageEstimated,
		},
		"usage above the window is estimated": {
			steps: append(answer[:3:3], usage(10, window+1, 0)), leaveAfter: -1,
			outcome: gateway.OutcomeCompleted, charged: 18, source: billing.UsageEstimated,
		},
		"vendor refuses": {
			open:       &providers.Error{Failure: providers.FailureRefused, Permanent: true},
			leaveAfter: -1, outcome: gateway.OutcomeProviderError, source: billing.UsageNone,
		},
		"vendor is overloaded": {
			open:       &providers.Error{Failure: providers.FailureOverloaded},
			leaveAfter: -1, outcome: gateway.OutcomeProviderOverloaded, source: billing.UsageNone,
		},
		"vendor times out": {
			open:       &providers.Error{Failure: providers.FailureTimeout},
			leaveAfter: -1, outcome: gateway.OutcomeProviderTimeout, source: billing.UsageNone,
		},
		"vendor finds the context too long": {
			open:       &providers.Error{Failure: providers.FailureContextTooLong},
			leaveAfter: -1, outcome: gateway.OutcomeContextTooLong, source: billing.UsageNone,
		},
		"vendor finds the request too large": {
			open:       &providers.Error{Failure: providers.FailureRequestTooLarge},
			leaveAfter: -1, outcome: gateway.OutcomeRequestTooLarge, source: billing.UsageNone,
		},
		"vendor dies in the middle": {
			steps: []step{text("one "), broken(providers.FailureUnreachable)}, leaveAfter: -1,
			outcome: gateway.OutcomeProviderError, source: billing.UsageNone,
		},
		"vendor dies in the middle after it reported usage": {
			steps:      []step{text("one "), usage(10, 5, 0), broken(providers.FailureTimeout)},
			leaveAfter: -1, outcome: gateway.OutcomeProviderTimeout, charged: 20, source: billing.UsageProvider,
		},
		"client leaves in the middle": {
			steps: answer, streamOnly: true, leaveAfter: 1, outcome: gateway.OutcomeClientGone,
			// both pieces were generated, even if the client didn't read them
			charged: 12 + 2*3, source: billing.UsageEstimated,
		},
		"client leaves in the middle after usage was reported": {
			steps:      []step{usage(10, 1, 0), text("one "), text("two")},
			streamOnly: true, leaveAfter: 1, outcome: gateway.OutcomeClientGone,
			// and the text that came after the report
			charged: 10 + 2*(1+3), source: billing.UsageEstimated,
		},
	}
	for name, test := range tests {
		for _, stream := range []bool{false, true} {
			if test.streamOnly && !stream {
				continue
			}
			t.Run(name+map[bool]string{true: ", stream", false: ", answer"}[stream], func(t *testing.T) {
				t.Parallel()
				s := script{open: test.open, steps: test.steps}
				f := setup(t, &s)
				req := request(func(r *gateway.Request) { r.Stream = stream })
				var sink gateway.Sink
				if stream {
					c := newClient()
					c.leaveAfter = test.leaveAfter
					sink = c
				}
				result, err := f.Call(t.Context(), req, sink)
				require.Equal(t, test.charged, f.spent(t))
				ended := f.ended(t)
				require.Equal(t, test.outcome, ended.Outcome)
				require.Equal(t, test.source, ended.UsageSource)
				if test.outcome != gateway.OutcomeCompleted {
					require.Nil(t, result)
					requireFailure(t, err, test.outcome)
					return
				}
				require.NoError(t, err)
				require.Equal(t, test.charged, result.ChargedMicros)
				require.Equal(t, "stop", result.FinishReason)
				if !stream {
					require.Equal(t, "one two", result.Text)
				}
			})
		}
	}
}

// TestClientLeavesWhileTheVendorIsSilent: after some text the end of the request's context cancels the vendor's call, and
// the estimate is charged. Before the vendor begins: see TestHangingUpBeforeTheVendorBegins.
func TestClientLeavesWhileTheVendorIsSilent(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{text("one two"), {hang: true}}})
	ctx, leave := context.WithCancel(t.Context())
	sink := newClient()
	sink.onText = func(int) { leave() }
	_, err := f.Call(ctx, request(streamed), sink)
	requireFailure(t, err, gateway.OutcomeClientGone)
	require.EqualValues(t, 12+2*3, f.spent(t))
	require.Equal(t, 1, f.script.closings(), "the vendor's answer must be closed")
}

// TestClientLeavesBeforeTheHold: no fault of ours, and nothing stays held.
func TestClientLeavesBeforeTheHold(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{})
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err := f.Call(ctx, request(), nil)
	requireFailure(t, err, gateway.OutcomeClientGone)
	require.Zero(t, f.spent(t))
}

// TestCutByExit: a call that the exit of the process cuts charges only what the vendor reported.
func TestCutByExit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps   []step
		charged int64
	}{
		"nothing reported": {steps: []step{text("one"), {hang: true}}},
		"usage reported":   {steps: []step{usage(10, 5, 0), text("one"), {hang: true}}, charged: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: test.steps})
			sink := newClient()
			sink.onText = func(int) { f.calls.Cut() }
			_, err := f.Call(t.Context(), request(streamed), sink)
			requireFailure(t, err, gateway.OutcomeExiting)
			require.Equal(t, test.charged, f.spent(t))
		})
	}
}

// TestUpstreamRequest: what goes to the vendor are the contract's fields in the vendor's terms.
func TestUpstreamRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		asked, prompt, want int64
	}{
		"as asked":                                   {asked: 50, prompt: 11, want: 50},
		"the model's own bound":                      {asked: 0, prompt: 11, want: maxOut},
		"never above the model's bound":              {asked: 5000, prompt: 11, want: maxOut},
		"what the window leaves, by counted tokens":  {asked: 0, prompt: 5400, want: 0},
		"bytes that would lower it are counted over": {asked: 0, prompt: 900, want: maxOut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(1, 1, 0)}})
			words := ""
			for int64(len(words)) < test.prompt {
				words += "hello there "
			}
			_, err := f.Call(t.Context(), request(func(r *gateway.Request) {
				r.MaxTokens = test.asked
				r.Messages[0].Content = providers.Quote(words)
			}), nil)
			require.NoError(t, err)
			got := f.script.seen()[0]
			want := test.want
			if want == 0 {
				require.Positive(t, got.MaxTokens)
				require.Less(t, got.MaxTokens, int64(maxOut))
				return
			}
			require.Equal(t, want, got.MaxTokens)
			require.Equal(t, "std-1", got.Model)
			require.Equal(t, "house-key", got.APIKey)
		})
	}
}

// TestContextTooLong: a prompt whose counted tokens exceed the window by more than a quarter is refused here, with a
// text that clients recognise, and never reaches the vendor.
func TestContextTooLong(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{})
	words := ""
	for range 1300 {
		words += "hello "
	}
	_, err := f.Call(t.Context(), request(func(r *gateway.Request) { r.Messages[0].Content = providers.Quote(words) }), nil)
	failed := requireFailure(t, err, gateway.OutcomeContextTooLong)
	require.Contains(t, failed.Message, "maximum context length")
	require.Empty(t, f.script.seen())
	require.Zero(t, f.spent(t))
}

// TestModelMustBeEnabled: unknown and disabled models are refused before anything else happens.
func TestModelMustBeEnabled(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{})
	_, err := f.Call(t.Context(), request(func(r *gateway.Request) { r.Model = "acme/none" }), nil)
	requireFailure(t, err, gateway.OutcomeUnsupportedModel)
	require.NoError(t, f.db.Organizations.SetModel(t.Context(), "test", org, modelID, false))
	_, err = f.Call(t.Context(), request(), nil)
	requireFailure(t, err, gateway.OutcomeUnsupportedModel)
	require.Empty(t, f.script.seen())
}

// TestLiveOnlyModel: for a key of the test environment the model is unknown, whether it is listed for the organization or not.
func TestLiveOnlyModel(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()}, func(m *gateway.Model, _ *gateway.ProviderEntry) { m.LiveOnly = true })
	_, err := f.book.Credit(t.Context(), "test", billing.WalletID{OrgID: org, Env: store.Test}, credits, "start")
	require.NoError(t, err)
	_, unknown := f.Call(t.Context(), request(func(r *gateway.Request) { r.Model = "acme/none" }), nil)
	for _, change := range []func(*gateway.Request){func(*gateway.Request) {}, keyed, func(r *gateway.Request) { r.BYOK = true }} {
		_, err := f.Call(t.Context(), request(change, func(r *gateway.Request) { r.Env = store.Test }), nil)
		require.Equal(t, unknown, err)
	}
	require.Empty(t, f.script.seen())
	_, err = f.Call(t.Context(), request(), nil)
	require.NoError(t, err)
}

// TestModelsOfAKey: a model that the key may not use is unknown.
func TestModelsOfAKey(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	_, unknown := f.Call(t.Context(), request(func(r *gateway.Request) { r.Model = "acme/none" }), nil)
	for _, models := range [][]string{{}, {"acme/none", "acme"}} {
		for _, change := range []func(*gateway.Request){func(*gateway.Request) {}, keyed, func(r *gateway.Request) { r.AllModels = true }} {
			_, err := f.Call(t.Context(), request(change, func(r *gateway.Request) { r.KeyModels = store.NewKeyModels(models) }), nil)
			require.Equal(t, unknown, err)
		}
	}
	require.Empty(t, f.script.seen())
	_, err := f.Call(t.Context(), request(func(r *gateway.Request) { r.KeyModels = store.NewKeyModels([]string{"acme/none", r.Model}) }), nil)
	require.NoError(t, err)
}

// TestWallet: the hold is for the worst case by bytes, then by counted tokens; without enough nothing is called.
func TestWallet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		balance int64
		outcome gateway.Outcome
	}{
		// by bytes: 11 + 8 + 16 = 35, and 2 × 100 for the answer; by count: 2 + 8 + 16 = 26, and 200
		"enough by bytes":       {balance: 235, outcome: gateway.OutcomeCompleted},
		"enough only by tokens": {balance: 226, outcome: gateway.OutcomeCompleted},
		"not enough":            {balance: 225, outcome: gateway.OutcomeInsufficientCredits},
		"nothing":               {balance: 0, outcome: gateway.OutcomeInsufficientCredits},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(1, 1, 0)}})
			if test.balance < credits {
				_, err := f.book.Adjust(t.Context(), "test", wallet(), test.balance-credits, "test", "less", "")
				require.NoError(t, err)
			}
			_, err := f.Call(t.Context(), request(), nil)
			if test.outcome == gateway.OutcomeCompleted {
				require.NoError(t, err)
				require.Len(t, f.script.seen(), 1)
				return
			}
			requireFailure(t, err, test.outcome)
			require.Empty(t, f.script.seen(), "no vendor is called without a hold")
		})
	}
}

// TestBudget: a call that a budget has too little left for is refused for good before a vendor is called, with the budget's name, limit and end.
// Only a count shows that some calls fit. The assistant's budget is nothing to other calls.
func TestBudget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit   int64
		agent   string
		outcome gateway.Outcome
	}{
		"enough by bytes":       {limit: 235, agent: "agt_1", outcome: gateway.OutcomeCompleted},
		"enough only by tokens": {limit: 226, agent: "agt_1", outcome: gateway.OutcomeCompleted},
		"not enough":            {limit: 225, agent: "agt_1", outcome: gateway.OutcomeBudgetExceeded},
		"nothing":               {limit: 0, agent: "agt_1", outcome: gateway.OutcomeBudgetExceeded},
		"another's":             {limit: 0, outcome: gateway.OutcomeCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(1, 1, 0)}})
			require.NoError(t, f.db.Agents.Create(t.Context(), "test", store.Agent{ID: "agt_1", OrgID: org, Name: "a", Model: modelID}))
			_, err := f.book.CreateBudget(t.Context(), "test", billing.Budget{
				Wallet: wallet(), Owner: billing.OwnerAssistant, OwnerID: "agt_1", Name: "Support", Period: billing.PeriodDay, LimitMicros: test.limit,
			})
			require.NoError(t, err)
			_, err = f.Call(t.Context(), request(func(r *gateway.Request) { r.AgentID, r.BudgetVersion = test.agent, 1 }), nil)
			room, roomErr := f.BudgetRoom(t.Context(), org, "agt_1", store.Live)
			require.NoError(t, roomErr)
			if test.outcome == gateway.OutcomeCompleted {
				require.NoError(t, err)
				spent := f.spent(t)
				if test.agent == "" {
					spent = 0
				}
				require.Equal(t, test.limit-spent, room)
				return
			}
			failed := requireFailure(t, err, test.outcome)
			require.True(t, failed.NoRetry)
			require.Zero(t, failed.RetryAfter)
			require.Contains(t, failed.Message, fmt.Sprintf(`The budget "Support" has too little left for this call: 0 of %d micros are spent`, test.limit))
			require.Contains(t, failed.Message, "It ends at 20")
			require.Equal(t, test.limit, room)
			require.Empty(t, f.script.seen(), "no vendor is called without a hold")
			require.Zero(t, f.spent(t))
		})
	}
}

// TestReserveMaxOutput: the hold is for the model's largest answer, by bytes and by count, and pays for hidden tokens beyond
// max_tokens. The vendor still gets the request's max_tokens.
func TestReserveMaxOutput(t *testing.T) {
	t.Parallel()
	for balance, enough := range map[int64]bool{
		35 + 2*maxOut: true, 26 + 2*maxOut: true, 26 + 2*maxOut - 1: false,
	} {
		f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(26, maxOut, 0)}},
			func(m *gateway.Model, _ *gateway.ProviderEntry) { m.ReserveMaxOutput = true })
		_, err := f.book.Adjust(t.Context(), "test", wallet(), balance-credits, "test", "less", "")
		require.NoError(t, err)
		result, err := f.Call(t.Context(), request(), nil)
		if !enough {
			requireFailure(t, err, gateway.OutcomeInsufficientCredits)
			continue
		}
		require.NoError(t, err)
		require.EqualValues(t, 26+2*maxOut, result.ChargedMicros)
		require.EqualValues(t, 100, f.script.seen()[0].MaxTokens)
	}
}

// TestRefusedParameters: the vendor doesn't get parameters that the model refuses, and gets the word for its least thinking.
func TestRefusedParameters(t *testing.T) {
	t.Parallel()
	heat := 0.5
	ask := request(func(r *gateway.Request) { r.Temperature, r.TopP, r.Stop = &heat, &heat, []string{"END"} })
	f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(26, 1, 0)}}, func(m *gateway.Model, _ *gateway.ProviderEntry) {
		m.DropSampling, m.DropStop, m.Thinking = true, true, "minimal"
	})
	_, err := f.Call(t.Context(), ask, nil)
	require.NoError(t, err)
	sent := f.script.seen()[0]
	require.Nil(t, sent.Temperature)
	require.Nil(t, sent.TopP)
	require.Nil(t, sent.Stop)
	require.Equal(t, "minimal", sent.Thinking)
}

// TestLeastMaxTokens: a max_tokens that leaves no room for an answer is refused before anything is held. A turn's is raised, because
// the customer who waits can't change it, and the smallest is kept in a full window.
func TestLeastMaxTokens(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		asked, sent int64
		content     int
		turn        bool
	}{
		"too few":          {asked: 49},
		"just enough":      {asked: 50, sent: 50},
		"none":             {sent: maxOut},
		"too few, a turn":  {asked: 49, sent: 50, turn: true},
		"nearly no window": {asked: 60, sent: 50, content: window - 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(26, 1, 0)}},
				func(m *gateway.Model, _ *gateway.ProviderEntry) { m.LeastMaxTokens = 50 })
			ask := request(func(r *gateway.Request) { r.MaxTokens = test.asked })
			if test.content > 0 {
				ask.Messages[0].Content = providers.Quote(strings.Repeat(" a", test.content))
			}
			if test.turn {
				new(playedTurn).of(ask)
			}
			_, err := f.Call(t.Context(), ask, nil)
			if test.sent > 0 {
				require.NoError(t, err)
				require.Equal(t, test.sent, f.script.seen()[0].MaxTokens)
				return
			}
			refused := requireFailure(t, err, gateway.OutcomeInvalidRequest)
			require.Equal(t, "max_tokens", refused.Field)
			require.Contains(t, refused.Message, "at least 50 ")
			require.True(t, refused.NoRetry)
			require.Empty(t, f.script.seen())
			require.Zero(t, f.spent(t))
		})
	}
}

// TestFreeModel: a price of 0 needs no wallet.
func TestFreeModel(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(1, 1, 0)}},
		func(m *gateway.Model, _ *gateway.ProviderEntry) { m.Price = billing.Price{} })
	result, err := f.Call(t.Context(), request(func(r *gateway.Request) { r.OrgID = "org_poor" }), nil)
	require.NoError(t, err)
	require.Zero(t, result.ChargedMicros)
}

// TestOwnKey: a call with the organization's own key costs nothing, needs no credits, and sends that key.
func TestOwnKey(t *testing.T) {
	t.Parallel()
	own := func(r *gateway.Request) { r.BYOK = true }
	f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(100, 100, 0)}})
	_, err := f.Call(t.Context(), request(own), nil)
	failed := requireFailure(t, err, gateway.OutcomeProviderError)
	require.True(t, failed.NoRetry)
	require.Empty(t, f.script.seen())

	sealed := f.Ring.Seal([]byte("their-key"), vault.ProviderKey(org, "acme"))
	require.NoError(t, f.db.ProviderKeys.Put(t.Context(), "test", store.ProviderKey{OrgID: org, Provider: "acme", Sealed: sealed, Hint: "key"}))
	result, err := f.Call(t.Context(), request(own), nil)
	require.NoError(t, err)
	require.True(t, result.BYOK)
	require.Zero(t, result.ChargedMicros)
	require.Equal(t, "their-key", f.script.seen()[0].APIKey)
	require.Zero(t, f.spent(t))
}

// TestMissingHouseKey: a provider without `api_key` serves only organizations that bring their own.
func TestMissingHouseKey(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{}, func(_ *gateway.Model, p *gateway.ProviderEntry) { p.KeyMode, p.APIKey = gateway.KeyMissing, "" })
	_, err := f.Call(t.Context(), request(), nil)
	failed := requireFailure(t, err, gateway.OutcomeProviderError)
	require.True(t, failed.NoRetry)
	require.Empty(t, f.script.seen())
	require.Zero(t, f.spent(t))
}

// TestFlushesOnlyWhenTheVendorPauses: a burst costs one write, and nothing waits behind a pause.
func TestFlushesOnlyWhenTheVendorPauses(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{text("a"), text("b"), text("c"), {hang: true}}})
	ctx, leave := context.WithCancel(t.Context())
	sink := newClient()
	sink.onText = func(pieces int) {
		if pieces == 3 {
			leave()
		}
	}
	_, err := f.Call(ctx, request(streamed), sink)
	requireFailure(t, err, gateway.OutcomeClientGone)
	require.Equal(t, []string{"a", "b", "c"}, sink.text)
	require.Equal(t, 1, sink.flushes)
}

// TestRetryAfter: the vendor's wish stays within 1..60 s and has a default.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for wish, want := range map[time.Duration]time.Duration{
		0: 5 * time.Second, time.Millisecond: time.Second, 7 * time.Second: 7 * time.Second, time.Hour: time.Minute,
	} {
		f := setup(t, &script{open: &providers.Error{Failure: providers.FailureOverloaded, RetryAfter: wish}})
		_, err := f.Call(t.Context(), request(), nil)
		require.Equal(t, want, requireFailure(t, err, gateway.OutcomeProviderOverloaded).RetryAfter)
	}
}

// A quoted piece goes on as it is to a sink that takes it, and as text to any other sink and into the answer that is kept.
func TestQuotedPieces(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{
		{event: providers.Event{Quoted: providers.Quote("a \"b\"\n")}}, text("c"), finish("stop"),
	}})
	quoting, plain, again := &quotingClient{client: newClient()}, newClient(), newClient()
	_, err := f.Call(t.Context(), request(streamed), quoting)
	require.NoError(t, err)
	require.Equal(t, []string{`"a \"b\"\n"`}, quoting.quoted)
	require.Equal(t, []string{"c"}, quoting.text)

	_, err = f.Call(t.Context(), request(streamed, keyed), plain)
	require.NoError(t, err)
	require.Equal(t, []string{"a \"b\"\n", "c"}, plain.text)
	_, err = f.Call(t.Context(), request(streamed, keyed), again)
	require.NoError(t, err)
	require.Equal(t, []string{"a \"b\"\nc"}, again.text)

	whole, err := f.Call(t.Context(), request(), nil)
	require.NoError(t, err)
	require.Equal(t, "a \"b\"\nc", whole.Text)
	require.EqualValues(t, 3, whole.Usage.CompletionTokens, "estimated of 7 bytes")
}

// TestTheSettlementIsNoPartOfTheVendorsTime: every look at the clock takes a second here, and there are three from the start of the
// vendor's call to its end: the start, the first text and the end.
func TestTheSettlementIsNoPartOfTheVendorsTime(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	now := time.Unix(1_800_000_000, 0)
	f.Now = func() time.Time {
		now = now.Add(time.Second)
		return now
	}
	_, err := f.Call(t.Context(), request(), nil)
	require.NoError(t, err)
	require.Equal(t, time.Second, f.ended(t).FirstText)
	require.Equal(t, 2*time.Second, f.ended(t).Upstream)
}
