package billing

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// acmesCode is a code of acme's for any amount, and packageCode one of its codes for a package of 500,000 dong.
const acmesCode, packageCode = "BS7K2Q04A", "BS7K2Q05B"

func makeCodes(t *testing.T, db *store.DB) {
	t.Helper()
	execute(t, db, `INSERT INTO payment_codes (code, org_id, amount, currency, created_by, created_at) VALUES ($1, $2, 0, 'VND', 'usr_1', 1)`, acmesCode, acme.OrgID)
	execute(t, db, `INSERT INTO payment_codes (code, org_id, amount, currency, created_by, created_at) VALUES ($1, $2, 500000, 'VND', 'usr_1', 1)`, packageCode,
		acme.OrgID)
}

// transfer is a transfer of some dong with acme's code, each of which is a credit of 10 micros.
func transfer(id string, amount int64) Receipt {
	return Receipt{
		Provider: "sepay", ID: id, Kind: PaymentPaid, Amount: amount, Currency: "VND", Micros: 10 * amount, Codes: []string{"NOCODE000", acmesCode},
		Text: "NAP " + acmesCode, Reference: "FT" + id, Account: "0071", PaidAt: 1,
	}
}

// about is a later delivery about a transfer.
func about(id string, kind PaymentKind, amount int64, dispute string) Receipt {
	return Receipt{Provider: "sepay", ID: id, Kind: kind, Amount: amount, Currency: "VND", Dispute: dispute}
}

func receive(t *testing.T, book *Book, receipt Receipt) Payment {
	t.Helper()
	payment, err := book.Receive(t.Context(), receipt)
	require.NoError(t, err)
	return payment
}

func requireClaim(t *testing.T, db *store.DB, micros int) {
	t.Helper()
	require.Equal(t, micros, count(t, db, `SELECT claim_micros FROM wallets WHERE org_id = $1 AND env = 'live'`, acme.OrgID))
}

