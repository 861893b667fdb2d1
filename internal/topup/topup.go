// Package topup is how organizations can pay in this process, as its configuration says: the providers of payments, the credits of each currency, and
// the account for transfers. It proves and reads a provider's deliveries and passes each payment to package billing, which alone credits a wallet.
//
// # Making a top-up
//
// A top-up is a code of [payments.NewCode], stored with its organization, its amount and its currency. [Payments.Credits] returns the credits of
// the amount. With the code a person pays in one of these ways:
//
//   - By transfer, if Transfer isn't nil: [Payments.TransferText] is the content of the VietQR code, which [vietqr.SVG] draws. Bank, account,
//     holder, amount and code are also shown for typing.
//   - At a provider's page, for each name of [Payments.Checkouts]: [Payments.Checkout] makes the page with [payments.Checkout.Begin]. Begin makes a
//     request, so its context needs a deadline.
//
// The credit comes with the provider's delivery, whatever the person does next.
package topup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/payments"
	"github.com/caddy-svc/caddy-svc/payments/vietqr"
)

// ErrUnread is returned for a delivery that is proved and can't be booked, because its payment has no readable id.
var ErrUnread = errors.New("the delivery is the provider's, but its payment can't be read")

// Payments are the configured payments. The zero value has none. It is immutable.
type Payments struct {
	Book *billing.Book
	// Providers are the providers by [payments.Description].Name.
	Providers map[string]Provider
	// Rates are the rates by the currency's ISO 4217 code.
	Rates map[string]Rate
	// Transfer is nil without an account for transfers.
	Transfer *Transfer
	Log      *slog.Logger
}

// Provider is a provider with its description.
type Provider struct {
	payments.Provider

	Description *payments.Description
}

// NewProvider returns the provider of a driver for its options, with references resolved. A driver that panics is an error.
func NewProvider(driver payments.Driver, options map[string]string) (made Provider, err error) {
	// A redirect would carry the operator's key to another address.
	client := &http.Client{Timeout: requestTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	made.Description = driver.Describe()
	err = guard(func() (err error) {
		if made.Provider, err = driver.New(&payments.Config{Options: options, Client: client, Now: time.Now}); made.Provider == nil && err == nil {
			err = errors.New("the module made no provider")
		}
		return err
	})
	return made, err
}

// requestTime bounds a request to a provider.
const requestTime = 20 * time.Second

// Rate is the worth of a currency.
type Rate struct {
	// Micros are the credits for the currency's smallest unit.
	Micros int64
	// Max is the largest payment that is credited by itself, in the smallest unit. 0 means no limit.
	Max int64
}

// Transfer is the account that receives transfers in Vietnamese dong.
type Transfer struct{ Bank, Account, Holder string }

// TransferCurrency is the currency of transfers by VietQR.
const TransferCurrency = "VND"

// Credits returns the credits for an amount in a currency's smallest unit. The reason isn't empty if a payment of the amount isn't credited by
// itself: [billing.ReasonCurrency] without a rate, and [billing.ReasonLimit] above the limit or above all numbers.
func (p *Payments) Credits(currency string, amount int64) (micros int64, reason string) {
	rate, found := p.Rates[currency]
	if !found {
		return 0, billing.ReasonCurrency
	}
	high, low := bits.Mul64(uint64(max(amount, 0)), uint64(rate.Micros)) //nolint:gosec // neither is negative
	if high > 0 || low > math.MaxInt64 {
		return 0, billing.ReasonLimit
	}
	if rate.Max > 0 && amount > rate.Max {
		reason = billing.ReasonLimit
	}
	return int64(low), reason //nolint:gosec // it was compared
}

// TransferText returns the content of the VietQR code for a transfer of an amount in dong, with the code in its text.
func (p *Payments) TransferText(amount int64, code string) (string, error) {
	transfer := vietqr.Transfer{Bank: p.Transfer.Bank, Account: p.Transfer.Account, Amount: amount, Purpose: code}
	if err := transfer.Check(); err != nil {
		return "", fmt.Errorf("making the code of a transfer: %w", err)
	}
	return transfer.Text(), nil
}

func (p *Payments) names() []string { return slices.Sorted(maps.Keys(p.Providers)) }

// Checkouts returns the names of the providers with a page on which a person pays, in order.
func (p *Payments) Checkouts() (names []string) {
	for _, name := range p.names() {
		if p.Checkout(name) != nil {
			names = append(names, name)
		}
	}
	return names
}

// Checkout returns the pages of a provider, or nil if it has none.
func (p *Payments) Checkout(name string) payments.Checkout {
	checkout, _ := p.Providers[name].Provider.(payments.Checkout)
	return checkout
}

// Receive proves and reads a delivery of the provider, which must be configured, and books its payments. The error is [payments.ErrProof],
// [ErrUnread], or a wrapped error of the store. After an error the delivery can be repeated: a payment that was booked is booked once.
func (p *Payments) Receive(ctx context.Context, name string, delivery *payments.Delivery) error {
	var made []payments.Payment
	err := guard(func() (err error) {
		made, err = p.Providers[name].Read(delivery)
		return err
	})
	if errors.Is(err, payments.ErrProof) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnread, err)
	}
	var unread error
	for i := range made {
		booked, err := p.book(ctx, name, &made[i])
		if errors.Is(err, ErrUnread) { // the others have no other delivery
			unread = err
			continue
		}
		if err != nil {
			return err
		}
		level := slog.LevelInfo
		waits := booked.State == billing.PaymentUnmatched || booked.State == billing.PaymentHeld
		if waits || made[i].Kind != payments.Paid && booked.State != billing.PaymentCredited { // it may have been credited by hand
			level = slog.LevelWarn
		}
		p.Log.Log(ctx, level, "a payment was delivered", "provider", name, "payment", made[i].ID, "kind", made[i].Kind,
			"state", booked.State, "reason", booked.Reason)
	}
	return unread
}

