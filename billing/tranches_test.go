package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
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
			const price, atOnce = 7, 16
			funded := int64(long(2000, 5000))
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

			var held, granted atomic.Int64
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
								if isGranted(book, id) {
									granted.Add(1)
								}
								_, err = book.Settle(t.Context(), chargeOf(id, price, price))
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
			require.Equal(t, funded, held.Load())
			requireWallet(t, books[0], 0, 0)
			require.Greater(t, granted.Load(), funded/4, "calls from tranches")
			require.Zero(t, count(t, books[0].db, `SELECT count(*) FROM calls WHERE shortfall_micros > 0`))
			requireStatement(t, books[0].db, acme, 0)
			requireSoundBooks(t, books[0].db)
		})
	}
}

// isGranted reports whether a call is held from a tranche.
func isGranted(book *Book, call string) bool {
	book.tranches.mu.Lock()
	defer book.tranches.mu.Unlock()
	return book.tranches.grants[call] != nil
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
		_, err := book.Settle(t.Context(), chargeOf(id, 10, 7))
		require.NoError(t, err)
		return wire.RoundTrips() - before
	}
	require.Equal(t, 4, call("warm"))
	call("asks for a tranche")
	call("prepares its statements")
	require.Equal(t, 2, call("held from it"))
}

// TestTranchesRestWithoutCalls guarantees that nothing runs for tranches in a process that has none, until its first call, and again when
// they are gone.
func TestTranchesRestWithoutCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tranches := newTranches(nil, slog.New(slog.DiscardHandler))
		var looks int
		task := repeat.Start(tranchePause, func(ctx context.Context) {
			looks++
			tranches.round(ctx)
		})
		defer task.Stop()
		time.Sleep(time.Hour) //nolint:forbidigo // on the fake clock
		synctest.Wait()
		require.Equal(t, 1, looks)

		_, _, err := tranches.hold(holdOf("call_1", 10))
		require.NoError(t, err)
		time.Sleep(time.Hour) //nolint:forbidigo // on the fake clock
		synctest.Wait()
		require.False(t, tranches.any(), "it has been returned")
		require.GreaterOrEqual(t, looks, 3)
		require.LessOrEqual(t, looks, 8)
	})
}

// tendedBook is a book whose tranches only tend gives back and renews, on a clock of its own.
func tendedBook(db *store.DB) (book *Book, clock *time.Time) {
	now := time.Unix(1_800_000_000, 0)
	book = NewBook(db)
	book.tranches = newTranches(db, slog.New(slog.DiscardHandler))
	book.tranches.now = func() time.Time { return now }
	return book, &now
}

// grantingBook is a [tendedBook] that has held three calls of 10, the last of them from a tranche, in a wallet of 100,000.
func grantingBook(t *testing.T, db *store.DB, book *Book) (holder *Book, clock *time.Time) {
	t.Helper()
	topUp(t, book, 100_000)
	holder, clock = tendedBook(db)
	holds(t, holder, "call_1", "call_2", "call_3")
	require.Equal(t, 1, holder.tranches.Calls())
	return holder, clock
}

// holds begins calls of 10.
func holds(t *testing.T, book *Book, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf(id, 10))))
	}
}

// charges settles a call of 10.
func charges(t *testing.T, book *Book, id string, cost int64) Settled {
	t.Helper()
	settled, err := book.Settle(t.Context(), chargeOf(id, 10, cost))
	require.NoError(t, err)
	return settled
}

// settlementOf is the settlement of a call as its process sends it.
func settlementOf(t *testing.T, book *Book, s Settlement) *settleOp {
	t.Helper()
	op, err := book.settlement(s)
	require.NoError(t, err)
	op.ride = book.tranches.settle(s.Call)
	require.NotNil(t, op.ride)
	return op
}

// write has operations decided and written, in one batch. Their answers are on their way.
func write(t *testing.T, db *store.DB, ops ...store.Op) {
	t.Helper()
	applyTogether(t, db, ops...)
}

// undo undoes operations as the writer does.
func undo(ops ...store.Op) {
	for _, op := range ops {
		op.(store.Undoer).Undo() //nolint:forcetypeassert // all of those that carry a ride
	}
}

// fail has operations decided in a transaction that fails.
func fail(t *testing.T, db *store.DB, ops ...store.Op) {
	t.Helper()
	lose(t, db, ops...)
	undo(ops...)
}

