package billing

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const (
	insertTx  = `INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) VALUES ($1, $2, 'live', $3, $4, '', 0, 5)`
	insertLeg = `INSERT INTO ledger_entries (tx_id, seq, account, amount_micros) VALUES ($1, $2, $3, $4)`
)

// TestCheckFinds breaks the books by hand, one way at a time, and names the invariants that must notice.
func TestCheckFinds(t *testing.T) {
	damages := map[string]struct {
		damage func(do statement)
		want   []string
	}{
		"nothing": {func(statement) {}, nil},
		"a transaction with one leg": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, "topup", "x")
			do(insertLeg, "txn_x", int64(0), acme.account(), int64(5))
		}, []string{"L1", "L2", "L3"}},
		"a transaction without legs": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, "topup", "x")
		}, []string{"L1"}},
		"legs that don't sum to 0": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, "topup", "x")
			do(insertLeg, "txn_x", int64(0), acme.account(), int64(5))
			do(insertLeg, "txn_x", int64(1), "sys:cash", int64(-6))
		}, []string{"L1", "L2", "L3"}},
		"a transaction that moves another wallet": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, "topup", "x")
			do(insertLeg, "txn_x", int64(0), "org:other:live", int64(5))
			do(insertLeg, "txn_x", int64(1), "sys:cash", int64(-5))
		}, []string{"L1", "L3"}},
		"a transaction of no wallet": {func(do statement) {
			do(insertTx, "txn_x", "org_none", "topup", "x")
			do(insertLeg, "txn_x", int64(0), "org:org_none:live", int64(5))
			do(insertLeg, "txn_x", int64(1), "sys:cash", int64(-5))
		}, []string{"L3"}},
		"a transaction that moves two wallets": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, "topup", "x")
			do(insertLeg, "txn_x", int64(0), acme.account(), int64(5))
			do(insertLeg, "txn_x", int64(1), "org:other:live", int64(-5))
			do(`UPDATE wallets SET balance_micros = balance_micros + 5`)
		}, []string{"L1"}},
		"a leg without a transaction": {func(do statement) {
			do(insertLeg, "txn_x", int64(0), "sys:cash", int64(5))
		}, []string{"L2"}},
		"two legs without a transaction": {func(do statement) {
			do(insertLeg, "txn_x", int64(0), "sys:revenue", int64(5))
			do(insertLeg, "txn_x", int64(1), "sys:cash", int64(-5))
		}, []string{"L2"}},
		"a balance written by hand": {func(do statement) {
			do(`UPDATE wallets SET balance_micros = balance_micros + 1`)
		}, []string{"L3"}},
		"held written by hand": {func(do statement) {
			do(`UPDATE wallets SET held_micros = held_micros + 1`)
		}, []string{"L4"}},
		"a hold without a wallet": {func(do statement) {
			do(`UPDATE holds SET org_id = 'org_none' WHERE id = 'call_open'`)
			do(`UPDATE wallets SET held_micros = held_micros - 60`)
		}, []string{"L4"}},
		"a late hold": {func(do statement) {
			do(`UPDATE holds SET expires_at = 1 WHERE id = 'call_open'`)
		}, []string{"L6"}},
		"a hold opened again": {func(do statement) {
			do(`UPDATE holds SET status = 'open', resolved_at = NULL WHERE id = 'call_charged'`)
		}, []string{"L4", "L7"}},
		"a voided hold opened again": {func(do statement) {
			do(`UPDATE holds SET status = 'open', resolved_at = NULL WHERE id = 'call_void'`)
			do(`UPDATE wallets SET held_micros = held_micros + 60`)
		}, []string{"L7"}},
		"a charged hold said to be voided": {func(do statement) {
			do(`UPDATE holds SET status = 'voided' WHERE id = 'call_charged'`)
		}, []string{"L7"}},
		"a void said to be charged": {func(do statement) {
			do(`UPDATE calls SET charged_micros = 3 WHERE id = 'call_void'`)
		}, []string{"L15"}},
		"a settled hold without its call": {func(do statement) {
			do(`DELETE FROM calls WHERE id = 'call_charged'`)
		}, []string{"L3", "L7"}},
		"a voided hold without its call": {func(do statement) {
			do(`DELETE FROM calls WHERE id = 'call_void'`)
		}, []string{"L7"}},
		"a settled hold whose charge is missing": {func(do statement) {
			do(`UPDATE holds SET status = 'settled' WHERE id = 'call_void'`)
			do(`UPDATE calls SET charged_micros = 3 WHERE id = 'call_void'`)
		}, []string{"L7", "L15"}},
		"a charge of no call": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, "charge", "call_none")
			do(insertLeg, "txn_x", int64(0), acme.account(), int64(-5))
			do(insertLeg, "txn_x", int64(1), "sys:revenue", int64(5))
			do(`UPDATE wallets SET balance_micros = balance_micros - 5`)
		}, []string{"L7"}},
		"a second charge": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, "charge", "call_void")
			do(insertLeg, "txn_x", int64(0), acme.account(), int64(-5))
			do(insertLeg, "txn_x", int64(1), "sys:revenue", int64(5))
			do(`UPDATE wallets SET balance_micros = balance_micros - 5`)
		}, []string{"L7"}},
		"a charge above the hold": {func(do statement) {
			do(`UPDATE holds SET amount_micros = 24 WHERE id = 'call_charged'`)
		}, []string{"L8"}},
		"extra that was not needed": {func(do statement) {
			do(`UPDATE calls SET extra_micros = 1 WHERE id = 'call_charged'`)
		}, []string{"L8"}},
		"a call that says it paid less": {func(do statement) {
			do(`UPDATE calls SET charged_micros = 24 WHERE id = 'call_charged'`)
		}, []string{"L3"}},
		"charges of an older process": {chargeAsBefore, nil},
		"a call that says it paid less than an older process charged": {func(do statement) {
			chargeAsBefore(do)
			do(`UPDATE calls SET charged_micros = 24 WHERE id = 'call_charged'`)
		}, []string{"L15"}},
		"a call that was charged in both ways": {func(do statement) {
			chargeAsBefore(do)
			do(`UPDATE calls SET balance_micros = 5, charged_at = 5 WHERE id = 'call_charged'`)
		}, []string{"L3", "L7"}},
		"a charge of nothing": {func(do statement) {
			do(`UPDATE calls SET tx_id = 'txn_x', balance_micros = 5, charged_at = 5 WHERE id = 'call_void'`)
		}, []string{"L7", "L15"}},
		"a charge without a balance": {func(do statement) {
			do(`UPDATE calls SET balance_micros = NULL WHERE id = 'call_charged'`)
		}, []string{"L15"}},
		"a charge that leaves a debt": {func(do statement) {
			do(`UPDATE calls SET balance_micros = -1 WHERE id = 'call_charged'`)
		}, []string{"L15"}},
		"a charge without a transaction": {func(do statement) {
			do(`UPDATE calls SET tx_id = NULL WHERE id = 'call_charged'`)
		}, []string{"L15"}},
		"a charge of another wallet": {func(do statement) {
			do(`UPDATE calls SET env = 'test' WHERE id = 'call_charged'`)
		}, []string{"L3", "L7"}},
		"a charge without a hold": {func(do statement) {
			do(`DELETE FROM holds WHERE id = 'call_charged'`)
		}, []string{"L7", "L8"}},
		"a free call that names a transaction": {func(do statement) {
			do(`UPDATE calls SET tx_id = 'txn_x' WHERE id = 'call_void'`)
		}, []string{"L15"}},
		"a call that was held from a tranche": {holdFromTranche, nil},
		"a tranche that says it was charged less": {func(do statement) {
			holdFromTranche(do)
			do(`UPDATE tranches SET drawn_micros = 24, returned_micros = 36`)
		}, []string{"L8"}},
		"a charge above what a tranche carried": {func(do statement) {
			holdFromTranche(do)
			do(`UPDATE calls SET granted_micros = 24 WHERE id = 'call_charged'`)
		}, []string{"L8"}},
		"a tranche of another wallet": {func(do statement) {
			holdFromTranche(do)
			do(`UPDATE tranches SET env = 'test'`)
		}, []string{"L7"}},
		"a call without its tranche": {func(do statement) {
			holdFromTranche(do)
			do(`DELETE FROM tranches`)
		}, []string{"L7"}},
		"a call with a hold and a tranche": {func(do statement) {
			do(insertTranche, "trc_1", acme.OrgID, "live", "own_1", "ended", int64(60), int64(25), int64(35), int64(1), int64(1), int64(1))
			do(`UPDATE calls SET tranche_id = 'trc_1', granted_micros = 60 WHERE id = 'call_charged'`)
		}, []string{"L7"}},
		"a tranche that lives on": {func(do statement) {
			holdFromTranche(do)
			do(`UPDATE tranches SET status = 'drained', returned_micros = 0, ended_at = NULL`)
		}, []string{"L4", "L6"}},
		"a finished key without its call": {func(do statement) {
			do(`UPDATE idempotency_keys SET call_id = 'call_none' WHERE state = 'done'`)
		}, []string{"L10"}},
		"a finished key of another wallet's call": {func(do statement) {
			do(`UPDATE idempotency_keys SET env = 'test' WHERE state = 'done'`)
		}, []string{"L10"}},
		"a finished key whose charge its call denies": {func(do statement) {
			chargeAsBefore(do)
			do(`UPDATE calls SET charged_micros = 0, tx_id = NULL WHERE id = 'call_kept'`)
		}, []string{"L7", "L10"}},
		"a finished key of a call that denies its own charge": {func(do statement) {
			do(`UPDATE calls SET charged_micros = 0, tx_id = NULL WHERE id = 'call_kept'`)
		}, []string{"L3", "L7", "L10", "L15"}},
		"a key that could run again and charge twice": {func(do statement) {
			do(`UPDATE idempotency_keys SET state = 'in_progress', finished_at = NULL, response = NULL WHERE state = 'done'`)
		}, []string{"L10"}},
		"a key in progress whose call has ended free of charge": {func(do statement) {
			do(`UPDATE idempotency_keys SET call_id = 'call_void' WHERE state = 'in_progress'`)
		}, []string{"L10"}},
		"a key in progress whose call is gone, but not its charge": {func(do statement) {
			chargeAsBefore(do)
			do(`UPDATE idempotency_keys SET state = 'in_progress', finished_at = NULL, response = NULL WHERE state = 'done'`)
			do(`DELETE FROM calls WHERE id = 'call_kept'`)
		}, []string{"L7", "L10"}},
		"a lapsed key": {func(do statement) {
			do(`UPDATE idempotency_keys SET lease_until = 1 WHERE state = 'in_progress'`)
		}, []string{"L14"}},
		"a call of nobody": {func(do statement) {
			do(`UPDATE calls SET org_id = 'org_none' WHERE id = 'call_void'`)
		}, []string{"L18"}},
	}
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		writeSmallBooks(t, db)
		now, err := databaseClock(t.Context(), db)
		require.NoError(t, err)
		for name, c := range damages {
			inBrokenBooks(t, db, c.damage, func(broken reader) {
				for _, rows := range []int{1, 0} {
					report, err := Checker{pageRows: rows}.examine(t.Context(), broken, now)
					require.NoError(t, err, name)
					require.Equal(t, c.want, brokenInvariants(report), "%s: %s", name, report)
					require.Equal(t, len(c.want) == 0, report.OK(), name)
				}
				busy := &busyReader{reader: broken, met: map[string]int{}}
				report, err := Checker{}.examine(t.Context(), busy, now)
				require.NoError(t, err, name)
				require.Equal(t, c.want, brokenInvariants(report), "%s: %s", name, report)
				require.Greater(t, len(busy.met), 5, "pages were read again")
			})
		}
	})
}

