package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The operations that only the operator of the service may use, for one organization. They have no route of the organization API.
var (
	CreditWallet = operation(operators("creditWallet", "POST /wallet/credits",
		"Credit a wallet with a payment, once for each reference"), (*Deps).creditWallet)
	AdjustWallet = operation(operators("adjustWallet", "POST /wallet/adjustments",
		"Correct a wallet up or down, never below what is held, once for each reference"), (*Deps).adjustWallet)
	RefundCall = operation(operators("refundCall", "POST /calls/{id}/refund",
		"Give back what a model call was charged, once"), (*Deps).refundCall)
)

// roleOperator is a role that no person has.
const roleOperator handlers.Role = "operator"

// operators describes an operation that no key and no person may use.
func operators(id, route, summary string) endpoint.Operation {
	o := members(id, route, noScope, summary)
	o.Role = roleOperator
	return o
}

// WalletPosting are the members that credits and adjustments share. It is exported for the framework, see [endpoint.PathID].
type WalletPosting struct {
	Environment  *store.Env `json:"environment,omitempty" enum:"live,test" doc:"Whose wallet; live when absent"`
	AmountMicros string     `json:"amountMicros" maxLength:"20" doc:"In millionths of the currency unit; an adjustment below 0 takes"`
	Reference    string     `json:"reference" minLength:"1" maxLength:"500" doc:"Of the payment, or of the reason. With the same amount again nothing changes, with another one it is refused"` //nolint:lll // a struct tag can't be broken
}

// posting returns the wallet and the amount.
func (c *WalletPosting) posting(principal *identity.Principal) (wallet billing.WalletID, micros int64, err error) {
	wallet = billing.WalletID{OrgID: principal.OrgID, Env: store.Live}
	set(&wallet.Env, c.Environment)
	if micros, err = billing.ParseMicros(c.AmountMicros); err != nil {
		err = handlers.InvalidRequest("amountMicros", "amountMicros must be a whole number of micros that fits 64 bits, in plain decimal digits.")
	}
	return wallet, micros, err
}

type walletAdjustment struct {
	WalletPosting

	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Why; the customer can read it"`
}

// postedObject is a transaction that the operator has posted.
type postedObject struct {
	TransactionObject

	Environment store.Env `json:"environment" enum:"live,test"`
	Replayed    bool      `json:"replayed" doc:"It was posted before, and nothing was changed now"`
}

func (d *Deps) creditWallet(
	ctx context.Context, principal *identity.Principal, in *struct{ Body WalletPosting },
) (*endpoint.JSON[postedObject], error) {
	wallet, micros, err := in.Body.posting(principal)
	if err != nil {
		return nil, err
	}
	entry, err := d.Book.Credit(ctx, principal.Actor(), wallet, micros, in.Body.Reference)
	return d.posted(ctx, entry, err)
}

func (d *Deps) adjustWallet(
	ctx context.Context, principal *identity.Principal, in *struct{ Body walletAdjustment },
) (*endpoint.JSON[postedObject], error) {
	wallet, micros, err := in.Body.posting(principal)
	if err != nil {
		return nil, err
	}
	entry, err := d.Book.Adjust(ctx, principal.Actor(), wallet, micros, in.Body.Reason, in.Body.Reference)
	entry.Wallet = wallet // of a refused one, too
	return d.posted(ctx, entry, err)
}

// callRefund is the body of a refund.
type callRefund struct {
	Reference string `json:"reference,omitempty" maxLength:"500" doc:"A note of your own, such as a ticket"`
}

func (d *Deps) refundCall(ctx context.Context, principal *identity.Principal, in *idAndBody[callRefund]) (*endpoint.JSON[postedObject], error) {
	owner, err := d.DB.OwnerOf(ctx, store.OwnedCalls, in.ID)
	if err != nil || owner != principal.OrgID {
		return nil, d.missing(ctx, principal, store.OwnedCalls, in.ID)
	}
	entry, err := d.Book.Refund(ctx, principal.Actor(), in.ID, in.Body.Reference)
	return d.posted(ctx, entry, err)
}

// posted returns the answer to a posting, or the public form of its error.
func (d *Deps) posted(ctx context.Context, entry billing.Entry, err error) (*endpoint.JSON[postedObject], error) {
	switch {
	case err == nil:
		return endpoint.Answer(postedObject{showTransaction(&entry), entry.Wallet.Env, entry.Replayed}), nil
	case errors.Is(err, billing.ErrInvalid):
		_, why, _ := strings.Cut(err.Error(), ": ")
		return nil, handlers.InvalidRequest("", "This is not possible: %s.", why)
	case errors.Is(err, billing.ErrOverflow):
		return nil, handlers.InvalidRequest("amountMicros", "amountMicros is out of range: the balance must fit 64 bits.")
	case errors.Is(err, billing.ErrRefReused), errors.Is(err, billing.ErrNothingToRefund):
		return nil, &handlers.Error{Code: errcode.Conflict, Message: err.Error() + ".", Cause: err}
	case errors.Is(err, billing.ErrCreditsInTranches):
		return nil, &handlers.Error{
			Code: errcode.InsufficientCredits, Cause: err, Message: "Another process holds credits that it doesn't use. Try again in 10 s.",
		}
	case errors.Is(err, billing.ErrInsufficientCredits):
		wallet, readErr := d.Book.Wallet(ctx, entry.Wallet)
		if readErr != nil {
			return nil, handlers.Internal(fmt.Errorf("reading the wallet: %w", readErr))
		}
		return nil, &handlers.Error{Code: errcode.InsufficientCredits, Cause: err, Message: fmt.Sprintf(
			"The free balance is too small: of the balance of %s micros, %s are held and %s are free.", billing.FormatMicros(wallet.BalanceMicros),
			billing.FormatMicros(wallet.HeldMicros), billing.FormatMicros(wallet.BalanceMicros-wallet.HeldMicros))}
	default:
		return nil, handlers.Internal(fmt.Errorf("changing a wallet: %w", err))
	}
}
