package events_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/events"
	"github.com/caddy-svc/caddy-svc/internal/store"
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
