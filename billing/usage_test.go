package billing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// promptSums returns sums that also count what ended just now.
func promptSums(db *store.DB) *UsageSums {
	u := NewUsageSums(db)
	u.lag, u.pause = -time.Minute.Milliseconds(), 0
	return u
}

// settleUsed holds and settles a call.
func settleUsed(t *testing.T, book *Book, settlement Settlement) {
	t.Helper()
	if settlement.ReservedMicros > 0 {
		hold := Hold{CallID: settlement.Call.ID, Wallet: settlement.Call.Wallet, AmountMicros: settlement.ReservedMicros, ExpiresIn: time.Minute}
		require.NoError(t, refusal(book.Hold(t.Context(), hold)))
	}
	_, err := book.Settle(t.Context(), settlement)
	require.NoError(t, err)
}

// usedCall is a call of key_1. Its tokens cost the organization a micro each, and the operator half of it.
func usedCall(id string, tokens int64) Settlement {
	s := cost(id, 1000, tokens)
	s.Call.Provider, s.Call.UpstreamModel, s.Call.KeyID = "acme", "one", "key_1"
	s.VendorPrice = Price{Input: tokensPerPrice / 2, Output: tokensPerPrice / 2, CachedInput: -1, CacheWrite: -1, LongCacheWrite: -1}
	return s
}

const (
	usageOfOrganizations = `SELECT org_id || ' ' || env || ' ' || model || ' ' || provider || '/' || upstream_model || ' ' || key_id || ': ' || calls
		|| ' calls, ' || answered || ' answered, ' || client_gone || ' left, ' || prompt_tokens || '+' || completion_tokens || ' tokens, ' || cached_tokens
		|| ' cached, charged ' || charged_micros || ', refunded ' || refunded_micros || ', cost ' || cost_micros || ', unknown ' || unknown_costs || '; '
		FROM usage_days ORDER BY org_id, env, provider, upstream_model`
	usageOfService = `SELECT sum(calls) || ' calls, charged ' || sum(charged_micros) || ', refunded ' || sum(refunded_micros) || ', cost '
		|| sum(cost_micros) || ', tokens ' || sum(completion_tokens) FROM usage_totals`
)

// TestUsageSums guarantees that every call, failed attempt and refund counts once, for the endpoint, the key and the day that it belongs to.
func TestUsageSums(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		execute(t, db, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) VALUES ('key_1', $1, 'live', 'n', '', $2, '', 1)`,
			acme.OrgID, make([]byte, 32))
		topUp(t, book, 1_000_000)
		sums := promptSums(db)
		update := func() { t.Helper(); require.NoError(t, sums.Update(t.Context())) }
		update()

		tried := usedCall("call_tried", 100)
		tried.Call.Usage = Usage{PromptTokens: 60, CachedPromptTokens: 20, CompletionTokens: 40}
		tried.Attempts = []Attempt{
			{Provider: "other", UpstreamModel: "two", Usage: Usage{PromptTokens: 3}, VendorPrice: Price{Input: tokensPerPrice}},
			{Provider: "other", UpstreamModel: "two"},
		}
		left := usedCall("call_left", 8)
		left.Void, left.Call.Outcome = true, "client_gone"
		own := cost("call_own", 0, 5)
		own.Call.Provider, own.Call.BYOK, own.Price, own.Call.Outcome = "acme", true, Price{}, "provider_error"
		unknown := cost("call_unknown", 1000, 7)
		unknown.Call.Provider, unknown.Call.UpstreamModel = "acme", "unpriced"
		settleUsed(t, book, tried)
		settleUsed(t, book, left)
		settleUsed(t, book, own)
		update()
		settleUsed(t, book, unknown)
		_, err := book.Refund(t.Context(), "test", "call_tried", "")
		require.NoError(t, err)
		update()
		update()
		const one, zero = "org_acme live m/one ", ", unknown 0; "
		require.Equal(t, one+"acme/ : 1 calls, 0 answered, 0 left, 0+5 tokens, 0 cached, charged 0, refunded 0, cost 0"+zero+
			" "+one+"acme/one key_1: 2 calls, 1 answered, 1 left, 60+48 tokens, 20 cached, charged 100, refunded 100, cost 54"+zero+
			" "+one+"acme/unpriced : 1 calls, 1 answered, 0 left, 0+7 tokens, 0 cached, charged 7, refunded 0, cost 0, unknown 1; "+
			" "+one+"other/two key_1: 0 calls, 0 answered, 0 left, 0+0 tokens, 0 cached, charged 0, refunded 0, cost 3"+zero,
			names(t, db, usageOfOrganizations))
		require.Equal(t, "4 calls, charged 107, refunded 100, cost 57, tokens 60", names(t, db, usageOfService))
		require.Equal(t, "107", names(t, db, `SELECT spent_micros || '' FROM usage_wallets`))
		require.Equal(t, "4", names(t, db, `SELECT sum(calls) || '' FROM usage_minutes`))
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM usage_progress WHERE through > 0 AND lease_until = 0`))
	})
}