// guard turns a panic of an adapter into an error without the adapter's values.
func guard(call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the module panicked: %T", cause)
		}
	}()
	return call()
}

// book books a payment of a provider. A test of a refund or a dispute is left out, because the test payment was ignored.
func (p *Payments) book(ctx context.Context, name string, made *payments.Payment) (billing.Payment, error) {
	receipt, err := p.receipt(name, made)
	if err != nil || made.Test && receipt.Kind != billing.PaymentPaid {
		return billing.Payment{State: billing.PaymentIgnored, Reason: billing.ReasonTest}, err
	}
	return p.Book.Receive(ctx, receipt)
}

// receipt returns what billing books of a payment.
func (p *Payments) receipt(name string, made *payments.Payment) (billing.Receipt, error) {
	if err := made.Check(); err != nil {
		return billing.Receipt{}, fmt.Errorf("%w: %w", ErrUnread, err)
	}
	receipt := billing.Receipt{
		Provider: name, ID: made.ID, Kind: billing.PaymentKind(made.Kind), Text: payments.Text(made.Problem, made.Text),
	}
	if made.Problem == "" {
		receipt.Amount, receipt.Currency, receipt.Dispute = made.Amount, made.Currency, made.Dispute
		receipt.Reference, receipt.Account, receipt.PaidAt = made.Reference, made.Account, made.At.UnixMilli()
		receipt.Micros, receipt.Reason = p.Credits(made.Currency, made.Amount)
		receipt.Codes = payments.FindCodes(made.Text)
		if made.Code != "" {
			receipt.Codes = append([]string{made.Code}, receipt.Codes...)
		}
	} else {
		switch made.Kind {
		case payments.Refunded, payments.Disputed, payments.DisputeWon:
			return billing.Receipt{}, fmt.Errorf("%w: %s", ErrUnread, made.Problem)
		case payments.Paid:
		}
		receipt.Kind, receipt.Reason = billing.PaymentPaid, billing.ReasonProblem
	}
	if made.Test {
		receipt.Reason = billing.ReasonTest
	}
	return receipt, nil
}