// TestPaymentIsCreditedOnce guarantees one credit with its audit row and its event, whatever is delivered how often.
func TestPaymentIsCreditedOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeCodes(t, db)
		execute(t, db, `INSERT INTO event_endpoints (id, org_id, url, events, secret, old_secret_until, state, reason, failing_since, created_at, updated_at)
			VALUES ('eep_1', $1, 'https://x.test', ' wallet.credited ', $2, 0, 'active', '', 0, 1, 1)`, acme.OrgID, []byte{1})
		first := receive(t, book, transfer("1", 500))
		require.Equal(t, PaymentCredited, first.State)
		require.Equal(t, acme.OrgID, first.OrgID)
		requireWallet(t, book, 5_000, 0)
		changed := transfer("1", 900)
		changed.Text = "another text"
		for _, again := range []Receipt{transfer("1", 500), changed} {
			require.Equal(t, first, receive(t, book, again))
		}
		requireWallet(t, book, 5_000, 0)
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM ledger_tx WHERE ref = 'pay:sepay:1' AND kind = 'topup'`))
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM audit_log WHERE actor = 'payment:sepay' AND target = $1`, first.EntryID))
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM event_deliveries WHERE type = 'wallet.credited'`))

		_, err := book.Credit(t.Context(), "cli", acme, 70, "pay:sepay:2")
		require.NoError(t, err)
		require.Equal(t, PaymentCredited, receive(t, book, transfer("2", 7)).State, "a person has booked it by hand")
		requireWallet(t, book, 5_070, 0)
		_, err = book.Credit(t.Context(), "cli", acme, 71, "pay:sepay:3")
		require.NoError(t, err)
		for range 2 {
			require.Equal(t, ReasonRefused, receive(t, book, transfer("3", 7)).Reason, "a person has booked another amount")
		}
		requireWallet(t, book, 5_141, 0)
	})
}

// TestPaymentsThatWait guarantees that each payment which isn't credited by itself has a state and a reason on which a person can act.
func TestPaymentsThatWait(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeCodes(t, db)
		makeOrganization(t, db, "org_suspended")
		execute(t, db, `UPDATE organizations SET suspended_at = 1 WHERE id = 'org_suspended'`)
		execute(t, db, `INSERT INTO payment_codes (code, org_id, amount, currency, created_by, created_at) VALUES ('SUSPENDED', 'org_suspended', 0, 'VND', '', 1)`)
		receive(t, book, transfer("0", 1))
		for i, c := range []struct {
			name   string
			change func(*Receipt)
			state  PaymentState
			reason string
		}{
			{"no code", func(r *Receipt) { r.Codes = nil }, PaymentUnmatched, ReasonNoCode},
			{"an unknown code", func(r *Receipt) { r.Codes = []string{"NOCODE000"} }, PaymentUnmatched, ReasonNoCode},
			{"a package, a dong short", func(r *Receipt) { r.Codes, r.Amount = []string{packageCode}, 499_999 }, PaymentUnmatched, ReasonAmount},
			{"a package, in cents", func(r *Receipt) { r.Codes, r.Amount, r.Currency = []string{packageCode}, 500_000, "USD" }, PaymentUnmatched, ReasonAmount},
			{"a suspended organization", func(r *Receipt) { r.Codes = []string{"SUSPENDED"} }, PaymentHeld, ReasonSuspended},
			{"another currency", func(r *Receipt) { r.Currency, r.Micros, r.Reason = "EUR", 0, ReasonCurrency }, PaymentHeld, ReasonCurrency},
			{"above the limit", func(r *Receipt) { r.Reason = ReasonLimit }, PaymentHeld, ReasonLimit},
			{"not readable", func(r *Receipt) { r.Amount, r.Micros, r.Reason = 0, 0, ReasonProblem }, PaymentHeld, ReasonProblem},
			{"a test", func(r *Receipt) { r.Reason = ReasonTest }, PaymentIgnored, ReasonTest},
			{"by another watcher", func(r *Receipt) { r.Provider, r.Reference, r.Amount = "payos", "FT0", 1 }, PaymentDuplicate, ReasonTwin},
		} {
			receipt := transfer(fmt.Sprint(100+i), 500)
			c.change(&receipt)
			made := receive(t, book, receipt)
			require.Equal(t, c.state, made.State, c.name)
			require.Equal(t, c.reason, made.Reason, c.name)
			require.Equal(t, made, receive(t, book, receipt), "%s: again", c.name)
		}
		requireWallet(t, book, 10, 0)
		whole := transfer("200", 500_000)
		whole.Codes = []string{packageCode}
		require.Equal(t, PaymentCredited, receive(t, book, whole).State, "the package's price")
	})
}

// TestPaymentByHand guarantees that a person decides a waiting payment once.
func TestPaymentByHand(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		lost := transfer("1", 500)
		lost.Codes = nil
		receive(t, book, lost)
		_, err := book.MatchPayment(t.Context(), "opr_1", "sepay", "1", "org_unknown")
		require.ErrorIs(t, err, store.ErrNotFound)
		require.Zero(t, count(t, db, `SELECT count(*) FROM payments WHERE org_id <> ''`), "a refused decision changes nothing")
		matched, err := book.MatchPayment(t.Context(), "opr_1", "sepay", "1", acme.OrgID)
		require.NoError(t, err)
		require.Equal(t, PaymentCredited, matched.State)
		require.Equal(t, "opr_1", matched.DecidedBy)
		requireWallet(t, book, 5_000, 0)
		for _, again := range []func() (Payment, error){
			func() (Payment, error) { return book.MatchPayment(t.Context(), "opr_1", "sepay", "1", acme.OrgID) },
			func() (Payment, error) { return book.IgnorePayment(t.Context(), "opr_1", "sepay", "1", "it is a gift") },
		} {
			_, err = again()
			require.ErrorIs(t, err, ErrPaymentDecided)
		}
		_, err = book.MatchPayment(t.Context(), "opr_1", "sepay", "unknown", acme.OrgID)
		require.ErrorIs(t, err, store.ErrNotFound)

		foreign := transfer("2", 500)
		foreign.Currency, foreign.Micros, foreign.Reason = "EUR", 0, ReasonCurrency
		receive(t, book, foreign)
		_, err = book.MatchPayment(t.Context(), "opr_1", "sepay", "2", acme.OrgID)
		require.ErrorIs(t, err, ErrInvalid)
		ignored, err := book.IgnorePayment(t.Context(), "opr_1", "sepay", "2", "it is a gift")
		require.NoError(t, err)
		require.Equal(t, PaymentIgnored, ignored.State)
		require.Equal(t, "it is a gift", ignored.Note)
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM audit_log WHERE actor = 'opr_1' AND action = 'payment.ignore' AND target = $1
			AND detail = '500 EUR, pay:sepay:2: it is a gift'`, ignored.PayID))
		listed := func(q PaymentQuery, after string) (ids []string) {
			payments, err := book.Payments(t.Context(), q, store.Page{After: after, Limit: 10})
			require.NoError(t, err)
			for _, p := range payments {
				ids = append(ids, p.ID)
			}
			return ids
		}
		receive(t, book, about("3", PaymentRefunded, 1, ""))
		require.Equal(t, []string{"3", "2", "1"}, listed(PaymentQuery{Provider: "sepay"}, ""))
		require.Equal(t, []string{"1"}, listed(PaymentQuery{}, ignored.PayID))
		require.Equal(t, []string{"1"}, listed(PaymentQuery{State: "credited", OrgID: acme.OrgID}, ""))
		require.Equal(t, []string{"3"}, listed(PaymentQuery{State: PaymentWaits}, ""))
		require.Empty(t, listed(PaymentQuery{Provider: "payos"}, ""))
		waiting, err := book.WaitingPayments(t.Context(), math.MaxInt64)
		require.NoError(t, err)
		require.Zero(t, waiting, "no person can decide a refund")
		require.Equal(t, ignored, receive(t, book, foreign))
	})
}

