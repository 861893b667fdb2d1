package billing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// eachEngine runs a test on a fresh database of both engines, with acme's organization in it, and checks the books
// when the test is over.
func eachEngine(t *testing.T, f func(t *testing.T, db *store.DB, book *Book)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, []store.Kind{Ledger}, func(t *testing.T, db *store.DB) {
		makeOrganization(t, db, acme.OrgID)
		f(t, db, NewBook(db))
		requireSoundBooks(t, db)
	})
}

func makeOrganization(t *testing.T, db *store.DB, id string) {
	t.Helper()
	execute(t, db, `INSERT INTO organizations (id, name, plan, created_at) VALUES ($1, $2, $3, $4)`, id, id, "free", int64(0))
}

// execute runs one hand-written statement.
func execute(t *testing.T, db *store.DB, query string, args ...any) {
	t.Helper()
	require.NoError(t, tryExecute(t, db, query, args...))
}

func tryExecute(t *testing.T, db *store.DB, query string, args ...any) error {
	t.Helper()
	return db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, query, args...)
		return nil
	})
}

func requireSoundBooks(t interface {
	require.TestingT
	Helper()
	Context() context.Context
}, db *store.DB,
) {
	t.Helper()
	report, err := Checker{pageRows: 7}.Check(context.WithoutCancel(t.Context()), db)
	require.NoError(t, err)
	require.True(t, report.OK(), "%s", report)
}

func requireWallet(t *testing.T, book *Book, balance, held int64) {
	t.Helper()
	wallet, err := book.Wallet(t.Context(), acme)
	require.NoError(t, err)
	require.Equal(t, Wallet{BalanceMicros: balance, HeldMicros: held}, wallet)
}

func topUp(t *testing.T, book *Book, micros int64) {
	t.Helper()
	_, err := book.Credit(t.Context(), "test", acme, micros, store.NewID("ref"))
	require.NoError(t, err)
}

// lapse puts the end of a call's reservation into the past.
func lapse(t *testing.T, db *store.DB, callID string) {
	t.Helper()
	execute(t, db, `UPDATE holds SET expires_at = 1 WHERE id = $1`, callID)
	execute(t, db, `UPDATE running_keys SET expires_at = 1 WHERE call_id = $1`, callID)
}

// sweep sweeps the books and returns the calls that lost their holds.
func sweep(t *testing.T, book *Book) []string {
	t.Helper()
	lost, err := book.Sweep(t.Context())
	require.NoError(t, err)
	return lost.Calls
}

// refusal is the error of a hold that must not be answered with a replay.
func refusal(replay *Replay, err error) error {
	if replay != nil {
		return errors.New("unexpected replay of " + replay.CallID)
	}
	return err
}