// TestCheckFindsDebt: the doctor finds a debt in a database without its CHECK constraints.
func TestCheckFindsDebt(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		writeSmallBooks(t, db)
		now, err := databaseClock(t.Context(), db)
		require.NoError(t, err)
		withoutConstraints := `ALTER TABLE wallets DROP CONSTRAINT wallets_check, DROP CONSTRAINT wallets_held_micros_check`
		if db.Engine() == store.SQLite {
			withoutConstraints = `PRAGMA ignore_check_constraints = 1`
		}
		for _, held := range []string{"-1", "balance_micros + 1"} {
			inBrokenBooks(t, db, func(do statement) {
				do(withoutConstraints)
				do(`UPDATE wallets SET held_micros = ` + held)
			}, func(broken reader) {
				report, err := Checker{}.examine(t.Context(), broken, now)
				require.NoError(t, err)
				require.Equal(t, []string{"L4", "L5"}, brokenInvariants(report))
			})
		}
	})
}

// busyReader is a database too busy to read the first page of a table at once.
type busyReader struct {
	reader
	met map[string]int // by statement
}

func (r *busyReader) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if len(args) == 2 && args[0] == "" {
		if r.met[query]++; r.met[query] == 1 {
			return nil, fmt.Errorf("canceled: %w", context.DeadlineExceeded)
		}
	}
	return r.reader.QueryContext(ctx, query, args...)
}

