package api

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/topup"
	"github.com/caddy-svc/caddy-svc/payments"
	"github.com/caddy-svc/caddy-svc/payments/vietqr"
)

// The operations by which organizations pay.
var (
	GetTopUpWays = operation(members("getTopUpWays", "GET /wallet/top-ups", identity.WalletRead,
		"Get the ways in which credits can be paid"), (*Deps).getTopUpWays)
	CreateTopUp = operation(administrators("createTopUp", "POST /wallet/top-ups", identity.WalletWrite,
		"Begin a payment for credits of the live wallet, by transfer or at a provider's page"), (*Deps).createTopUp)
	ListWalletPayments = operation(members("listWalletPayments", "GET /wallet/payments", identity.WalletRead,
		"List the payments for credits of the live wallet, newest first"), (*Deps).listWalletPayments)
)

// The operator's operations on payments.
var (
	ListPayments = operation(service("listPayments", "GET /payments", "wallet:read",
		"List the payments that providers have delivered, newest first"), (*Deps).listPayments)
	GetPayment = operation(service("getPayment", "GET /payments/{id}", "wallet:read",
		"Get a payment that a provider has delivered"), (*Deps).getPayment)
	MatchPayment = operation(acting(service("matchPayment", "POST /payments/{id}/match", "wallet:write",
		"Credit an unmatched or held payment to an organization; 409 conflict if it doesn't wait")), (*Deps).matchPayment)
	IgnorePayment = operation(acting(service("ignorePayment", "POST /payments/{id}/ignore", "wallet:write",
		"Ignore an unmatched or held payment permanently: it is never credited; 409 conflict if it doesn't wait")), (*Deps).ignorePayment)
)

// PaymentObject is a payment. It is exported for huma, see [endpoint.PathID].
type PaymentObject struct {
	ID            string  `json:"id"`
	Provider      string  `json:"provider"`
	State         string  `json:"state"         enum:"credited,unmatched,held,duplicate,ignored" doc:"unmatched and held wait for the operator; duplicate: another provider delivered this transfer before"`                                                                                                                                               //nolint:lll // a struct tag can't be broken
	Reason        *string `json:"reason"        enum:"no_code,amount,unreadable,currency,limit,suspended,test,same_transfer,refund_first,refused,person" doc:"Why it wasn't credited by itself. refund_first: so far only its refund was delivered; refused: a credit with its reference and another amount exists, or the balance would not fit 64 bits"` //nolint:lll // a struct tag can't be broken
	Amount        string  `json:"amount"        doc:"In the smallest unit of currency"`
	Currency      string  `json:"currency"`
	CreditMicros  string  `json:"creditMicros"  doc:"What it is worth in the wallet, in millionths of the currency unit; 0: its currency has no rate"`
	Refunded      string  `json:"refunded"      doc:"The part of amount that was refunded"`
	TakenMicros   string  `json:"takenMicros"   doc:"Of creditMicros: taken back for refunds and disputes, or to be paid by the next credit"` //nolint:lll // a struct tag can't be broken
	PaidAt        string  `json:"paidAt"        format:"date-time"`
	ReceivedAt    string  `json:"receivedAt"    format:"date-time" doc:"When it was delivered first"`
	TransactionID *string `json:"transactionId" doc:"The transaction of its credit"`
}

func showPayment(p *billing.Payment) PaymentObject {
	return PaymentObject{
		ID: p.PayID, Provider: p.Provider, State: string(p.State), Reason: endpoint.OrNull(p.Reason), Amount: strconv.FormatInt(p.Amount, 10),
		Currency: p.Currency, CreditMicros: billing.FormatMicros(p.Micros), Refunded: strconv.FormatInt(p.Refunded, 10),
		TakenMicros: billing.FormatMicros(p.TakenMicros), PaidAt: endpoint.Timestamp(p.PaidAt), ReceivedAt: endpoint.Timestamp(p.CreatedAt),
		TransactionID: endpoint.OrNull(p.EntryID),
	}
}

// ReceivedPayment is a payment in the operator's view. It is exported for huma, see [endpoint.PathID].
type ReceivedPayment struct {
	PaymentObject

	OrgID      *string `json:"orgId"      doc:"The organization of its code, or to which it was matched; null: unknown"`
	ProviderID string  `json:"providerId" doc:"The provider's id of it"`
	Reference  *string `json:"reference"  doc:"The bank's number of the transfer"`
	Account    *string `json:"account"    doc:"The account that received it"`
	Text       *string `json:"text"       doc:"The text of the transfer, as its bank sent it"`
	DecidedBy  *string `json:"decidedBy"  doc:"The actor who matched or ignored it"`
	Note       *string `json:"note"       doc:"The reason of an actor who ignored it"`
}

