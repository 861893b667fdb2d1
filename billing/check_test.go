package billing

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const insertTx = `INSERT INTO ledger_tx (id, org_id, env, wallet_seq, kind, account, ref, reason, amount_micros, balance_micros, created_at, audit_id)
	VALUES ($1, $2, 'live', $3, $4, $5, $1, '', $6, $7, 5, '')`

// TestCheckFinds breaks the books, one way at a time, and names the invariants that must notice. The first eleven are what a defect of ours
// would write: its sums agree with each other.
func TestCheckFinds(t *testing.T) {
	audited := func(do statement, id string) {
		do(`INSERT INTO audit_log (id, at, actor, action, target, org_id, detail) VALUES ($1, 5, 'x', 'x', $2, $3, '')`, "aud_"+id, id, acme.OrgID)
		do(`UPDATE ledger_tx SET audit_id = $1 WHERE id = $2`, "aud_"+id, id)
	}
	// moreSpent makes the last charge larger by micros, with every balance after it.
	moreSpent := func(do statement, micros int64) {
		do(`UPDATE calls SET charged_micros = charged_micros + $1, reserved_micros = 1000, balance_micros = balance_micros - $1
			WHERE id = 'call_last'`, micros)
		do(`UPDATE wallets SET balance_micros = balance_micros - $1`, micros)
	}
	damages := map[string]struct {
		damage func(do statement)
		want   []string
	}{
		"nothing":             {func(statement) {}, nil},
		"ten times the price": {func(do statement) { moreSpent(do, 9*7) }, []string{"P1"}},
		"an answer that was not charged": {func(do statement) {
			do(`UPDATE calls SET charged_micros = 0, wallet_seq = NULL, balance_micros = NULL, completion_tokens = 0, cost_micros = 0
				WHERE id = 'call_last'`)
			do(`UPDATE wallets SET balance_micros = balance_micros + 7, seq = seq - 1`)
		}, []string{"P8"}},
		"a call charged to a key of another organization": {func(do statement) {
			do(`UPDATE api_keys SET org_id = 'org_other' WHERE id = 'key_1'`)
		}, []string{"P3"}},
		"a call charged to a key of the other environment": {func(do statement) {
			do(`UPDATE api_keys SET env = 'test' WHERE id = 'key_1'`)
		}, []string{"P3"}},
		"a balance of a charge that doesn't follow": {func(do statement) {
			do(`UPDATE calls SET balance_micros = balance_micros + 1 WHERE id = 'call_charged'`)
		}, []string{"P4"}},
		"a balance of a credit that doesn't follow": {func(do statement) {
			do(`UPDATE ledger_tx SET balance_micros = balance_micros + 1 WHERE kind = 'topup'`)
		}, []string{"P4"}},
		"a charge of tomorrow": {func(do statement) {
			do(`UPDATE calls SET ended_at = ended_at + 86400000 WHERE id = 'call_charged'`)
		}, []string{"P1"}},
		"a refund above its charge": {func(do statement) {
			do(`UPDATE ledger_tx SET amount_micros = 11, balance_micros = balance_micros + 1 WHERE kind = 'refund'`)
			do(`UPDATE calls SET balance_micros = balance_micros + 1 WHERE id = 'call_last'`)
			do(`UPDATE wallets SET balance_micros = balance_micros + 1`)
		}, []string{"P5"}},
		"a refund of no call": {func(do statement) {
			do(`UPDATE ledger_tx SET ref = 'call_none' WHERE kind = 'refund'`)
		}, []string{"P5"}},
		"a credit from the wrong account": {func(do statement) {
			do(`UPDATE ledger_tx SET account = 'sys:revenue' WHERE kind = 'topup'`)
		}, []string{"P6"}},
		"a credit that nobody's name stands beside": {func(do statement) {
			do(`DELETE FROM audit_log WHERE action = 'wallet.credit'`)
		}, []string{"P7"}},

		"a cost of the operator that no price gives": {func(do statement) { do(`UPDATE calls SET cost_micros = 3 WHERE id = 'call_last'`) }, []string{"P1"}},
		"a price that is missing":                    {func(do statement) { do(`DELETE FROM prices`) }, []string{"P1"}},
		"a price of another model": {func(do statement) {
			do(`UPDATE calls SET model = 'm/other' WHERE id = 'call_charged'`)
		}, []string{"P1"}},
		"a price of another provider": {func(do statement) {
			do(`UPDATE calls SET provider = 'other' WHERE id = 'call_charged'`)
		}, []string{"P1"}},
		"a price that was changed": {func(do statement) {
			do(`UPDATE prices SET long_cache_write_micros = 7`)
		}, []string{"P9"}},
		"tiers that no price has": {func(do statement) {
			do(`UPDATE prices SET tiers = '[1]'`)
		}, []string{"P1", "P9"}},
		"written tokens that were not charged": {func(do statement) {
			do(`UPDATE calls SET prompt_tokens = 4, cache_write_tokens = 4 WHERE id = 'call_charged'`)
		}, []string{"P1"}},
		"parts above the whole": {func(do statement) {
			do(`UPDATE calls SET cached_tokens = 1, cache_write_tokens = 1, long_cache_write_tokens = 1 WHERE id = 'call_charged'`)
		}, []string{"P9"}},
		"more hidden tokens than generated ones": {func(do statement) {
			do(`UPDATE calls SET reasoning_tokens = 26 WHERE id = 'call_charged'`)
		}, []string{"P9"}},
		"tokens that nobody counted": {func(do statement) {
			do(`UPDATE calls SET usage_source = 'none' WHERE id = 'call_charged'`)
		}, []string{"P9"}},
		"an attempt of no call": {func(do statement) {
			do(`UPDATE attempts SET call_id = 'call_none'`)
		}, []string{"P10"}},
		"an attempt of another organization": {func(do statement) {
			do(`UPDATE attempts SET org_id = 'org_other' WHERE number = 1`)
		}, []string{"P10"}},
		"an attempt that is missing": {func(do statement) {
			do(`DELETE FROM attempts WHERE number = 1`)
		}, []string{"P10"}},
		"a shortfall that nothing cost": {func(do statement) {
			do(`UPDATE calls SET shortfall_micros = 1 WHERE id = 'call_void'`)
		}, []string{"P1"}},
		"a cost above the largest number": {func(do statement) {
			do(`UPDATE calls SET shortfall_micros = 9223372036854775807 - charged_micros + 1 WHERE id = 'call_charged'`)
		}, []string{"P1"}},
		"tokens whose cost is above the largest number": {func(do statement) {
			do(`UPDATE calls SET prompt_tokens = 9223372036854775807, completion_tokens = 9223372036854775807 WHERE id = 'call_charged'`)
		}, []string{"P1"}},
		"balances above the largest number": {func(do statement) {
			do(`UPDATE ledger_tx SET amount_micros = 9223372036854775807, balance_micros = 9223372036854775807 WHERE kind = 'topup'`)
			do(`UPDATE ledger_tx SET amount_micros = 9223372036854775807 WHERE kind = 'refund'`)
		}, []string{"P4", "P5"}},
		"a call of nobody": {func(do statement) {
			do(`UPDATE calls SET org_id = 'org_none', reserved_micros = 0 WHERE id = 'call_void'`)
		}, []string{"P3"}},
		"a charge of an organization without a wallet": {func(do statement) {
			do(`UPDATE calls SET org_id = 'org_other' WHERE id = 'call_void'`)
		}, []string{"P3"}},
		"a refund of another wallet's call": {func(do statement) {
			do(`UPDATE calls SET env = 'test', wallet_seq = 77 WHERE id = 'call_back'`)
		}, []string{"P3", "P4", "P5"}},
		"a credit that takes": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, int64(6), "topup", "sys:cash", int64(-5), int64(963))
			audited(do, "txn_x")
			do(`UPDATE wallets SET balance_micros = 963, seq = 6`)
		}, []string{"P6"}},
		"an audit row of something else": {func(do statement) {
			do(`UPDATE audit_log SET target = 'txn_none' WHERE action = 'wallet.credit'`)
		}, []string{"P7"}},
		"a posting of no wallet": {func(do statement) {
			do(insertTx, "txn_x", "org_none", int64(1), "topup", "sys:cash", int64(5), int64(5))
			do(`INSERT INTO audit_log (id, at, actor, action, target, org_id, detail) VALUES ('aud_x', 5, 'x', 'x', 'txn_x', 'org_none', '')`)
			do(`UPDATE ledger_tx SET audit_id = 'aud_x' WHERE id = 'txn_x'`)
		}, []string{"P4"}},
		"a posting that the wallet doesn't know": {func(do statement) {
			do(insertTx, "txn_x", acme.OrgID, int64(6), "topup", "sys:cash", int64(5), int64(973))
			audited(do, "txn_x")
		}, []string{"P4"}},
		"a posting that is missing": {func(do statement) {
			do(`DELETE FROM ledger_tx WHERE kind = 'topup'`)
		}, []string{"P4"}},
		"a charge that is missing": {func(do statement) {
			do(`DELETE FROM calls WHERE id = 'call_charged'`)
		}, []string{"P4"}},
		"the last charge that is missing": {func(do statement) {
			do(`DELETE FROM calls WHERE id = 'call_last'`)
		}, []string{"P4"}},
		"a number that is missing": {func(do statement) {
			do(`UPDATE calls SET wallet_seq = 6 WHERE id = 'call_last'`)
			do(`UPDATE wallets SET seq = 6`)
		}, []string{"P4"}},
		"a balance written by hand": {func(do statement) {
			do(`UPDATE wallets SET balance_micros = balance_micros + 1`)
		}, []string{"P4"}},
		"held written by hand": {func(do statement) {
			do(`UPDATE wallets SET held_micros = held_micros + 1`)
		}, []string{"L4"}},
		"a hold without a wallet": {func(do statement) {
			do(`UPDATE holds SET org_id = 'org_none' WHERE id = 'call_open'`)
			do(`UPDATE wallets SET held_micros = held_micros - 60`)
		}, []string{"L4"}},
		"a tranche that nobody holds": {func(do statement) {
			do(insertTranche, acme.OrgID, "live", "trc_x", "own_x", int64(5), true, int64(9_999_999_999_999), "")
		}, []string{"L4"}},
		"a tranche without a process": {func(do statement) {
			do(insertTranche, acme.OrgID, "live", "trc_x", "own_x", int64(5), true, int64(1), "")
			do(`UPDATE wallets SET held_micros = held_micros + 5`)
		}, []string{"L6"}},
		"a late hold": {func(do statement) {
			do(`UPDATE holds SET expires_at = 1 WHERE id = 'call_open'`)
		}, []string{"L6"}},
		"a late key": {func(do statement) {
			do(`UPDATE running_keys SET expires_at = 1 WHERE call_id = 'call_keyed'`)
		}, []string{"L6"}},
		"a hold of a call that has ended": {func(do statement) {
			do(`UPDATE holds SET id = 'call_void' WHERE id = 'call_open'`)
		}, []string{"L10"}},
		"a key in progress of a call that has ended": {func(do statement) {
			do(`UPDATE running_keys SET call_id = 'call_void' WHERE call_id = 'call_keyed'`)
		}, []string{"L10"}},
		"a key in progress that another call has finished": {func(do statement) {
			do(`UPDATE running_keys SET key_hash = (SELECT key_hash FROM idempotency_keys WHERE call_id = 'call_kept')`)
		}, []string{"L10"}},
		"a finished key without its call": {func(do statement) {
			do(`UPDATE idempotency_keys SET call_id = 'call_none' WHERE call_id = 'call_kept'`)
			do(`UPDATE kept_answers SET call_id = 'call_none'`)
		}, []string{"L10"}},
		"a finished key of another wallet's call": {func(do statement) {
			do(`INSERT INTO wallets (org_id, env, kept_bytes) VALUES ($1, 'test', 6)`, acme.OrgID)
			do(`UPDATE idempotency_keys SET env = 'test' WHERE call_id = 'call_kept'`)
			do(`UPDATE kept_answers SET env = 'test'`)
			do(`UPDATE wallets SET kept_bytes = 0 WHERE env = 'live'`)
		}, []string{"L10"}},
		"a key without its answer": {func(do statement) { do(`DELETE FROM kept_answers`) }, []string{"L10"}},
		"an answer that is too short": {func(do statement) {
			do(`UPDATE kept_answers SET response = substr(response, 1, 2)`)
		}, []string{"L10"}},
		"answers that are not counted": {func(do statement) {
			do(`UPDATE wallets SET kept_bytes = 5`)
		}, []string{"K1"}},
	}
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		writeSmallBooks(t, db)
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		for name, c := range damages {
			inBrokenBooks(t, db, c.damage, func(broken reader) {
				for _, rows := range []int{1, 2, 0} {
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

// TestRulesOfTheDatabase: what the doctor can't be shown because the database refuses it.
func TestRulesOfTheDatabase(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		writeSmallBooks(t, db)
		for _, statement := range []string{
			`UPDATE calls SET shortfall_micros = 1 WHERE id = 'call_charged'`, `DELETE FROM calls WHERE id = 'call_charged'`,
			`UPDATE ledger_tx SET reason = 'x'`, `DELETE FROM ledger_tx`,
			`UPDATE calls SET charged_micros = 61, wallet_seq = 9, balance_micros = 1 WHERE id = 'call_void'`,
			`UPDATE calls SET charged_micros = 5 WHERE id = 'call_void'`, `UPDATE calls SET wallet_seq = 9, balance_micros = 1 WHERE id = 'call_void'`,
			`UPDATE calls SET byok = NOT byok WHERE id = 'call_void'`,
			`UPDATE calls SET charged_micros = 5, wallet_seq = 2, balance_micros = 1 WHERE id = 'call_void'`,
		} {
			require.Error(t, tryExecute(t, db, statement), statement)
		}
		requireSoundBooks(t, db)
	})
}

// TestCheckFindsDebt: the doctor finds a debt in a database without its CHECK constraints.
func TestCheckFindsDebt(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		writeSmallBooks(t, db)
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		for _, held := range []string{"-1", "balance_micros + 1"} {
			inBrokenBooks(t, db, func(do statement) {
				do(withoutChecks(db.Engine()))
				do(`UPDATE wallets SET held_micros = ` + held)
			}, func(broken reader) {
				report, err := Checker{}.examine(t.Context(), broken, now)
				require.NoError(t, err)
				require.Equal(t, []string{"L4", "L5"}, brokenInvariants(report))
			})
		}
	})
}

