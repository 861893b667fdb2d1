package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// runEvents runs what endpoints of events and their deliveries need.
func runEvents(t *testing.T, db *store.DB) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, db.EventEndpoints.Create(ctx, "cli", &store.EventEndpoint{
		ID: "evep_a", OrgID: "org_a", URL: "https://example.com", Events: store.EventTypes(), Secret: []byte{1},
	}))
	require.NoError(t, db.Exec(ctx, func(_ context.Context, tx store.Tx) error {
		store.QueueEvent(tx, &store.Event{OrgID: "org_a", Type: store.EventWalletLow})
		return nil
	}))
	_, err := db.EventEndpoints.Test(ctx, "org_a", "evep_a")
	require.NoError(t, err)
	low, minutes := int64(5), int64(1)
	require.NoError(t, db.Organizations.SetEventBounds(ctx, "cli", "org_a", store.EventBounds{LowBalanceMicros: &low, WaitingMinutes: &minutes}))
	_, _, empty, err := db.EventDeliveries.Due(ctx, "org_a")
	require.NoError(t, err)
	require.False(t, empty, "of the organizations before it nothing is known")
	orgs, next, empty, err := db.EventDeliveries.Due(ctx, "")
	require.NoError(t, err)
	require.Equal(t, []string{"org_a"}, orgs)
	require.Empty(t, next)
	require.False(t, empty)
	leased, err := db.EventDeliveries.Lease(ctx, "org_a", 4, 1000)
	require.NoError(t, err)
	require.Len(t, leased, 2)
	_, err = db.EventDeliveries.Finish(ctx, "cli", &leased[0], store.EventTry{State: store.DeliveryFailed, DisableFor: store.EndpointGone})
	require.NoError(t, err)
	require.NoError(t, db.EventWatch.Expiry(ctx, "org_a", "chn_a", 5))
	run := map[string]func() error{
		"endpoints": func() error { _, err := db.EventEndpoints.List(ctx, "org_a", store.Page{}); return err },
		"endpoint":  func() error { _, err := db.EventEndpoints.ByID(ctx, "org_a", "evep_a"); return err },
		"all":       func() error { return db.EventEndpoints.Each(ctx, func(store.EventEndpoint) error { return nil }) },
		"log": func() error {
			_, err := db.EventDeliveries.OfEndpoint(ctx, "org_a", "evep_a", store.Page{})
			return err
		},
		"overdue": func() error { _, err := db.EventDeliveries.Overdue(ctx, 1000); return err },
		"prune":   func() error { _, err := db.EventDeliveries.Prune(ctx, 0); return err },
		"wallets": func() error { _, err := db.EventWatch.Wallets(ctx); return err },
		"waits":   func() error { _, err := db.EventWatch.Waits(ctx); return err },
		"update": func() error {
			return db.EventEndpoints.Update(ctx, "cli", "update", "org_a", "evep_a", func(*store.EventEndpoint) {})
		},
		"reseal": func() error {
			_, err := db.EventEndpoints.Reseal(ctx, &store.EventEndpoint{ID: "evep_a", OrgID: "org_a", Secret: []byte{1}}, []byte{2}, nil)
			return err
		},
	}
	for name, one := range run {
		require.NoError(t, one(), name)
	}
	require.NoError(t, db.EventEndpoints.Delete(ctx, "cli", "org_a", "evep_a"))
}