func showReceived(p *billing.Payment) ReceivedPayment {
	return ReceivedPayment{
		showPayment(p), endpoint.OrNull(p.OrgID), p.ID, endpoint.OrNull(p.Reference),
		endpoint.OrNull(p.Account), endpoint.OrNull(p.Text),
		endpoint.OrNull(p.DecidedBy), endpoint.OrNull(p.Note),
	}
}

type paymentsQuery struct {
	endpoint.PageQuery

	State    string `query:"state"    enum:"waiting,credited,unmatched,held,duplicate,ignored" doc:"Only in this state; waiting: unmatched or held"` //nolint:lll // a struct tag can't be broken
	Provider string `query:"provider" maxLength:"100" doc:"Only payments of this provider"`
	OrgID    string `query:"orgId"    maxLength:"100" doc:"Only payments of this organization"`
}

func (d *Deps) listPayments(ctx context.Context, principal *identity.Principal, in *paymentsQuery) (*pageOf[ReceivedPayment], error) {
	list := func(ctx context.Context, _ string, page store.Page) ([]billing.Payment, error) {
		return d.Book.Payments(ctx, billing.PaymentQuery{State: in.State, Provider: in.Provider, OrgID: in.OrgID}, page)
	}
	return listRows(ctx, principal, in.PageQuery, list, func(row *billing.Payment) string { return row.PayID }, showReceived)
}

func (d *Deps) getPayment(ctx context.Context, _ *identity.Principal, in *endpoint.PathID) (*ReceivedPayment, error) {
	payment, err := d.Book.Payment(ctx, in.ID)
	return new(showReceived(&payment)), unlessMissing(err, "There is no payment with this id.")
}

type paymentMatch struct {
	OrgID string `json:"orgId" minLength:"1" maxLength:"100" doc:"The organization whose live wallet gets the credit"`
}

func (d *Deps) matchPayment(ctx context.Context, principal *identity.Principal, in *idAndBody[paymentMatch]) (*ReceivedPayment, error) {
	return d.decidePayment(ctx, in.ID, func(p *ReceivedPayment) (billing.Payment, error) {
		return d.Book.MatchPayment(ctx, principal.Actor(), p.Provider, p.ProviderID, in.Body.OrgID)
	})
}

type paymentRefusal struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Why, for the audit log"`
}

func (d *Deps) ignorePayment(ctx context.Context, principal *identity.Principal, in *idAndBody[paymentRefusal]) (*ReceivedPayment, error) {
	return d.decidePayment(ctx, in.ID, func(p *ReceivedPayment) (billing.Payment, error) {
		return d.Book.IgnorePayment(ctx, principal.Actor(), p.Provider, p.ProviderID, in.Body.Reason)
	})
}

// decidePayment returns the payment after a decision, or the public form of the decision's error.
func (d *Deps) decidePayment(ctx context.Context, id string, decide func(*ReceivedPayment) (billing.Payment, error)) (*ReceivedPayment, error) {
	read, err := d.getPayment(ctx, nil, &endpoint.PathID{ID: id})
	if err != nil {
		return nil, err
	}
	decided, err := decide(read)
	switch {
	case err == nil:
		return new(showReceived(&decided)), nil
	case errors.Is(err, store.ErrNotFound):
		return nil, handlers.InvalidRequest("orgId", "There is no organization with this id.")
	case errors.Is(err, billing.ErrPaymentDecided):
		return nil, endpoint.Refusal(errcode.Conflict, err,
			"The payment is %s. Only an unmatched or a held payment that is more than a refund can be decided, once.", read.State)
	}
	_, err = d.posted(ctx, billing.Entry{}, err)
	return nil, err
}

func (d *Deps) listWalletPayments(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[PaymentObject], error) {
	list := func(ctx context.Context, orgID string, page store.Page) ([]billing.Payment, error) {
		return d.Book.Payments(ctx, billing.PaymentQuery{OrgID: orgID}, page)
	}
	return listRows(ctx, principal, in.PageQuery, list, func(row *billing.Payment) string { return row.PayID }, showPayment)
}

// byTransfer is the way of a payment by bank transfer. The other ways are names of providers.
const byTransfer = "transfer"

// TopUpWay is a way in which credits can be paid. It is exported for huma, see [endpoint.PathID].
type TopUpWay struct {
	Via        string   `json:"via"        doc:"transfer, or the name of a provider with a page of its own"`
	Label      string   `json:"label"`
	Currencies []string `json:"currencies" nullable:"false"`
}

func (d *Deps) getTopUpWays(context.Context, *identity.Principal, *struct{}) (*pageOf[TopUpWay], error) {
	ways := &pageOf[TopUpWay]{Data: []TopUpWay{}}
	if d.TopUps.Transfer != nil {
		ways.Data = append(ways.Data, TopUpWay{byTransfer, "VietQR", []string{topup.TransferCurrency}})
	}
	for _, name := range d.TopUps.Checkouts() {
		ways.Data = append(ways.Data, TopUpWay{name, d.TopUps.Providers[name].Description.Label, slices.Sorted(maps.Keys(d.TopUps.Rates))})
	}
	return ways, nil
}