// chargeAsBefore makes each charge a transaction of its own, as a process of an older version writes it.
func chargeAsBefore(do statement) {
	do(`INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at)
		SELECT tx_id, org_id, env, 'charge', id, '', balance_micros, charged_at FROM calls WHERE charged_at IS NOT NULL`)
	do(`INSERT INTO ledger_entries (tx_id, seq, account, amount_micros)
		SELECT tx_id, 0, 'org:' || org_id || ':' || env, -charged_micros FROM calls WHERE charged_at IS NOT NULL
		UNION ALL SELECT tx_id, 1, 'sys:revenue', charged_micros FROM calls WHERE charged_at IS NOT NULL`)
	do(`UPDATE calls SET balance_micros = NULL, charged_at = NULL`)
}

// holdFromTranche makes the charged call one that was held from a tranche, which has ended.
func holdFromTranche(do statement) {
	do(insertTranche, "trc_1", acme.OrgID, "live", "own_1", "ended", int64(60), int64(25), int64(35), int64(1), int64(1), int64(1))
	do(`UPDATE calls SET tranche_id = 'trc_1', granted_micros = 60 WHERE id = 'call_charged'`)
	do(`DELETE FROM holds WHERE id = 'call_charged'`)
}

// statement runs one statement that damages the books.
type statement func(query string, args ...any)

