package billing

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPriceCost(t *testing.T) {
	t.Parallel()
	mini := Price{Input: 150_000, Output: 600_000, CachedInput: -1}
	for name, c := range map[string]struct {
		price Price
		usage Usage
		want  int64
		err   error
	}{
		"no tokens cost nothing":             {mini, Usage{}, 0, nil},
		"exact":                              {mini, Usage{PromptTokens: 1_000_000, CompletionTokens: 1_000_000}, 750_000, nil},
		"one token rounds up":                {mini, Usage{PromptTokens: 1}, 1, nil},
		"one rounding for the whole sum":     {Price{Input: 1, Output: 1}, Usage{PromptTokens: 1, CompletionTokens: 1}, 1, nil},
		"just above a micro":                 {Price{Input: 1}, Usage{PromptTokens: 1_000_001}, 2, nil},
		"cached tokens at their own price":   {Price{Input: 1_000_000, CachedInput: 100_000}, Usage{PromptTokens: 100, CachedPromptTokens: 40}, 64, nil},
		"cached tokens for free":             {Price{Input: 1_000_000}, Usage{PromptTokens: 100, CachedPromptTokens: 40}, 60, nil},
		"cached tokens at the input price":   {Price{Input: 1_000_000, CachedInput: -1}, Usage{PromptTokens: 100, CachedPromptTokens: 40}, 100, nil},
		"more cached than prompt is clamped": {Price{Input: 1_000_000, CachedInput: 500_000}, Usage{PromptTokens: 10, CachedPromptTokens: 99}, 5, nil},
		"free model":                         {Price{}, Usage{PromptTokens: math.MaxInt64, CompletionTokens: math.MaxInt64}, 0, nil},
		"dear currency needs 128 bits":       {Price{Input: 1_950_000_000_000}, Usage{PromptTokens: 4_730_000}, 9_223_500_000_000, nil},
		"largest result":                     {Price{Input: 1_000_000}, Usage{PromptTokens: math.MaxInt64}, math.MaxInt64, nil},
		"one above the largest":              {Price{Input: 1_000_000, Output: 1}, Usage{PromptTokens: math.MaxInt64, CompletionTokens: 1}, 0, ErrOverflow},
		"everything at its largest":          {Price{Input: math.MaxInt64, Output: math.MaxInt64, CachedInput: math.MaxInt64}, Usage{PromptTokens: math.MaxInt64, CompletionTokens: math.MaxInt64, CachedPromptTokens: math.MaxInt64}, 0, ErrOverflow},
		"negative prompt":                    {mini, Usage{PromptTokens: -1}, 0, ErrInvalidUsage},
		"negative completion":                {mini, Usage{CompletionTokens: -1}, 0, ErrInvalidUsage},
		"negative cached":                    {mini, Usage{CachedPromptTokens: -1}, 0, ErrInvalidUsage},
		"negative price":                     {Price{Output: -1}, Usage{}, 0, ErrInvalidUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.price.Cost(c.usage)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.want, got)
		})
	}
}

// tieredRates costs twice as much, part for part, above 100 prompt tokens, and three times above 1,000.
var tieredRates = Price{
	Input: 1_000_000, Output: 5_000_000, CachedInput: 100_000, CacheWrite: 1_250_000, LongCacheWrite: 2_000_000,
	Tiers: NewTiers([MaxTiers]Tier{
		{100, Rates{Input: 2_000_000, Output: 10_000_000, CachedInput: 200_000, CacheWrite: 2_500_000, LongCacheWrite: 4_000_000}},
		{1_000, Rates{Input: 3_000_000, Output: 15_000_000, CachedInput: -1, CacheWrite: -1, LongCacheWrite: -1}},
	}),
}

