package billing

import (
	"errors"
	"math"
	"math/bits"
)

// ErrOverflow is returned where an amount of micros doesn't fit an int64. Nothing is ever cut or wrapped.
var ErrOverflow = errors.New("amount of micros is out of range")

// ErrInvalidUsage is returned by [Price.Cost] for a negative number of tokens or a negative price.
var ErrInvalidUsage = errors.New("negative token count or price")

// tokensPerPrice is the number of tokens a price is quoted for (design §4: micros per million tokens).
const tokensPerPrice = 1_000_000

// Usage counts the tokens of one model call, as the provider reported them or as they were estimated.
type Usage struct {
	PromptTokens     int64
	CompletionTokens int64
	// CachedPromptTokens is the part of PromptTokens that the provider served from its cache; a number above
	// PromptTokens counts as PromptTokens.
	CachedPromptTokens int64
}

// Price is what a model costs, in micros per million tokens (design §4), each 0 or more.
type Price struct {
	Input  int64
	Output int64
	// CachedInput is the price of cached prompt tokens; below 0 they cost as much as Input.
	CachedInput int64
}

// Cost is the price of usage in micros: the exact sum, rounded up once at the end, so that a call pays at most one
// micro too much and 0 tokens cost 0. It never decreases when PromptTokens or CompletionTokens grow: with
// CachedInput not above Input, the cost of upper bounds of both is an upper bound of the cost.
// It returns [ErrInvalidUsage] for a negative count and [ErrOverflow] when the sum exceeds an int64
// (reliability notes §1.2: the intermediate takes 128 bits).
func (p Price) Cost(u Usage) (micros int64, err error) {
	if p.Input < 0 || p.Output < 0 || u.PromptTokens < 0 || u.CompletionTokens < 0 || u.CachedPromptTokens < 0 {
		return 0, ErrInvalidUsage
	}
	cachedPrice := p.CachedInput
	if cachedPrice < 0 {
		cachedPrice = p.Input
	}
	cached := min(u.CachedPromptTokens, u.PromptTokens)

	// Three products of two int64 stay below 3 * 2^126, so neither the sum nor the rounding can carry out of 128 bits.
	var sum wide
	sum.addProduct(u.PromptTokens-cached, p.Input)
	sum.addProduct(cached, cachedPrice)
	sum.addProduct(u.CompletionTokens, p.Output)
	return sum.ceilDiv(tokensPerPrice)
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

// addMicros adds two amounts, or returns [ErrOverflow].
func addMicros(a, b int64) (int64, error) {
	sum := a + b
	if (a >= 0) == (b >= 0) && (sum >= 0) != (a >= 0) {
		return 0, ErrOverflow
	}
	return sum, nil
}
