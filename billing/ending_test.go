package billing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestEndingWallets guarantees that a wallet is named while it lasts for less than some days at the spending of the last week, or of its
// organization's shorter life. Resting wallets, test wallets and the wallets of suspended organizations are left out.
func TestEndingWallets(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) { // the rows of a whole ledger would add nothing
		book := NewBook(db)
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		add := func(org, env string, created, balance, spent int64) {
			execute(t, db, `INSERT INTO organizations (id, name, plan, created_at) VALUES ($1, $1, 'free', $2) ON CONFLICT (id) DO NOTHING`, org, created)
			execute(t, db, `INSERT INTO wallets (org_id, env, balance_micros, moved_at) VALUES ($1, $2, $3, $4)`, org, env, balance, now)
			execute(t, db, `INSERT INTO usage_wallets (org_id, env, seq, ended_at, spent_day, spent_micros) VALUES ($1, $2, 1, $3, 1, $4)`,
				org, env, now, spent)
		}
		add("org_ends", "live", 1, 1700, 8000) // 1,000 a day, or some less
		add("org_empty", "live", 1, 0, 10)
		add("org_lasts", "live", 1, 2400, 8000)
		add("org_young", "live", now-2*dayMillis, 7000, 8000) // 4,000 a day
		add("org_new", "live", now, 16_100, 8000)             // 8,000 on its first day
		add("org_rests", "live", 1, 1, 0)
		add("org_test", "test", 1, 1, 1_000_000)
		add("org_suspended", "live", 1, 1, 1_000_000)
		execute(t, db, `UPDATE organizations SET suspended_at = 1 WHERE id = 'org_suspended'`)
		ending := func(days int64, n int) (ids []string) {
			wallets, err := book.EndingWallets(t.Context(), now, days, n)
			require.NoError(t, err)
			for _, w := range wallets {
				ids = append(ids, w.OrgID)
			}
			return ids
		}
		require.Equal(t, []string{"org_empty", "org_ends", "org_young"}, ending(2, 10))
		require.Equal(t, []string{"org_empty"}, ending(2, 1))
		require.ElementsMatch(t, []string{"org_empty", "org_ends", "org_young", "org_lasts", "org_new"}, ending(7, 10))
	})
}
