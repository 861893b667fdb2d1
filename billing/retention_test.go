package billing

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestRetentionDeletesFreeCalls: of an organization that says how long it keeps what it has, old calls that cost nothing go; charged ones,
// those that cost the operator, young ones and everything of others stay, and the books stay sound.
func TestRetentionDeletesFreeCalls(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		const old = 2*retentionRows + 10
		topUp(t, book, 1_000_000)
		settle := func(settlement Settlement, age time.Duration) {
			t.Helper()
			id := settlement.Call.ID
			require.NoError(t, refusal(book.Hold(t.Context(), Hold{CallID: id, Wallet: acme, AmountMicros: 60, ExpiresIn: time.Minute})))
			_, err := book.Settle(t.Context(), settlement)
			require.NoError(t, err)
			execute(t, db, `UPDATE calls SET ended_at = $1 WHERE id = $2`, time.Now().Add(-age).UnixMilli(), id)
		}
		execute(t, db, storetest.Unguard(db.Engine(), "calls"))
		const day = 24 * time.Hour
		void := func(id string, micros int64) Settlement {
			s := cost(id, 60, micros)
			s.Void, s.Call.Outcome = true, "internal_error"
			return s
		}
		settle(cost("call_charged", 60, 25), 40*day)
		settle(void("call_void", 0), 40*day)
		settle(void("call_lost", 9), 40*day)
		settle(void("call_young", 0), 30*day)
		tried, dear := void("call_tried", 0), void("call_dear", 0)
		tried.Attempts = make([]Attempt, 2)
		dear.Attempts = []Attempt{{}, {Usage: Usage{PromptTokens: 1}, VendorPrice: Price{Input: 1}}}
		settle(tried, 40*day)
		settle(dear, 40*day)
		for i := range old {
			execute(t, db, `INSERT INTO calls SELECT $1, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, 0, 0, 0,
				usage_source, ended_at + $2, duration_ms, price_id, 60, 0, 0, wallet_seq, balance_micros, cache_write_tokens,
				long_cache_write_tokens, reasoning_tokens, cost_micros, budgets FROM calls WHERE id = 'call_void'`,
				fmt.Sprintf("call_free%d", i), int64(i))
		}
		all := count(t, db, `SELECT count(*) FROM calls`)
		require.Equal(t, old+6, all)

		r := NewRetention(db)
		sweep := func() int {
			t.Helper()
			deleted, err := r.Sweep(t.Context())
			require.NoError(t, err)
			return int(deleted)
		}
		require.Zero(t, sweep(), "without a retention everything is kept")
		require.NoError(t, db.Organizations.SetRetention(t.Context(), "test", acme.OrgID, 41))
		require.Zero(t, sweep(), "younger than the retention")
		require.NoError(t, db.Organizations.SetRetention(t.Context(), "test", acme.OrgID, store.MinRetentionDays))
		require.Equal(t, old+2, sweep())
		require.Equal(t, "call_charged call_dear call_lost call_young", names(t, db, `SELECT id FROM calls ORDER BY id`))
		require.Equal(t, "call_dear 1 call_dear 2", names(t, db, `SELECT call_id || ' ' || number FROM attempts ORDER BY number`))
		require.Zero(t, sweep())
		requireWallet(t, book, 1_000_000-25, 0)
	})
}

// names are the texts of a statement's rows.
func names(t *testing.T, db *store.DB, query string) (all string) {
	t.Helper()
	ids, err := store.ReadRows(context.Background(), db, "read names", func(row store.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, query)
	require.NoError(t, err)
	for i, id := range ids {
		if i > 0 {
			all += " "
		}
		all += id
	}
	return all
}
