package billing

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestLargestBalance: what would exceed an int64 is refused with [ErrOverflow] and leaves nothing in any table.
func TestLargestBalance(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		columns := storetest.Columns(t, db.Reader(), db.Engine())
		overflows := func(write func() (Entry, error)) {
			t.Helper()
			before := storetest.Contents(t, db.Reader(), columns)
			_, err := write()
			require.ErrorIs(t, err, ErrOverflow)
			require.Equal(t, before, storetest.Contents(t, db.Reader(), columns))
		}
		credit := func(micros int64, ref string) (Entry, error) {
			return book.Credit(t.Context(), "test", acme, micros, ref)
		}
		refund := func() (Entry, error) { return book.Refund(t.Context(), "test", "call_1", "ticket") }

		entry, err := credit(math.MaxInt64, "all")
		require.NoError(t, err)
		require.Equal(t, int64(math.MaxInt64), entry.BalanceMicros)
		overflows(func() (Entry, error) { return credit(1, "one more") })
		overflows(func() (Entry, error) { return credit(math.MaxInt64, "as much again") })
		overflows(func() (Entry, error) { return book.Adjust(t.Context(), "test", acme, 1, "why", "one more", "") })

		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", math.MaxInt64))))
		requireWallet(t, book, math.MaxInt64, math.MaxInt64)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_2", 1))), ErrInsufficientCredits)
		settled, err := book.Settle(t.Context(), chargeOf("call_1", math.MaxInt64, 2))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 2}, settled)

		_, err = credit(1, "fills up to one below")
		require.NoError(t, err)
		overflows(refund)
		_, err = book.Adjust(t.Context(), "test", acme, -1, "makes room", "room", "")
		require.NoError(t, err)
		entry, err = refund()
		require.NoError(t, err)
		require.Equal(t, int64(math.MaxInt64), entry.BalanceMicros)
		requireStatement(t, db, acme, math.MaxInt64)
	})
}

// TestLargestSpend: spend is exact up to the largest sum, and an error above it.
func TestLargestSpend(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		pays := func(id string, micros int64) {
			t.Helper()
			topUp(t, book, micros)
			require.NoError(t, refusal(book.Hold(t.Context(), holdOf(id, micros))))
			settled, err := book.Settle(t.Context(), chargeOf(id, micros, micros))
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: micros}, settled)
		}
		pays("call_1", math.MaxInt64-1)
		pays("call_2", 1)
		spent, err := book.Spend(t.Context(), acme, 0, math.MaxInt64)
		require.NoError(t, err)
		require.Len(t, spent, 1)
		require.Equal(t, []int64{math.MaxInt64, math.MaxInt64}, []int64{spent[0].ChargedMicros, spent[0].CompletionTokens})
		pays("call_3", 1)
		spent, err = book.Spend(t.Context(), acme, 0, math.MaxInt64)
		require.Error(t, err)
		require.Empty(t, spent)
		requireStatement(t, db, acme, 0)
	})
}

// TestLargestTranche: in the largest wallet, what is free and what tranches hold is the balance, and calls of amounts that exceed an int64
// when a tranche for several of them is computed are held and settled like others.
func TestLargestTranche(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, math.MaxInt64)
		holder, clock := tendedBook(db)
		spendable := func(want int64) {
			t.Helper()
			micros, err := book.Spendable(t.Context(), acme)
			require.NoError(t, err)
			require.Equal(t, want, micros)
		}
		holds(t, holder, "call_1", "call_2")
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM tranches WHERE left_micros > 0`))
		spendable(math.MaxInt64 - 20)
		const huge = math.MaxInt64/4 + 1 // eight of them exceed an int64 twice over
		for _, id := range []string{"call_3", "call_4", "call_5"} {
			require.NoError(t, refusal(holder.Hold(t.Context(), holdOf(id, huge))))
		}
		spendable(math.MaxInt64 - 20 - 3*huge)
		require.ErrorIs(t, refusal(holder.Hold(t.Context(), holdOf("call_6", huge))), ErrInsufficientCredits)
		for id, micros := range map[string]int64{"call_1": 10, "call_2": 10, "call_3": huge, "call_4": huge, "call_5": huge} {
			settled, err := holder.Settle(t.Context(), chargeOf(id, micros, micros))
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: micros}, settled)
		}
		spendable(math.MaxInt64 - 20 - 3*huge)
		*clock = clock.Add(2 * trancheIdle)
		holder.tranches.tend(t.Context())
		requireWallet(t, book, math.MaxInt64-20-3*huge, 0)

		execute(t, db, insertTranche, acme.OrgID, "live", "trc_x", "own_x", int64(math.MaxInt64), true, int64(math.MaxInt64), "")
		_, err := book.Spendable(t.Context(), acme)
		require.ErrorIs(t, err, ErrOverflow, "books that are broken")
		execute(t, db, `DELETE FROM tranches WHERE id = 'trc_x'`)
	})
}

// TestLargestLoss: what a sweep has released of several wallets is logged, although the sum doesn't fit.
func TestLargestLoss(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		for i, env := range []store.Env{store.Live, store.Test} {
			wallet := WalletID{acme.OrgID, env}
			_, err := book.Credit(t.Context(), "test", wallet, math.MaxInt64, "all")
			require.NoError(t, err)
			hold := holdOf([]string{"call_1", "call_2"}[i], math.MaxInt64)
			hold.Wallet, hold.ExpiresIn = wallet, time.Hour
			require.NoError(t, refusal(book.Hold(t.Context(), hold)))
		}
		execute(t, db, `UPDATE holds SET expires_at = 1`)
		lost, err := book.Sweep(t.Context())
		require.NoError(t, err)
		require.Len(t, lost.Calls, 2)
		require.Equal(t, int64(math.MaxInt64), lost.Micros, "the largest amount, since the sum doesn't fit")
	})
}
