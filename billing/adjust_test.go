package billing

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestCreditIsIdempotentByReference(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		first, err := book.Credit(t.Context(), "ops", acme, 500, "invoice-1")
		require.NoError(t, err)
		require.Equal(t, int64(500), first.BalanceMicros)
		require.False(t, first.Replayed)
		topUp(t, book, 1)
		topUp(t, book, 1)

		again, err := book.Credit(t.Context(), "ops", acme, 500, "invoice-1")
		require.NoError(t, err)
		first.Replayed, first.auditID = true, ""
		require.Equal(t, first, again)
		_, err = book.Credit(t.Context(), "ops", acme, 501, "invoice-1")
		require.ErrorIs(t, err, ErrRefReused)
		_, err = book.Credit(t.Context(), "ops", WalletID{acme.OrgID, store.Test}, 500, "invoice-1")
		require.NoError(t, err, "a reference is the wallet's own")
		requireWallet(t, book, 502, 0)

		_, err = book.Credit(t.Context(), "ops", WalletID{"org_none", store.Live}, 500, "invoice-1")
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = book.Credit(t.Context(), "ops", acme, math.MaxInt64, "too-much")
		require.ErrorIs(t, err, ErrOverflow)

		require.Equal(t, 4, count(t, db, `SELECT count(*) FROM audit_log WHERE action = 'wallet.credit' AND org_id = $1`, acme.OrgID))
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM audit_log WHERE actor = 'ops' AND target = $1
			AND detail = '500 micros to live, ref invoice-1'`, first.ID))
	})
}

func TestAdjust(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 60))))
		_, err := book.Adjust(t.Context(), "ops", acme, -41, "too much", "a1", "")
		require.ErrorIs(t, err, ErrInsufficientCredits)
		for range 2 {
			entry, err := book.Adjust(t.Context(), "ops", acme, -40, "double top-up", "a1", "")
			require.NoError(t, err)
			require.Equal(t, int64(60), entry.BalanceMicros)
			require.Equal(t, "double top-up", entry.Note)
		}
		_, err = book.Adjust(t.Context(), "ops", acme, 15, "goodwill", "a2", "")
		require.NoError(t, err)
		requireWallet(t, book, 75, 60)
		require.Equal(t, 25, count(t, db, `SELECT CAST(-sum(amount_micros) AS BIGINT) FROM ledger_tx WHERE account = 'sys:loss'`))
		require.Equal(t, 2, count(t, db, `SELECT count(*) FROM audit_log WHERE action = 'wallet.adjust'`))
	})
}

// TestCorrections: all corrections of a transaction together are never larger than it, however many people post them, on however many nodes, at the
// same moment. A correction that was posted before is replayed.
func TestCorrections(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 10_000)
		correct := func(book *Book, micros int64, ref, corrects string) error {
			_, err := book.Adjust(t.Context(), "ops", acme, micros, "wrong", ref, corrects)
			return err
		}
		credit, err := book.Credit(t.Context(), "ops", acme, 1_000, "invoice-1")
		require.NoError(t, err)
		require.ErrorIs(t, correct(book, -1_001, "a", credit.ID), ErrCorrected)
		require.ErrorIs(t, correct(book, math.MinInt64+1, "a", credit.ID), ErrInsufficientCredits)
		require.NoError(t, correct(book, -600, "a", credit.ID))
		require.ErrorContains(t, correct(book, -401, "b", credit.ID), credit.ID+" is of 1000 micros, and its corrections are -600 micros")
		require.ErrorIs(t, correct(book, -1, "c", "txn_none"), ErrNotPosted)

		other := storetest.OpenAt(t, db.Location(), store.Options{Kinds: []store.Kind{Ledger}})
		nodes := []*Book{book, NewBook(other)}
		results := make(chan error, 8)
		for i := range cap(results) {
			go func() { results <- correct(nodes[i%2], -400, fmt.Sprint("undo ", i), credit.ID) }()
		}
		undone := 0
		for range cap(results) {
			if err := <-results; err == nil {
				undone++
			} else {
				require.ErrorIs(t, err, ErrCorrected)
			}
		}
		require.Equal(t, 1, undone)
		require.NoError(t, correct(book, -600, "a", credit.ID), "a repetition changes nothing")
		requireWallet(t, book, 10_000, 0)

		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 60))))
		_, err = book.Settle(t.Context(), chargeOf("call_1", 60, 25))
		require.NoError(t, err)
		require.ErrorIs(t, correct(book, 26, "d", "call_1"), ErrCorrected)
		require.NoError(t, correct(book, 24, "d", "call_1"))
		_, err = book.Refund(t.Context(), "ops", "call_1", "")
		require.ErrorIs(t, err, ErrCorrected, "a part of it was given back")
		require.NoError(t, correct(book, 1, "f", "call_1"))
		_, err = book.Adjust(t.Context(), "ops", WalletID{acme.OrgID, store.Test}, 1, "wrong", "e", credit.ID)
		require.ErrorIs(t, err, ErrNotPosted, "the transaction of another wallet")
	})
}

// TestCorrectionsOfOneBatch: a batch counts its own corrections, and none that it refused.
func TestCorrectionsOfOneBatch(t *testing.T) {
	t.Parallel()
	b := testBooks(1_500, 0)
	b.corrected[correctedKey{acme, "txn_1"}] = &corrected{amount: 1_000, sum: 400}
	for _, c := range []struct {
		micros int64
		err    error
	}{{-1_400, nil}, {-1, ErrCorrected}, {math.MaxInt64, ErrOverflow}, {1_600, nil}, {400, nil}, {1, ErrCorrected}} {
		_, err := b.post(posting{kind: EntryAdjust, wallet: acme, micros: c.micros, ref: fmt.Sprint(c.micros), corrects: "txn_1"})
		require.ErrorIs(t, err, c.err)
	}
}

func TestRefundOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 60))))
		_, err := book.Refund(t.Context(), "ops", "call_1", "ticket 7")
		require.ErrorIs(t, err, store.ErrNotFound, "the call has not ended")
		_, err = book.Settle(t.Context(), chargeOf("call_1", 60, 25))
		require.NoError(t, err)

		entry, err := book.Refund(t.Context(), "ops", "call_1", "ticket 7")
		require.NoError(t, err)
		require.Equal(t, int64(25), entry.AmountMicros)
		require.Equal(t, "call_1", entry.Ref)
		again, err := book.Refund(t.Context(), "ops", "call_1", "ticket 8")
		require.NoError(t, err)
		entry.Replayed, entry.auditID = true, ""
		require.Equal(t, entry, again)
		requireWallet(t, book, 100, 0)
		_, err = book.Adjust(t.Context(), "ops", acme, 1, "wrong", "twice", "call_1")
		require.ErrorIs(t, err, ErrCorrected)

		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_2", 60))))
		_, err = book.Settle(t.Context(), voidOf("call_2", 60))
		require.NoError(t, err)
		_, err = book.Refund(t.Context(), "ops", "call_2", "")
		require.ErrorIs(t, err, ErrNothingToRefund)
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM audit_log WHERE action = 'wallet.refund'`))
	})
}