func count(t *testing.T, db *store.DB, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

// TestCallIsPaid guarantees that a charge can be computed anew from its own row.
func TestCallIsPaid(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000)
		execute(t, db, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at)
			VALUES ('key_1', $1, 'live', 'n', '', $2, '', 1)`, acme.OrgID, make([]byte, 32))
		hold := holdOf("call_1", 600)
		require.NoError(t, refusal(book.Hold(t.Context(), hold)))
		require.NoError(t, refusal(book.Hold(t.Context(), hold)), "the same hold again")
		requireWallet(t, book, 1_000, 600)

		settlement := Settlement{
			Call: Call{
				ID: "call_1", KeyID: "key_1", Model: "openai/gpt", Provider: "openai", RequestID: "req_1", Wallet: acme, Stream: true,
				Usage: Usage{
					PromptTokens: 10, CompletionTokens: 20, CachedPromptTokens: 5, CacheWriteTokens: 2, LongCacheWriteTokens: 1, ReasoningTokens: 19,
				}, UsageSource: UsageEstimated, Outcome: "completed", DurationMS: 456, UpstreamModel: "gpt-x", AnsweringModel: "gpt-x-2026",
			},
			Price: Price{
				Input: 2 * tokensPerPrice, Output: 11*tokensPerPrice + 500_000, CachedInput: tokensPerPrice, CacheWrite: 3 * tokensPerPrice,
				LongCacheWrite: 4 * tokensPerPrice, Tiers: NewTiers([MaxTiers]Tier{{1000, Rates{5, 6, 7, 8, 9}}}),
			},
			VendorPrice: Price{Input: 1, Output: 2, CachedInput: -1, CacheWrite: -1, LongCacheWrite: 5}, ReservedMicros: 600,
			Attempts: []Attempt{
				{Provider: "dead", UpstreamModel: "gpt", Failure: "unreachable"},
				{
					Provider: "cut", UpstreamModel: "gpt-2", Failure: "timeout", Usage: Usage{PromptTokens: 10, CompletionTokens: 1},
					VendorPrice: Price{Input: tokensPerPrice, Output: 2 * tokensPerPrice},
				},
			},
		}
		const charge = 2*2 + 5 + 2*3 + 4 + 20*11.5
		for range 2 {
			settled, err := book.Settle(t.Context(), settlement)
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: charge}, settled)
		}
		requireWallet(t, book, 1_000-charge, 0)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), hold)), ErrCallEnded)
		require.Zero(t, count(t, db, `SELECT count(*) FROM holds`))

		var got Call
		var price Price
		var tiers, vendor string
		var reserved, charged, seq, balance, endedAt int64
		require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT c.id, c.key_id, c.model, c.provider, c.request_id,
			c.org_id, c.env, c.stream, c.prompt_tokens, c.completion_tokens, c.cached_tokens, c.usage_source, c.outcome,
			c.duration_ms, c.reserved_micros, c.charged_micros, c.wallet_seq, c.balance_micros, c.ended_at,
			p.input_micros, p.output_micros, p.cached_input_micros, p.cache_write_micros, p.long_cache_write_micros, p.tiers, p.vendor_price,
			p.upstream_model, p.answering_model, c.cache_write_tokens, c.long_cache_write_tokens, c.reasoning_tokens
			FROM calls c JOIN prices p ON p.id = c.price_id AND p.model = c.model`).Scan(
			&got.ID, &got.KeyID, &got.Model, &got.Provider, &got.RequestID, &got.Wallet.OrgID, &got.Wallet.Env, &got.Stream,
			&got.Usage.PromptTokens, &got.Usage.CompletionTokens, &got.Usage.CachedPromptTokens, &got.UsageSource, &got.Outcome,
			&got.DurationMS, &reserved, &charged, &seq, &balance, &endedAt, &price.Input, &price.Output, &price.CachedInput,
			&price.CacheWrite, &price.LongCacheWrite, &tiers, &vendor, &got.UpstreamModel, &got.AnsweringModel, &got.Usage.CacheWriteTokens,
			&got.Usage.LongCacheWriteTokens, &got.Usage.ReasoningTokens))
		require.NoError(t, price.readTiers(tiers))
		require.JSONEq(t, `[{"above":0,"input":1,"output":2,"cachedInput":1,"cacheWrite":1,"longCacheWrite":5}]`, vendor)
		require.Equal(t, "1 dead gpt unreachable 0 0 -1, 2 cut gpt-2 timeout 10 1 12", names(t, db, `SELECT number || ' ' || provider || ' '
			|| upstream_model || ' ' || failure || ' ' || prompt_tokens || ' ' || completion_tokens || ' ' || coalesce(cost_micros, -1)
			|| CASE number WHEN 1 THEN ',' ELSE '' END FROM attempts WHERE org_id = 'org_acme' AND call_id = 'call_1' ORDER BY number`))
		require.Equal(t, settlement.Call, got)
		require.Equal(t, settlement.Price, price)
		require.Equal(t, []int64{600, charge, 2, 1_000 - charge}, []int64{reserved, charged, seq, balance})
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		require.InDelta(t, now, endedAt, 60_000)
	})
}