// lose has operations decided in a transaction that fails without a word.
func lose(t *testing.T, db *store.DB, ops ...store.Op) {
	t.Helper()
	require.ErrorIs(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		return errors.Join(errors.Join(Ledger.Apply(ctx, tx, ops)...), tx.Flush(ctx), errBroken)
	}), errBroken)
}

// memory is what a process knows of acme's tranche.
type memory struct{ unused, inUse, coming int64 }

func memoryOf(t *tranche) memory {
	if t == nil {
		return memory{}
	}
	return memory{t.unused, t.inUse, t.coming}
}

func requireMemory(t *testing.T, book *Book, want memory) {
	t.Helper()
	known := book.tranches.wallets[trancheKey{wallet: acme}]
	require.NotNil(t, known)
	require.Equal(t, want, memoryOf(known))
}

// requireTranche compares the one tranche in the books.
func requireTranche(t *testing.T, db *store.DB, left int64, spare bool) {
	t.Helper()
	require.Equal(t, 1, count(t, db, `SELECT count(*) FROM tranches`))
	var gotLeft int64
	var gotSpare bool
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT left_micros, spare FROM tranches`).Scan(&gotLeft, &gotSpare))
	require.Equal(t, left, gotLeft)
	require.Equal(t, spare, gotSpare)
}

// holdAsync holds an amount, and returns once the wallet is recalled for it.
func holdAsync(t *testing.T, book *Book, id string, micros int64) <-chan error {
	t.Helper()
	held := make(chan error, 1)
	go func() { held <- refusal(book.Hold(t.Context(), holdOf(id, micros))) }()
	require.Eventually(t, func() bool {
		return count(t, book.db, `SELECT count(*) FROM wallets WHERE recall_until > 0`) > 0
	}, time.Minute, time.Millisecond)
	return held
}

// stop ends the process of a book whose calls have ended; then nothing of its wallets is in tranches.
func stop(t *testing.T, book *Book) {
	t.Helper()
	require.NoError(t, book.tranches.Stop(t.Context()))
	require.Zero(t, book.tranches.Calls())
	require.Empty(t, book.tranches.wallets)
	require.Zero(t, count(t, book.db, `SELECT count(*) FROM tranches`))
}

// A wallet's first call takes nothing in advance, its second does, and all goes back when no call has come for a second, or when
// tranches are switched off.
func TestIdleTranchesGoBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100_000)
		tended, now := tendedBook(db)
		call := func(id string) {
			holds(t, tended, id)
			charges(t, tended, id, 10)
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
		require.Zero(t, count(t, db, `SELECT count(*) FROM tranches`))
		require.Empty(t, tended.tranches.wallets)

		call("call_4")
		call("call_5")
		requireWallet(t, book, 99_950, trancheCalls*10)
		holds(t, tended, "call_6")
		require.Equal(t, 1, tended.tranches.Calls())
		tended.tranches.Allow(false)
		holds(t, tended, "call_7")
		require.Equal(t, 1, tended.tranches.Calls(), "switched off")
		requireWallet(t, book, 99_950, trancheCalls*10+10)
		tended.tranches.tend(t.Context())
		requireWallet(t, book, 99_950, 10+10)
		for _, id := range []string{"call_6", "call_7"} {
			charges(t, tended, id, 3)
		}
		requireWallet(t, book, 99_944, 0)
		require.Empty(t, tended.tranches.wallets, "the last call takes the tranche with it")
	})
}

// A process that has lost its lease neither grants more, nor can its calls make a debt: they pay from what is free.
func TestFencedTranche(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100_000)
		hung, now := tendedBook(db)
		holds(t, hung, "call_1", "call_2", "call_3", "call_4")
		require.Equal(t, 2, hung.tranches.Calls())
		*now = now.Add(trancheGood)
		holds(t, hung, "call_5")
		require.Equal(t, 3, hung.tranches.Calls())
		*now = now.Add(1)
		holds(t, hung, "call_6")
		require.Equal(t, 3, hung.tranches.Calls(), "nothing is granted near the end of the lease")

		execute(t, db, `UPDATE tranches SET lease_until = 1`)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("all that is free", 100_000-30))), "without a sweep")
		require.Equal(t, Settled{ShortfallMicros: 10}, charges(t, hung, "call_3", 10))
		require.Equal(t, Settled{ChargedMicros: 10}, charges(t, hung, "call_1", 10))
		_, err := book.Settle(t.Context(), voidOf("all that is free", 100_000-30))
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 10}, charges(t, hung, "call_4", 10))
		require.Empty(t, hung.tranches.wallets)
		require.Equal(t, 1, hung.tranches.Calls())

		holds(t, hung, "call_7", "call_8", "call_9")
		require.Equal(t, 2, hung.tranches.Calls(), "a new tranche")
		requireTranche(t, db, trancheCalls*10, true)
		require.Equal(t, Settled{ChargedMicros: 10}, charges(t, hung, "call_5", 10))
		requireTranche(t, db, trancheCalls*10, true) // of which a call of the old one takes nothing
		for _, id := range []string{"call_2", "call_6", "call_7", "call_8", "call_9"} {
			charges(t, hung, id, 0)
		}
		stop(t, hung)
	})
}

// A sweep ends the tranche of a process that was killed, and says how much was in it.
func TestSweepEndsTranches(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		grantingBook(t, db, book)
		lost, err := book.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, Lost{}, lost)
		execute(t, db, `UPDATE tranches SET lease_until = 1`)
		lost, err = book.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, Lost{Micros: trancheCalls * 10}, lost)
		requireWallet(t, book, 100_000, 20)
	})
}

// What another process doesn't use comes back with its next settlement, or with the next renewal; what its calls use stays.
func TestRecallIsAnswered(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(t *testing.T, holder *Book, now *time.Time){
		"by a settlement": func(t *testing.T, holder *Book, _ *time.Time) {
			require.Equal(t, Settled{ChargedMicros: 1}, charges(t, holder, "call_3", 1))
		},
		"by a renewal": func(t *testing.T, holder *Book, now *time.Time) {
			*now = now.Add(trancheIdle) // not yet idle
			holder.tranches.tend(t.Context())
			requireTranche(t, holder.db, trancheCalls*10, true)
			for range 2 { // not idle either
				holder.tranches.wallets[trancheKey{wallet: acme}].usedAt = now.Add(trancheRenewal)
				*now = now.Add(trancheRenewal - trancheIdle + 1)
				holder.tranches.tend(t.Context())
			}
		},
		"by an idle process": func(t *testing.T, holder *Book, now *time.Time) {
			*now = now.Add(trancheIdle + 1)
			holder.tranches.tend(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
				holder, now := grantingBook(t, db, book)
				holds(t, holder, "call_4")
				rest, kept := int64(100_000-4*10), int64(20)
				if name == "by a settlement" {
					rest, kept = rest+9, 10
				}
				held := holdAsync(t, book, "the rest", rest)
				requireTranche(t, db, trancheCalls*10, true)
				answer(t, holder, now)
				require.NoError(t, <-held)
				requireTranche(t, db, kept, false)
				require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("one more", 1))), ErrInsufficientCredits)
				requireMemory(t, holder, memory{inUse: kept})

				before := holder.tranches.Calls()
				require.ErrorIs(t, refusal(holder.Hold(t.Context(), holdOf("another", 1))), ErrInsufficientCredits, "nothing is granted meanwhile")
				require.Equal(t, before, holder.tranches.Calls())
				_, err := book.Settle(t.Context(), voidOf("the rest", rest))
				require.NoError(t, err)
				holds(t, holder, "call_5", "call_6")
				require.Equal(t, before, holder.tranches.Calls(), "nobody may keep what it doesn't use for a lease from the recall on")
				for _, id := range []string{"call_1", "call_2", "call_3", "call_4", "call_5", "call_6"} {
					charges(t, holder, id, 0)
				}
				require.Empty(t, holder.tranches.wallets)
				requireWallet(t, book, int64(count(t, db, `SELECT balance_micros FROM wallets`)), 0)
			})
		})
	}
}

// What a call leaves after a recall comes back with the next one, although its process got nothing more.
func TestRestAfterARecall(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		holds(t, holder, "call_4")
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("almost all", 100_000-4*10-60-5))))
		execute(t, db, `UPDATE wallets SET recall_until = 9999999999999`)
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		requireTranche(t, db, 20, false)
		execute(t, db, `UPDATE wallets SET recall_until = 0`)
		require.Equal(t, Settled{ChargedMicros: 1}, charges(t, holder, "call_3", 1))
		requireTranche(t, db, 10+9, true)
		requireMemory(t, holder, memory{unused: 9, inUse: 10})
		held := holdAsync(t, book, "the rest", 60+5+9)
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		require.NoError(t, <-held)
		requireTranche(t, db, 10, false)
	})
}

// Each settlement and renewal renews the lease of its tranche.
func TestLeaseIsRenewed(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		requireRenewed := func() {
			t.Helper()
			at, err := db.Now(t.Context())
			require.NoError(t, err)
			require.InDelta(t, at+trancheLease.Milliseconds(), count(t, db, `SELECT lease_until FROM tranches`), 5_000)
			execute(t, db, `UPDATE tranches SET lease_until = lease_until - 8000`)
		}
		requireRenewed()
		charges(t, holder, "call_3", 1)
		requireRenewed()
		*now = now.Add(trancheRenewal + 1)
		holder.tranches.wallets[trancheKey{wallet: acme}].usedAt = *now // not idle
		holder.tranches.tend(t.Context())
		requireRenewed()
		require.Equal(t, *now, holder.tranches.wallets[trancheKey{wallet: acme}].leasedAt)
		*now = now.Add(trancheRenewal)
		holder.tranches.wallets[trancheKey{wallet: acme}].usedAt = *now
		require.Empty(t, holder.tranches.due(*now), "young")
	})
}

// The own tranche of the process that needs the money goes back at once.
func TestOwnTrancheIsReturnedAtOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, _ := grantingBook(t, db, book)
		require.ErrorIs(t, refusal(holder.Hold(t.Context(), holdOf("too much", 100_000-29))), ErrInsufficientCredits)
		requireTranche(t, db, 10, false)
		require.NoError(t, refusal(holder.Hold(t.Context(), holdOf("the rest", 100_000-30))))
		requireMemory(t, holder, memory{inUse: 10})
		rough := holdOf("rough", 1)
		rough.Rough = true
		require.ErrorIs(t, refusal(holder.Hold(t.Context(), rough)), ErrInsufficientCredits)
	})
}

// A hold that tries a smaller amount next leaves the tranches alone, and so does one that exceeds all there is.
func TestRecallNeedsAReason(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		grantingBook(t, db, book)
		rough := holdOf("rough", 100_000-30)
		rough.Rough = true
		require.ErrorIs(t, refusal(book.Hold(t.Context(), rough)), ErrInsufficientCredits)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("above all", 100_000-20+1))), ErrInsufficientCredits)
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM wallets WHERE recall_until = 0`))
		requireTranche(t, db, trancheCalls*10, true)
	})
}

