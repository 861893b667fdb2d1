package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestExactlyTheCallsThatAreFunded guarantees that three processes spend a wallet from their tranches to its last micro: as many
// calls as it can pay for are held, and no call is refused before that.
func TestExactlyTheCallsThatAreFunded(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			const funded, price, atOnce = 5000, 7, 16
			location := storetest.Location(t, engine)
			var books []*Book
			for range 3 {
				db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				book := NewBook(db)
				tranches := book.StartTranches(slog.New(slog.DiscardHandler))
				t.Cleanup(func() { require.NoError(t, tranches.Stop(context.WithoutCancel(t.Context()))) })
				books = append(books, book)
			}
			makeOrganization(t, books[0].db, acme.OrgID)
			topUp(t, books[0], funded*price)

			var held atomic.Int64
			var callers sync.WaitGroup
			for i, book := range books {
				for j := range atOnce {
					callers.Go(func() {
						for n := 0; ; n++ {
							id := fmt.Sprintf("call_%d_%d_%d", i, j, n)
							_, err := book.Hold(t.Context(), holdOf(id, price))
							if errors.Is(err, ErrInsufficientCredits) {
								return
							}
							if err == nil {
								held.Add(1)
								_, err = book.Settle(t.Context(), chargeOf(id, price))
							}
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			callers.Wait()
			require.EqualValues(t, funded, held.Load())
			requireWallet(t, books[0], 0, 0)
			require.Greater(t, count(t, books[0].db, `SELECT count(*) FROM calls WHERE tranche_id IS NOT NULL`), funded/4, "calls from tranches")
			require.Zero(t, count(t, books[0].db, `SELECT count(*) FROM calls WHERE shortfall_micros > 0`))
			requireSoundTranches(t, books[0].db)
		})
	}
}

// A call that is held from a tranche takes one transaction, in two round trips to PostgreSQL.
func TestGrantedCallTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
	db := storetest.OpenAt(t, wire.Location, store.Options{Kinds: []store.Kind{Ledger}})
	makeOrganization(t, db, acme.OrgID)
	book, _ := tendedBook(db)
	topUp(t, book, 100_000)
	call := func(id string) int {
		before := wire.RoundTrips()
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf(id, 10))))
		_, err := book.Settle(t.Context(), chargeOf(id, 7))
		require.NoError(t, err)
		return wire.RoundTrips() - before
	}
	require.Equal(t, 4, call("warm"))
	call("asks for a tranche")
	call("prepares its statements")
	require.Equal(t, 2, call("held from it"))
}

// tendedBook is a book whose tranches only tend gives back and renews, on a clock of its own.
func tendedBook(db *store.DB) (book *Book, clock *time.Time) {
	now := time.Unix(1_800_000_000, 0)
	book = &Book{db: db, tranches: newTranches(db, slog.New(slog.DiscardHandler))}
	book.tranches.now = func() time.Time { return now }
	return book, &now
}

// grantingBook is a [tendedBook] that has held three calls of 10, the last of them from a tranche, in a wallet of 100,000.
func grantingBook(t *testing.T, db *store.DB, book *Book) (holder *Book, clock *time.Time) {
	t.Helper()
	topUp(t, book, 100_000)
	holder, clock = tendedBook(db)
	for _, id := range []string{"call_1", "call_2", "call_3"} {
		require.NoError(t, refusal(holder.Hold(t.Context(), holdOf(id, 10))))
	}
	return holder, clock
}

