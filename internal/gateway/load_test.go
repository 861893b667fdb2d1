package gateway_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// crowd runs calls that hang at their vendor until the test lets them go.
type crowd struct {
	*fixture
	ctx   context.Context //nolint:containedctx // of all its calls
	leave context.CancelFunc
	group sync.WaitGroup
	want  int
}

// crowded is a fixture whose vendor "acme" hangs, and with second a vendor "other" that answers, as the model "other/std".
func crowded(t *testing.T, limits gateway.Config, maxCalls int, second bool) *crowd {
	t.Helper()
	f := setup(t, &script{hangOpen: func() {}})
	model, _ := f.Catalog.Model(modelID)
	models := []gateway.Model{*model}
	entries := []gateway.ProviderEntry{{
		Name: "acme", Provider: f.script, KeyMode: gateway.KeyNone, MaxDuration: time.Minute, MaxCalls: maxCalls,
	}}
	if second {
		other := *model
		other.ID, other.Provider = "other/std", "other"
		models = append(models, other)
		entries = append(entries, gateway.ProviderEntry{
			Name: "other", Provider: &script{steps: answered()}, KeyMode: gateway.KeyNone, MaxDuration: time.Minute,
		})
	}
	catalog, err := gateway.NewCatalog(models, entries)
	require.NoError(t, err)
	cfg := f.Config
	cfg.Catalog, cfg.CallLimit, cfg.Places = catalog, limits.CallLimit, limits.Places
	f.Gateway = gateway.New(cfg)
	c := &crowd{fixture: f}
	c.ctx, c.leave = context.WithCancel(t.Context())
	t.Cleanup(func() {
		c.leave()
		f.calls.Cut() // those that go on without their client
		c.group.Wait()
	})
	return c
}

// hang begins n calls of an organization that reach the vendor and stay there.
func (c *crowd) hang(t *testing.T, n int, change ...func(*gateway.Request)) {
	t.Helper()
	for range n {
		c.group.Go(func() { _, _ = c.Call(c.ctx, request(change...), nil) })
	}
	c.want += n
	require.Eventually(t, func() bool { return len(c.script.seen()) == c.want }, time.Minute, time.Millisecond)
}

func elsewhere(r *gateway.Request) { r.Model = "other/std" }

// TestCallLimit: an organization's calls in one process are bounded; one more is asked to come again, holds nothing and
// never reaches its vendor. Other organizations go on, and so does the first when a call has ended.
func TestCallLimit(t *testing.T) {
	t.Parallel()
	c := crowded(t, gateway.Config{CallLimit: 3}, 0, false)
	require.NoError(t, c.db.Organizations.Create(t.Context(), "test", store.Organization{ID: "org_2", Name: "Two", Plan: "free"}))
	_, err := c.book.Credit(t.Context(), "test", billing.WalletID{OrgID: "org_2", Env: store.Live}, credits, "start 2")
	require.NoError(t, err)
	c.hang(t, 3)
	for _, change := range []func(*gateway.Request){func(*gateway.Request) {}, keyed} {
		_, err = c.Call(t.Context(), request(change), nil)
		require.Equal(t, time.Second, requireFailure(t, err, gateway.OutcomeTooManyCalls).RetryAfter)
	}
	c.hang(t, 1, func(r *gateway.Request) { r.OrgID = "org_2" })
	require.Equal(t, 4, c.calls.CallsAt("acme"))

	c.calls.Cut()
	c.group.Wait()
	require.Zero(t, c.calls.CallsAt("acme"))
	_, err = c.Call(t.Context(), request(), nil)
	requireFailure(t, err, gateway.OutcomeExiting) // it was let in
	require.Zero(t, c.spent(t))
}

// TestCallsOfAKey: the running calls of a key in one process are bounded, and every end of a call gives its place back. Calls of other keys go on.
func TestCallsOfAKey(t *testing.T) {
	t.Parallel()
	c := crowded(t, gateway.Config{}, 0, true)
	bounded := func(r *gateway.Request) { r.KeyID, r.KeyConcurrent = "key_1", 2 }
	refused := func() {
		t.Helper()
		_, err := c.Call(t.Context(), request(bounded), nil)
		f := requireFailure(t, err, gateway.OutcomeTooManyCalls)
		require.Equal(t, time.Second, f.RetryAfter)
		require.Contains(t, f.Message, "The API key has 2 calls running on this server")
	}
	for range 5 { // a call that ends, is refused, or is replayed leaves nothing behind
		for _, change := range []func(*gateway.Request){elsewhere, keyed, func(r *gateway.Request) { r.Model = "acme/none" }} {
			_, _ = c.Call(t.Context(), request(bounded, elsewhere, change), nil)
		}
	}
	c.hang(t, 2, bounded)
	refused()
	c.hang(t, 2, func(r *gateway.Request) { r.KeyID, r.KeyConcurrent = "key_2", 2 })
	c.hang(t, 1, func(r *gateway.Request) { r.KeyID = "key_3" })
	_, err := c.Call(t.Context(), request(elsewhere, func(r *gateway.Request) { r.KeyID, r.KeyConcurrent = "key_1", 3 }), nil)
	require.NoError(t, err, "a raised bound holds from the next call on")
	refused()
	c.leave() // the clients leave
	c.calls.Cut()
	c.group.Wait()
	_, err = c.Call(t.Context(), request(bounded), nil)
	requireFailure(t, err, gateway.OutcomeExiting) // it was let in
}