// All tranches of a wallet together hold at most a hundredth of what is free, and none gets more while the wallet is recalled.
func TestTrancheShare(t *testing.T) {
	t.Parallel()
	b := testBooks(10_000, 0)
	w := b.wallets[acme]
	owners := []*Tranches{newTranches(nil, nil), newTranches(nil, nil)}
	for _, owner := range owners {
		owner.wallets[trancheKey{wallet: acme}] = &tranche{id: store.NewID("trc"), trancheKey: trancheKey{wallet: acme}}
	}
	ask := func(of int, amount int64, refused error) int64 {
		r := &ride{of: owners[of], tranche: owners[of].wallets[trancheKey{wallet: acme}], asks: amount}
		b.carry(r, refused)
		return r.got
	}
	require.Zero(t, ask(0, 101, nil), "the wallet is too low for one call")
	require.Empty(t, w.tranches)
	require.EqualValues(t, 5*trancheCalls, ask(0, 5, nil))
	require.Zero(t, ask(0, 5, nil), "what is on its way is not asked for again")
	require.Zero(t, ask(1, 61, nil))
	require.Zero(t, ask(1, 1, ErrInvalid), "with a refused operation")
	require.EqualValues(t, 60, ask(1, 60, nil))
	require.Zero(t, ask(0, 20, nil))
	require.EqualValues(t, 100, w.held)
	require.Equal(t, int64(1000)+trancheLease.Milliseconds(), w.tranches[0].leaseUntil)

	require.True(t, b.recall(acme, nil, func() bool { return w.free() < 9_901 }))
	require.Equal(t, b.now+trancheLease.Milliseconds(), w.recallUntil)
	w.balance += 10_000
	require.Zero(t, ask(0, 20, nil), "recalled")
	require.EqualValues(t, 60, w.held, "and given back")
	require.True(t, w.tranches[0].ended)
	require.Zero(t, ask(0, 20, nil), "a tranche that has ended stays ended")
	b.now = w.recallUntil
	require.Zero(t, ask(1, 20, nil), "the last moment")
	require.Zero(t, w.held)

	b.now++
	known := owners[0].wallets[trancheKey{wallet: acme}]
	known.id, known.open, known.coming = store.NewID("trc"), false, 0
	require.EqualValues(t, 160, ask(0, 20, nil))
	owners[0].wallets = map[trancheKey]*tranche{}
	r := &ride{of: owners[0], tranche: &tranche{id: "trc_idle", trancheKey: trancheKey{wallet: acme}}, asks: 1}
	b.carry(r, nil)
	require.Zero(t, r.got, "a tranche that was forgotten as idle, while the hold waited: nobody would return it")
}