// TestPaymentTakenBack guarantees that refunds and disputes take what is free, that the rest is a claim which the next credit pays first, and that no
// order and no repetition changes the sum.
func TestPaymentTakenBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeCodes(t, db)
		require.Equal(t, ReasonRefundFirst, receive(t, book, about("1", PaymentRefunded, 100, "")).Reason)
		require.Equal(t, PaymentCredited, receive(t, book, transfer("1", 500)).State)
		requireWallet(t, book, 4_000, 0)
		for _, sum := range []int64{300, 100, 300, 200} { // cumulative, in any order
			require.Equal(t, max(sum, 300), receive(t, book, about("1", PaymentRefunded, sum, "")).Refunded)
			requireWallet(t, book, 2_000, 0)
		}
		_, err := book.Adjust(t.Context(), "cli", acme, -1_500, "spent", "spent", "")
		require.NoError(t, err)
		for range 2 {
			require.EqualValues(t, 5_000, receive(t, book, about("1", PaymentDisputed, 500, "dp_1")).TakenMicros)
			requireWallet(t, book, 0, 0)
			requireClaim(t, db, 1_500)
		}
		require.Zero(t, count(t, db, `SELECT count(*) FROM ledger_tx WHERE kind = 'reversal' AND account <> 'sys:cash'`), "it went back to the payer")
		receive(t, book, transfer("2", 100))
		requireWallet(t, book, 0, 0)
		requireClaim(t, db, 500)
		receive(t, book, transfer("3", 100))
		requireWallet(t, book, 500, 0)
		requireClaim(t, db, 0)
		for range 2 {
			require.EqualValues(t, 3_000, receive(t, book, about("1", PaymentDisputeWon, 500, "dp_1")).TakenMicros)
			requireWallet(t, book, 2_500, 0)
		}
		receive(t, book, about("1", PaymentDisputed, 500, "dp_1"))
		requireWallet(t, book, 2_500, 0)
		receive(t, book, about("3", PaymentDisputeWon, 100, "dp_2"))
		requireWallet(t, book, 2_500, 0)
		receive(t, book, about("3", PaymentDisputed, 100, "dp_2"))
		requireWallet(t, book, 2_500, 0)
	})
}