// A wallet's first call takes nothing in advance, its second does, and all goes back when no call has come for a second, or when
// tranches are switched off.
func TestIdleTranchesGoBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, _ *store.DB, book *Book) {
		topUp(t, book, 100_000)
		tended, now := tendedBook(book.db)
		call := func(id string) {
			require.NoError(t, refusal(tended.Hold(t.Context(), holdOf(id, 10))))
			_, err := tended.Settle(t.Context(), chargeOf(id, 10))
			require.NoError(t, err)
		}
		call("call_1")
		requireWallet(t, book, 99_990, 0)
		call("call_2")
		requireWallet(t, book, 99_980, trancheCalls*10)
		call("call_3")
		requireWallet(t, book, 99_970, (trancheCalls-1)*10)
		*now = now.Add(trancheIdle)
		tended.tranches.tend(t.Context())
		requireWallet(t, book, 99_970, (trancheCalls-1)*10)
		*now = now.Add(time.Millisecond)
		tended.tranches.tend(t.Context())
		requireWallet(t, book, 99_970, 0)

		call("call_4")
		call("call_5")
		requireWallet(t, book, 99_950, trancheCalls*10)
		require.NoError(t, refusal(tended.Hold(t.Context(), holdOf("call_6", 10))))
		require.Equal(t, 1, tended.tranches.Calls())
		tended.tranches.Allow(false)
		require.NoError(t, refusal(tended.Hold(t.Context(), holdOf("call_7", 10))))
		require.Equal(t, 1, tended.tranches.Calls(), "switched off")
		tended.tranches.tend(t.Context())
		requireWallet(t, book, 99_950, trancheCalls*10+10)
		for _, id := range []string{"call_6", "call_7"} {
			_, err := tended.Settle(t.Context(), chargeOf(id, 10))
			require.NoError(t, err)
		}
		tended.tranches.tend(t.Context())
		requireWallet(t, book, 99_930, 0)
	})
}

// A process that has lost its lease neither grants more, nor can its calls make a debt: they pay from what is free.
func TestFencedTranche(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100_000)
		hung, now := tendedBook(db)
		for _, id := range []string{"call_1", "call_2", "call_3", "call_4"} {
			require.NoError(t, refusal(hung.Hold(t.Context(), holdOf(id, 10))))
		}
		require.Equal(t, 2, hung.tranches.Calls())
		*now = now.Add(trancheGood)
		require.NoError(t, refusal(hung.Hold(t.Context(), holdOf("call_5", 10))))
		require.Equal(t, 2, hung.tranches.Calls(), "nothing is granted near the end of the lease")

		execute(t, db, `UPDATE tranches SET lease_until = 1`)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("all that is free", 100_000-30))), "without a sweep")
		for id, want := range map[string]Settled{"call_3": {ShortfallMicros: 10}, "call_1": {ChargedMicros: 10}} {
			settled, err := hung.Settle(t.Context(), chargeOf(id, 10))
			require.NoError(t, err)
			require.Equal(t, want, settled, id)
		}
		_, err := book.Settle(t.Context(), chargeOf("all that is free", 0))
		require.NoError(t, err)
		settled, err := hung.Settle(t.Context(), chargeOf("call_4", 10))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 10, ExtraMicros: 10}, settled)
		require.Zero(t, hung.tranches.Calls())
		require.Empty(t, hung.tranches.all)
	})
}

// A recall is answered only after the settlements that were on their way: each may leave something unused.
func TestRecallWaitsForSettlements(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 10_000)
		holder, _ := tendedBook(db)
		for _, id := range []string{"call_1", "call_2", "call_3", "call_4"} {
			require.NoError(t, refusal(holder.Hold(t.Context(), holdOf(id, 10))))
		}
		op := &settleOp{Settlement: chargeOf("call_3", 1)}
		settling := holder.tranches.settle(op.Call)
		op.use = &settling.use
		require.NoError(t, db.Do(t.Context(), Ledger, op)) // decided, and not yet answered

		free := int64(10_000 - 3*10 - 1)
		held := make(chan error, 1)
		go func() { held <- refusal(book.Hold(t.Context(), holdOf("the rest", free))) }()
		for count(t, db, `SELECT count(*) FROM tranches WHERE status = 'recalled'`) == 0 {
			require.Empty(t, held)
		}
		for range 3 {
			holder.tranches.tend(t.Context())
		}
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM tranches WHERE status = 'recalled'`), "not answered before the settlement is")
		holder.tranches.settled(settling, op.settled, nil, nil)
		holder.tranches.tend(t.Context())
		require.NoError(t, <-held)
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM tranches WHERE status = 'drained'`))
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("one more", 1))), ErrInsufficientCredits)
		for _, id := range []string{"call_1", "call_2", "call_4", "the rest"} {
			_, err := holder.Settle(t.Context(), voidOf(id))
			require.NoError(t, err)
		}
		require.NoError(t, holder.tranches.Stop(t.Context()))
		requireWallet(t, book, 9_999, 0)
	})
}

