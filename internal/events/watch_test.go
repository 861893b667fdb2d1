package events_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/events"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestLowWalletIsToldOncePerCrossing: whatever it does below its bound.
func TestLowWalletIsToldOncePerCrossing(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.endpoint("org_1", "evep_1", "https://example.com", store.EventWalletLow)
		below := int64(500)
		require.NoError(t, f.Organizations.SetEventBounds(t.Context(), "usr_1", "org_1", store.EventBounds{LowBalanceMicros: &below}))
		balance := func(micros int64) {
			require.NoError(t, f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
				tx.Queue(1, `INSERT INTO wallets (org_id, env, balance_micros) VALUES ('org_1', 'live', $1)
					ON CONFLICT (org_id, env) DO UPDATE SET balance_micros = $1`, micros)
				return nil
			}))
			var looks sync.WaitGroup // as several processes do
			for range 4 {
				looks.Go(func() {
					more, err := f.EventWatch.Wallets(context.WithoutCancel(t.Context()))
					if err != nil || more {
						t.Errorf("looking at wallets: %v, %v", more, err)
					}
				})
			}
			looks.Wait()
		}
		balance(500)
		require.Empty(t, f.deliveries("org_1", "evep_1"))
		balance(499)
		balance(1)
		require.Len(t, f.deliveries("org_1", "evep_1"), 1)
		require.Contains(t, f.deliveries("org_1", "evep_1")[0].Payload, `"balanceMicros":"499","belowMicros":"500"`)
		balance(1000)
		balance(2)
		require.Len(t, f.deliveries("org_1", "evep_1"), 2)

		for _, bound := range []int64{0, 100} {
			require.NoError(t, f.Organizations.SetEventBounds(t.Context(), "usr_1", "org_1", store.EventBounds{LowBalanceMicros: &bound}))
		}
		balance(2)
		require.Len(t, f.deliveries("org_1", "evep_1"), 3, "a bound that was taken away and set again is a new one")
	})
}

// TestUsageIsQueuedOnce guarantees that the events of an endpoint have each number of the live wallet once, from the first one after the endpoint
// was given the type, whatever processes look at the same time, and that a slow endpoint has a bounded number of them.
func TestUsageIsQueuedOnce(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		nodes := []*store.DB{f.DB, storetest.OpenAt(t, f.Location(), store.Options{})}
		look := func(seq int64) {
			require.NoError(t, f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
				tx.Queue(1, `INSERT INTO wallets (org_id, env, seq) VALUES ('org_1', 'live', $1) ON CONFLICT (org_id, env) DO UPDATE SET seq = $1`, seq)
				return nil
			}))
			var looks sync.WaitGroup // as several processes do
			for i := range 4 {
				looks.Go(func() {
					if _, err := nodes[i%2].EventWatch.Usage(context.WithoutCancel(t.Context())); err != nil {
						t.Error(err)
					}
				})
			}
			looks.Wait()
		}
		ranges := func(endpoint string) (all []string) {
			for _, d := range f.deliveries("org_1", endpoint) {
				require.Equal(t, store.EventUsage, d.Type)
				_, data, _ := strings.Cut(d.Payload, `"data":`)
				all = append(all, data)
			}
			slices.Sort(all)
			return all
		}
		f.endpoint("org_1", "evep_1", "https://example.com", store.EventUsage)
		f.endpoint("org_1", "evep_2", "https://example.com", store.EventTypes()...)
		look(250)
		require.Equal(t, []string{`{"after":"0_0","through":"0_200"}}`, `{"after":"0_200","through":"0_250"}}`}, ranges("evep_1"))
		look(250)
		look(251)
		require.Contains(t, ranges("evep_1"), `{"after":"0_250","through":"0_251"}}`)
		require.Empty(t, ranges("evep_2"))

		setTypes := func(types ...store.EventType) {
			require.NoError(t, f.EventEndpoints.Update(t.Context(), "usr_1", "update", "org_1", "evep_2", func(e *store.EventEndpoint) { e.Events = types }))
		}
		setTypes(store.EventUsage, store.EventWalletLow)
		look(252)
		require.Equal(t, []string{`{"after":"0_251","through":"0_252"}}`}, ranges("evep_2"))
		setTypes(store.EventWalletLow)
		look(253)
		setTypes(store.EventUsage)
		look(100 * store.UsagePage)
		require.Contains(t, ranges("evep_2"), `{"after":"0_253","through":"0_453"}}`, "the numbers without the type are left out")
		require.Len(t, ranges("evep_2"), 20, "more wait in the ledger")
		look(100 * store.UsagePage)
		require.Len(t, ranges("evep_2"), 20)
		require.NoError(t, f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(20, `UPDATE event_deliveries SET state = 'delivered' WHERE endpoint_id = 'evep_2'`)
			return nil
		}))
		look(100 * store.UsagePage)
		require.Len(t, ranges("evep_2"), 40)
	})
}

