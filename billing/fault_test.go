package billing

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

var errBroken = errors.New("broken on purpose")

// brokenTx fails at its statement number failAt, counted from 0.
type brokenTx struct {
	store.Tx
	failAt, statements int
	failed             bool
}

func (tx *brokenTx) breaks() bool {
	tx.failed = tx.failed || tx.statements == tx.failAt
	tx.statements++
	return tx.failed
}

func (tx *brokenTx) Query(ctx context.Context, each func(store.Row) error, query string, args ...any) error {
	if tx.breaks() {
		return errBroken
	}
	return tx.Tx.Query(ctx, each, query, args...)
}

func (tx *brokenTx) Queue(want int64, query string, args ...any) {
	if !tx.breaks() {
		tx.Tx.Queue(want, query, args...)
	}
}

func (tx *brokenTx) QueueQuery(each func(store.Row) error, query string, args ...any) {
	if !tx.breaks() {
		tx.Tx.QueueQuery(each, query, args...)
	}
}

func (tx *brokenTx) Flush(ctx context.Context) error {
	if tx.failed {
		return errBroken
	}
	return tx.Tx.Flush(ctx)
}

// brokenLedger is the ledger on a database that fails in the middle of a batch.
type brokenLedger struct{ failAt *int }

func (brokenLedger) Name() string { return "broken ledger" }

func (l brokenLedger) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	broken := &brokenTx{Tx: tx, failAt: *l.failAt}
	faults := Ledger.Apply(ctx, broken, ops)
	if err := broken.Flush(ctx); err != nil { // as the writer does
		for i := range faults {
			faults[i] = err
		}
	}
	return faults
}

// TestFaultInTheMiddleLeavesNothing breaks each statement of a batch in turn: the batch fails as a whole, nothing of it
// is kept, and the same operations succeed afterwards.
func TestFaultInTheMiddleLeavesNothing(t *testing.T) {
	t.Parallel()
	failAt := map[store.Engine]*int{store.SQLite: new(int), store.Postgres: new(int)}
	for engine, at := range failAt {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			broken := brokenLedger{at}
			db := storetest.Open(t, engine, Ledger, broken)
			makeOrganization(t, db, acme.OrgID)
			book := NewBook(db)
			topUp(t, book, 1_000)
			require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_open", 60))))
			keyed := keyed{t, db, book, acme}
			for i, call := range []string{"call_finishes", "call_releases", "call_lost", "call_swept"} {
				keyed.runs(call, fmt.Sprint("key ", i), "content", 10)
			}
			require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_late", 5))))
			require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_replaced", 3))))
			keyed.runs("call_kept", "key kept", "content", 10)
			keyed.settle("call_kept", "key kept", 0, true, "sealed")
			keyed.age("call_kept")
			for _, id := range []string{"call_lost", "call_swept", "call_late"} {
				lapse(t, db, id)
			}
			claims := []string{
				"call_finishes in progress", "call_kept done", "call_lost in progress", "call_releases in progress", "call_swept in progress",
			}
			rows := `SELECT (SELECT count(*) FROM holds) + (SELECT count(*) FROM ledger_tx) + (SELECT count(*) FROM idempotency_keys)
				+ (SELECT count(*) FROM running_keys) + (SELECT count(*) FROM kept_answers) + (SELECT count(*) FROM prices)
				+ (SELECT count(*) FROM tranches) + (SELECT count(*) FROM calls) + (SELECT count(*) FROM audit_log)`
			before := count(t, db, rows)

			ops := func() []store.Op {
				fresh, taking := &holdOp{Hold: holdOf("call_fresh", 1)}, &holdOp{Hold: holdOf("call_takes", 20)}
				fresh.Claim, taking.Claim = claimOf("key 9", "content"), claimOf("key 2", "content")
				finish, release := settleOpOf(chargeOf("call_finishes", 10, 4)), settleOpOf(voidOf("call_releases", 10))
				finish.Claim, finish.Keep, finish.Response = claimOf("key 0", "content"), true, []byte("sealed")
				release.Claim = claimOf("key 1", "")
				turn, ended := &holdOp{Hold: holdOf("call_turn", 1)}, settleOpOf(chargeOf("call_replaced", 3, 2))
				turn.With, ended.With = &note{id: "begun", replaced: "call_replaced"}, &note{id: "ended", lost: true}
				return []store.Op{
					settleOpOf(voidOf("call_gone", 7)),
					&holdOp{Hold: holdOf("call_new", 50)}, settleOpOf(chargeOf("call_open", 60, 30)),
					fresh, taking, finish, release, turn, ended,
					&postOp{posting: posting{kind: EntryTopUp, wallet: acme, micros: 5, ref: "r", actor: "test"}}, &sweepOp{},
				}
			}
			// Through the writer, which tries each again alone.
			*at = 1
			for _, op := range ops()[1:3] {
				require.ErrorIs(t, db.Do(t.Context(), broken, op), errBroken)
			}
			for *at = 0; ; *at++ {
				err := db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
					return broken.Apply(ctx, tx, ops())[0]
				})
				if err == nil {
					break
				}
				require.ErrorIs(t, err, errBroken, "statement %d", *at)
				require.Equal(t, before, count(t, db, rows), "statement %d", *at)
				requireWallet(t, book, 1_000, 108)
				keyed.requireClaims(claims...)
			}
			require.Greater(t, *at, 20, "statements of the batch")
			requireWallet(t, book, 971, 72)
			keyed.requireClaims("call_finishes done", "call_fresh in progress", "call_takes in progress")
			requireSoundBooks(t, db)
		})
	}
}