func TestCallIsNotPaid(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_0", 1))), ErrInsufficientCredits, "no wallet yet")
		topUp(t, book, 100)

		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_void", 100))))
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_0", 1))), ErrInsufficientCredits)
		settled, err := book.Settle(t.Context(), voidOf("call_void", 100))
		require.NoError(t, err)
		require.Equal(t, Settled{}, settled)
		settled, err = book.Settle(t.Context(), chargeOf("call_void", 100, 50))
		require.NoError(t, err)
		require.Equal(t, Settled{}, settled, "the first settlement of a call stands")

		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_free", 100))))
		_, err = book.Settle(t.Context(), chargeOf("call_free", 100, 0))
		require.NoError(t, err)

		byok := Settlement{Call: Call{ID: "call_byok", Wallet: acme, BYOK: true, UsageSource: UsageProvider}}
		for range 2 {
			settled, err = book.Settle(t.Context(), byok)
			require.NoError(t, err)
			require.Equal(t, Settled{}, settled)
		}
		requireWallet(t, book, 100, 0)
		require.Equal(t, 3, count(t, db, `SELECT count(*) FROM calls WHERE charged_micros = 0 AND wallet_seq IS NULL AND balance_micros IS NULL`))
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM calls WHERE byok AND price_id IS NULL AND reserved_micros = 0`))
	})
}

// TestCostAboveTheHold guarantees that a charge is never above what was reserved, however full the wallet is.
func TestCostAboveTheHold(t *testing.T) {
	eachEngine(t, func(t *testing.T, _ *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 40))))
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_2", 40))))
		for range 2 {
			settled, err := book.Settle(t.Context(), chargeOf("call_1", 40, 75))
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: 40, ShortfallMicros: 35}, settled)
		}
		requireWallet(t, book, 60, 40)
		settled, err := book.Settle(t.Context(), chargeOf("call_2", 40, 40))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 40}, settled)
		requireWallet(t, book, 20, 0)
	})
}

// TestPriceChangesBetweenHoldAndSettlement: a call is charged by the price that its settlement names, that of its beginning, and both
// prices stay in the books.
func TestPriceChangesBetweenHoldAndSettlement(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000)
		for _, c := range []struct {
			id     string
			micros int64
		}{{"call_before", 1}, {"call_after", 10}, {"call_before_too", 1}, {"call_back", 1}} {
			require.NoError(t, refusal(book.Hold(t.Context(), holdOf(c.id, 100))))
			settlement := chargeOf(c.id, 100, 7)
			settlement.Price.Output *= c.micros
			settled, err := book.Settle(t.Context(), settlement)
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: 7 * c.micros}, settled)
		}
		require.Equal(t, 2, count(t, db, `SELECT count(*) FROM prices`))
		requireWallet(t, book, 1_000-7*13, 0)
	})
}

// TestPriceOfARepeatedSettlement: a price that came with a settlement which changed nothing is in the books all the same, because later
// calls refer to it.
func TestPriceOfARepeatedSettlement(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000)
		free := chargeOf("call_1", 10, 0)
		free.Price = Price{}
		_, err := book.Settle(t.Context(), free)
		require.NoError(t, err)
		for _, id := range []string{"call_1", "call_2"} {
			_, err = book.Settle(t.Context(), chargeOf(id, 10, 5))
			require.NoError(t, err)
		}
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM calls JOIN prices ON prices.id = price_id`))
		requireWallet(t, book, 995, 0)
	})
}

// TestSettleAfterExpiry: late is not free. A call whose hold is gone pays what it costs from what is free.
func TestSettleAfterExpiry(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 60))))
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_2", 30))))
		require.Empty(t, sweep(t, book))

		lapse(t, db, "call_1")
		lost, err := book.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, Lost{Calls: []string{"call_1"}, Micros: 60}, lost)
		requireWallet(t, book, 100, 30)
		for range 2 {
			settled, err := book.Settle(t.Context(), chargeOf("call_1", 60, 25))
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: 25}, settled)
		}

		lapse(t, db, "call_2")
		settled, err := book.Settle(t.Context(), chargeOf("call_2", 30, 25))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 25}, settled, "a hold counts until it is swept")
		requireWallet(t, book, 50, 0)

		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_3", 50))))
		lapse(t, db, "call_3")
		require.Equal(t, []string{"call_3"}, sweep(t, book))
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_4", 20))))
		settled, err = book.Settle(t.Context(), chargeOf("call_3", 50, 40))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 30, ShortfallMicros: 10}, settled, "at most what is free")
		settled, err = book.Settle(t.Context(), chargeOf("call_4", 20, 20))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 20}, settled)
		settled, err = book.Settle(t.Context(), voidOf("call_5", 20))
		require.NoError(t, err)
		require.Equal(t, Settled{}, settled, "a void of a call that has no hold")
	})
}

