package billing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// PaymentState is the state of a payment that a provider has delivered.
type PaymentState string

// The states of payments.
const (
	// PaymentCredited is a payment with its credits in a wallet.
	PaymentCredited PaymentState = "credited"
	// PaymentUnmatched waits until a person names its organization.
	PaymentUnmatched PaymentState = "unmatched"
	// PaymentHeld waits until a person decides whether it is credited.
	PaymentHeld PaymentState = "held"
	// PaymentDuplicate is a transfer that another provider has delivered before.
	PaymentDuplicate PaymentState = "duplicate"
	// PaymentIgnored is no money, or a person has decided that it isn't credited.
	PaymentIgnored PaymentState = "ignored"
)

// The reasons of payments that weren't credited by themselves.
const (
	ReasonNoCode      = "no_code"    // no text of the payment is a code
	ReasonAmount      = "amount"     // not the price of the package of its code
	ReasonProblem     = "unreadable" // proved, and not readable
	ReasonCurrency    = "currency"   // no rate for its currency
	ReasonLimit       = "limit"      // above the limit of payments that are credited by themselves
	ReasonSuspended   = "suspended"  // the organization is suspended
	ReasonTest        = "test"       // no money has moved
	ReasonTwin        = "same_transfer"
	ReasonRefundFirst = "refund_first" // only its refund or dispute was delivered so far
	ReasonPerson      = "person"       // a person has decided
	// ReasonRefused: a person has booked another amount with the payment's reference, or the balance would not fit 64 bits.
	ReasonRefused = "refused"
)

// PaymentKind is the kind of a delivery about a payment.
type PaymentKind string

// The kinds of deliveries.
const (
	PaymentPaid       PaymentKind = "paid"
	PaymentRefunded   PaymentKind = "refunded"
	PaymentDisputed   PaymentKind = "disputed"
	PaymentDisputeWon PaymentKind = "dispute_won"
)

// Receipt is a provider's delivery about a payment. Deliveries may be repeated and may come in any order.
type Receipt struct {
	Provider, ID string
	Kind         PaymentKind
	// Amount is in the smallest unit of Currency. That of a refund is the sum of all refunds of the payment so far.
	Amount   int64
	Currency string
	// Micros are the credits of Amount by the operator's rate.
	Micros int64
	// Codes are what may be codes in the payment's texts, and Text the text for people.
	Codes []string
	Text  string
	// Dispute is the provider's id of a dispute.
	Dispute string
	// Reference and Account name a transfer between banks, whichever provider delivers it.
	Reference, Account string
	PaidAt             int64 // epoch milliseconds
	// Reason is why the payment is not credited by itself: [ReasonTest], [ReasonProblem], [ReasonCurrency] or [ReasonLimit]. It may be empty.
	Reason string
}

// Payment is a payment as the books have it.
type Payment struct {
	Provider, ID string // the provider's id
	PayID        string // our own
	OrgID        string // empty until it is known whose it is
	State        PaymentState
	Reason       string
	Amount       int64
	Currency     string
	Micros       int64

	Reference, Account           string
	PaidAt, CreatedAt, UpdatedAt int64
	// Refunded is the part of Amount that was refunded, and Disputes the JSON of the amounts of open disputes by their ids.
	Refunded int64
	Disputes string
	// TakenMicros is what of Micros was taken back, claims included.
	TakenMicros int64
	// EntryID is the transaction of the credit, and DecidedBy the person who decided.
	EntryID, DecidedBy string
	// Note is the reason of the person who ignored the payment.
	Note string
	Text string
}

// ErrPaymentDecided is returned for a decision on a payment that doesn't wait for one.
var ErrPaymentDecided = errors.New("the payment doesn't wait for a decision")

// payOp is a delivery about a payment, or a person's decision on one.
type payOp struct {
	Receipt

	// decision is the state that a person decided, PaymentCredited or PaymentIgnored, and actor the person. Both are empty for a delivery.
	decision    PaymentState
	actor, note string

	// wallet is found by the code, or named by the decision. price is that of the code's package, in the currency priceIn. suspended is the
	// organization's.
	wallet    WalletID
	price     int64
	priceIn   string
	suspended bool
	// twin is the provider that has delivered the same transfer before; empty if none has.
	twin string

	payment Payment
	refused error
}

func (op *payOp) key() paymentKey { return paymentKey{op.Provider, op.ID} }

// Urgent implements [store.Urgent]: money has moved, and its provider waits for the answer.
func (*payOp) Urgent() bool { return true }

// Receive books a delivery once, also if several servers get it several times and in any order: a credit with its row in the audit log and its event,
// or a refund or a dispute. Credits that were spent or held before their refund are a claim, which anything that gets free pays first, so that no
// wallet has a debt.
// It returns the payment with the delivery. The error is [ErrInvalid] or a wrapped error of the store; in both cases nothing was booked.
func (b *Book) Receive(ctx context.Context, receipt Receipt) (Payment, error) {
	if receipt.Provider == "" || receipt.ID == "" || receipt.Amount < 0 || receipt.Micros < 0 {
		return Payment{}, fmt.Errorf("%w: a payment needs a provider and an id, and no negative amount", ErrInvalid)
	}
	return b.pay(ctx, &payOp{Receipt: receipt})
}