// TestFaultInTheMiddleOfTranches breaks each statement of a batch that makes a tranche, changes one and ends one: nothing of it is kept, in the
// books or in the memory of the process, and it succeeds afterwards.
func TestFaultInTheMiddleOfTranches(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			failAt := 0
			broken := brokenLedger{&failAt}
			db := storetest.Open(t, engine, Ledger)
			book, now := tendedBook(db)
			wallets := []WalletID{acme, {"org_idle", store.Live}, {"org_new", store.Live}}
			hold := func(wallet, call int) Hold {
				hold := holdOf(fmt.Sprintf("call_%d_%d", wallet, call), 10)
				hold.Wallet = wallets[wallet]
				return hold
			}
			for i, wallet := range wallets {
				makeOrganization(t, db, wallet.OrgID)
				_, err := book.Credit(t.Context(), "test", wallet, 100_000, "r")
				require.NoError(t, err)
				for call := range []int{3, 2, 1}[i] {
					require.NoError(t, refusal(book.Hold(t.Context(), hold(i, call))))
				}
			}
			*now = now.Add(trancheIdle)
			for _, i := range []int{0, 2} { // not idle
				book.tranches.wallets[trancheKey{wallet: wallets[i]}].usedAt = now.Add(time.Hour)
			}
			*now = now.Add(1)
			state := func() (state []string) {
				for _, wallet := range wallets {
					known, row := book.tranches.wallets[trancheKey{wallet: wallet}], [2]int{
						count(t, db, `SELECT coalesce(sum(left_micros), -1) FROM tranches WHERE org_id = $1`, wallet.OrgID),
						count(t, db, `SELECT held_micros FROM wallets WHERE org_id = $1`, wallet.OrgID),
					}
					state = append(state, fmt.Sprint(row, memoryOf(known)))
				}
				return append(state, fmt.Sprint(book.tranches.Calls(), count(t, db, `SELECT count(*) FROM calls`)))
			}
			before := []string{"[80 100] {70 10 0}", "[80 100] {80 0 0}", "[-1 10] {0 0 0}", "1 0"}
			require.Equal(t, before, state())
			for ; ; failAt++ {
				settle := settlementOf(t, book, chargeOf("call_0_2", 10, 4))
				_, asks, err := book.tranches.hold(hold(2, 1))
				require.NoError(t, err)
				due := book.tranches.due(*now)
				require.Len(t, due, 1)
				ops := []store.Op{settle, &holdOp{Hold: hold(2, 1), ride: asks}, &tendOp{due}}
				err = db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error { return broken.Apply(ctx, tx, ops)[0] })
				if err != nil {
					undo(ops...)
				}
				for _, r := range append(due, settle.ride, asks) {
					r.answer(err)
				}
				if err == nil {
					break
				}
				require.ErrorIs(t, err, errBroken, "statement %d", failAt)
				require.Equal(t, before, state(), "statement %d", failAt)
				book.tranches.faulty = false // which renews all of them
			}
			require.Greater(t, failAt, 9, "statements of the batch")
			require.Equal(t, []string{"[76 96] {76 0 0}", "[-1 20] {0 0 0}", "[80 100] {80 0 0}", "0 1"}, state())
			requireSoundBooks(t, db)
		})
	}
}

func TestLedgerIsAppendOnly(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 10))))
		_, err := book.Settle(t.Context(), chargeOf("call_1", 10, 5))
		require.NoError(t, err)
		for _, statement := range []string{
			`UPDATE calls SET wallet_seq = NULL`, `UPDATE calls SET charged_micros = 4`, `DELETE FROM calls`,
			`UPDATE ledger_tx SET reason = 'x'`, `DELETE FROM ledger_tx`,
		} {
			require.ErrorContains(t, tryExecute(t, db, statement), "append-only", statement)
		}
	})
}

func TestForeignOperation(t *testing.T) {
	t.Parallel()
	faults := Ledger.Apply(t.Context(), nil, []store.Op{&holdOp{}, "something else"})
	require.Len(t, faults, 2)
	require.ErrorContains(t, faults[1], "the ledger has no operation string")
}
