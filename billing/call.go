package billing

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
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
	// ReservedMicros is the amount of the call's hold, and the limit of its charge. 0 means that nothing was held.
	ReservedMicros int64
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

func (s Settlement) validate() error {
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
	switch s.Call.UsageSource {
	case UsageProvider, UsageEstimated, UsageNone:
	default:
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

// ErrOverflow is returned if an amount of micros doesn't fit an int64. Amounts are never clipped or wrapped.
var ErrOverflow = errors.New("amount of micros is out of range")

// ErrInvalidUsage is returned by [Price.Cost] for a negative number of tokens or a negative price.
var ErrInvalidUsage = errors.New("negative token count or price")

// tokensPerPrice is the number of tokens that cost the price.
const tokensPerPrice = 1_000_000

// Usage counts the tokens of one model call, as the provider reported them or as they were estimated.
type Usage struct {
	PromptTokens     int64
	CompletionTokens int64
	// CachedPromptTokens is the part of PromptTokens that the provider read from its cache. A number above PromptTokens counts as
	// PromptTokens.
	CachedPromptTokens int64
}

// Price is the price of a model, in micros per million tokens, each 0 or more.
type Price struct {
	Input  int64
	Output int64
	// CachedInput is the price of cached prompt tokens. Below 0 means the same as Input.
	CachedInput int64
}

// Cost returns the price of usage in micros: the exact sum, computed in 128 bits and rounded up once, so that a call pays less than one micro too
// much, and 0 tokens cost 0. It doesn't decrease when PromptTokens or CompletionTokens grow: with CachedInput not above Input, the cost of upper
// bounds of both is an upper bound of the cost. It returns [ErrInvalidUsage] for a negative count and [ErrOverflow] when the sum exceeds an int64.
func (p Price) Cost(u Usage) (micros int64, err error) {
	if p.Input < 0 || p.Output < 0 || u.PromptTokens < 0 || u.CompletionTokens < 0 || u.CachedPromptTokens < 0 {
		return 0, ErrInvalidUsage
	}
	cached := min(u.CachedPromptTokens, u.PromptTokens)

	// Three products of two int64 stay below 3 * 2^126, so neither the sum nor the rounding can carry out of 128 bits.
	var sum wide
	sum.addProduct(u.PromptTokens-cached, p.Input)
	sum.addProduct(cached, p.cachedInput())
	sum.addProduct(u.CompletionTokens, p.Output)
	return sum.ceilDiv(tokensPerPrice)
}

func (p Price) cachedInput() int64 {
	if p.CachedInput < 0 {
		return p.Input
	}
	return p.CachedInput
}

// free reports whether every call costs nothing.
func (p Price) free() bool { return p.Input == 0 && p.Output == 0 && p.cachedInput() == 0 }

// pricedModel is a row of prices.
type pricedModel struct {
	model string
	Price
}

// id returns the row's id, a digest of its content, so that several processes write the same row without reading it first.
func (p pricedModel) id() int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d", p.model, p.Input, p.Output, p.cachedInput()))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1) //nolint:gosec // 63 bits
}

// wide is an unsigned number of 128 bits.
type wide struct{ hi, lo uint64 }

// addProduct adds a*b; both are 0 or more.
func (w *wide) addProduct(a, b int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b)) //nolint:gosec // Cost has refused negative numbers
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
}

// ceilDiv divides by d, rounding up.
func (w *wide) ceilDiv(d uint64) (int64, error) {
	lo, carry := bits.Add64(w.lo, d-1, 0)
	hi := w.hi + carry
	if hi >= d {
		return 0, ErrOverflow
	}
	quotient, _ := bits.Div64(hi, lo, d)
	if quotient > math.MaxInt64 {
		return 0, ErrOverflow
	}
	return int64(quotient), nil
}

// addMicros adds two amounts. It returns [ErrOverflow] if the sum doesn't fit.
func addMicros(a, b int64) (int64, error) {
	sum := a + b
	if (a >= 0) == (b >= 0) && (sum >= 0) != (a >= 0) {
		return 0, ErrOverflow
	}
	return sum, nil
}

// ErrMicrosSyntax is returned by [ParseMicros] for a text that [FormatMicros] would never write.
var ErrMicrosSyntax = errors.New("micros must be a plain decimal integer such as 1500000")

// FormatMicros formats an amount as a decimal string, as it is sent in JSON, so that no client rounds it.
func FormatMicros(micros int64) string {
	return strconv.FormatInt(micros, 10)
}

// ParseMicros parses exactly the format of [FormatMicros]: no sign except a leading minus, no leading zeros, spaces, fraction or exponent. It
// returns [ErrMicrosSyntax]. For a number beyond an int64 it returns [ErrOverflow].
func ParseMicros(text string) (int64, error) {
	number, ok := new(big.Int).SetString(text, 10)
	switch {
	case !ok || number.String() != text:
		return 0, ErrMicrosSyntax
	case !number.IsInt64():
		return 0, ErrOverflow
	}
	return number.Int64(), nil
}