// TestUsageCountsOnce: while calls end, several processes count, one of them dies in the middle, and another one goes on.
func TestUsageCountsOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000_000)
		const calls = 60
		ctx, done := context.WithCancel(t.Context())
		var counting, ending sync.WaitGroup
		for range 3 {
			counting.Go(func() {
				sums := NewUsageSums(db) // with the lag: calls without a charge are counted at the end
				for sums.pause = 0; ctx.Err() == nil; {
					if err := sums.Update(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errUsageLost) {
						t.Error(err)
					}
				}
			})
		}
		counting.Go(func() {
			for ctx.Err() == nil {
				_ = tryExecute(t, db, `UPDATE usage_progress SET lease_until = 0`) // a process that took too long
			}
		})
		for i := range calls {
			ending.Go(func() {
				s := cost(fmt.Sprint("call_", i), 1000, 10)
				s.Void = i%3 == 0
				settleUsed(t, book, s)
			})
		}
		ending.Wait()
		done()
		counting.Wait()
		require.NoError(t, tryExecute(t, db, `UPDATE usage_progress SET lease_until = 0, through = 0`))
		require.NoError(t, promptSums(db).Update(t.Context()))
		const want = "60 calls, charged 400, refunded 0, cost 0, tokens 600"
		require.Equal(t, want, names(t, db, usageOfService))
		require.Equal(t, want, names(t, db, usageOfService[:len(usageOfService)-len("usage_totals")]+"usage_days"))
	})
}

// TestCheckFindsWrongUsage breaks the usage, one way at a time.
func TestCheckFindsWrongUsage(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		writeSmallBooks(t, db)
		require.NoError(t, promptSums(db).Update(t.Context()))
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		for _, damage := range []string{
			`UPDATE usage_days SET calls = calls + 1`, `UPDATE usage_days SET charged_micros = charged_micros - 1`,
			`UPDATE usage_days SET refunded_micros = 0`, `UPDATE usage_days SET cost_micros = 1`, `UPDATE usage_days SET answered = 0`,
			`DELETE FROM usage_days`, `UPDATE usage_days SET day = day - 1`, `UPDATE usage_wallets SET seq = 0`,
			`DELETE FROM calls WHERE id = 'call_void'`,
		} {
			inBrokenBooks(t, db, func(do statement) { do(damage) }, func(broken reader) {
				report, err := Checker{pageRows: 1}.examine(t.Context(), broken, now)
				require.NoError(t, err, damage)
				require.Equal(t, []string{"U1"}, brokenInvariants(report), "%s: %s", damage, report)
			})
		}
		_, err = book.Credit(t.Context(), "cli", acme, 5, "later") // what isn't counted yet is no finding
		require.NoError(t, err)
		settleUsed(t, book, cost("call_later", 60, 9))
	})
}
