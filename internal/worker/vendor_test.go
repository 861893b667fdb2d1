package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// TestAHangingVendorTakesItsShare guarantees that one vendor which never answers, with much queued work of many organizations, holds up
// no organization whose model is another vendor's: the wait stays near what it is without that work.
func TestAHangingVendorTakesItsShare(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		const places, organizations, flood, rounds = 8, 6, 100, 15
		const hangingModel = "hanging/std"
		hanging := &vendor{reply: func(ctx context.Context, _ int, _ []string) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}}
		model := gateway.Model{
			ID: modelID, Provider: "vendor", Upstream: "std-1", ContextWindow: window, MaxOutputTokens: maxOutput,
			MaxTokensField: "max_tokens", Price: billing.Price{Input: 1_000_000, Output: 2_000_000, CachedInput: 1_000_000},
		}
		other := model
		other.ID, other.Provider = hangingModel, "hanging"
		catalog, err := gateway.NewCatalog([]gateway.Model{model, other}, []gateway.ProviderEntry{
			{Name: "vendor", Provider: h.vendor, KeyMode: gateway.KeyNone, MaxDuration: time.Minute},
			{Name: "hanging", Provider: hanging, KeyMode: gateway.KeyNone, MaxDuration: time.Hour},
		})
		require.NoError(t, err)
		calls := gateway.NewInFlight()
		w := h.worker(func(c *Config) {
			c.Concurrency, c.Queue = places, h.queue
			c.Gateway = gateway.New(gateway.Config{
				Catalog: catalog, Book: h.book, DB: h.db, Ring: h.ring, Calls: calls, HoldTTL: time.Minute, Places: places,
			})
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx, 0) }()
		defer func() {
			stop()
			require.NoError(t, <-ended)
			require.NoError(t, calls.Wait(context.Background()))
		}()
		said := 0
		waits := func() (all []time.Duration) {
			for range rounds {
				said++
				begun := time.Now()
				h.say(t, bot, fmt.Sprint("lan", said), "hello")
				h.platform.WaitSent(t, said)
				all = append(all, time.Since(begun))
			}
			slices.Sort(all)
			return all
		}
		alone := waits()
		for i := range organizations {
			org := fmt.Sprint("org_", i)
			h.organization(t, org, credits)
			agent, channel := fmt.Sprint("agt_", i), fmt.Sprint("chn_", i)
			h.agent(t, org, agent, func(a *store.Agent) { a.Model = hangingModel })
			h.channel(t, org, channel, botType, agent)
			var items []inbox.Item
			for n := range flood {
				id := fmt.Sprint("flooder", n)
				items = append(items, inbox.Item{Kind: platforms.Text, CustomerRef: id, Address: id, MessageID: id, Text: "hello"})
			}
			h.deliver(t, channel, items...)
		}
		require.Eventually(t, func() bool { return calls.CallsAt("hanging") == places-places/4 }, patience, time.Millisecond)
		beside := waits()
		t.Logf("alone: median %v, longest %v; beside: median %v, longest %v", alone[rounds/2], alone[rounds-1], beside[rounds/2], beside[rounds-1])
		require.Less(t, beside[rounds/2], 3*alone[rounds/2]+time.Second)
		require.Equal(t, places-places/4, calls.CallsAt("hanging"))
	})
}
