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

func requireSoundBooks(t *testing.T, db *store.DB) {
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
	_, err := book.Credit(t.Context(), "test", acme, micros, "")
	require.NoError(t, err)
}

// lapse puts a hold's end into the past.
func lapse(t *testing.T, db *store.DB, callID string) {
	t.Helper()
	execute(t, db, `UPDATE holds SET expires_at = 1 WHERE id = $1`, callID)
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

func TestCallIsPaid(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000)
		hold := holdOf("call_1", 600)
		hold.Model, hold.Price = "openai/gpt", Price{Input: 1, Output: 2, CachedInput: -1}
		require.NoError(t, refusal(book.Hold(t.Context(), hold)))
		require.NoError(t, refusal(book.Hold(t.Context(), hold)), "the same hold again")
		requireWallet(t, book, 1_000, 600)

		settlement := chargeOf("call_1", 250)
		settlement.Call = Call{
			ID: "call_1", KeyID: "key_1", Model: "openai/gpt", Provider: "openai", RequestID: "req_1", Wallet: acme, Stream: true,
			Usage: Usage{PromptTokens: 10, CompletionTokens: 20, CachedPromptTokens: 5}, UsageSource: UsageEstimated,
			Outcome: "completed", StartedAt: 123, DurationMS: 456,
		}
		for range 2 {
			settled, err := book.Settle(t.Context(), settlement)
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: 250}, settled)
		}
		requireWallet(t, book, 750, 0)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), hold)), ErrCallEnded)

		var got Call
		var charged, holdPrice int64
		var txID string
		var balance, chargedAt int64
		require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT c.id, c.key_id, c.model, c.provider, c.request_id,
			c.org_id, c.env, c.stream, c.prompt_tokens, c.completion_tokens, c.cached_tokens, c.usage_source, c.outcome,
			c.started_at, c.duration_ms, c.charged_micros, c.tx_id, c.balance_micros, c.charged_at, h.price_output
			FROM calls c JOIN holds h ON h.id = c.id`).Scan(
			&got.ID, &got.KeyID, &got.Model, &got.Provider, &got.RequestID, &got.Wallet.OrgID, &got.Wallet.Env, &got.Stream,
			&got.Usage.PromptTokens, &got.Usage.CompletionTokens, &got.Usage.CachedPromptTokens, &got.UsageSource, &got.Outcome,
			&got.StartedAt, &got.DurationMS, &charged, &txID, &balance, &chargedAt, &holdPrice))
		require.Equal(t, settlement.Call, got)
		require.Equal(t, int64(250), charged)
		require.Equal(t, int64(750), balance)
		require.Positive(t, chargedAt)
		require.Equal(t, int64(2), holdPrice)
		require.Regexp(t, `^txn_`, txID)
	})
}

func TestCallIsNotPaid(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_0", 1))), ErrInsufficientCredits, "no wallet yet")
		topUp(t, book, 100)

		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_void", 100))))
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_0", 1))), ErrInsufficientCredits)
		settled, err := book.Settle(t.Context(), voidOf("call_void"))
		require.NoError(t, err)
		require.Equal(t, Settled{}, settled)
		settled, err = book.Settle(t.Context(), chargeOf("call_void", 50))
		require.NoError(t, err)
		require.Equal(t, Settled{}, settled, "the first settlement of a call stands")

		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_free", 100))))
		_, err = book.Settle(t.Context(), chargeOf("call_free", 0))
		require.NoError(t, err)

		byok := Settlement{Call: Call{ID: "call_byok", Wallet: acme, BYOK: true, UsageSource: UsageProvider}}
		for range 2 {
			settled, err = book.Settle(t.Context(), byok)
			require.NoError(t, err)
			require.Equal(t, Settled{}, settled)
		}
		requireWallet(t, book, 100, 0)
		require.Equal(t, 3, count(t, db, `SELECT count(*) FROM calls WHERE charged_micros = 0 AND tx_id IS NULL AND charged_at IS NULL`))
	})
}

func TestCostAboveTheHold(t *testing.T) {
	eachEngine(t, func(t *testing.T, _ *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 40))))
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_2", 40))))
		for range 2 {
			settled, err := book.Settle(t.Context(), chargeOf("call_1", 75))
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: 60, ExtraMicros: 20, ShortfallMicros: 15}, settled)
		}
		requireWallet(t, book, 40, 40)
		settled, err := book.Settle(t.Context(), chargeOf("call_2", 40))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 40}, settled, "what another call takes above its hold never touches this one's")
		requireWallet(t, book, 0, 0)
	})
}

func TestSettleAfterExpiry(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 60))))
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_2", 30))))
		expired, err := book.Sweep(t.Context())
		require.NoError(t, err)
		require.Zero(t, expired)

		lapse(t, db, "call_1")
		expired, err = book.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, expired)
		requireWallet(t, book, 100, 30)
		for range 2 {
			settled, err := book.Settle(t.Context(), chargeOf("call_1", 25))
			require.NoError(t, err)
			require.Equal(t, Settled{ShortfallMicros: 25, Expired: true}, settled)
		}

		lapse(t, db, "call_2")
		settled, err := book.Settle(t.Context(), chargeOf("call_2", 25))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 25}, settled, "a hold counts until it is swept")
		requireWallet(t, book, 75, 0)
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
		wrong := chargeOf("call_test", 10)
		_, err = book.Settle(t.Context(), wrong)
		require.ErrorIs(t, err, ErrInvalid)
		wrong.Call.Wallet = sandbox
		_, err = book.Settle(t.Context(), wrong)
		require.NoError(t, err)
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
				*result, err = book.Settle(t.Context(), chargeOf(id, micros))
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
		settle := &settleOp{Settlement: chargeOf("call_small", 70)}
		credit := &postOp{posting: posting{kind: EntryTopUp, wallet: acme, micros: 50, ref: "r", actor: "test"}}
		replay := &postOp{posting: credit.posting}
		after := &holdOp{Hold: holdOf("call_after", 80)}
		ops := []store.Op{large, small, settle, credit, replay, after, &sweepOp{}}
		applyTogether(t, db, ops...)

		require.ErrorIs(t, large.refused, ErrInsufficientCredits)
		require.NoError(t, small.refused)
		require.Equal(t, Settled{ChargedMicros: 70, ExtraMicros: 10}, settle.settled)
		require.Equal(t, int64(80), credit.entry.BalanceMicros)
		require.True(t, replay.entry.Replayed)
		require.NoError(t, after.refused)
		requireWallet(t, book, 80, 80)
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
		_, err := book.Settle(t.Context(), chargeOf("call_rest", 5))
		require.NoError(t, err)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_rest", 70))), ErrCallEnded, "with credits")
		_, err = book.Settle(t.Context(), chargeOf("call_some", 30))
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
			credits = append(credits, &postOp{posting: posting{kind: EntryTopUp, wallet: id, micros: 10, actor: "test"}})
			hold, settlement := holdOf("call_"+id.OrgID, 10), chargeOf("call_"+id.OrgID, int64(i%12))
			hold.Wallet, settlement.Call.Wallet = id, id
			holds = append(holds, &holdOp{Hold: hold})
			settles = append(settles, &settleOp{Settlement: settlement})
		}
		applyTogether(t, db, credits...)
		applyTogether(t, db, holds...)
		applyTogether(t, db, settles...)
		for i := range wallets {
			require.NoError(t, holds[i].(*holdOp).refused)
			require.Equal(t, min(10, int64(i%12)), settles[i].(*settleOp).settled.ChargedMicros)
		}
		require.Equal(t, wallets, count(t, db, `SELECT count(*) FROM holds WHERE status = 'settled'`))
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
		{CallID: "call", Wallet: acme, AmountMicros: 1, ExpiresIn: time.Second, Price: Price{Input: -1}},
		{CallID: "call", Wallet: WalletID{"org", "prod"}, AmountMicros: 1, ExpiresIn: time.Second},
		{CallID: "call", Wallet: WalletID{"", store.Live}, AmountMicros: 1, ExpiresIn: time.Second},
	} {
		require.ErrorIs(t, refusal(book.Hold(t.Context(), hold)), ErrInvalid, "%+v", hold)
	}
	unheld, negative, unsourced, byok, tokens := chargeOf("c", 1), chargeOf("c", -1), chargeOf("c", 1), chargeOf("c", 1), chargeOf("c", 1)
	unheld.Held, unsourced.Call.UsageSource, byok.Call.BYOK, tokens.Call.Usage.PromptTokens = false, "", true, -1
	for _, settlement := range []Settlement{{}, unheld, negative, unsourced, byok, tokens} {
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
		free := chargeOf("call_free", 0)
		free.Held = false
		recorded(t, book, free)
		again, err := book.Settle(t.Context(), free)
		require.NoError(t, err, "the row is there, so settling again only reads it")
		require.Zero(t, again.ChargedMicros)

		_, err = book.Record(chargeOf("call_paid", 5))
		require.ErrorIs(t, err, ErrInvalid)
		free.Claim = &Claim{}
		_, err = book.Record(free)
		require.ErrorIs(t, err, ErrInvalid, "a key that is finished can't be lost")
	})
}