// All tranches of a wallet together hold at most a hundredth of what is free, and none is taken while one is recalled.
func TestTrancheShare(t *testing.T) {
	t.Parallel()
	b := testBooks(10_000, 0)
	ask := func(id string, opens bool, want, least int64) int64 {
		asked := &take{id: id, opens: opens, want: want, least: least}
		b.addTake(acme, asked, nil)
		return asked.got
	}
	require.Zero(t, ask("trc_1", true, 800, 101), "the wallet is too low for one call more")
	require.Zero(t, ask("trc_1", false, 50, 1), "a tranche that has ended")
	require.EqualValues(t, 60, ask("trc_1", true, 60, 10))
	require.EqualValues(t, 40, ask("trc_2", true, 800, 10))
	require.Zero(t, ask("trc_1", false, 10, 1))
	require.EqualValues(t, 100, b.wallets[acme].held)
	asked := &take{id: "trc_3", opens: true, want: 1}
	b.addTake(acme, asked, ErrInvalid)
	require.Zero(t, asked.got, "with a refused operation")

	recall := &recallOp{wallet: acme, micros: 9_901}
	b.recall(recall)
	require.True(t, recall.pending)
	b.wallets[acme].balance += 10_000
	require.Zero(t, ask("trc_1", false, 10, 1), "recalled")
	for _, id := range []string{"trc_1", "trc_2"} {
		b.move(&trancheOp{id: id, wallet: acme, act: drainTranche, unused: 1_000})
	}
	require.Zero(t, b.wallets[acme].held)
	require.Zero(t, ask("trc_3", true, 10, 1), "given back a moment ago")
	b.move(&trancheOp{id: "trc_1", wallet: acme, act: endTranche})
	b.move(&trancheOp{id: "trc_2", wallet: acme, act: endTranche})
	require.Zero(t, ask("trc_1", false, 10, 1), "an ended tranche stays ended")
}

// A call that was given up after its tranche was recalled leaves its part to others, although other calls use the tranche on.
func TestGivenUpCallGoesBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		long := holdOf("call_4", 10)
		long.ExpiresIn = time.Hour
		require.NoError(t, refusal(holder.Hold(t.Context(), long)))
		held := make(chan error, 1)
		go func() { held <- refusal(book.Hold(t.Context(), holdOf("the rest", 100_000-40))) }()
		for len(held) == 0 {
			holder.tranches.tend(t.Context())
		}
		require.NoError(t, <-held)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_3's", 10))), ErrInsufficientCredits)
		*now = now.Add(time.Minute + trancheGrace + 1)
		holder.tranches.tend(t.Context())
		holder.tranches.tend(t.Context())
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_3's", 10))))
		require.NoError(t, holder.tranches.Stop(t.Context()))
	})
}

// A recall doesn't wait for a settlement that the store refused.
func TestRefusedSettlementDoesNotStopARecall(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, _ := grantingBook(t, db, book)
		settling := holder.tranches.settle(chargeOf("call_3", 10).Call)
		holder.tranches.settled(settling, Settled{}, nil, store.ErrBusy)
		held := make(chan error, 1)
		go func() { held <- refusal(book.Hold(t.Context(), holdOf("the rest", 100_000-30))) }()
		for len(held) == 0 {
			holder.tranches.tend(t.Context())
		}
		require.NoError(t, <-held)
		require.NoError(t, holder.tranches.Stop(t.Context()))
	})
}

// While the store can't write, calls hold by themselves and are refused there, before a provider is asked.
func TestNothingIsGrantedWhileTheStoreFails(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, _ := grantingBook(t, db, book)
		settling := holder.tranches.settle(chargeOf("call_3", 10).Call)
		holder.tranches.settled(settling, Settled{}, nil, store.ErrBusy)
		require.NoError(t, refusal(holder.Hold(t.Context(), holdOf("call_4", 10))))
		require.Equal(t, 1, holder.tranches.Calls())
		holder.tranches.tend(t.Context())
		require.NoError(t, refusal(holder.Hold(t.Context(), holdOf("call_5", 10))))
		require.Equal(t, 2, holder.tranches.Calls(), "the store writes again")
		require.NoError(t, holder.tranches.Stop(t.Context()))
	})
}