func TestEnvironmentsAreApart(t *testing.T) {
	eachEngine(t, func(t *testing.T, _ *store.DB, book *Book) {
		sandbox := WalletID{acme.OrgID, store.Test}
		_, err := book.Credit(t.Context(), "test", sandbox, 100, "welcome")
		require.NoError(t, err)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_live", 1))), ErrInsufficientCredits)
		hold := holdOf("call_test", 100)
		hold.Wallet = sandbox
		require.NoError(t, refusal(book.Hold(t.Context(), hold)))
		wrong := chargeOf("call_test", 100, 10)
		_, err = book.Settle(t.Context(), wrong)
		require.ErrorIs(t, err, store.ErrNotFound, "the wallet was never topped up")
		wrong.Call.Wallet = sandbox
		_, err = book.Settle(t.Context(), wrong)
		require.NoError(t, err)
		wrong.Call.Wallet = acme
		_, err = book.Settle(t.Context(), wrong)
		require.ErrorIs(t, err, ErrInvalid)
		requireWallet(t, book, 0, 0)
	})
}

// TestExactlyAsManyHoldsAsTheWalletCarries: check-then-deduct races are where every peer loses money (F7). Two writers
// share the database, as two processes do.
func TestExactlyAsManyHoldsAsTheWalletCarries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ calls, affordable int }{
		"one of a hundred": {100, 1},
		"some of many":     {64 * 4, 37},
	} {
		for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
			t.Run(name+"/"+string(engine), func(t *testing.T) {
				t.Parallel()
				location := storetest.Location(t, engine)
				db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				other := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				makeOrganization(t, db, acme.OrgID)
				book := NewBook(db)

				const price = 1_000
				balance, spent := int64(c.affordable)*price+price/2, int64(c.affordable)*price
				topUp(t, book, balance)
				held, refused := holdAtOnce(t, []*Book{book, NewBook(other)}, c.calls, price)
				require.Len(t, held, c.affordable)
				require.Equal(t, c.calls-c.affordable, refused)
				requireWallet(t, book, balance, spent)

				require.Equal(t, spent, settleAtOnce(t, book, NewBook(other), held, price))
				requireWallet(t, book, price/2, 0)
				requireSoundBooks(t, db)
			})
		}
	}
}

// holdAtOnce tries holds from 64 goroutines, in turn on each book, and returns the calls that got one.
func holdAtOnce(t *testing.T, books []*Book, calls int, micros int64) (held []string, refused int) {
	t.Helper()
	var mu sync.Mutex
	work := make(chan int)
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for i := range work {
				id := fmt.Sprintf("call_%d", i)
				err := storetest.Insist(func() error { return refusal(books[i%len(books)].Hold(t.Context(), holdOf(id, micros))) })
				mu.Lock()
				switch {
				case err == nil:
					held = append(held, id)
				case errors.Is(err, ErrInsufficientCredits):
					refused++
				default:
					t.Errorf("hold: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	for i := range calls {
		work <- i
	}
	close(work)
	callers.Wait()
	return held, refused
}

// settleAtOnce settles each call on both books at the same time, requires that both return the same, and returns the sum.
func settleAtOnce(t *testing.T, book, other *Book, calls []string, micros int64) (charged int64) {
	t.Helper()
	type results struct{ first, second Settled }
	all := make([]results, len(calls))
	var settling sync.WaitGroup
	settle := func(book *Book, id string, result *Settled) {
		settling.Go(func() {
			err := storetest.Insist(func() (err error) {
				*result, err = book.Settle(t.Context(), chargeOf(id, micros, micros))
				return err
			})
			if err != nil {
				t.Errorf("settle %s: %v", id, err)
			}
		})
	}
	for i, id := range calls {
		settle(book, id, &all[i].first)
		settle(other, id, &all[i].second)
	}
	settling.Wait()
	for _, settled := range all {
		require.Equal(t, settled.first, settled.second)
		charged += settled.first.ChargedMicros
	}
	return charged
}

// TestBatchOfAllSorts: operations that share a transaction are decided in arrival order, each on what those before
// it left, and a refused one costs the others nothing.
func TestBatchOfAllSorts(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		large, small := &holdOp{Hold: holdOf("call_large", 101)}, &holdOp{Hold: holdOf("call_small", 60)}
		settle := settleOpOf(chargeOf("call_small", 60, 70))
		credit := &postOp{posting: posting{kind: EntryTopUp, wallet: acme, micros: 50, ref: "r", actor: "test"}}
		replay := &postOp{posting: credit.posting}
		after := &holdOp{Hold: holdOf("call_after", 90)}
		ops := []store.Op{large, small, settle, credit, replay, after, &sweepOp{}}
		applyTogether(t, db, ops...)

		require.ErrorIs(t, large.refused, ErrInsufficientCredits)
		require.NoError(t, small.refused)
		require.Equal(t, Settled{ChargedMicros: 60, ShortfallMicros: 10}, settle.settled)
		require.Equal(t, int64(90), credit.entry.BalanceMicros)
		require.True(t, replay.entry.Replayed)
		require.NoError(t, after.refused)
		requireWallet(t, book, 90, 90)
	})
}