// A refund goes to the wallet that paid, whoever else has a call or a reference of that name, and a call is refunded once however often and
// however many at once ask for it.
func TestRefundOfAnotherWalletsCall(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		other := WalletID{"org_other", store.Live}
		makeOrganization(t, db, other.OrgID)
		topUp(t, book, 100)
		_, err := book.Credit(t.Context(), "ops", other, 100, "call_1")
		require.NoError(t, err)
		_, err = book.Adjust(t.Context(), "ops", other, -1, "why", "call_1", "")
		require.NoError(t, err)
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 60))))
		_, err = book.Settle(t.Context(), chargeOf("call_1", 60, 25))
		require.NoError(t, err)

		refunds := []store.Op{}
		for range 3 {
			refunds = append(refunds, &postOp{posting: posting{kind: EntryRefund, wallet: other, ref: "call_1", actor: "ops"}})
		}
		refunds = append(refunds, &postOp{posting: posting{kind: EntryTopUp, wallet: other, micros: 1, ref: "next", actor: "ops"}})
		applyTogether(t, db, refunds...)
		for i, op := range refunds[:3] {
			refund := op.(*postOp)
			require.NoError(t, refund.refused)
			require.Equal(t, acme, refund.entry.Wallet)
			require.Equal(t, i > 0, refund.entry.Replayed)
		}
		requireWallet(t, book, 100, 0)
		wallet, err := book.Wallet(t.Context(), other)
		require.NoError(t, err)
		require.Equal(t, Wallet{BalanceMicros: 100}, wallet)
	})
}

func TestPostingsThatCannotBeRight(t *testing.T) {
	t.Parallel()
	book, ctx := NewBook(nil), t.Context() // none of them reaches the database
	for name, post := range map[string]func() (Entry, error){
		"credit of nothing":      func() (Entry, error) { return book.Credit(ctx, "ops", acme, 0, "r") },
		"negative credit":        func() (Entry, error) { return book.Credit(ctx, "ops", acme, -1, "r") },
		"credit without actor":   func() (Entry, error) { return book.Credit(ctx, "", acme, 1, "r") },
		"credit to no wallet":    func() (Entry, error) { return book.Credit(ctx, "ops", WalletID{}, 1, "r") },
		"adjust by nothing":      func() (Entry, error) { return book.Adjust(ctx, "ops", acme, 0, "why", "r", "") },
		"adjust by the smallest": func() (Entry, error) { return book.Adjust(ctx, "ops", acme, math.MinInt64, "why", "r", "") },
		"adjust without reason":  func() (Entry, error) { return book.Adjust(ctx, "ops", acme, 1, " ", "r", "") },
		"credit without ref":     func() (Entry, error) { return book.Credit(ctx, "ops", acme, 1, "") },
		"adjust without ref":     func() (Entry, error) { return book.Adjust(ctx, "ops", acme, 1, "why", "", "") },
		"refund of no call":      func() (Entry, error) { return book.Refund(ctx, "ops", "", "r") },
		"NUL in the reference":   func() (Entry, error) { return book.Credit(ctx, "ops", acme, 1, "a\x00b") },
		"broken UTF-8":           func() (Entry, error) { return book.Adjust(ctx, "ops", acme, 1, "a\xff", "r", "") },
		"a novel":                func() (Entry, error) { return book.Credit(ctx, "ops", acme, 1, strings.Repeat("a", 501)) },
	} {
		_, err := post()
		require.ErrorIs(t, err, ErrInvalid, name)
	}
}
