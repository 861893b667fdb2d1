// Package payments is the contract between caddy-svc and its adapters to providers of payments: how an adapter describes itself
// ([Description]), how it proves and reads a provider's deliveries ([Provider]), and its payments ([Payment]). It imports nothing of Caddy
// and nothing of the product.
//
// # Adapters
//
// An adapter is a package with a [Driver]. The driver describes the provider: the options of its block in the configuration, the proof of its
// deliveries, and its instructions for people. [Driver.New] makes the [Provider]. [Lister] and [Checkout] are optional. A Caddy module of the
// namespace svc.payments makes an adapter available; it needs nothing but the driver.
//
// The packages payments/sepay, payments/payos and payments/stripe are the built-in adapters. Package payments/paymentstest checks any adapter
// against this contract.
//
// # Rules for adapters
//
//   - An adapter only proves and reads. The product alone credits a wallet, once for each [Payment.ID], whatever is delivered how often.
//   - Without a secret nothing is proved. [Description.Check] refuses a description without a required secret of [MinSecret] bytes.
//   - The raw bytes are proved, never a parsed or re-encoded form of them, and nothing is read before.
//   - Amounts are whole numbers of a currency's smallest unit, read from the digits as they were written, never through a float.
//   - A delivery that is proved and can't be read is a payment with a [Payment.Problem], which is shown to a person. Fields with unknown names are
//     ignored.
//   - The id of a payment is the provider's, and the same in all deliveries about the payment, in [Lister.List] too.
//   - A transfer out is no payment, and neither is an order before it is paid.
//   - No error contains a secret or a text of the delivery.
package payments

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
)

// MinSecret is the least length of a secret that proves deliveries, in bytes.
const MinSecret = 16

// ErrProof is returned for a delivery that isn't proved to be the provider's, whatever the reason.
var ErrProof = errors.New("the delivery is not proved to come from the provider")

// Driver makes a provider of payments available. It has no state; its methods may be called at any time. A Caddy module of the namespace
// svc.payments is a driver. It may be an [option.Checker].
type Driver interface {
	// Describe returns the description of the provider. It depends on no configuration and is always the same.
	Describe() *Description
	// New returns the provider for the options of one configuration. It makes no request.
	New(config *Config) (Provider, error)
}

// Description describes a provider of payments.
type Description struct {
	// Name is the name in the configuration (`payments NAME`) and, with dashes for underscores, in the address of its deliveries,
	// /payments/NAME.
	Name string
	// Label names the provider for people, such as "Stripe".
	Label string
	// ProofHelp says in a few sentences how a delivery is proved.
	ProofHelp string
	// Answer is the body of the response to a delivery that was stored, as JSON. Empty means a response without a body.
	Answer string
	// Options are the options of the provider's block.
	Options []option.Option
	// Secrets are the names of the options that prove deliveries. Every configuration has one of them or more, of [MinSecret] bytes or more.
	Secrets []string
	// Setup are the steps for the operator. %u in them is the address of the deliveries.
	Setup []string
}

// Config contains everything that a provider is made with.
type Config struct {
	// Options are the values of the configured options, with references resolved. Options that were not given are absent.
	Options map[string]string
	// Client makes calls to the provider. Every call has a deadline.
	Client *http.Client
	// Now is the clock of signatures.
	Now func() time.Time
}

// Delivery is a request of a provider.
type Delivery struct {
	Header http.Header
	Body   []byte
}

// Provider is an adapter with its configuration. Its methods are called concurrently.
type Provider interface {
	// Read proves a delivery and returns its payments, which may be none. It returns [ErrProof] if the delivery isn't proved. It doesn't keep
	// the body, and nothing that it returns refers to it.
	Read(delivery *Delivery) ([]Payment, error)
}

// Lister is a provider with a list of its payments, to find payments that were never delivered.
type Lister interface {
	// List calls found with the payments since a time, in any order, until found returns false. It has a bound of its own, and returns an error
	// if it couldn't list all.
	List(ctx context.Context, since time.Time, found func(Payment) (more bool)) error
}

// Checkout is a provider with a page of its own on which a person pays.
type Checkout interface {
	// Begin makes the page for an order, and returns its https address. Repeated with the same order it makes no second page that could be paid.
	Begin(ctx context.Context, order *Order) (address string, err error)
}

// Order is a payment that a person is going to make at a [Checkout].
type Order struct {
	// Code is the [Payment.Code] of the payment.
	Code string
	// Amount is in the smallest unit of Currency.
	Amount   int64
	Currency string
	// Title is shown to the person.
	Title string
	// ReturnURL is where the person comes back to, whether or not they have paid.
	ReturnURL string
}

// Kind is the kind of a payment.
type Kind string

// The kinds of payments.
const (
	// Paid is money that has arrived.
	Paid Kind = "paid"
	// Refunded is money that was given back. The amount is the sum of all refunds of the payment so far, so that deliveries may come in any order
	// and repeatedly.
	Refunded Kind = "refunded"
	// Disputed is money that the provider has taken back, because the payer disputes the payment.
	Disputed Kind = "disputed"
	// DisputeWon is money of a dispute that the provider has given back.
	DisputeWon Kind = "dispute_won"
)

// Payment is money that came or went.
type Payment struct {
	// ID is the provider's, of up to [MaxID] visible ASCII characters. Refunds and disputes have the id of the payment that they are about.
	ID   string
	Kind Kind
	// Dispute is the provider's id of a dispute; a payment may have several.
	Dispute string
	// Amount is in the smallest unit of Currency, an ISO 4217 code, and above 0.
	Amount   int64
	Currency string
	// Code is the code that the payer was given, if the provider keeps it apart. Text is a text in which it may be found, cut and changed by
	// banks ([FindCodes]); up to [MaxText] bytes.
	Code, Text string
	// Reference is the bank's own number of a transfer, and Account the account that has received it. Two providers that watch one account
	// deliver the same.
	Reference, Account string
	At                 time.Time
	// Test means that no money has moved.
	Test bool
	// Problem is the reason why a proved payment can't be read, such as "the amount is no whole number". Only the ID is sure in this case.
	Problem string
}

// The longest strings of a payment, in bytes.
const (
	MaxID   = 128
	MaxText = 512
)