// A call that was given up leaves its part to others, although other calls use the tranche on. A settlement of it that fails meanwhile
// changes nothing of that.
func TestGivenUpCallGoesBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		long := holdOf("call_4", 10)
		long.ExpiresIn = time.Hour
		require.NoError(t, refusal(holder.Hold(t.Context(), long)))
		holds(t, holder, "call_5")
		fails := settlementOf(t, holder, chargeOf("call_5", 10, 1))
		fail(t, db, fails)
		requireMemory(t, holder, memory{50, 30, 0})

		*now = now.Add(time.Minute + trancheGrace)
		require.Len(t, holder.tranches.due(*now), 1)
		require.Equal(t, 3, holder.tranches.Calls())
		*now = now.Add(1)
		holder.tranches.tend(t.Context())
		require.Equal(t, 1, holder.tranches.Calls())
		requireTranche(t, db, 10, false) // call_4's
		fails.ride.answer(errBroken)
		requireMemory(t, holder, memory{inUse: 10})
		*now = now.Add(trancheRenewal + 1)
		execute(t, db, `UPDATE wallets SET recall_until = 9999999999999`)
		holder.tranches.tend(t.Context())
		requireTranche(t, db, 10, false)
		execute(t, db, `UPDATE wallets SET recall_until = 0`)
		require.Equal(t, Settled{ChargedMicros: 10}, charges(t, holder, "call_3", 10), "late, from what is free")
		charges(t, holder, "call_4", 10)
		stop(t, holder)
	})
}

