package billing

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unique"
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
	// CachedPromptTokens is the part of PromptTokens that the provider read from its cache. CacheWriteTokens is the part that it wrote to its
	// cache for its usual, short time, and LongCacheWriteTokens the part that it wrote for an hour or longer. If the parts together exceed
	// PromptTokens, they count in this order up to PromptTokens.
	CachedPromptTokens, CacheWriteTokens, LongCacheWriteTokens int64
	// ReasoningTokens is the hidden part of CompletionTokens. It has no price of its own.
	ReasoningTokens int64
}

// Bounded returns the usage with parts that don't exceed their whole, as [Price.Cost] counts them.
func (u Usage) Bounded() Usage {
	u.CachedPromptTokens = min(u.CachedPromptTokens, u.PromptTokens)
	u.CacheWriteTokens = min(u.CacheWriteTokens, u.PromptTokens-u.CachedPromptTokens)
	u.LongCacheWriteTokens = min(u.LongCacheWriteTokens, u.PromptTokens-u.CachedPromptTokens-u.CacheWriteTokens)
	u.ReasoningTokens = min(u.ReasoningTokens, u.CompletionTokens)
	return u
}

// Rates are the prices of the kinds of tokens, in micros per million tokens. Input and Output are 0 or more.
type Rates struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
	// CachedInput, CacheWrite and LongCacheWrite are the prices of the parts of a prompt ([Usage]). Below 0 means the same as Input.
	CachedInput    int64 `json:"cachedInput"`
	CacheWrite     int64 `json:"cacheWrite"`
	LongCacheWrite int64 `json:"longCacheWrite"`
}

// resolved returns the rates with the price of every part.
func (r Rates) resolved() Rates {
	for _, part := range []*int64{&r.CachedInput, &r.CacheWrite, &r.LongCacheWrite} {
		if *part < 0 {
			*part = r.Input
		}
	}
	return r
}

// MaxTiers limits the tiers of a price. No vendor has more.
const MaxTiers = 3

// Tier are the rates of a whole call with more than Above prompt tokens, cached ones included.
type Tier struct {
	Above int64 `json:"above"`
	Rates
}

// Price is the price of a model: the fields of [Rates], which apply to a call up to the first tier, and its tiers.
type Price struct {
	Input, Output                           int64
	CachedInput, CacheWrite, LongCacheWrite int64
	Tiers                                   Tiers
}

// Tiers are the tiers of a price. They rise strictly, and the last ones may be missing, with an Above of 0. Every call has a copy of its
// price, and few prices have tiers, so equal ones are kept once. The zero value has none.
type Tiers struct{ kept unique.Handle[[MaxTiers]Tier] }

// NewTiers returns these tiers.
func NewTiers(tiers [MaxTiers]Tier) Tiers {
	if tiers == [MaxTiers]Tier{} {
		return Tiers{}
	}
	return Tiers{unique.Make(tiers)}
}

// All returns the tiers.
func (t Tiers) All() [MaxTiers]Tier {
	if t == (Tiers{}) {
		return [MaxTiers]Tier{}
	}
	return t.kept.Value()
}

// Validate returns an error if a price of a million input or output tokens is negative, or if the tiers don't rise strictly.
func (p *Price) Validate() error {
	if p.Input < 0 || p.Output < 0 {
		return ErrInvalidUsage
	}
	var below int64
	for _, tier := range p.Tiers.All() {
		switch {
		case tier == Tier{}:
			continue
		case tier.Input < 0 || tier.Output < 0:
			return ErrInvalidUsage
		case tier.Above <= below:
			return errors.New("the tiers of the price don't rise")
		}
		below = tier.Above
	}
	return nil
}

func (p *Price) base() Rates {
	return Rates{p.Input, p.Output, p.CachedInput, p.CacheWrite, p.LongCacheWrite}
}

// Rates returns the rates that apply to a call with a prompt of this size, with the price of every part.
func (p *Price) Rates(promptTokens int64) Rates {
	tiers := p.Tiers.All()
	for _, tier := range slices.Backward(tiers[:]) {
		if tier.Above > 0 && promptTokens > tier.Above {
			return tier.resolved()
		}
	}
	return p.base().resolved()
}