// Where commits are slow a hold waits for seconds. Its tranche doesn't wait for it: a settlement asks for more meanwhile.
func TestTrancheGrowsWithSettlements(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, _ := grantingBook(t, db, book) // 80 were taken, and call_3 uses 10
		tranches := holder.tranches
		require.NoError(t, refusal(holder.Hold(t.Context(), holdOf("call_4", 60))))
		require.Equal(t, 2, tranches.Calls())
		waits := tranches.take(holdOf("waits", 20))
		require.EqualValues(t, 2*70+trancheCalls*20-10, waits.want)
		require.Nil(t, tranches.take(holdOf("waits, too", 20)), "one hold asks at a time")
		asks := tranches.settle(chargeOf("call_4", 60).Call)
		require.EqualValues(t, 2*70+trancheCalls*60-10, asks.take.want)
		too := tranches.settle(chargeOf("call_4", 60).Call)
		require.Nil(t, too.take, "one settlement asks at a time")
		tranches.settled(asks, Settled{}, nil, store.ErrBusy)
		tranches.settled(too, Settled{}, nil, store.ErrBusy)
		tranches.taken(waits, store.ErrBusy)
		for _, id := range []string{"call_1", "call_2", "call_3", "call_4"} {
			_, err := holder.Settle(t.Context(), voidOf(id))
			require.NoError(t, err)
		}
		require.NoError(t, tranches.Stop(t.Context()))
		requireWallet(t, book, 100_000, 0)
	})
}

// A store that is slow gets no more calls from tranches than a transaction can end: the others hold by themselves, and may be refused
// before the provider works.
func TestSlowStoreHasFewGrants(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		slow := holder.tranches.settle(chargeOf("call_3", 1).Call)
		*now = now.Add(trancheSlow)
		holder.tranches.settled(slow, Settled{ChargedMicros: 1}, nil, nil)
		require.Zero(t, holder.tranches.Calls())
		var calls []string
		for i := range slowCalls + trancheCalls {
			calls = append(calls, fmt.Sprintf("slow_%d", i))
			require.NoError(t, refusal(holder.Hold(t.Context(), holdOf(calls[i], 1))))
		}
		require.Equal(t, slowCalls, holder.tranches.Calls())
		require.True(t, holder.tranches.full())
		for r := range holder.tranches.all {
			holder.tranches.done(r.work(renewTranche, *now), nil)
		}
		require.False(t, holder.tranches.full(), "a renewal was quick, while all calls last")
		quick := holder.tranches.settle(chargeOf("slow_0", 1).Call)
		holder.tranches.settled(quick, Settled{ChargedMicros: 1}, nil, nil)
		for i := range 2 {
			calls = append(calls, fmt.Sprintf("quick_%d", i))
			require.NoError(t, refusal(holder.Hold(t.Context(), holdOf(calls[len(calls)-1], 1))))
		}
		require.Equal(t, slowCalls+1, holder.tranches.Calls(), "the store is quick again")
		for _, id := range calls[1:] {
			_, err := holder.Settle(t.Context(), voidOf(id))
			require.NoError(t, err)
		}
		require.NoError(t, holder.tranches.Stop(t.Context()))
	})
}

// TestLeaseNeverGoesBack has the answers of two settlements come in the other order than they were sent: the lease stands as the later
// of the two left it.
func TestLeaseNeverGoesBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		require.NoError(t, refusal(holder.Hold(t.Context(), holdOf("call_4", 10))))
		*now = now.Add(time.Second)
		early := holder.tranches.settle(chargeOf("call_3", 1).Call)
		*now = now.Add(time.Second)
		late := holder.tranches.settle(chargeOf("call_4", 1).Call)
		holder.tranches.settled(late, Settled{ChargedMicros: 1}, nil, nil)
		require.Equal(t, *now, late.grant.tranche.leasedAt)
		holder.tranches.settled(early, Settled{ChargedMicros: 1}, nil, nil)
		require.Equal(t, *now, late.grant.tranche.leasedAt)
		for _, id := range []string{"call_1", "call_2"} {
			_, err := holder.Settle(t.Context(), voidOf(id))
			require.NoError(t, err)
		}
		require.NoError(t, holder.tranches.Stop(t.Context()))
	})
}