// While the store can't write, calls hold by themselves and are refused there, before a provider is asked. A recall doesn't wait for a
// settlement that the store refused.
func TestNothingIsGrantedWhileTheStoreFails(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, _ := grantingBook(t, db, book)
		settlementOf(t, holder, chargeOf("call_3", 10, 10)).ride.answer(store.ErrBusy)
		holds(t, holder, "call_4")
		require.Equal(t, 1, holder.tranches.Calls())
		holder.tranches.tend(t.Context())
		holds(t, holder, "call_5")
		require.Equal(t, 2, holder.tranches.Calls(), "the store writes again")

		settlementOf(t, holder, chargeOf("call_3", 10, 10)).ride.answer(store.ErrBusy)
		held := holdAsync(t, book, "the rest", 100_000-5*10)
		holder.tranches.tend(t.Context())
		require.NoError(t, <-held)
		requireMemory(t, holder, memory{inUse: 20})
	})
}

// Where commits are slow a hold waits for seconds. Its tranche doesn't wait for it: a settlement asks for more meanwhile, and neither asks for
// what the other brings.
func TestTrancheGrowsWithSettlements(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, _ := grantingBook(t, db, book) // 80 were taken, and call_3 uses 10
		require.NoError(t, refusal(holder.Hold(t.Context(), holdOf("call_4", 60))))
		require.Equal(t, 2, holder.tranches.Calls())
		requireMemory(t, holder, memory{10, 70, 0})
		_, waits, err := holder.tranches.hold(holdOf("waits", 20))
		require.NoError(t, err)
		settle := settlementOf(t, holder, chargeOf("call_4", 60, 45))
		write(t, db, settle, &holdOp{Hold: holdOf("waits", 20), ride: waits})
		require.EqualValues(t, 2*10+trancheCalls*60-10, settle.ride.got)
		require.Zero(t, waits.got)
		requireMemory(t, holder, memory{10, 10, 490})
		requireTranche(t, db, 80-60+15+490, true)
		waits.answer(nil)
		settle.ride.answer(nil)
		requireMemory(t, holder, memory{10 + 490 + 15, 10, 0})
		for _, id := range []string{"call_1", "call_2", "call_3"} {
			charges(t, holder, id, 0)
		}
		_, err = holder.Settle(t.Context(), voidOf("waits", 20))
		require.NoError(t, err)
		stop(t, holder)
		requireWallet(t, book, 100_000-45, 0)
	})
}

