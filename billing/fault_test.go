package billing

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
			execute(t, db, `UPDATE idempotency_keys SET lease_until = 1 WHERE call_id IN ('call_lost', 'call_swept')`)
			execute(t, db, `UPDATE holds SET expires_at = 1 WHERE id IN ('call_lost', 'call_swept')`)
			claims := []string{"call_finishes in_progress", "call_lost in_progress", "call_releases in_progress", "call_swept in_progress"}
			rows := `SELECT (SELECT count(*) FROM holds) + (SELECT count(*) FROM ledger_tx)
				+ (SELECT count(*) FROM ledger_entries) + (SELECT count(*) FROM idempotency_keys) + (SELECT count(*) FROM calls) + (SELECT count(*) FROM audit_log)`
			before := count(t, db, rows)

			ops := func() []store.Op {
				fresh, taking := &holdOp{Hold: holdOf("call_fresh", 1)}, &holdOp{Hold: holdOf("call_takes", 20)}
				fresh.Claim, taking.Claim = claimOf("key 9", "content"), claimOf("key 2", "content")
				finish, release := &settleOp{Settlement: chargeOf("call_finishes", 4)}, &settleOp{Settlement: voidOf("call_releases")}
				finish.Claim, finish.Keep, finish.Response = claimOf("key 0", ""), true, []byte("sealed")
				release.Claim = claimOf("key 1", "")
				gone := holdOf("call_gone", 7)
				return []store.Op{
					&settleOp{Settlement: voidOf("call_gone"), abandoned: &gone},
					&holdOp{Hold: holdOf("call_new", 50)}, &settleOp{Settlement: chargeOf("call_open", 30)},
					fresh, taking, finish, release,
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
				requireWallet(t, book, 1_000, 100)
				keyed.requireClaims(claims...)
			}
			require.Greater(t, *at, 20, "statements of the batch")
			requireWallet(t, book, 971, 71)
			keyed.requireClaims("call_finishes done", "call_fresh in_progress", "call_takes in_progress")
			requireSoundBooks(t, db)
		})
	}
}

func TestLedgerIsAppendOnly(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 10))))
		_, err := book.Settle(t.Context(), chargeOf("call_1", 5))
		require.NoError(t, err)
		for _, statement := range []string{
			`UPDATE calls SET charged_at = NULL`, `UPDATE calls SET charged_micros = 4`, `DELETE FROM calls`,
			`UPDATE ledger_tx SET reason = 'x'`, `DELETE FROM ledger_tx`,
			`UPDATE ledger_entries SET amount_micros = 1`, `DELETE FROM ledger_entries`,
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