// MatchPayment credits a payment that waits for a decision to an organization. It returns [ErrPaymentDecided], [store.ErrNotFound] for an unknown
// payment or organization, [ErrInvalid] for a payment without credits, such as one in a currency without a rate, or a wrapped error of the store.
func (b *Book) MatchPayment(ctx context.Context, actor, provider, id, orgID string) (Payment, error) {
	op := &payOp{Receipt: Receipt{Provider: provider, ID: id}, decision: PaymentCredited, actor: actor}
	op.wallet = WalletID{orgID, store.Live}
	return b.pay(ctx, op)
}

// IgnorePayment ends a payment that waits for a decision without a credit, for a reason, which the audit log has. It returns the same
// errors as [Book.MatchPayment].
func (b *Book) IgnorePayment(ctx context.Context, actor, provider, id, reason string) (Payment, error) {
	return b.pay(ctx, &payOp{Receipt: Receipt{Provider: provider, ID: id}, decision: PaymentIgnored, actor: actor, note: reason})
}

// paymentTries limits how often a payment is booked that other processes book in the same moment: no lock is shared while it has no organization.
const paymentTries = 5

func (b *Book) pay(ctx context.Context, op *payOp) (Payment, error) {
	err := b.db.Do(ctx, Ledger, op)
	for try := 1; try < paymentTries && (errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrRows)); try++ {
		err = b.db.Do(ctx, Ledger, op)
	}
	if err != nil {
		return Payment{}, fmt.Errorf("book payment %s of %s: %w", op.ID, op.Provider, err)
	}
	return op.payment, op.refused
}

// PaymentWaits selects the payments that wait for a person, see [PaymentQuery].
const PaymentWaits = "waiting"

// PaymentQuery selects payments. Empty fields select all.
type PaymentQuery struct {
	State           string // a [PaymentState], or [PaymentWaits]
	Provider, OrgID string
}

// Payments reads a page of payments, the newest first.
func (b *Book) Payments(ctx context.Context, q PaymentQuery, page store.Page) ([]Payment, error) {
	text, arguments := selectPayments+` WHERE pay_id < $1`, []any{cmp.Or(page.After, "q")} // every id begins with pay
	where := func(column, value string) {
		if value != "" {
			arguments = append(arguments, value)
			text += fmt.Sprintf(` AND %s = $%d`, column, len(arguments))
		}
	}
	if q.State == PaymentWaits {
		text, q.State = text+` AND `+waitingPayments, ""
	}
	where("state", q.State)
	where("provider", q.Provider)
	where("org_id", q.OrgID)
	text += fmt.Sprintf(` ORDER BY pay_id DESC LIMIT %d`, page.Rows())
	return store.ReadRows(ctx, b.db, "list payments", scanPayment, text, arguments...)
}

// Payment reads a payment by our own id. It returns [store.ErrNotFound] for an unknown one.
func (b *Book) Payment(ctx context.Context, payID string) (Payment, error) {
	return store.ReadRow(ctx, b.db, "read a payment", scanPayment, selectPayments+` WHERE pay_id = $1`, payID)
}

// WaitingPayments returns the number of the payments that a person must decide and that were delivered before a moment.
func (b *Book) WaitingPayments(ctx context.Context, before int64) (int64, error) {
	return store.ReadRow(ctx, b.db, "count the payments that wait", store.ScanValue[int64], countWaitingPayments, before)
}

// share returns the part of an amount of micros that belongs to a part of a whole, rounded down.
func share(micros, part, whole int64) int64 {
	if part >= whole {
		return micros
	}
	high, low := bits.Mul64(uint64(micros), uint64(part)) //nolint:gosec // neither is negative
	quotient, _ := bits.Div64(high, low, uint64(whole))   //nolint:gosec // part < whole
	return int64(quotient)                                //nolint:gosec // at most micros
}

// mostCodes is the largest number of codes with a price that an organization can make in a day.
const mostCodes = 100

// MakeCode stores a code, by which payments find the organization whenever they come, and returns it. amount is a price in the smallest unit of the
// currency that must be paid exactly. 0 means any amount: the organization has one such code, and MakeCode returns it again. It returns
// [store.ErrLimit] if the organization has made too many codes within a day.
func (b *Book) MakeCode(ctx context.Context, actor, orgID, code string, amount int64, currency string) (string, error) {
	return store.Write(ctx, b.db, func(ctx context.Context, tx store.Tx) (string, error) {
		if amount == 0 {
			if known, err := store.QueryValues[string](ctx, tx, selectOpenCode, orgID); err != nil || len(known) > 0 {
				return strings.Join(known, ""), err
			}
		}
		if made, err := store.QueryValues[int64](ctx, tx, countCodes, orgID, tx.Now()-dayMillis); err != nil || made[0] >= mostCodes {
			return "", cmp.Or(err, store.ErrLimit)
		}
		tx.Queue(1, insertCode, code, orgID, amount, currency, actor, tx.Now())
		return code, nil
	})
}