// A dispute that is won pays its own claim first.
func TestDisputeWonBeforeTheClaimIsPaid(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeCodes(t, db)
		receive(t, book, transfer("1", 100))
		_, err := book.Adjust(t.Context(), "cli", acme, -700, "spent", "spent", "")
		require.NoError(t, err)
		receive(t, book, about("1", PaymentDisputed, 100, "dp_1"))
		requireWallet(t, book, 0, 0)
		requireClaim(t, db, 700)
		receive(t, book, about("1", PaymentDisputeWon, 100, "dp_1"))
		requireWallet(t, book, 300, 0)
		requireClaim(t, db, 0)
	})
}

// Tests of a provider repeat the reference of a sample. They hide no transfer and refuse no other test.
func TestTestsHideNoTransfer(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeCodes(t, db)
		for i, reason := range []string{ReasonTest, ReasonTest, "", ReasonTest} {
			receipt := transfer(fmt.Sprint(i), 500)
			receipt.Reference, receipt.Reason = "FT0", reason
			state := PaymentIgnored
			if reason == "" {
				state = PaymentCredited
			}
			require.Equal(t, state, receive(t, book, receipt).State, "payment %d", i)
		}
		requireWallet(t, book, 5_000, 0)
	})
}

// A credit by hand also pays a claim. Its repetitions and its payment pay nothing more.
func TestCreditByHandPaysTheClaim(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeCodes(t, db)
		receive(t, book, transfer("1", 100))
		_, err := book.Adjust(t.Context(), "cli", acme, -700, "spent", "spent", "")
		require.NoError(t, err)
		receive(t, book, about("1", PaymentRefunded, 100, ""))
		requireClaim(t, db, 700)
		for range 2 {
			_, err = book.Credit(t.Context(), "cli", acme, 500, "pay:sepay:2")
			require.NoError(t, err)
			requireWallet(t, book, 0, 0)
			requireClaim(t, db, 200)
		}
		require.Equal(t, PaymentCredited, receive(t, book, transfer("2", 50)).State)
		requireClaim(t, db, 200)
		receive(t, book, transfer("3", 30))
		requireWallet(t, book, 100, 0)
		requireClaim(t, db, 0)
	})
}

// TestClaimOnHeldCredits: calls protect no credits from a refund. The rest of a hold is taken when its call ends, before another call can hold it.
func TestClaimOnHeldCredits(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeCodes(t, db)
		receive(t, book, transfer("1", 100))
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_1", 600))))
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf("call_2", 300))))
		receive(t, book, about("1", PaymentRefunded, 100, ""))
		requireWallet(t, book, 900, 900)
		requireClaim(t, db, 900)
		_, err := book.Settle(t.Context(), chargeOf("call_1", 600, 25))
		require.NoError(t, err)
		requireWallet(t, book, 300, 300)
		requireClaim(t, db, 325)
		require.ErrorIs(t, refusal(book.Hold(t.Context(), holdOf("call_3", 1))), ErrInsufficientCredits)
		_, err = book.Settle(t.Context(), voidOf("call_2", 300))
		require.NoError(t, err)
		requireWallet(t, book, 0, 0)
		requireClaim(t, db, 25)
	})
}

// TestPaymentOnTwoNodes guarantees one credit of a payment that two providers deliver to two nodes in the same moment.
func TestPaymentOnTwoNodes(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Migrated(t, engine)
			var books []*Book
			var first *store.DB
			for range 2 {
				db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				books = append(books, NewBook(db))
				first = db
			}
			makeOrganization(t, first, acme.OrgID)
			makeCodes(t, first)
			const transfers = 20
			var running sync.WaitGroup
			for n := range transfers {
				for i, book := range books {
					for _, provider := range []string{"sepay", "payos"} {
						running.Go(func() {
							receipt := transfer(fmt.Sprint(n), 10)
							receipt.Provider = provider
							if n%2 == 0 {
								receipt.Codes = nil
							}
							if err := storetest.Insist(func() error { _, err := book.Receive(t.Context(), receipt); return err }); err != nil {
								t.Errorf("%d, node %d, %s: %v", n, i, provider, err)
							}
						})
					}
				}
			}
			running.Wait()
			requireWallet(t, books[0], transfers/2*100, 0)
			require.Equal(t, transfers, count(t, first, `SELECT count(*) FROM payments WHERE state = 'duplicate'`))
			requireSoundBooks(t, first)
		})
	}
}