const (
	// comparePause is the pause between two looks whether a comparison is due, and comparePeriod the time after which it is.
	comparePause, comparePeriod = time.Hour, 24 * time.Hour
	// comparedTime is how far back a comparison goes, so that a day without one loses nothing.
	comparedTime = 72 * time.Hour
	// listTime bounds the list of one provider. A list that fails is tried listTries times in all, with a pause of listPause.
	listTime, listTries, listPause = 5 * time.Minute, 3, time.Minute
	// leftBehind is how long a list may take to end after its context has ended.
	leftBehind = 5 * time.Second
)

// StartComparing compares the payments with the lists of their providers once a day, until the task is stopped. Of all processes with the database
// one does so. It returns nil if no provider has a list.
func (p *Payments) StartComparing(db *store.DB, node string) *repeat.Task {
	for _, name := range p.names() {
		if _, lists := p.Providers[name].Provider.(payments.Lister); lists {
			return repeat.Start(comparePause, func(ctx context.Context) {
				if err := p.compareDue(ctx, db, node); err != nil && ctx.Err() == nil {
					p.Log.ErrorContext(ctx, "the comparison of payments did not begin; it is tried again within an hour", "error", err)
				}
			})
		}
	}
	return nil
}

// compareDue compares if no process has begun a comparison within the period.
func (p *Payments) compareDue(ctx context.Context, db *store.DB, node string) error {
	var due bool
	var now int64
	err := db.Exec(ctx, func(ctx context.Context, tx store.Tx) (err error) {
		now = tx.Now()
		due, err = store.Changed(ctx, tx, `INSERT INTO marks (name, node, at) VALUES ('payments', $1, $2)
			ON CONFLICT (name) DO UPDATE SET node = excluded.node, at = excluded.at WHERE marks.at <= $3 RETURNING name`,
			node, now+comparePeriod.Milliseconds(), now)
		return err
	})
	if err == nil && due {
		p.compareAll(ctx, now)
	}
	return err
}

// compareAll compares with the list of each provider that has one.
func (p *Payments) compareAll(ctx context.Context, now int64) {
	for _, name := range p.names() {
		lister, lists := p.Providers[name].Provider.(payments.Lister)
		for try := 1; lists && ctx.Err() == nil; try++ {
			err := p.compare(ctx, name, lister, now)
			if err == nil {
				break
			}
			p.Log.ErrorContext(ctx, "payments were not compared with the list of their provider; three tries are made each day",
				"provider", name, "try", try, "error", err)
			if try == listTries {
				break
			}
			_ = repeat.Pause(ctx, listPause)
		}
	}
}

// compare books the payments of the provider's list. It leaves a list behind that ignores the end of its context.
func (p *Payments) compare(ctx context.Context, name string, lister payments.Lister, now int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, fmt.Errorf("the list took longer than %s", listTime))
	defer cancel()
	listed := make(chan error, 1)
	go func() {
		var failed error
		err := guard(func() error {
			return lister.List(ctx, time.UnixMilli(now).Add(-comparedTime), func(made payments.Payment) bool {
				if ctx.Err() != nil {
					return false
				}
				booked, err := p.book(ctx, name, &made)
				if err == nil && booked.CreatedAt >= now {
					p.Log.WarnContext(ctx, "a payment that was never delivered is on the list of its provider; it was booked",
						"provider", name, "payment", made.ID)
				}
				if failed == nil {
					failed = err
				}
				return err == nil || errors.Is(err, ErrUnread)
			})
		})
		listed <- errors.Join(err, failed)
	}()
	select {
	case err := <-listed:
		return err
	case <-ctx.Done():
		select {
		case err := <-listed:
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(leftBehind):
			return context.Cause(ctx)
		}
	}
}