type topUpCreation struct {
	Via      string `json:"via"                maxLength:"100" doc:"A way of GET /wallet/top-ups"`
	Amount   string `json:"amount"             maxLength:"20" doc:"In the smallest unit of the currency, in plain digits above 0"`
	Currency string `json:"currency,omitempty" maxLength:"3" doc:"Absent: the first one of the way"`
}

// TransferObject is a transfer to make. It is exported for huma, see [endpoint.PathID].
type TransferObject struct {
	Bank    string `json:"bank"    doc:"The number of the bank, BIN"`
	Account string `json:"account"`
	Holder  string `json:"holder"`
	QR      string `json:"qr"      doc:"The content of the VietQR code, in EMVCo's format"`
	SVG     string `json:"svg"     doc:"The VietQR code as a picture"`
}

// TopUpObject is a payment that was begun. It is exported for huma, see [endpoint.PathID].
type TopUpObject struct {
	Via          string          `json:"via"`
	Code         string          `json:"code"         doc:"Must be in the text of a transfer. That of transfers is always the same and doesn't end"`
	Amount       string          `json:"amount"`
	Currency     string          `json:"currency"`
	CreditMicros string          `json:"creditMicros" doc:"The credits of the amount, in millionths of the currency unit"`
	Transfer     *TransferObject `json:"transfer"     doc:"null: it is paid at address"`
	Address      *string         `json:"address"      doc:"The provider's page; null: it is paid by transfer"`
}

func (d *Deps) createTopUp(ctx context.Context, principal *identity.Principal, in *struct{ Body topUpCreation }) (*TopUpObject, error) {
	ways, _ := d.getTopUpWays(ctx, principal, nil)
	at := slices.IndexFunc(ways.Data, func(way TopUpWay) bool { return way.Via == in.Body.Via })
	if at < 0 {
		return nil, handlers.InvalidRequest("via", "There is no such way to pay. GET /wallet/top-ups lists the ways.")
	}
	currency := in.Body.Currency
	if currency == "" && len(ways.Data[at].Currencies) > 0 {
		currency = ways.Data[at].Currencies[0]
	}
	if !slices.Contains(ways.Data[at].Currencies, currency) {
		return nil, handlers.InvalidRequest("currency", "This way accepts: %s.", strings.Join(ways.Data[at].Currencies, ", "))
	}
	amount, err := payments.ReadAmount(in.Body.Amount, 0)
	if err != nil || amount == 0 || strings.Contains(in.Body.Amount, ".") {
		return nil, handlers.InvalidRequest("amount", "amount must be a whole number above 0, in plain digits.")
	}
	micros, reason := d.TopUps.Credits(currency, amount)
	if reason != "" || in.Body.Via == byTransfer && amount > vietqr.MaxAmount {
		return nil, handlers.InvalidRequest("amount", "The amount is too large to be credited by itself. Pay a smaller one, or ask the operator.")
	}
	made := &TopUpObject{Via: in.Body.Via, Amount: strconv.FormatInt(amount, 10), Currency: currency, CreditMicros: billing.FormatMicros(micros)}
	price := amount
	if made.Via == byTransfer {
		price = 0 // any amount is credited
	}
	made.Code, err = d.Book.MakeCode(ctx, principal.Actor(), principal.OrgID, payments.NewCode(), price, currency)
	if errors.Is(err, store.ErrLimit) {
		return nil, endpoint.Refusal(errcode.PlanLimitExceeded, err,
			"The organization has begun 100 payments within a day, the most it may. Continue tomorrow, or pay by transfer.")
	}
	if err == nil && price == 0 {
		made.Transfer, err = d.transfer(amount, made.Code)
	} else if err == nil {
		if made.Address, err = d.checkout(ctx, made, amount); err != nil {
			return nil, endpoint.Refusal(errcode.ProviderError, err, "The provider of payments made no page. Try again, or pay another way.")
		}
	}
	return made, err
}

// transfer returns a transfer with its VietQR code.
func (d *Deps) transfer(amount int64, code string) (*TransferObject, error) {
	text, err := d.TopUps.TransferText(amount, code)
	if err != nil {
		return nil, err
	}
	svg, err := vietqr.SVG(text)
	to := d.TopUps.Transfer
	return &TransferObject{to.Bank, to.Account, to.Holder, text, svg}, err
}

// checkoutTime bounds the request for a provider's page.
const checkoutTime = 20 * time.Second

// checkout returns the address of a provider's page.
func (d *Deps) checkout(ctx context.Context, made *TopUpObject, amount int64) (*string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkoutTime)
	defer cancel()
	address, err := d.TopUps.Checkout(made.Via).Begin(ctx, &payments.Order{
		Code: made.Code, Amount: amount, Currency: made.Currency, Title: "Credits", ReturnURL: d.BaseURL + "/dashboard/wallet",
	})
	return &address, err
}
