package billing

import (
	"math"
	"math/big"
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
		"everything at its largest":          {Price{math.MaxInt64, math.MaxInt64, math.MaxInt64}, Usage{math.MaxInt64, math.MaxInt64, math.MaxInt64}, 0, ErrOverflow},
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

// exactCost is the price rule in arbitrary precision.
func exactCost(p Price, u Usage) *big.Int {
	cachedPrice := p.CachedInput
	if cachedPrice < 0 {
		cachedPrice = p.Input
	}
	cached := min(u.CachedPromptTokens, u.PromptTokens)
	sum := new(big.Int)
	for _, part := range [][2]int64{{u.PromptTokens - cached, p.Input}, {cached, cachedPrice}, {u.CompletionTokens, p.Output}} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
	}
	sum.Add(sum, big.NewInt(tokensPerPrice-1))
	return sum.Div(sum, big.NewInt(tokensPerPrice))
}

func FuzzPriceCost(f *testing.F) {
	f.Add(int64(150_000), int64(600_000), int64(-1), int64(1000), int64(100), int64(10), int64(1))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(0), int64(1))
	f.Add(int64(1_950_000_000_000), int64(0), int64(0), int64(4_730_000), int64(0), int64(0), int64(7))
	f.Add(int64(1_000_000), int64(1), int64(0), int64(math.MaxInt64), int64(1), int64(0), int64(0))
	f.Add(int64(-1), int64(0), int64(0), int64(-5), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, in, out, cachedIn, prompt, completion, cached, more int64) {
		price, usage := Price{in, out, cachedIn}, Usage{prompt, completion, cached}
		cost, err := price.Cost(usage)
		if in < 0 || out < 0 || prompt < 0 || completion < 0 || cached < 0 {
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

		requireMonotone(t, price, usage, cost, more)
		requireAdditiveBound(t, price, usage, cost)
	})
}

// requireMonotone: more tokens never cost less, so a bound in tokens is a bound in money.
func requireMonotone(t *testing.T, price Price, usage Usage, cost, more int64) {
	t.Helper()
	for _, grown := range []Usage{
		{usage.PromptTokens + more, usage.CompletionTokens, usage.CachedPromptTokens},
		{usage.PromptTokens, usage.CompletionTokens + more, usage.CachedPromptTokens},
	} {
		if more < 0 || grown.PromptTokens < 0 || grown.CompletionTokens < 0 {
			continue
		}
		if larger, err := price.Cost(grown); err == nil {
			require.GreaterOrEqual(t, larger, cost)
		} else {
			require.ErrorIs(t, err, ErrOverflow)
		}
	}
	if price.CachedInput <= price.Input {
		bound, err := price.Cost(Usage{usage.PromptTokens, usage.CompletionTokens, 0})
		if err == nil {
			require.GreaterOrEqual(t, bound, cost)
		}
	}
}

// requireAdditiveBound: paying prompt and completion apart costs as much as together, or one micro more.
func requireAdditiveBound(t *testing.T, price Price, usage Usage, cost int64) {
	t.Helper()
	prompt, err := price.Cost(Usage{PromptTokens: usage.PromptTokens, CachedPromptTokens: usage.CachedPromptTokens})
	require.NoError(t, err)
	completion, err := price.Cost(Usage{CompletionTokens: usage.CompletionTokens})
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