// A store that is slow gets no more calls from tranches than a transaction can end: the others hold by themselves, and may be refused
// before the provider works.
func TestSlowStoreHasFewGrants(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		slow := settlementOf(t, holder, chargeOf("call_3", 10, 1))
		write(t, db, slow)
		*now = now.Add(trancheSlow + 1)
		slow.ride.answer(nil)
		require.Zero(t, holder.tranches.Calls())
		var calls []string
		hold := func(id string) {
			calls = append(calls, id)
			require.NoError(t, refusal(holder.Hold(t.Context(), holdOf(id, 1))))
		}
		for i := range slowCalls + trancheCalls {
			hold(fmt.Sprintf("slow_%d", i))
		}
		require.Equal(t, slowCalls, holder.tranches.Calls())
		*now = now.Add(trancheRenewal + 1)
		holder.tranches.wallets[trancheKey{wallet: acme}].usedAt = *now // not idle
		holder.tranches.tend(t.Context())
		for i := range 2 {
			hold(fmt.Sprintf("quick_%d", i))
		}
		require.Equal(t, slowCalls+2, holder.tranches.Calls(), "a renewal was quick, while all calls last")
		_, err := holder.Settle(t.Context(), voidOf("slow_0", 1))
		require.NoError(t, err)
		for _, id := range calls[1:] {
			_, err := holder.Settle(t.Context(), voidOf(id, 1))
			require.NoError(t, err)
		}
		stop(t, holder)
	})
}

// TestLeaseNeverGoesBack has the answers of two settlements come in the other order than they were sent: the lease stands as the later
// of the two left it.
func TestLeaseNeverGoesBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		holds(t, holder, "call_4")
		known := holder.tranches.wallets[trancheKey{wallet: acme}]
		*now = now.Add(time.Second)
		early := settlementOf(t, holder, chargeOf("call_3", 10, 1))
		*now = now.Add(time.Second)
		late := settlementOf(t, holder, chargeOf("call_4", 10, 1))
		write(t, db, early, late)
		sent := *now
		for _, op := range []*settleOp{late, early} {
			op.ride.answer(nil)
			require.Equal(t, sent, known.leasedAt)
			require.Equal(t, *now, known.usedAt)
			*now = now.Add(time.Second)
			holds(t, holder, "call_after_"+op.Call.ID)
		}
	})
}

// What a batch decided before its transaction failed is undone, and decided again as if it had not been.
func TestFailedBatchIsDecidedAgain(t *testing.T) {
	t.Parallel()
	for name, recalled := range map[string]bool{"awaiting": false, "recalled": true} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
				holder, _ := grantingBook(t, db, book)
				require.NoError(t, refusal(holder.Hold(t.Context(), holdOf("call_4", 40))))
				before := memory{30, 50, 0}
				requireMemory(t, holder, before)
				if recalled {
					execute(t, db, `UPDATE wallets SET recall_until = 9999999999999`)
					before.unused = 0 // given back more than once: it stays in the books for the next return
				}
				small, large := settlementOf(t, holder, chargeOf("call_3", 10, 1)), settlementOf(t, holder, voidOf("call_4", 40))
				_, asks, err := holder.tranches.hold(holdOf("call_5", 31))
				require.NoError(t, err)
				hold := &holdOp{Hold: holdOf("call_5", 31), ride: asks}
				ops := []store.Op{small, large, hold}
				fail(t, db, ops...)
				requireTranche(t, db, 80, true)
				undo(ops...)
				requireMemory(t, holder, before)
				fail(t, db, ops...)
				fail(t, db, hold, large, small)
				small.ride.answer(errBroken)
				large.ride.answer(errBroken)
				asks.answer(errBroken)
				requireMemory(t, holder, before)

				again := settlementOf(t, holder, chargeOf("call_3", 10, 1))
				fail(t, db, again)
				write(t, db, again)
				got := again.ride.got
				again.ride.answer(nil)
				require.Equal(t, Settled{ChargedMicros: 1}, again.settled)
				if recalled {
					requireMemory(t, holder, memory{inUse: 40})
					requireTranche(t, db, 40, false)
				} else {
					require.EqualValues(t, 2*40+trancheCalls*10-30, got)
					requireMemory(t, holder, memory{30 + 9 + got, 40, 0})
					requireTranche(t, db, 70+9+got, true)
				}
				for _, id := range []string{"call_1", "call_2"} {
					charges(t, holder, id, 0)
				}
				_, err = holder.Settle(t.Context(), voidOf("call_4", 40))
				require.NoError(t, err)
				stop(t, holder)
			})
		})
	}
}