// TestHoldTwice: a hold whose commit wasn't confirmed is made again, and stands as it is, whatever else its wallet could carry.
func TestHoldTwice(t *testing.T) {
	eachEngine(t, func(t *testing.T, _ *store.DB, book *Book) {
		topUp(t, book, 100)
		for _, hold := range []Hold{holdOf("call_some", 30), holdOf("call_rest", 70)} {
			for range 3 {
				require.NoError(t, refusal(book.Hold(t.Context(), hold)))
			}
		}
		requireWallet(t, book, 100, 100)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_rest", 69))), ErrInvalid)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_more", 1))), ErrInsufficientCredits)
		_, err := book.Settle(t.Context(), chargeOf("call_rest", 70, 5))
		require.NoError(t, err)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_rest", 70))), ErrCallEnded, "with credits")
		_, err = book.Settle(t.Context(), chargeOf("call_some", 30, 30))
		require.NoError(t, err)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_some", 30))), ErrCallEnded)
		requireWallet(t, book, 65, 0)
	})
}

// applyTogether runs operations in one transaction.
func applyTogether(t *testing.T, db *store.DB, ops ...store.Op) {
	t.Helper()
	require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		return errors.Join(Ledger.Apply(ctx, tx, ops)...)
	}))
}

// TestBatchOfManyWallets crosses all large chunk sizes in every statement.
func TestBatchOfManyWallets(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		const wallets = 64 + 16 + 8 + 4 + 3
		var credits, holds, settles []store.Op
		for i := range wallets {
			id := WalletID{fmt.Sprintf("org_%d", wallets-i), store.Live}
			makeOrganization(t, db, id.OrgID)
			credits = append(credits, &postOp{posting: posting{kind: EntryTopUp, wallet: id, micros: 10, ref: "r", actor: "test"}})
			hold, settlement := holdOf("call_"+id.OrgID, 10), chargeOf("call_"+id.OrgID, 10, int64(i%12))
			hold.Wallet, settlement.Call.Wallet = id, id
			holds = append(holds, &holdOp{Hold: hold})
			settles = append(settles, settleOpOf(settlement))
		}
		applyTogether(t, db, credits...)
		applyTogether(t, db, holds...)
		applyTogether(t, db, settles...)
		for i := range wallets {
			require.NoError(t, holds[i].(*holdOp).refused)
			require.Equal(t, min(10, int64(i%12)), settles[i].(*settleOp).settled.ChargedMicros)
		}
		require.Zero(t, count(t, db, `SELECT count(*) FROM holds`))
		require.Equal(t, wallets, count(t, db, `SELECT count(*) FROM calls`))
	})
}