// A channel that must be reconnected is told of when it begins to, and the end of a token once.
func TestChannelsAreTold(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.endpoint("org_1", "evep_1", "https://example.com", store.EventTypes()...)
		require.NoError(t, f.Channels.Create(t.Context(), "cli", store.Channel{
			ID: "chn_1", OrgID: "org_1", Type: "bot", Name: "one", State: store.ChannelActive, Credentials: []byte("x"),
		}, 0))
		for range 2 {
			require.NoError(t, f.Channels.SetState(t.Context(), "cli", "org_1", "chn_1", store.ChannelNeedsReauth))
		}
		require.NoError(t, f.Channels.SetState(t.Context(), "cli", "org_1", "chn_1", store.ChannelActive))
		for range 2 {
			require.NoError(t, f.ChannelCredentials.RefuseReported(t.Context(), "cli", "org_1", "chn_1", 0))
		}
		for _, end := range []int64{5, 5, 6} {
			require.NoError(t, f.EventWatch.Expiry(t.Context(), "org_1", "chn_1", end))
		}
		var told []store.EventType
		for _, one := range f.deliveries("org_1", "evep_1") {
			told = append(told, one.Type)
			require.Contains(t, one.Payload, `"channelId":"chn_1"`)
		}
		require.Equal(t, []store.EventType{
			store.EventChannelExpiring, store.EventChannelExpiring, store.EventChannelReauth, store.EventChannelReauth,
		}, told)
	})
}

func TestOldEventsArePruned(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.endpoint("org_1", "evep_1", "https://example.com", store.EventAttention)
		states := map[string]time.Duration{"pending": events.Retention + time.Hour, "delivered": events.Retention + time.Hour, "failed": events.Retention - time.Hour}
		for state, age := range states {
			f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
			id := f.deliveries("org_1", "evep_1")[0].EventID
			f.age(id, state, age)
		}
		pruned, err := f.EventDeliveries.Prune(t.Context(), events.Retention.Milliseconds())
		require.NoError(t, err)
		require.EqualValues(t, 1, pruned)
		left := map[string]bool{}
		for _, one := range f.deliveries("org_1", "evep_1") {
			left[one.State] = true
		}
		require.Equal(t, map[string]bool{"pending": true, "failed": true}, left)
	})
}

// TestOverdueEvents: events are overdue where nothing tries them, not where they wait for others of the same organization.
func TestOverdueEvents(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		for _, org := range []string{"org_1", "org_2"} {
			f.endpoint(org, "evep"+org, "https://example.com", store.EventAttention)
			for range 3 {
				f.tell(store.Event{OrgID: org, Type: store.EventAttention})
			}
		}
		overdue := func() int {
			count, err := f.EventDeliveries.Overdue(t.Context(), time.Minute.Milliseconds())
			require.NoError(t, err)
			return count
		}
		require.Zero(t, overdue())
		require.NoError(t, f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(store.AnyRows, `UPDATE event_deliveries SET run_at = $1`, tx.Now()-2*time.Minute.Milliseconds())
			return nil
		}))
		require.Equal(t, 6, overdue())
		_, err := f.EventDeliveries.Lease(t.Context(), "org_1", 1, time.Minute.Milliseconds())
		require.NoError(t, err)
		require.Equal(t, 3, overdue())
	})
}
