package billing

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

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
