package billing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ErrInsufficientCredits is returned if the free balance (balance less held) is smaller than an amount. A wallet that was never
// topped up has a free balance of 0. Clients get 402 insufficient_credits.
var ErrInsufficientCredits = errors.New("the wallet's free balance is too small")

// ErrCallEnded is returned for a hold of a settled or voided call. Its id can't be used again.
var ErrCallEnded = errors.New("the call has already ended")

// ErrInvalid is wrapped by every refusal of an operation that can't be right in any state of the ledger, such as a hold of
// nothing. It is a fault of the calling code or of the operator's command line. The text says which.
var ErrInvalid = errors.New("invalid billing operation")

// WalletID names a wallet. An organization has one per environment, so that a test key never spends live credits.
type WalletID struct {
	OrgID string
	Env   store.Env
}

func (id WalletID) validate() error {
	if id.OrgID == "" || !id.Env.Valid() {
		return fmt.Errorf("%w: a wallet needs an organization and an environment", ErrInvalid)
	}
	return nil
}

// compare returns the order in which the database reads and locks wallets.
func (id WalletID) compare(other WalletID) int {
	return cmp.Or(cmp.Compare(id.OrgID, other.OrgID), cmp.Compare(id.Env, other.Env))
}

// Hold reserves an upper bound of a call's cost before the provider is called (docs/contract.md#holds-and-charges).
type Hold struct {
	// CallID is chosen by the caller. It permanently names the hold, the call and its charge.
	CallID string
	Wallet WalletID
	// AmountMicros is above 0. It may be 0 with a Claim, for a call that can't cost anything: only the key is claimed.
	AmountMicros int64
	// ExpiresIn counts on the database's clock from the moment when the hold is written.
	ExpiresIn time.Duration
	// Rough means that the caller retries a refused hold with a smaller amount. A rough hold recalls no tranches of the wallet.
	Rough bool
	// Claim is the call's Idempotency-Key, or nil. Its lease ends with the hold.
	Claim *Claim
	// Budgets is the call's part in the budgets of its organization. Nil means that the organization has none.
	Budgets *Budgeted
	// With is an operation for the same transaction. It is applied before the hold and may refuse it. It may be nil.
	With Companion
	// Room reports whether the caller has memory for a kept answer of this size. It is called before the answer is read. If it returns false, the
	// error is [ErrNoRoom]. Nil accepts any size.
	Room func(bytes int64) bool
}

// Companion is an operation of another kind that shares a transaction with a hold or a settlement: both are durable, or neither. It is applied
// first, because its rows are locked before wallets.
type Companion interface {
	store.Op
	// Kind applies the operation. All companions of a database have the same Kind.
	Kind() store.Kind
	// Ruling returns the operation's decision. replaced is an earlier call that the held call replaces; its reservation is released. Empty means
	// none. lost reports whether a settled call has lost its place to another, so that it is charged nothing. refused is the reason why nothing is
	// held or settled.
	Ruling() (replaced string, lost bool, refused error)
}

// ruling returns the ruling of a companion, which may be nil.
func ruling(with Companion) (replaced string, lost bool, refused error) {
	if with == nil {
		return "", false, nil
	}
	return with.Ruling()
}

func (h Hold) validate() error {
	switch {
	case h.CallID == "":
		return fmt.Errorf("%w: a hold needs a call id", ErrInvalid)
	case h.AmountMicros < 0 || (h.AmountMicros == 0 && h.Claim == nil):
		return fmt.Errorf("%w: a hold needs an amount above 0", ErrInvalid)
	case h.ExpiresIn <= 0:
		return fmt.Errorf("%w: a hold needs a time to live", ErrInvalid)
	}
	return h.Wallet.validate()
}

// UsageSource is the source of a call's token counts.
type UsageSource string

// The sources of a call's usage.
const (
	UsageProvider  UsageSource = "provider"  // reported by the provider
	UsageEstimated UsageSource = "estimated" // counted by us: the provider reported no or impossible numbers
	UsageNone      UsageSource = "none"      // the call ended before anything could be counted
)