// Cost returns the price of usage in micros: the exact sum, computed in 128 bits and rounded up once, so that a call pays less than one micro too
// much, and 0 tokens cost 0. It returns [ErrInvalidUsage] for a negative count or price and [ErrOverflow] when the sum exceeds an int64.
// [Price.Bound] returns an upper bound of the cost.
func (p *Price) Cost(u Usage) (micros int64, err error) {
	rates := p.Rates(u.PromptTokens)
	if min(rates.Input, rates.Output, u.PromptTokens, u.CompletionTokens, u.CachedPromptTokens, u.CacheWriteTokens, u.LongCacheWriteTokens,
		u.ReasoningTokens) < 0 {
		return 0, ErrInvalidUsage
	}

	// The parts of the prompt sum up to an int64, so their products stay below 2^126, and so does the last product: neither the sum nor the
	// rounding can carry out of 128 bits.
	var sum wide
	for _, line := range rates.lines(u.Bounded()) {
		sum.addProduct(line.Tokens, line.PriceMicros)
	}
	return sum.ceilDiv(tokensPerPrice)
}

// CostLine is the part of a cost that tokens of one kind have.
type CostLine struct {
	// Kind is input, cachedInput, cacheWrite, longCacheWrite or output.
	Kind   string
	Tokens int64
	// PriceMicros is the price of a million tokens.
	PriceMicros int64
	Micros      int64
}

// lines returns the kinds of tokens of a bounded usage with their prices.
func (r Rates) lines(u Usage) [5]CostLine {
	return [...]CostLine{
		{Kind: "input", Tokens: u.PromptTokens - u.CachedPromptTokens - u.CacheWriteTokens - u.LongCacheWriteTokens, PriceMicros: r.Input},
		{Kind: "cachedInput", Tokens: u.CachedPromptTokens, PriceMicros: r.CachedInput},
		{Kind: "cacheWrite", Tokens: u.CacheWriteTokens, PriceMicros: r.CacheWrite},
		{Kind: "longCacheWrite", Tokens: u.LongCacheWriteTokens, PriceMicros: r.LongCacheWrite},
		{Kind: "output", Tokens: u.CompletionTokens, PriceMicros: r.Output},
	}
}

// Lines returns the parts of a cost that have tokens. Together they are [Price.Cost] to the micro, because the running sum is rounded up after
// each of them. So each part is less than one micro from its exact amount. Lines returns the same errors as Cost.
func (p *Price) Lines(u Usage) (lines []CostLine, err error) {
	if _, err := p.Cost(u); err != nil {
		return nil, err
	}
	var sum wide
	var before int64
	rates := p.Rates(u.PromptTokens)
	for _, line := range rates.lines(u.Bounded()) {
		if line.Tokens == 0 {
			continue
		}
		sum.addProduct(line.Tokens, line.PriceMicros)
		through, err := sum.ceilDiv(tokensPerPrice)
		if err != nil {
			return nil, err
		}
		line.Micros, before = through-before, through
		lines = append(lines, line)
	}
	return lines, nil
}

// Bound returns the highest cost of any call with up to these numbers of tokens, whatever the parts of its prompt are and whichever tier it
// reaches. It never falls when a number grows. It returns the same errors as [Price.Cost].
func (p *Price) Bound(promptTokens, completionTokens int64) (micros int64, err error) {
	if promptTokens < 0 || completionTokens < 0 {
		return 0, ErrInvalidUsage
	}
	micros, err = p.base().bound(promptTokens, completionTokens)
	for _, tier := range p.Tiers.All() {
		if err == nil && tier.Above > 0 && promptTokens > tier.Above {
			var more int64
			more, err = tier.bound(promptTokens, completionTokens)
			micros = max(micros, more)
		}
	}
	return micros, err
}

func (r Rates) bound(promptTokens, completionTokens int64) (micros int64, err error) {
	if r.Input < 0 || r.Output < 0 {
		return 0, ErrInvalidUsage
	}
	var sum wide
	sum.addProduct(promptTokens, max(r.Input, r.CachedInput, r.CacheWrite, r.LongCacheWrite))
	sum.addProduct(completionTokens, r.Output)
	return sum.ceilDiv(tokensPerPrice)
}