// TestCheckFindsChargeAboveItsReservation: the doctor finds it in a database without its CHECK constraints.
func TestCheckFindsChargeAboveItsReservation(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		writeSmallBooks(t, db)
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		inBrokenBooks(t, db, func(do statement) {
			do(withoutChecks(db.Engine()))
			do(`UPDATE calls SET reserved_micros = 24 WHERE id = 'call_charged'`)
		}, func(broken reader) {
			report, err := Checker{}.examine(t.Context(), broken, now)
			require.NoError(t, err)
			require.Equal(t, []string{"P2"}, brokenInvariants(report))
		})
	})
}

// TestCheckFindsInPayments breaks the books of payments, one way at a time: one that was partly taken back, with a claim that the next paid in part.
func TestCheckFindsInPayments(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeCodes(t, db)
		receive(t, book, transfer("1", 500))
		_, err := book.Adjust(t.Context(), "cli", acme, -4_000, "spent", "spent", "")
		require.NoError(t, err)
		receive(t, book, about("1", PaymentRefunded, 400, ""))
		second := receive(t, book, transfer("2", 100))
		requireClaim(t, db, 2_000)
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		for name, c := range map[string]struct {
			damage string
			want   []string
		}{
			"nothing":                           {`UPDATE wallets SET seq = seq`, nil},
			"a claim by hand":                   {`UPDATE wallets SET claim_micros = claim_micros + 1`, []string{"M1"}},
			"a claim beside free credits":       {`UPDATE wallets SET balance_micros = balance_micros + 1`, []string{"P4", "M1"}},
			"taken back by hand":                {`UPDATE payments SET taken_micros = taken_micros + 1 WHERE id = '2'`, []string{"M1"}},
			"a reversal from the wrong account": {`UPDATE ledger_tx SET account = 'sys:loss' WHERE kind = 'reversal'`, []string{"P6"}},
			"a reversal that is an adjustment":  {`UPDATE ledger_tx SET kind = 'adjust', account = 'sys:loss' WHERE kind = 'reversal'`, []string{"M1"}},
			"a credit of another payment":       {`UPDATE payments SET entry_id = '` + second.EntryID + `' WHERE id = '1'`, []string{"M2"}},
			"a credit of another amount":        {`UPDATE payments SET micros = micros + 1 WHERE id = '2'`, []string{"M2"}},
			"a payment that has lost its state": {`UPDATE payments SET state = 'held' WHERE id = '2'`, []string{"M2"}},
			"a payment that is missing":         {`DELETE FROM payments WHERE id = '2'`, []string{"M2"}},
		} {
			inBrokenBooks(t, db, func(do statement) { do(c.damage) }, func(broken reader) {
				for _, check := range []Checker{{pageRows: 1}, {}, {Recent: time.Hour}} {
					report, err := check.examine(t.Context(), broken, now)
					require.NoError(t, err, name)
					require.Equal(t, c.want, brokenInvariants(report), "%s: %s", name, report)
				}
			})
		}
	})
}