// A settlement whose transaction failed finds what was held for its call, although others of its process gave back, and another process took,
// all that was free in between.
func TestFailedSettlementKeepsItsPart(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		holds(t, holder, "call_4")
		failed := settlementOf(t, holder, chargeOf("call_3", 10, 10))
		fail(t, db, failed)
		held := holdAsync(t, book, "the rest", 100_000-4*10)
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		require.NoError(t, <-held)
		requireTranche(t, db, 20, false)
		write(t, db, failed)
		require.Equal(t, Settled{ChargedMicros: 10}, failed.settled)
		failed.ride.answer(nil)
		requireTranche(t, db, 10, false)
		require.Equal(t, Settled{ChargedMicros: 10}, charges(t, holder, "call_4", 10))
		require.Zero(t, count(t, db, `SELECT count(*) FROM tranches`))
	})
}

// A tranche whose first transaction failed is made by the next operation that asks, and returns like any other.
func TestFailedFirstAskIsTriedAgain(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100_000)
		holder, now := tendedBook(db)
		holds(t, holder, "call_1")
		ask := func(id string) *holdOp {
			_, asks, err := holder.tranches.hold(holdOf(id, 10))
			require.NoError(t, err)
			return &holdOp{Hold: holdOf(id, 10), ride: asks}
		}
		first, second := ask("call_2"), ask("call_3")
		fail(t, db, first)
		write(t, db, second)
		require.EqualValues(t, trancheCalls*10, second.ride.got)
		second.ride.answer(nil)
		write(t, db, first)
		require.Zero(t, first.ride.got)
		first.ride.answer(nil)
		requireMemory(t, holder, memory{unused: trancheCalls * 10})
		requireTranche(t, db, trancheCalls*10, true)
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		stop(t, holder)
		requireWallet(t, book, 100_000, 30)
	})
}

// A hold that waits longer than a tranche is kept without calls makes none, because nobody would return it.
func TestForgottenTrancheIsNotMade(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100_000)
		holder, now := tendedBook(db)
		holds(t, holder, "call_1")
		_, asks, err := holder.tranches.hold(holdOf("call_2", 10))
		require.NoError(t, err)
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		require.Empty(t, holder.tranches.wallets)
		write(t, db, &holdOp{Hold: holdOf("call_2", 10), ride: asks})
		asks.answer(nil)
		require.Zero(t, count(t, db, `SELECT count(*) FROM tranches`))
		requireWallet(t, book, 100_000, 20)
	})
}

// Two settlements of a call end it once, whether they share a batch or not, and whichever is answered first.
func TestTwoSettlementsOfAGrantedCall(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(t *testing.T, db *store.DB, first, second *settleOp){
		"in one batch":   func(t *testing.T, db *store.DB, first, second *settleOp) { write(t, db, first, second) },
		"in two batches": func(t *testing.T, db *store.DB, first, second *settleOp) { write(t, db, first); write(t, db, second) },
		"decided again": func(t *testing.T, db *store.DB, first, second *settleOp) {
			fail(t, db, first, second)
			write(t, db, first, second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
				holder, _ := grantingBook(t, db, book)
				first, second := settlementOf(t, holder, chargeOf("call_3", 10, 4)), settlementOf(t, holder, chargeOf("call_3", 10, 9))
				send(t, db, first, second)
				second.ride.answer(nil)
				first.ride.answer(nil)
				for _, op := range []*settleOp{first, second} {
					require.Equal(t, Settled{ChargedMicros: 4}, op.settled)
				}
				requireMemory(t, holder, memory{unused: trancheCalls*10 - 4})
				requireTranche(t, db, trancheCalls*10-4, true)
				require.Equal(t, Settled{ChargedMicros: 4}, charges(t, holder, "call_3", 9))
				requireWallet(t, book, 100_000-4, 20+trancheCalls*10-4)
				stop(t, holder)
			})
		})
	}
}

