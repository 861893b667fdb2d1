package topup

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/payments"
)

// scripted is a provider with the payments that a test gives it.
type scripted struct {
	made []payments.Payment
	err  error
}

func (s *scripted) Read(*payments.Delivery) ([]payments.Payment, error) { return s.made, s.err }

// TestCredits guarantees that the credits of an amount are exact, and that no number overflows.
func TestCredits(t *testing.T) {
	t.Parallel()
	p := Payments{Rates: map[string]Rate{"VND": {Micros: 1_000_000, Max: 5_000}, "USD": {Micros: 3}, "BIG": {Micros: math.MaxInt64}}}
	for _, c := range []struct {
		currency       string
		amount, micros int64
		reason         string
	}{
		{"VND", 0, 0, ""},
		{"VND", 5_000, 5_000_000_000, ""},
		{"VND", 5_001, 5_001_000_000, billing.ReasonLimit},
		{"VND", math.MaxInt64, 0, billing.ReasonLimit},
		{"USD", math.MaxInt64 / 3, math.MaxInt64 / 3 * 3, ""},
		{"USD", math.MaxInt64/3 + 1, 0, billing.ReasonLimit},
		{"BIG", 1, math.MaxInt64, ""},
		{"BIG", 2, 0, billing.ReasonLimit},
		{"EUR", 1, 0, billing.ReasonCurrency},
		{"vnd", 1, 0, billing.ReasonCurrency},
	} {
		micros, reason := p.Credits(c.currency, c.amount)
		require.Equal(t, c.micros, micros, "%+v", c)
		require.Equal(t, c.reason, reason, "%+v", c)
	}
}

// TestReceive guarantees that each payment of a proved delivery is booked with its reason, on both engines, and that nothing else is.
func TestReceive(t *testing.T) {
	t.Parallel()
	code := payments.NewCode()
	text := "nap " + strings.ToLower(code)
	storetest.Each(t, []store.Kind{billing.Ledger}, func(t *testing.T, db *store.DB) {
		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `INSERT INTO organizations (id, name, plan, created_at) VALUES ('org_acme', 'Acme', 'free', 0)`)
			tx.Queue(1, `INSERT INTO payment_codes (code, org_id, amount, currency, created_by, created_at) VALUES ($1, 'org_acme', 0, 'VND', '', 1)`, code)
			return nil
		}))
		provider := new(scripted)
		p := Payments{
			Book: billing.NewBook(db), Providers: map[string]Provider{"bank": {Provider: provider}}, Rates: map[string]Rate{"VND": {Micros: 10, Max: 1_000}, "XXX": {Micros: math.MaxInt64}},
			Log: slog.New(slog.DiscardHandler),
		}
		at := time.UnixMilli(1)
		good := payments.Payment{ID: "1", Kind: payments.Paid, Amount: 500, Currency: "VND", Text: text, Reference: "FT1", Account: "0071", At: at}
		for _, c := range []struct {
			change func(*payments.Payment)
			reason string // - for a payment that isn't booked
		}{
			{func(*payments.Payment) {}, ""},
			{func(p *payments.Payment) { p.Text, p.Code = "", code }, ""},
			{func(p *payments.Payment) { p.Text = "\x00\x1b" + text }, ""},
			{func(p *payments.Payment) { p.Text = "rent" }, billing.ReasonNoCode},
			{func(p *payments.Payment) { p.Currency = "EUR" }, billing.ReasonCurrency},
			{func(p *payments.Payment) { p.Amount = 1_001 }, billing.ReasonLimit},
			{func(p *payments.Payment) { p.Amount = math.MaxInt64 }, billing.ReasonLimit},
			{func(p *payments.Payment) { p.Amount, p.Currency = 1, "XXX" }, billing.ReasonRefused}, // more than the wallet can have
			{func(p *payments.Payment) { p.Test = true }, billing.ReasonTest},
			{func(p *payments.Payment) { p.Problem, p.Amount, p.Currency = "the amount is none", -1, "\x00" }, billing.ReasonProblem},
			{func(p *payments.Payment) { p.Problem, p.Test = "the amount is none", true }, billing.ReasonTest},
			{func(p *payments.Payment) { p.Kind = payments.Refunded }, billing.ReasonRefundFirst},
			{func(p *payments.Payment) { p.Kind, p.Test = payments.Refunded, true }, "-"},
			{func(p *payments.Payment) { p.Kind, p.Problem = payments.Refunded, "the amount is none" }, "-"},
			{func(p *payments.Payment) { p.Amount = 0 }, "-"},
		} {
			made := good
			made.ID, made.Reference = store.NewID("pay"), ""
			c.change(&made)
			provider.made = []payments.Payment{made}
			err := p.Receive(t.Context(), "bank", new(payments.Delivery))
			if c.reason == "-" {
				require.True(t, err == nil && made.Test || errors.Is(err, ErrUnread), "%+v: %v", made, err)
				booked, err := store.ReadRow(t.Context(), db, "count", store.ScanValue[int], `SELECT count(*) FROM payments WHERE id = $1`, made.ID)
				require.NoError(t, err)
				require.Zero(t, booked, "%+v", made)
				continue
			}
			require.NoError(t, err)
			booked, err := p.Book.Receive(t.Context(), billing.Receipt{Provider: "bank", ID: made.ID, Kind: billing.PaymentPaid})
			require.NoError(t, err)
			if c.reason != billing.ReasonRefundFirst {
				require.Equal(t, c.reason, booked.Reason, "%+v", made)
			}
		}
		first, second := good, good
		first.ID, first.Amount = "unsound", 0
		second.ID, second.Reference = "beside-an-unsound-one", ""
		provider.made = []payments.Payment{first, second}
		require.ErrorIs(t, p.Receive(t.Context(), "bank", new(payments.Delivery)), ErrUnread)
		provider.made = nil
		for read, want := range map[error]error{payments.ErrProof: payments.ErrProof, errors.New("bank: no transfer"): ErrUnread} {
			provider.err = read
			require.ErrorIs(t, p.Receive(t.Context(), "bank", new(payments.Delivery)), want)
		}
		wallet, err := p.Book.Wallet(t.Context(), billing.WalletID{OrgID: "org_acme", Env: store.Live})
		require.NoError(t, err)
		require.EqualValues(t, 4*5_000, wallet.BalanceMicros)
	})
}

// TestTransferText guarantees that the content of the code has the account, the amount and the code.
func TestTransferText(t *testing.T) {
	t.Parallel()
	p := Payments{Transfer: &Transfer{Bank: "970436", Account: "0071000888888", Holder: "ACME"}}
	text, err := p.TransferText(500_000, "BS7K2Q04A")
	require.NoError(t, err)
	for _, part := range []string{"970436", "0071000888888", "5406500000", "0809BS7K2Q04A"} {
		require.Contains(t, text, part)
	}
	_, err = p.TransferText(-1, "BS7K2Q04A")
	require.Error(t, err)
}