// TestPriceOfPartsAndTiers: each part of a prompt has its price, and a long prompt reprices the whole call.
func TestPriceOfPartsAndTiers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		usage Usage
		want  int64
	}{
		"every part": {
			Usage{PromptTokens: 100, CompletionTokens: 10, CachedPromptTokens: 40, CacheWriteTokens: 20, LongCacheWriteTokens: 10, ReasoningTokens: 9},
			30 + 4 + 25 + 20 + 50,
		},
		"the same, one token above the tier": {
			Usage{PromptTokens: 101, CompletionTokens: 10, CachedPromptTokens: 40, CacheWriteTokens: 20, LongCacheWriteTokens: 10},
			2 * (31 + 4 + 25 + 20 + 50),
		},
		"cached tokens reach the tier":      {Usage{PromptTokens: 200, CachedPromptTokens: 200}, 40},
		"the last tier, parts like input":   {Usage{PromptTokens: 2_000, CachedPromptTokens: 500, CacheWriteTokens: 500}, 6_000},
		"parts above the whole are cut":     {Usage{PromptTokens: 100, CachedPromptTokens: 90, CacheWriteTokens: 90, LongCacheWriteTokens: 90}, 9 + 13},
		"a cached part above the whole":     {Usage{PromptTokens: 100, CachedPromptTokens: 101, LongCacheWriteTokens: 1}, 10},
		"hidden tokens have no price":       {Usage{CompletionTokens: 10, ReasoningTokens: 10}, 50},
		"the tier doesn't count completion": {Usage{PromptTokens: 100, CompletionTokens: 1_000_000}, 100 + 5_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tieredRates.Cost(c.usage)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			bound, err := tieredRates.Bound(c.usage.PromptTokens, c.usage.CompletionTokens)
			require.NoError(t, err)
			require.GreaterOrEqual(t, bound, got)
		})
	}
	for tokens, want := range map[int64]int64{0: 0, 1: 2, 100: 200, 101: 404, 1_000: 4_000, 1_001: 4_004} { // the second tier has dearer writes than the third
		bound, err := tieredRates.Bound(tokens, 0)
		require.NoError(t, err)
		require.Equal(t, want, bound, tokens)
	}
	_, err := tieredRates.Cost(Usage{PromptTokens: 1, LongCacheWriteTokens: -1})
	require.ErrorIs(t, err, ErrInvalidUsage)
	_, err = tieredRates.Bound(-1, 0)
	require.ErrorIs(t, err, ErrInvalidUsage)
}

// TestPriceValidate: tiers rise strictly, and no price is negative.
func TestPriceValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, tieredRates.Validate())
	for name, wrong := range map[string]func(*Price){
		"negative":            func(p *Price) { p.Output = -1 },
		"negative in a tier":  tiered(func(tiers *[MaxTiers]Tier) { tiers[1].Input = -1 }),
		"equal tiers":         tiered(func(tiers *[MaxTiers]Tier) { tiers[1].Above = 100 }),
		"falling tiers":       tiered(func(tiers *[MaxTiers]Tier) { tiers[1].Above = 99 }),
		"a tier above none":   tiered(func(tiers *[MaxTiers]Tier) { tiers[0].Above = 0 }),
		"a tier behind a gap": tiered(func(tiers *[MaxTiers]Tier) { tiers[0], tiers[1].Above = Tier{}, -5 }),
	} {
		price := tieredRates
		wrong(&price)
		require.Error(t, price.Validate(), name)
	}
}

// tiered returns a change of a price that changes its tiers.
func tiered(change func(*[MaxTiers]Tier)) func(*Price) {
	return func(p *Price) {
		tiers := p.Tiers.All()
		change(&tiers)
		p.Tiers = NewTiers(tiers)
	}
}

