package billing

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ErrInsufficientCredits is returned when the free balance (balance less held) can't carry an amount; a wallet that was never
// topped up has none. Clients get 402 insufficient_credits.
var ErrInsufficientCredits = errors.New("the wallet's free balance is too small")

// ErrNoHold is returned for a settlement with Held whose hold was never made. Nothing is written then, so that a hold
// whose commit is still on its way can be settled later.
var ErrNoHold = errors.New("no hold was made for the call")

// ErrCallEnded is returned for a hold whose call was settled or voided, or expired: its id can't be used again.
var ErrCallEnded = errors.New("the call has already ended")

// ErrInvalid is wrapped by every refusal of an operation that can't be right in any state of the books, such as a
// hold of nothing. It is a fault of the calling code or of the operator's command line; the text says which.
var ErrInvalid = errors.New("invalid billing operation")

// WalletID names a wallet: an organization has one per environment, so that a test key never spends live credits.
type WalletID struct {
	OrgID string
	Env   store.Env
}

// account returns the name of the wallet's account in the ledger.
func (id WalletID) account() string { return "org:" + id.OrgID + ":" + string(id.Env) }

func (id WalletID) validate() error {
	if id.OrgID == "" || !id.Env.Valid() {
		return fmt.Errorf("%w: a wallet needs an organization and an environment", ErrInvalid)
	}
	return nil
}

// compare orders wallets as the database reads and locks them.
func (id WalletID) compare(other WalletID) int {
	return cmp.Or(cmp.Compare(id.OrgID, other.OrgID), cmp.Compare(id.Env, other.Env))
}

// Hold reserves an upper bound of a call's cost before the provider is called (docs/contract.md#holds-and-charges).
type Hold struct {
	// CallID is made by the caller before the hold; it names the hold, the call and its charge for ever.
	CallID string
	Wallet WalletID
	// AmountMicros is above 0; it may be 0 with a Claim, for a call that can't cost anything: then only the key is claimed.
	AmountMicros int64
	// ExpiresIn counts on the database's clock from the moment the hold is written.
	ExpiresIn time.Duration
	Model     string
	// Price is kept with the hold, so that a price change never reaches a running call.
	Price Price
	// Rough says that the caller tries again with a smaller amount when this one is too large: the tranches of the wallet are left
	// alone then.
	Rough bool
	// Claim is the call's Idempotency-Key, nil without one. Its lease ends with the hold.
	Claim *Claim
	// Room reports whether the caller has memory for a kept answer of so many bytes. It is called before the answer is read; if it
	// returns false, the error is [ErrNoRoom]. Nil has room for any.
	Room func(bytes int64) bool
}

func (h Hold) validate() error {
	switch {
	case h.CallID == "":
		return fmt.Errorf("%w: a hold needs a call id", ErrInvalid)
	case h.AmountMicros < 0 || (h.AmountMicros == 0 && h.Claim == nil):
		return fmt.Errorf("%w: a hold needs an amount above 0", ErrInvalid)
	case h.ExpiresIn <= 0:
		return fmt.Errorf("%w: a hold needs a time to live", ErrInvalid)
	case h.Price.Input < 0 || h.Price.Output < 0:
		return fmt.Errorf("%w: a price can't be negative", ErrInvalid)
	}
	return h.Wallet.validate()
}

// UsageSource says how a call's tokens were counted.
type UsageSource string

// The sources of a call's usage.
const (
	UsageProvider  UsageSource = "provider"  // reported by the provider
	UsageEstimated UsageSource = "estimated" // counted by us: the provider reported no or impossible numbers
	UsageNone      UsageSource = "none"      // the call ended before anything could be counted
)

// Call is the record of one model call: one row per call that was settled or voided.
type Call struct {
	ID, KeyID, Model, Provider, RequestID string

	Wallet       WalletID
	BYOK, Stream bool
	Usage        Usage
	UsageSource  UsageSource
	// Outcome is the gateway's name of how the call ended.
	Outcome string
	// StartedAt is in epoch milliseconds.
	StartedAt  int64
	DurationMS int64
}

// Settlement ends a call, with its cost and whether it has a hold.
type Settlement struct {
	Call Call
	// Held says that a hold with the call's id was made. Without one (BYOK, a model whose price is 0) only the
	// call's row is written.
	Held bool
	// ChargeMicros is the cost of the call, 0 or more; above 0 only with Held.
	ChargeMicros int64
	// Void releases the hold and charges nothing, whatever ChargeMicros says.
	Void bool
	// Claim is the one the call was held with, nil without one. In the transaction of the settlement its key is finished
	// or released, unless another call has it by now.
	Claim *Claim
	// Keep finishes the key: for [KeyLife] this call is replayed. Otherwise, or when the hold has expired so that nothing
	// could be charged, the key is released and can run again.
	Keep bool
	// Response is the sealed transcript that Keep stores; nil for one that is too large.
	Response []byte
}

func (s Settlement) validate() error {
	switch {
	case s.Call.ID == "":
		return fmt.Errorf("%w: a settlement needs a call id", ErrInvalid)
	case s.ChargeMicros < 0:
		return fmt.Errorf("%w: a charge can't be negative", ErrInvalid)
	case s.ChargeMicros > 0 && !s.Held && !s.Void:
		return fmt.Errorf("%w: a charge needs a hold", ErrInvalid)
	case s.Call.BYOK && s.Held:
		return fmt.Errorf("%w: a call with the organization's own key holds nothing", ErrInvalid)
	case s.Call.Usage.PromptTokens < 0 || s.Call.Usage.CompletionTokens < 0 || s.Call.Usage.CachedPromptTokens < 0:
		return fmt.Errorf("%w: a number of tokens can't be negative", ErrInvalid)
	}
	switch s.Call.UsageSource {
	case UsageProvider, UsageEstimated, UsageNone:
	default:
		return fmt.Errorf("%w: a settlement needs the source of its usage", ErrInvalid)
	}
	return s.Call.Wallet.validate()
}

// charge returns the cost that is to be charged.
func (s Settlement) charge() int64 {
	if s.Void {
		return 0
	}
	return s.ChargeMicros
}

// Settled is the result of a settlement. The figures of a call never change again: a second settlement of the same call
// returns those of the first.
type Settled struct {
	// ChargedMicros is exactly what left the wallet, the charged_micros of the answer.
	ChargedMicros int64
	// ExtraMicros is the part of ChargedMicros above the hold, taken from the free balance.
	ExtraMicros int64
	// ShortfallMicros is the part of the cost that neither hold nor free balance could carry: the operator's loss,
	// never debt.
	ShortfallMicros int64
	// Expired says that the hold was gone before the settlement came, so that nothing could be charged.
	Expired bool
}