// Call is the record of a model call. Every call that was settled or voided has one.
type Call struct {
	ID, KeyID, Model, Provider, RequestID string
	// UpstreamModel is the provider's name of the requested model, and AnsweringModel its name of the model that answered. Both are stored with
	// the price of the call. AnsweringModel may be empty.
	UpstreamModel, AnsweringModel string

	Wallet       WalletID
	BYOK, Stream bool
	Usage        Usage
	UsageSource  UsageSource
	// Outcome is the gateway's name of how the call ended.
	Outcome    string
	DurationMS int64
}

// Settlement ends a call. The cost of the call is [Price.Cost] of its usage.
type Settlement struct {
	Call Call
	// Price is the price at the call's beginning, so that a price change never reaches a running call. The zero value means that the call can't
	// cost anything (BYOK, a model with a price of 0).
	Price Price
	// VendorPrice is the operator's own price at the endpoint that answered. The zero value means that it is unknown. The margin of the call is
	// its charge minus the cost of its usage by this price.
	VendorPrice Price
	// Attempts are the failed tries at other endpoints, in order. At most [MaxAttempts] are stored.
	Attempts []Attempt
	// ReservedMicros is the amount of the call's hold, and the limit of its charge. 0 means that nothing was held.
	ReservedMicros int64
	// Budgets is [Hold.Budgets] of the call's hold.
	Budgets *Budgeted
	// Void means that nothing is charged, whatever the call costs.
	Void bool
	// Claim is the claim of the call's hold, or nil. The transaction of the settlement finishes or releases its key, unless another call has it by
	// now.
	Claim *Claim
	// With is an operation for the same transaction. It is applied before the settlement and decides whether the call is charged.
	// It may be nil.
	With Companion
	// Keep finishes the key, so that this call is replayed for [KeyLife]. Otherwise the key is released and can run again.
	Keep bool
	// Response is the sealed transcript that Keep stores. Nil means that it is too large.
	Response []byte
}

// MaxAttempts limits the stored attempts of a call.
const MaxAttempts = 16

// Attempt is a failed try of a call at one endpoint. It costs the organization nothing. Its cost is the operator's.
type Attempt struct {
	Provider, UpstreamModel string
	// Failure is the reason: a word of the provider package.
	Failure string
	// Usage is the usage that the endpoint reported. The zero value means that it is unknown.
	Usage Usage
	// VendorPrice is the operator's own price at the endpoint. The zero value means that it is unknown.
	VendorPrice Price
}

// vendorCost returns the operator's cost of a usage, or nil if it is unknown.
func vendorCost(price *Price, usage Usage) any {
	cost, err := price.Cost(usage)
	if err != nil || usage == (Usage{}) || *price == (Price{}) {
		return nil
	}
	return cost
}

func (s *Settlement) validate() error {
	switch {
	case s.Call.ID == "":
		return fmt.Errorf("%w: a settlement needs a call id", ErrInvalid)
	case s.ReservedMicros < 0:
		return fmt.Errorf("%w: a reservation can't be negative", ErrInvalid)
	case s.Call.BYOK && (s.ReservedMicros > 0 || s.Price != Price{}):
		return fmt.Errorf("%w: a call with the organization's own key costs nothing", ErrInvalid)
	}
	if _, err := s.Price.Cost(s.Call.Usage); err != nil {
		return fmt.Errorf("%w: the cost of the call: %w", ErrInvalid, err)
	}
	if !slices.Contains([]UsageSource{UsageProvider, UsageEstimated, UsageNone}, s.Call.UsageSource) {
		return fmt.Errorf("%w: a settlement needs the source of its usage", ErrInvalid)
	}
	return s.Call.Wallet.validate()
}

// Settled is the result of a settlement. The figures of a call never change: a second settlement of the same call returns the figures of the
// first.
type Settled struct {
	// ChargedMicros is exactly the amount that left the wallet, the charged_micros of the answer: the cost of the call, but no more than its
	// reservation and, after the reservation was lost, no more than the free balance.
	ChargedMicros int64
	// ShortfallMicros is the rest of the cost, which is the operator's loss and never a debt.
	ShortfallMicros int64
}