// exactCost is the price rule in arbitrary precision.
func exactCost(p Price, u Usage) *big.Int {
	rates := Rates{p.Input, p.Output, p.CachedInput, p.CacheWrite, p.LongCacheWrite}
	for _, tier := range p.Tiers.All() {
		if tier.Above > 0 && u.PromptTokens > tier.Above {
			rates = tier.Rates
		}
	}
	sum, rest := new(big.Int), u.PromptTokens
	add := func(tokens, price int64) {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(tokens), big.NewInt(price)))
	}
	for _, part := range [][2]int64{
		{u.CachedPromptTokens, rates.CachedInput}, {u.CacheWriteTokens, rates.CacheWrite}, {u.LongCacheWriteTokens, rates.LongCacheWrite},
	} {
		tokens, price := min(part[0], rest), part[1]
		if price < 0 {
			price = rates.Input
		}
		rest -= tokens
		add(tokens, price)
	}
	add(rest, rates.Input)
	add(u.CompletionTokens, rates.Output)
	sum.Add(sum, big.NewInt(tokensPerPrice-1))
	return sum.Div(sum, big.NewInt(tokensPerPrice))
}

// FuzzPriceCost draws a price with a tier that costs factor times as much above a number of tokens.
func FuzzPriceCost(f *testing.F) {
	const most = math.MaxInt64
	f.Add(int64(150_000), int64(600_000), int64(-1), int64(-1), int64(200), int64(2), int64(1000), int64(100), int64(10), int64(5), int64(1))
	f.Add(int64(most), int64(most), int64(most), int64(most), int64(1), int64(1), int64(most), int64(most), int64(0), int64(most), int64(1))
	f.Add(int64(1_950_000_000_000), int64(0), int64(0), int64(0), int64(0), int64(0), int64(4_730_000), int64(0), int64(0), int64(0), int64(7))
	f.Add(int64(1_000_000), int64(1), int64(0), int64(7), int64(1), int64(0), int64(most), int64(1), int64(0), int64(0), int64(0))
	f.Add(int64(-1), int64(0), int64(0), int64(0), int64(0), int64(0), int64(-5), int64(0), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, in, out, cachedIn, write, above, factor, prompt, completion, cached, written, more int64) {
		price := Price{Input: in, Output: out, CachedInput: cachedIn, CacheWrite: write, LongCacheWrite: write / 2}
		factor %= 100
		times := Rates{price.Input / 100 * factor, price.Output / 100 * factor, price.CachedInput / 100 * factor, price.CacheWrite / 100 * factor, -1}
		price.Tiers = NewTiers([MaxTiers]Tier{{max(0, above), times}})
		usage := Usage{PromptTokens: prompt, CompletionTokens: completion, CachedPromptTokens: cached, CacheWriteTokens: written, LongCacheWriteTokens: written / 3}
		cost, err := price.Cost(usage)
		applies := price.Rates(prompt)
		if applies.Input < 0 || applies.Output < 0 || min(prompt, completion, cached, written) < 0 {
			require.ErrorIs(t, err, ErrInvalidUsage)
			return
		}
		want := exactCost(price, usage)
		if !want.IsInt64() {
			require.ErrorIs(t, err, ErrOverflow)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want.Int64(), cost)

		requireBounded(t, price, usage, cost, more)
		requireAdditiveBound(t, price, usage, cost)
	})
}

// requireBounded: a bound of the tokens is a bound of the money, whatever the parts of the prompt are.
func requireBounded(t *testing.T, price Price, usage Usage, cost, more int64) {
	t.Helper()
	last := cost
	for _, most := range [][2]int64{
		{usage.PromptTokens, usage.CompletionTokens},
		{usage.PromptTokens + more, usage.CompletionTokens},
		{usage.PromptTokens + more, usage.CompletionTokens + more},
	} {
		if more < 0 || most[0] < 0 || most[1] < 0 {
			continue
		}
		bound, err := price.Bound(most[0], most[1])
		if err != nil {
			require.True(t, errors.Is(err, ErrOverflow) || min(price.Input, price.Output, price.Tiers.All()[0].Input, price.Tiers.All()[0].Output) < 0)
			return
		}
		require.GreaterOrEqual(t, bound, last)
		last = bound
	}
}