// TestCheckFindsInBudgets breaks the books of a budget with a charge, a hold and a key, one way at a time.
func TestCheckFindsInBudgets(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		b.budget("", PeriodTotal, 500)
		require.NoError(b, refusal(b.book.Hold(b.Context(), holdOf("call_before", 5))))
		b.settles("call_before", 5, 5)
		b.holds("call_last", "", 60)
		b.settles("call_last", 60, 7)
		b.holds("call_open", "", 60)
		keyed := holdOf("call_keyed", 60)
		keyed.Claim, keyed.Budgets = claimOf("key", ""), part("")
		require.NoError(b, refusal(b.book.Hold(b.Context(), keyed)))
		now, err := b.db.Now(b.Context())
		require.NoError(b, err)
		for name, c := range map[string]struct {
			damage string
			want   []string
		}{
			"nothing":                            {`UPDATE wallets SET seq = seq`, nil},
			"reserved by hand":                   {`UPDATE budget_spend SET reserved_micros = reserved_micros + 1`, []string{"B1"}},
			"a hold that names no period":        {`UPDATE holds SET budgets = ''`, []string{"B1"}},
			"a key that names another period":    {`UPDATE running_keys SET budgets = '9'`, []string{"B1"}},
			"spent by hand":                      {`UPDATE budget_spend SET spent_micros = spent_micros + 1`, []string{"B2"}},
			"a charge that no period counts":     {`UPDATE calls SET budgets = NULL`, []string{"B2"}},
			"a charge of another period":         {`UPDATE calls SET budgets = '9' WHERE id = 'call_last'`, []string{"B2"}},
			"a charge that a period counts late": {`UPDATE budget_spend SET last_seq = last_seq - 1`, []string{"B2"}},
			"a charge that began before":         {`UPDATE budget_spend SET first_seq = first_seq + 1`, []string{"B2"}},
			"a charge that was not counted":      {`UPDATE budget_spend SET first_seq = 0, last_seq = 9, spent_micros = 12`, []string{"B2"}},
			"a period that is missing":           {`DELETE FROM budget_spend`, []string{"B1"}},
			"more than the limit":                {`UPDATE budget_spend SET most_micros = spent_micros + reserved_micros - 1`, []string{"B3"}},
			"a negative amount":                  {`UPDATE budget_spend SET spent_micros = -7`, []string{"B2", "B3"}},
		} {
			inBrokenBooks(b.T, b.db, func(do statement) {
				do(withoutChecks(b.db.Engine()))
				do(c.damage)
			}, func(broken reader) {
				for _, rows := range []int{1, 0} {
					report, err := Checker{pageRows: rows}.examine(b.Context(), broken, now)
					require.NoError(b, err, name)
					require.Equal(b, c.want, brokenInvariants(report), "%s: %s", name, report)
				}
				recent, err := Checker{Recent: time.Hour}.examine(b.Context(), broken, now)
				require.NoError(b, err, name)
				require.Equal(b, c.want, brokenInvariants(recent), "%s: %s", name, recent)
			})
		}
	})
}