func TestOperationsThatCannotBeRight(t *testing.T) {
	t.Parallel()
	book := NewBook(nil) // none of them reaches the database
	for _, hold := range []Hold{
		{},
		holdOf("", 1), holdOf("call", 0), holdOf("call", -1),
		{CallID: "call", Wallet: acme, AmountMicros: 1},
		{CallID: "call", Wallet: acme, AmountMicros: -1, ExpiresIn: time.Second, Claim: &Claim{}},
		{CallID: "call", Wallet: WalletID{"org", "prod"}, AmountMicros: 1, ExpiresIn: time.Second},
		{CallID: "call", Wallet: WalletID{"", store.Live}, AmountMicros: 1, ExpiresIn: time.Second},
	} {
		require.ErrorIs(t, refusal(book.Hold(t.Context(), hold)), ErrInvalid, "%+v", hold)
	}
	negative, priced, unsourced, byok, tokens := cost("c", -1, 1), cost("c", 1, 1), cost("c", 1, 1), cost("c", 1, 1), cost("c", 1, 1)
	priced.Price.Input, unsourced.Call.UsageSource, byok.Call.BYOK, tokens.Call.Usage.PromptTokens = -1, "", true, -1
	dear := cost("c", 1, math.MaxInt64)
	dear.Call.Usage.PromptTokens = 1
	for _, settlement := range []Settlement{{}, negative, priced, unsourced, byok, tokens, dear} {
		_, err := book.Settle(t.Context(), settlement)
		require.ErrorIs(t, err, ErrInvalid, "%+v", settlement)
	}
}

// recorded records a call and waits for its row.
func recorded(t *testing.T, book *Book, settlement Settlement) {
	t.Helper()
	pending, err := book.Record(settlement)
	require.NoError(t, err)
	<-pending.Done()
	require.NoError(t, pending.Err())
}

// TestRecord: the row of a call without money is written without a wait; a call with money is refused.
func TestRecord(t *testing.T) {
	eachEngine(t, func(t *testing.T, _ *store.DB, book *Book) {
		free := chargeOf("call_free", 0, 0)
		free.Price = Price{}
		recorded(t, book, free)
		again, err := book.Settle(t.Context(), free)
		require.NoError(t, err, "the row is there, so settling again only reads it")
		require.Zero(t, again.ChargedMicros)

		_, err = book.Record(chargeOf("call_paid", 5, 5))
		require.ErrorIs(t, err, ErrInvalid)
		_, err = book.Record(chargeOf("call_costs", 0, 5))
		require.ErrorIs(t, err, ErrInvalid)
		free.Claim = &Claim{}
		_, err = book.Record(free)
		require.ErrorIs(t, err, ErrInvalid, "a key that is finished can't be lost")
	})
}

// TestAnsweringModels: the price of a call keeps the name of the model that answered. A vendor with ever other names, or with texts that no database
// stores, makes few rows and no call fails.
func TestAnsweringModels(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000_000)
		for i := range 2 * maxAnswering {
			for _, name := range []string{fmt.Sprint("model-", i), "\x00\xff", "a b", strings.Repeat("x", maxAnsweringName+1), ""} {
				charged := cost(fmt.Sprintf("call_%d_%x", i, name[:min(2, len(name))]), 10, 1)
				charged.Call.Provider, charged.Call.AnsweringModel = "p", name
				_, err := book.Settle(t.Context(), charged)
				require.NoError(t, err)
			}
		}
		require.Equal(t, maxAnswering+1, count(t, db, `SELECT count(*) FROM prices`))
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM prices WHERE answering_model = ''`))
		require.Equal(t, maxAnswering, count(t, db, `SELECT count(*) FROM calls c JOIN prices p ON p.id = c.price_id WHERE answering_model <> ''`))
		requireSoundBooks(t, db)
	})
}

// TestCostOfFreeCalls: a call of a free model that costs the operator something keeps its price, though nothing waits for its record.
func TestCostOfFreeCalls(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeOrganization(t, db, "org_free")
		for i, byok := range []bool{false, false, true} {
			free := cost(fmt.Sprint("call_", i), 0, 7)
			free.Call.Wallet.OrgID, free.Call.BYOK, free.Price, free.VendorPrice = "org_free", byok, Price{}, Price{Output: tokensPerPrice}
			free.Attempts = []Attempt{{Provider: "dead", Failure: "unreachable"}}
			pending, err := book.Record(free)
			require.NoError(t, err)
			<-pending.Done()
			require.NoError(t, pending.Err())
		}
		require.Equal(t, 2, count(t, db, `SELECT count(*) FROM calls c JOIN prices p ON p.id = c.price_id WHERE vendor_price LIKE '%"output":1000000,%'`))
		require.Equal(t, 3, count(t, db, `SELECT count(*) FROM attempts`))
		requireSoundBooks(t, db)
	})
}