// inBrokenBooks damages the books in a transaction, past the writer, and takes it back.
func inBrokenBooks(t *testing.T, db *store.DB, damage func(statement), examine func(reader)) {
	t.Helper()
	conn, err := db.Reader().Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	if db.Engine() == store.SQLite {
		_, err := conn.ExecContext(t.Context(), `PRAGMA query_only = 0`)
		require.NoError(t, err)
	}
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), storetest.Unguard(db.Engine(), "calls"))
	require.NoError(t, err)
	damage(func(query string, args ...any) {
		_, err := tx.ExecContext(t.Context(), query, args...)
		require.NoError(t, err)
	})
	examine(tx)
}

// writeSmallBooks leaves one call of acme charged 25, one voided, one open, and with a key one charged and one open.
func writeSmallBooks(t *testing.T, db *store.DB) {
	t.Helper()
	book := NewBook(db)
	topUp(t, book, 1_000)
	for _, id := range []string{"call_charged", "call_void", "call_open"} {
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf(id, 60))))
	}
	keyed := keyed{t, db, book, acme}
	keyed.runs("call_kept", "key 1", "content", 60)
	keyed.settle("call_kept", "key 1", 25, true, "sealed")
	keyed.runs("call_keyed", "key 2", "content", 60)
	for _, settlement := range []Settlement{chargeOf("call_charged", 25), voidOf("call_void")} {
		_, err := book.Settle(t.Context(), settlement)
		require.NoError(t, err)
	}
}

func brokenInvariants(report Report) (ids []string) {
	for _, examined := range report.Invariants {
		if len(examined.Findings) > 0 {
			ids = append(ids, examined.ID)
		}
	}
	return ids
}