// free reports whether every call costs nothing.
func (p *Price) free() bool {
	free := p.base().resolved() == Rates{}
	for _, tier := range p.Tiers.All() {
		free = free && (tier.Above <= 0 || tier.resolved() == Rates{})
	}
	return free
}

// steps returns the price as a list of tiers with the price of every part. The first one is above 0 tokens.
func (p *Price) steps() []Tier {
	steps := make([]Tier, 1, 1+MaxTiers)
	steps[0].Rates = p.base().resolved()
	for _, tier := range p.Tiers.All() {
		if tier.Above > 0 {
			steps = append(steps, Tier{tier.Above, tier.resolved()})
		}
	}
	return steps
}

// stepsText returns steps as they are stored: JSON, and empty for none.
func stepsText(steps []Tier) string {
	if len(steps) == 0 {
		return ""
	}
	text, _ := json.Marshal(steps) //nolint:errchkjson // numbers only
	return string(text)
}

// readTiers reads the stored text of a price's tiers.
func (p *Price) readTiers(text string) error {
	if text == "" {
		return nil
	}
	return p.readSteps(text, Tier{Rates: p.base()})
}

// readSteps reads the stored text of steps: a whole price, or the tiers above the given step.
func (p *Price) readSteps(text string, below ...Tier) error {
	var read []Tier
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		return fmt.Errorf("read the steps of a price: %w", err)
	}
	steps := append(below, read...)
	if len(steps) == 0 {
		return fmt.Errorf("read the steps of a price: %w", ErrInvalidUsage)
	}
	var tiers [MaxTiers]Tier
	copy(tiers[:], steps[1:])
	r := steps[0].Rates
	*p = Price{r.Input, r.Output, r.CachedInput, r.CacheWrite, r.LongCacheWrite, NewTiers(tiers)}
	return nil
}

// priceRow is a row of prices: a model as it is sold, the endpoint and the model that answered, and the prices of both.
type priceRow struct {
	endpoint

	model, answering string
	price            Price
	// vendor is the operator's own price at the endpoint. The zero value means that it is unknown.
	vendor Price
}

// endpoint is a provider with its name of a model.
type endpoint struct{ provider, upstream string }

// vendorText returns the operator's price as it is stored.
func (p *priceRow) vendorText() string {
	if p.vendor == (Price{}) {
		return ""
	}
	return stepsText(p.vendor.steps())
}

// id returns the row's id, a digest of its content, so that several processes write the same row without reading it first.
func (p *priceRow) id() int64 { return p.digest(p.vendorText()) }

// digest returns the id of a row with this text of the operator's price.
func (p *priceRow) digest(vendor string) int64 {
	columns := []string{p.model, p.provider, p.upstream, p.answering, stepsText(p.price.steps()), vendor}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", columns))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1) //nolint:gosec // 63 bits
}

// maxAnswering limits the names of answering models that a process stores for one endpoint, and maxAnsweringName their bytes, because an endpoint
// may name another model in every answer. Further names, and texts that are no names, are stored as empty.
const (
	maxAnswering     = 16
	maxAnsweringName = 128
)

// storedPrices are the rows of prices that a process has written. It is safe for concurrent use.
type storedPrices struct {
	mu  sync.RWMutex
	ids map[priceRow]int64
	// answering are the names of answering models by endpoint.
	answering map[endpoint]map[string]bool
}

// find returns the id of a stored row, or 0. It clears the row's answering model if the endpoint has named too many.
func (s *storedPrices) find(row *priceRow) int64 {
	id := s.stored(row)
	if id != 0 || row.answering == "" || s.admit(row) {
		return id
	}
	row.answering = ""
	return s.stored(row)
}

func (s *storedPrices) stored(row *priceRow) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ids[*row]
}

// admit reports whether the row's answering model is stored.
func (s *storedPrices) admit(row *priceRow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.answering[row.endpoint]
	if names[row.answering] {
		return true
	}
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(names) >= maxAnswering || len(row.answering) > maxAnsweringName || strings.ContainsFunc(row.answering, invisible) {
		return false
	}
	if names == nil {
		names = map[string]bool{}
		s.answering[row.endpoint] = names
	}
	names[row.answering] = true
	return true
}

func (s *storedPrices) add(row *priceRow, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[*row] = id
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
func FormatMicros(micros int64) string { return strconv.FormatInt(micros, 10) }

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
