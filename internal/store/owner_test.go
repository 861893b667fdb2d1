package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestOwnerOf(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createAgent(t, db, "org_1", "agt_1")
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1"})
		fillChannel(t, db, "org_1", "chn_1", 1, 0)
		for kind, id := range map[store.OwnedKind]string{
			store.OwnedAgents: "agt_1", store.OwnedChannels: "chn_1", store.OwnedConversations: "chn_1/cnv_000",
		} {
			owner, err := db.OwnerOf(t.Context(), kind, id)
			require.NoError(t, err)
			require.Equal(t, "org_1", owner)
			_, err = db.OwnerOf(t.Context(), kind, "org_1")
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		_, err := db.OwnerOf(t.Context(), "wallets", "org_1")
		require.ErrorContains(t, err, "wallets")
	})
}