// withoutChecks lets a damage write what the CHECK constraints of wallets and calls refuse.
func withoutChecks(engine store.Engine) string {
	if engine == store.SQLite {
		return `PRAGMA ignore_check_constraints = 1`
	}
	return `ALTER TABLE wallets DROP CONSTRAINT wallets_check, DROP CONSTRAINT wallets_held_micros_check;
		ALTER TABLE calls DROP CONSTRAINT calls_check; ALTER TABLE budget_spend DROP CONSTRAINT budget_spend_check, DROP CONSTRAINT budget_spend_spent_micros_check`
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
	for _, table := range []string{"calls", "ledger_tx"} {
		_, err = tx.ExecContext(t.Context(), storetest.Unguard(db.Engine(), table))
		require.NoError(t, err)
	}
	damage(func(query string, args ...any) {
		_, err := tx.ExecContext(t.Context(), query, args...)
		require.NoError(t, err)
	})
	examine(tx)
}

// cost returns the settlement of a call that costs micros.
func cost(id string, reserved, micros int64) Settlement {
	return Settlement{
		Call: Call{
			ID: id, Wallet: acme, Model: "m/one", Usage: Usage{CompletionTokens: micros}, UsageSource: UsageProvider, Outcome: "completed",
		},
		Price: Price{Input: tokensPerPrice, Output: tokensPerPrice, CachedInput: -1, CacheWrite: 2 * tokensPerPrice}, ReservedMicros: reserved,
	}
}