// TestDebtIsRefusedByTheDatabase: L5 can't be broken while the constraints stand.
func TestDebtIsRefusedByTheDatabase(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 60))))
		for _, statement := range []string{
			`UPDATE wallets SET balance_micros = -1, held_micros = -1`, `UPDATE wallets SET balance_micros = 59`,
			`UPDATE wallets SET held_micros = -1`, `UPDATE wallets SET held_micros = 101`,
		} {
			require.Error(t, tryExecute(t, db, statement), statement)
		}
		requireWallet(t, book, 100, 60)
	})
}

func TestCheckStopsAtTwenty(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite, Ledger)
	makeOrganization(t, db, acme.OrgID)
	writeSmallBooks(t, db)
	for i := range 25 {
		execute(t, db, insertTx, fmt.Sprintf("txn_x%02d", i), acme.OrgID, "topup", fmt.Sprint(i))
	}
	report, err := Check(t.Context(), db)
	require.NoError(t, err)
	require.Len(t, report.Findings(), 20)
	require.True(t, report.Invariants[0].More)
	text := report.String()
	require.Contains(t, text, "L1   FAIL  every ledger transaction has two legs")
	require.Contains(t, text, "L2   ok    all ledger entries")
	require.Contains(t, text, "txn_x00: 0 legs, sum 0")
	require.Contains(t, text, "look at: the transaction in ledger_tx")
	require.Equal(t, 1, strings.Count(text, "there may be more"))
}

func TestReportAsJSON(t *testing.T) {
	t.Parallel()
	report := Report{Invariants: []Examined{{ID: "L6", Text: "t", Advice: "a", Findings: []Finding{{"call_1", "open"}}}}}
	text, err := json.Marshal(report)
	require.NoError(t, err)
	require.JSONEq(t, `{"invariants":[{"id":"L6","text":"t","advice":"a","more":false,
		"findings":[{"subject":"call_1","detail":"open"}]}]}`, string(text))
}

// TestCheckOfALongHistory sums the old part of a wallet's history page by page, and the new part with its balance.
func TestCheckOfALongHistory(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000)
		for i := range 9 {
			id := fmt.Sprintf("txn_old%d", i)
			execute(t, db, insertTx, id, acme.OrgID, "topup", id)
			execute(t, db, insertLeg, id, int64(0), acme.account(), int64(1))
			execute(t, db, insertLeg, id, int64(1), "sys:cash", int64(-1))
		}
		report, err := Checker{pageRows: 2}.Check(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, []string{"L3"}, brokenInvariants(report))
		require.Equal(t, "balance 1000, entries sum 1009", report.Findings()[0].Detail)
		execute(t, db, `UPDATE wallets SET balance_micros = 1009`)
	})
}

// slowSums is a database in which summing the wallets of a page takes too long.
type slowSums struct{ reader }

func (db slowSums) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if strings.Contains(query, unbalancedWallets) {
		return nil, context.DeadlineExceeded
	}
	return db.reader.QueryContext(ctx, query, args...)
}

// TestCheckOfWalletsThatMovedTooOften sums them one by one.
func TestCheckOfWalletsThatMovedTooOften(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000)
		now, err := databaseClock(t.Context(), db)
		require.NoError(t, err)
		for balance, want := range map[int64][]string{1_000: nil, 999: {"L3"}} {
			inBrokenBooks(t, db, func(do statement) { do(`UPDATE wallets SET balance_micros = $1`, balance) }, func(broken reader) {
				report, err := Checker{}.examine(t.Context(), slowSums{broken}, now)
				require.NoError(t, err)
				require.Equal(t, want, brokenInvariants(report))
			})
		}
	})
}