// TestHangingVendor: calls to a vendor that hangs are bounded, over all organizations, for one organization, and in a
// worker; each bound leaves the calls to another vendor as they are.
func TestHangingVendor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limits   gateway.Config
		maxCalls int
		fit      int
	}{
		"max_calls":                         {maxCalls: 3, fit: 3},
		"three quarters of an organization": {limits: gateway.Config{CallLimit: 8}, fit: 6},
		"three quarters of a worker":        {limits: gateway.Config{Places: 4}, maxCalls: 2000, fit: 3},
		"of an organization's half of it":   {limits: gateway.Config{Places: 16}, fit: 6},
		"the least of them":                 {limits: gateway.Config{CallLimit: 100, Places: 40}, maxCalls: 2, fit: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := crowded(t, test.limits, test.maxCalls, true)
			c.hang(t, test.fit)
			for _, change := range []func(*gateway.Request){func(*gateway.Request) {}, streamed, keyed} {
				_, err := c.Call(t.Context(), request(change), newClient())
				require.Equal(t, 5*time.Second, requireFailure(t, err, gateway.OutcomeProviderBusy).RetryAfter)
			}
			_, err := c.Call(t.Context(), request(elsewhere), nil)
			require.NoError(t, err)
			c.calls.Cut()
			c.group.Wait()
			require.EqualValues(t, 50, c.spent(t))
		})
	}
}

// TestOnlyVendor: one without others needs no room beside it.
func TestOnlyVendor(t *testing.T) {
	t.Parallel()
	c := crowded(t, gateway.Config{CallLimit: 8, Places: 8}, 0, false)
	c.hang(t, 8)
	_, err := c.Call(t.Context(), request(), nil)
	requireFailure(t, err, gateway.OutcomeTooManyCalls)
}

// TestReplayNeedsNoPlaceAtItsVendor: what was answered before is answered again while the vendor hangs.
func TestReplayNeedsNoPlaceAtItsVendor(t *testing.T) {
	t.Parallel()
	c := crowded(t, gateway.Config{}, 1, false)
	c.script.hangOpen, c.script.steps = nil, answered()
	first, err := c.Call(t.Context(), request(keyed), nil)
	require.NoError(t, err)
	c.script.hangOpen = func() {}
	c.want++
	c.hang(t, 1)
	again, err := c.Call(t.Context(), request(keyed), nil)
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
}

// TestRoomForTheAnswer: without memory for its answer a call is asked to come again, before anything is held or asked. A stream
// needs none, and a kept answer needs its own.
func TestRoomForTheAnswer(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	full := false
	var asked []int64
	with := func(change ...func(*gateway.Request)) *gateway.Request {
		return request(append(change, func(r *gateway.Request) {
			r.Room = func(bytes int64) bool {
				asked = append(asked, bytes)
				return !full
			}
		})...)
	}
	_, err := f.Call(t.Context(), with(keyed), nil)
	require.NoError(t, err)
	_, err = f.Call(t.Context(), with(keyed), nil)
	require.NoError(t, err)
	require.Len(t, asked, 3)
	require.Equal(t, asked[0], asked[1], "by the tokens that the answer may have")
	require.NotEqual(t, asked[0], asked[2], "by the bytes that are kept")
	other := func(r *gateway.Request) { r.IdempotencyKey, r.Stream = "order-2", true }
	_, err = f.Call(t.Context(), with(other), newClient())
	require.NoError(t, err)
	require.Len(t, asked, 3, "a stream needs no room")
	spent := f.spent(t)

	full = true
	for _, change := range []func(*gateway.Request){func(*gateway.Request) {}, keyed} {
		_, err = f.Call(t.Context(), with(change), nil)
		require.Equal(t, time.Second, requireFailure(t, err, gateway.OutcomeTooManyCalls).RetryAfter)
	}
	client := newClient()
	_, err = f.Call(t.Context(), with(other), client)
	requireFailure(t, err, gateway.OutcomeTooManyCalls)
	require.Empty(t, client.text)
	require.Equal(t, spent, f.spent(t))
	require.Len(t, f.script.seen(), 2)
	full = false
	_, err = f.Call(t.Context(), with(keyed), nil)
	require.NoError(t, err, "the key was not used up")
}
