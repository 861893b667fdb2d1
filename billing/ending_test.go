package billing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestEndingWallets guarantees that a wallet is named while it lasts for less than two days at the spending of the last days, and that wallets
// which rest and test wallets aren't.
func TestEndingWallets(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) { // the rows of a whole ledger would add nothing
		book := NewBook(db)
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		today := now / dayMillis
		add := func(org, env string, balance, moved int64, spent ...int64) {
			execute(t, db, `INSERT INTO organizations (id, name, plan, created_at) VALUES ($1, $1, 'free', 1) ON CONFLICT (id) DO NOTHING`, org)
			execute(t, db, `INSERT INTO wallets (org_id, env, balance_micros, moved_at) VALUES ($1, $2, $3, $4)`, org, env, balance, moved)
			for i, micros := range spent {
				execute(t, db, `INSERT INTO usage_days (org_id, env, day, model, provider, upstream_model, key_id, calls, answered, client_gone, prompt_tokens,
					completion_tokens, cached_tokens, charged_micros, refunded_micros, cost_micros, unknown_costs)
					VALUES ($1, $2, $3, 'm', 'p', '', 'k', 1, 1, 0, 1, 1, 0, $4, 0, 0, 0)`, org, env, today-int64(i), micros)
			}
		}
		add("org_ends", "live", 1500, now, 600, 1000, 1000)
		add("org_empty", "live", 0, now, 10)
		add("org_lasts", "live", 3000, now, 600, 1000, 1000)
		add("org_rests", "live", 1, now-4*dayMillis, 0, 0, 0, 1_000_000)
		add("org_test", "test", 1, now, 1_000_000)
		add("org_new", "live", 5, now)
		ending, err := book.EndingWallets(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, []string{"org_empty", "org_ends"}, ending)
		ending, err = book.EndingWallets(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, []string{"org_empty"}, ending)
	})
}