// TestCheckOfRecentRows begins with the last balance before a moment, and reads no row that is older.
func TestCheckOfRecentRows(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 1_000)
		awaitNextMoment(t, db)
		for range 3 {
			id := store.NewID("call")
			require.NoError(t, refusal(book.Hold(t.Context(), holdOf(id, 60))))
			_, err := book.Settle(t.Context(), chargeOf(id, 25))
			require.NoError(t, err)
			awaitNextMoment(t, db)
		}
		var last string
		require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT max(id) FROM calls`).Scan(&last))
		now, err := databaseClock(t.Context(), db)
		require.NoError(t, err)
		later := now + time.Hour.Milliseconds()
		old, recent := Checker{Recent: 30 * time.Minute}, Checker{Recent: 2 * time.Hour}
		oneMoment := func(do statement) {
			do(storetest.Unguard(db.Engine(), "ledger_tx"))
			do(`UPDATE ledger_tx SET created_at = 5000`)
			do(`UPDATE calls SET charged_at = 5000`)
		}
		for name, c := range map[string]struct {
			damage      func(do statement)
			old, recent []string
		}{
			"nothing":                   {func(statement) {}, nil, nil},
			"a balance written by hand": {func(do statement) { do(`UPDATE wallets SET balance_micros = 9`) }, []string{"L3"}, []string{"L3"}},
			"a charge that is too old":  {func(do statement) { do(`UPDATE calls SET charged_micros = 24 WHERE id = $1`, last) }, nil, []string{"L3"}},
			"a call that is too old":    {func(do statement) { do(`UPDATE calls SET tx_id = NULL WHERE id = $1`, last) }, nil, []string{"L15"}},
			"all at one moment":         {oneMoment, nil, nil},
			"at one moment, and one balance doesn't follow": {func(do statement) {
				oneMoment(do)
				do(`UPDATE calls SET balance_micros = 951 WHERE balance_micros = 950`)
			}, []string{"L3"}, []string{"L3"}},
			"two that moved nothing together after that moment": {func(do statement) {
				oneMoment(do)
				for i, micros := range []int64{5, -5} {
					id := fmt.Sprint("txn_", i)
					do(`INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at)
						VALUES ($1, $2, 'live', 'adjust', $1, '', $3, 6000)`, id, acme.OrgID, []int64{930, 925}[i])
					do(insertLeg, id, int64(0), acme.account(), micros)
					do(insertLeg, id, int64(1), "sys:loss", -micros)
				}
			}, nil, nil},
		} {
			inBrokenBooks(t, db, c.damage, func(broken reader) {
				for checker, want := range map[Checker][]string{old: c.old, recent: c.recent} {
					report, err := checker.examine(t.Context(), broken, later)
					require.NoError(t, err)
					require.Equal(t, want, brokenInvariants(report), "%s, %s: %s", name, checker.Recent, report)
				}
			})
		}
	})
}

// awaitNextMoment returns when the database's clock has moved on, because changes of one moment are checked together.
func awaitNextMoment(t *testing.T, db *store.DB) {
	t.Helper()
	began, err := databaseClock(t.Context(), db)
	require.NoError(t, err)
	for now := began; now == began; {
		now, err = databaseClock(t.Context(), db)
		require.NoError(t, err)
	}
}

func TestLateMeansTwoSweeps(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite, Ledger)
	makeOrganization(t, db, acme.OrgID)
	writeSmallBooks(t, db)
	now, err := databaseClock(t.Context(), db)
	require.NoError(t, err)
	execute(t, db, `UPDATE holds SET expires_at = $1 WHERE id = 'call_open'`, now-time.Hour.Milliseconds())
	for interval, late := range map[time.Duration]bool{29 * time.Minute: true, 31 * time.Minute: false} {
		report, err := Checker{SweepInterval: interval}.Check(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, late, !report.OK())
	}
}

// TestCheckReadsPages: on SQLite each statement over a page reads that page and no more, else the time of a check would
// grow with the square of the books.
func TestCheckReadsPages(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite, Ledger)
	for _, query := range []string{
		brokenTransactions, orphanedLegs, sumOfLegs, brokenResolutions, unheldCharges, chargesWithoutCall, overchargedCalls, misstatedCalls,
		unownedCalls, brokenClaims, unownedTransactions,
	} {
		plan := sqlitePlan(t, db, query)
		require.NotContains(t, strings.Join(plan, "\n"), "SCAN", query)
		require.Regexp(t, `SEARCH \w+ USING .*\((id|tx_id|call_id)>\? AND (id|tx_id|call_id)<\?\)`, plan[0], query)
	}
}

// sqlitePlan is how SQLite runs a statement over a page, step by step.
func sqlitePlan(t *testing.T, db *store.DB, query string) (steps []string) {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, "a", "b")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &step))
		steps = append(steps, step)
	}
	require.NoError(t, rows.Err())
	return steps
}