// writeSmallBooks leaves, of a credit of 1000: one call of acme charged 25 with key_1, one charged 10 and refunded, one charged 7 last, one
// voided, one open, and with an Idempotency-Key one charged and one open.
func writeSmallBooks(t *testing.T, db *store.DB) {
	t.Helper()
	book := NewBook(db)
	makeOrganization(t, db, "org_other")
	execute(t, db, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) VALUES ('key_1', $1, 'live', 'n', '', $2, '', 1)`,
		acme.OrgID, make([]byte, 32))
	_, err := book.Credit(t.Context(), "cli", acme, 1_000, "invoice")
	require.NoError(t, err)
	hold := func(id string, claim *Claim) {
		t.Helper()
		hold := Hold{CallID: id, Wallet: acme, AmountMicros: 60, ExpiresIn: time.Minute, Claim: claim}
		require.NoError(t, refusal(book.Hold(t.Context(), hold)))
	}
	settle := func(s Settlement) {
		t.Helper()
		_, err := book.Settle(t.Context(), s)
		require.NoError(t, err)
	}
	hold("call_charged", nil)
	charged := cost("call_charged", 60, 25)
	charged.Call.KeyID = "key_1"
	settle(charged)
	hold("call_back", nil)
	back := cost("call_back", 60, 10)
	back.Attempts = make([]Attempt, 2)
	settle(back)
	_, err = book.Refund(t.Context(), "cli", "call_back", "ticket")
	require.NoError(t, err)
	kept := &Claim{KeyHash: [32]byte{1}}
	hold("call_kept", kept)
	replayed := cost("call_kept", 60, 0)
	replayed.Claim, replayed.Keep, replayed.Response = kept, true, []byte("sealed")
	replayed.Call.Outcome = "broken"
	settle(replayed)
	hold("call_void", nil)
	void := cost("call_void", 60, 0)
	void.Void, void.Call.Outcome = true, "provider_error"
	settle(void)
	hold("call_last", nil)
	settle(cost("call_last", 60, 7))
	hold("call_open", nil)
	hold("call_keyed", &Claim{KeyHash: [32]byte{2}})
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
		execute(t, db, `INSERT INTO calls SELECT 'call_x' || $1, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, 0,
			4, 0, usage_source, ended_at, 0, price_id, 60, 0, 0, wallet_seq, balance_micros, cache_write_tokens,
				long_cache_write_tokens, reasoning_tokens, cost_micros, budgets FROM calls WHERE id = 'call_void'`, fmt.Sprintf("%02d", i))
	}
	report, err := Check(t.Context(), db)
	require.NoError(t, err)
	require.Len(t, report.Findings(), 20)
	text := report.String()
	require.Contains(t, text, "P1   FAIL  what a call was charged")
	require.Contains(t, text, "P2   ok    no call was charged more")
	require.Contains(t, text, "call_x00: charged 0, shortfall 0, cost 4")
	require.Contains(t, text, "look at: the call in calls, its price")
	require.Equal(t, 1, strings.Count(text, "there may be more"))
}

func TestReportAsJSON(t *testing.T) {
	t.Parallel()
	report := Report{Invariants: []Examined{{ID: "L6", Text: "t", Advice: "a", Findings: []Finding{{Subject: "call_1", Detail: "open"}}}}}
	text, err := json.Marshal(report)
	require.NoError(t, err)
	require.JSONEq(t, `{"invariants":[{"id":"L6","text":"t","advice":"a","more":false,
		"findings":[{"subject":"call_1","detail":"open"}]}]}`, string(text))
}

// TestCheckOfRecentRows begins with the last number before a moment, and reads no row that is older. A clock that was set back an hour, so
// that numbers stand in another order than times and ids, raises no alarm.
func TestCheckOfRecentRows(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		writeSmallBooks(t, db)
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		hour := time.Hour.Milliseconds()
		at := func(do statement, id string, moment int64) {
			do(`UPDATE calls SET ended_at = $1, id = $2 WHERE id = $3`, moment, store.FirstID("call", moment)+id, id)
			do(`UPDATE attempts SET call_id = $1 WHERE call_id = $2`, store.FirstID("call", moment)+id, id)
		}
		// The calls in the order of their numbers.
		aged := func(do statement, charged, back, last int64) {
			at(do, "call_charged", now-charged)
			do(`UPDATE ledger_tx SET ref = $1 WHERE kind = 'refund'`, store.FirstID("call", now-back)+"call_back")
			do(`UPDATE ledger_tx SET created_at = $1`, now-back)
			at(do, "call_back", now-back)
			at(do, "call_last", now-last)
			do(`UPDATE wallets SET moved_at = $1`, now-min(charged, back, last))
		}
		for name, c := range map[string]struct {
			damage    func(do statement)
			old, half []string
		}{
			"nothing": {func(do statement) { aged(do, 9*hour, 8*hour, 0) }, nil, nil},
			"nothing, with a clock that was set back": {func(do statement) { aged(do, 2*hour, hour/4, 5*hour/4) }, nil, nil},
			"nothing since": {func(do statement) { aged(do, 9*hour, 8*hour, 7*hour) }, nil, nil},
			"a balance written by hand": {func(do statement) {
				aged(do, 9*hour, 8*hour, 7*hour)
				do(`UPDATE wallets SET balance_micros = 9 WHERE env = 'live'`)
			}, []string{"L5", "P4"}, []string{"L5", "P4"}},
			"an old balance that doesn't follow": {func(do statement) {
				aged(do, 9*hour, 8*hour, 0)
				do(`UPDATE calls SET balance_micros = 976 WHERE balance_micros = 975`)
			}, []string{"P4"}, nil},
			"a new one": {func(do statement) {
				aged(do, 9*hour, 8*hour, 0)
				do(`UPDATE calls SET balance_micros = 969, charged_micros = 8 WHERE balance_micros = 968`)
				do(`UPDATE wallets SET balance_micros = 969`)
			}, []string{"P1", "P4"}, []string{"P1", "P4"}},
		} {
			inBrokenBooks(t, db, func(do statement) {
				do(withoutChecks(db.Engine()))
				c.damage(do)
			}, func(broken reader) {
				for checker, want := range map[Checker][]string{{}: c.old, {Recent: 30 * time.Minute}: c.half} {
					report, err := checker.examine(t.Context(), broken, now)
					require.NoError(t, err)
					require.Equal(t, want, brokenInvariants(report), "%s, %s: %s", name, checker.Recent, report)
				}
			})
		}
	})
}

// TestCheckWhileTheBooksMove: a check of a wallet in use has no findings.
func TestCheckWhileTheBooksMove(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		writeSmallBooks(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		faults := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				id := store.NewID("call")
				_, err := book.Hold(t.Context(), Hold{CallID: id, Wallet: acme, AmountMicros: 2, ExpiresIn: time.Minute})
				if err == nil {
					_, err = book.Settle(t.Context(), cost(id, 2, 1))
				}
				if err != nil && !errors.Is(err, ErrInsufficientCredits) {
					faults <- err
					return
				}
			}
			faults <- nil
		}()
		for range long(5, 20) {
			report, err := Checker{pageRows: 3}.Check(t.Context(), db)
			require.NoError(t, err)
			require.True(t, report.OK(), report.String())
		}
		cancel()
		require.NoError(t, <-faults)
	})
}

func TestLateMeansTwoSweeps(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite, Ledger)
	makeOrganization(t, db, acme.OrgID)
	writeSmallBooks(t, db)
	now, err := db.Now(t.Context())
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
		costsOfCalls, overchargedCalls, misownedCalls, unchargedCalls, wrongRefunds, misbookedPostings, unauditedPostings, unownedPostings,
		uncountedParts,
	} {
		plan := sqlitePlan(t, db, query)
		require.NotContains(t, strings.Join(plan, "\n"), "SCAN", query)
		require.Regexp(t, `SEARCH \w+ USING .*\(id>\? AND id<\?\)`, plan[0], query)
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