// requireAdditiveBound: paying prompt and completion apart costs as much as together, or one micro more.
func requireAdditiveBound(t *testing.T, price Price, usage Usage, cost int64) {
	t.Helper()
	ofPrompt := usage
	ofPrompt.CompletionTokens = 0
	prompt, err := price.Cost(ofPrompt)
	require.NoError(t, err)
	flat := Price{Output: price.Rates(usage.PromptTokens).Output}
	completion, err := flat.Cost(Usage{CompletionTokens: usage.CompletionTokens})
	require.NoError(t, err)
	apart := new(big.Int).Add(big.NewInt(prompt), big.NewInt(completion))
	excess := apart.Sub(apart, big.NewInt(cost)).Int64()
	require.GreaterOrEqual(t, excess, int64(0))
	require.LessOrEqual(t, excess, int64(1))
}

func TestAddMicros(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b, want int64
		err        error
	}{
		{1, 2, 3, nil},
		{-1, 1, 0, nil},
		{math.MaxInt64, 0, math.MaxInt64, nil},
		{math.MaxInt64, 1, 0, ErrOverflow},
		{math.MinInt64, -1, 0, ErrOverflow},
		{math.MinInt64, math.MaxInt64, -1, nil},
		{math.MinInt64, math.MinInt64, 0, ErrOverflow},
	} {
		got, err := addMicros(c.a, c.b)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.want, got)
	}
}

// A stored price of the operator that can't be read is an error for every call, not only for the first one.
func TestVendorPricesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	prices := vendorPrices{}
	for _, broken := range []string{"{", "{", "[]", "[]"} {
		_, err := prices.cost(true, broken, Usage{PromptTokens: 1})
		require.Error(t, err, broken)
	}
	cost, err := prices.cost(true, `[{"above":0,"input":2000000,"output":0}]`, Usage{PromptTokens: 3})
	require.NoError(t, err)
	require.EqualValues(t, 6, cost.Int64)
}

// TestLines: the lines of a cost are together the cost, whatever is rounded, and each is within a micro of its exact amount.
func TestLines(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(37, 3)) //nolint:gosec // a test's
	for range 5000 {
		price := Price{
			Input: random.Int64N(3_000_000), Output: random.Int64N(9_000_000), CachedInput: random.Int64N(2_000_000) - 500_000,
			CacheWrite: random.Int64N(2_000_000), LongCacheWrite: -1,
			Tiers: NewTiers([MaxTiers]Tier{{Above: 500, Rates: Rates{Input: 1, Output: 7, CachedInput: -1, CacheWrite: -1}}}),
		}
		usage := Usage{
			PromptTokens: random.Int64N(1000), CompletionTokens: random.Int64N(50), CachedPromptTokens: random.Int64N(400),
			CacheWriteTokens: random.Int64N(9), LongCacheWriteTokens: random.Int64N(9),
		}
		cost, err := price.Cost(usage)
		require.NoError(t, err)
		lines, err := price.Lines(usage)
		require.NoError(t, err)
		var sum, tokens int64
		for _, line := range lines {
			require.Positive(t, line.Tokens)
			off := new(big.Int).Mul(big.NewInt(line.Tokens), big.NewInt(line.PriceMicros))
			off.Sub(off, new(big.Int).Mul(big.NewInt(line.Micros), big.NewInt(tokensPerPrice)))
			require.Negative(t, off.CmpAbs(big.NewInt(tokensPerPrice)), "%+v", line)
			sum, tokens = sum+line.Micros, tokens+line.Tokens
		}
		require.Equal(t, []int64{cost, usage.PromptTokens + usage.CompletionTokens}, []int64{sum, tokens})
	}
	_, err := new(Price).Lines(Usage{PromptTokens: -1})
	require.ErrorIs(t, err, ErrInvalidUsage)
	_, err = (&Price{Input: math.MaxInt64}).Lines(Usage{PromptTokens: math.MaxInt64})
	require.ErrorIs(t, err, ErrOverflow)
}