// After a settlement whose COMMIT was lost nothing of it is granted. What it left in the books goes back with the next return, and when it
// had not been written, the call pays from what is free: never from the parts of others.
func TestLostCommitOfASettlement(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		holds(t, holder, "call_4", "call_5")
		written, rolledBack := settlementOf(t, holder, chargeOf("call_3", 10, 4)), settlementOf(t, holder, chargeOf("call_4", 10, 7))
		write(t, db, written)
		lose(t, db, rolledBack)
		for _, op := range []*settleOp{written, rolledBack} {
			op.ride.answer(store.ErrCommitUnknown)
		}
		requireMemory(t, holder, memory{unused: 50, inUse: 10})
		requireTranche(t, db, 80-4, true) // 6 are call_3's rest, 10 were call_4's
		require.Equal(t, 3, holder.tranches.Calls(), "they are settled again")

		free := int64(100_000 - 20 - 80)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("almost all", free-3))))
		require.Equal(t, Settled{ChargedMicros: 4}, charges(t, holder, "call_3", 4))
		require.Equal(t, Settled{ChargedMicros: 3, ShortfallMicros: 4}, charges(t, holder, "call_4", 7))
		requireTranche(t, db, 80-4, true)
		requireMemory(t, holder, memory{unused: 50, inUse: 10})
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		requireTranche(t, db, 10, false)
		require.Equal(t, Settled{ChargedMicros: 10}, charges(t, holder, "call_5", 10))
		stop(t, holder)
	})
}

// A hold whose COMMIT was lost brings nothing, written or not, and a tranche that it may have made goes back.
func TestLostCommitOfAnAsk(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100_000)
		for i, send := range []func(*testing.T, *store.DB, ...store.Op){write, fail} {
			holder, now := tendedBook(db)
			holds(t, holder, fmt.Sprintf("call_first_%d", i))
			lost := holdOf(fmt.Sprintf("call_lost_%d", i), 10)
			_, asks, err := holder.tranches.hold(lost)
			require.NoError(t, err)
			send(t, db, &holdOp{Hold: lost, ride: asks})
			asks.answer(store.ErrCommitUnknown)
			requireMemory(t, holder, memory{})
			holds(t, holder, fmt.Sprintf("call_next_%d", i))
			require.Zero(t, holder.tranches.Calls())
			*now = now.Add(trancheIdle + 1)
			holder.tranches.tend(t.Context())
			stop(t, holder)
		}
		requireWallet(t, book, 100_000, 5*10)
	})
}

// The rest of a call that went back between its settlement and the answer is not granted.
func TestLateAnswerBringsNothingBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		holds(t, holder, "call_4")
		require.NoError(t, refusal(holder.Hold(t.Context(), holdOf("call_5", 50))))
		late := settlementOf(t, holder, chargeOf("call_4", 10, 1))
		require.NotZero(t, late.ride.asks)
		write(t, db, late)
		require.NotZero(t, late.ride.got)
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		requireTranche(t, db, 10+50, false)
		late.ride.answer(nil)
		requireMemory(t, holder, memory{inUse: 60})
		holds(t, holder, "call_6")
		require.False(t, isGranted(holder, "call_6"))
	})
}

// A renewal that failed leaves what it wanted to give back with the process.
func TestFailedReturnIsUndone(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		*now = now.Add(trancheIdle + 1)
		due := holder.tranches.due(*now)
		require.Len(t, due, 1)
		for range 2 {
			fail(t, db, &tendOp{due})
			requireMemory(t, holder, memory{unused: 70, inUse: 10})
		}
		due[0].answer(errBroken)
		requireMemory(t, holder, memory{unused: 70, inUse: 10})

		due = holder.tranches.due(*now)
		lose(t, db, &tendOp{due})
		due[0].answer(store.ErrCommitUnknown)
		requireMemory(t, holder, memory{inUse: 10})
		requireTranche(t, db, 80, true)
		charges(t, holder, "call_3", 10)
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		stop(t, holder)
	})
}

// What an operation brought or gave back and is known to be written stands, also when the operation is decided once more: a hold with a key
// may be, when it met a finished key that expired meanwhile.
func TestAnsweredRideIsNotUndone(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		holder, now := grantingBook(t, db, book)
		r := holder.tranches.returning(acme)[0]
		for range 2 {
			err := db.Do(t.Context(), Ledger, &tendOp{[]*ride{r}})
			r.answer(err)
			require.NoError(t, err)
			r.undo()
			requireMemory(t, holder, memory{inUse: 10})
			requireTranche(t, db, 10, false)
		}
		charges(t, holder, "call_3", 10)
		*now = now.Add(trancheIdle + 1)
		holder.tranches.tend(t.Context())
		stop(t, holder)
	})
}
