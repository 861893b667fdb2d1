package billing

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestRetentionDeletesFreeCalls: of an organization that says how long it keeps what it has, old calls that cost nothing go, with
// their holds; charged ones, young ones, those of a kept answer and everything of others stay, and the books stay sound.
func TestRetentionDeletesFreeCalls(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		const old = 2*retentionRows + 10
		topUp(t, book, 1_000_000)
		settle := func(hold Hold, settlement Settlement) {
			t.Helper()
			settlement.Call.StartedAt = time.Now().Add(-40 * 24 * time.Hour).UnixMilli()
			require.NoError(t, refusal(book.Hold(t.Context(), hold)))
			_, err := book.Settle(t.Context(), settlement)
			require.NoError(t, err)
		}
		settle(holdOf("call_charged", 60), chargeOf("call_charged", 25))
		settle(holdOf("call_void", 60), voidOf("call_void"))
		settle(holdOf("call_young", 60), voidOf("call_young"))
		execute(t, db, `UPDATE calls SET started_at = $1 WHERE id = 'call_young'`, time.Now().Add(-30*24*time.Hour).UnixMilli())
		kept := holdOf("call_kept", 60)
		kept.Claim = claimOf("kept", "content")
		answered := voidOf("call_kept")
		answered.Void, answered.Claim, answered.Keep = false, kept.Claim, true
		settle(kept, answered)
		for i := range old {
			execute(t, db, `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens,
				completion_tokens, cached_tokens, usage_source, charged_micros, extra_micros, shortfall_micros, started_at, duration_ms)
				SELECT $1, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens, cached_tokens,
				usage_source, 0, 0, 0, started_at + $2, duration_ms FROM calls WHERE id = 'call_void'`, fmt.Sprintf("call_free%d", i), int64(i))
		}
		all := count(t, db, `SELECT count(*) FROM calls`)
		require.Equal(t, old+4, all)

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
		require.Equal(t, old+1, sweep())
		require.Equal(t, "call_charged call_kept call_young", names(t, db, `SELECT id FROM calls ORDER BY id`))
		require.Equal(t, "call_charged call_kept call_young", names(t, db, `SELECT id FROM holds ORDER BY id`))
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
