package gateway_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// partly prices each part of a prompt, and twice as much above 30 prompt tokens.
var partly = billing.Price{
	Input: priceIn, Output: 2 * priceIn, CachedInput: priceIn / 10, CacheWrite: priceIn * 5 / 4, LongCacheWrite: 2 * priceIn,
	Tiers: [billing.MaxTiers]billing.Tier{{Above: 30, Rates: billing.Rates{Input: 2 * priceIn, Output: 4 * priceIn, LongCacheWrite: 4 * priceIn}}},
}

// TestReportedParts: each part of a prompt has its price. Parts that can't be, and parts that a vendor counts down, never make a call cheaper or
// dearer than its largest counts.
func TestReportedParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reports []providers.Usage
		want    billing.Usage
		charged int64
	}{
		"all parts": {
			[]providers.Usage{{PromptTokens: 30, CompletionTokens: 9, CachedPromptTokens: 10, CacheWriteTokens: 8, LongCacheWriteTokens: 4, ReasoningTokens: 7}},
			billing.Usage{PromptTokens: 30, CompletionTokens: 9, CachedPromptTokens: 10, CacheWriteTokens: 8, LongCacheWriteTokens: 4, ReasoningTokens: 7},
			8 + 1 + 10 + 8 + 18,
		},
		"a tier reprices the whole call": {
			[]providers.Usage{{PromptTokens: 31, CompletionTokens: 9}}, billing.Usage{PromptTokens: 31, CompletionTokens: 9}, 62 + 36,
		},
		"the largest of each part": {
			[]providers.Usage{{PromptTokens: 30, CachedPromptTokens: 10, CompletionTokens: 9, ReasoningTokens: 3}, {PromptTokens: 20, CacheWriteTokens: 20}},
			billing.Usage{PromptTokens: 30, CompletionTokens: 9, CachedPromptTokens: 10, CacheWriteTokens: 20, ReasoningTokens: 3},
			1 + 25 + 18,
		},
		"together above the whole only over several reports": {
			[]providers.Usage{{PromptTokens: 30, CachedPromptTokens: 20, CompletionTokens: 9}, {PromptTokens: 30, CacheWriteTokens: 30, CompletionTokens: 9}},
			billing.Usage{PromptTokens: 30, CompletionTokens: 9, CachedPromptTokens: 20, CacheWriteTokens: 10},
			2 + 13 + 18,
		},
		"parts above the whole": {
			[]providers.Usage{{PromptTokens: 30, CachedPromptTokens: 20, CacheWriteTokens: 6, LongCacheWriteTokens: 5, CompletionTokens: 9, ReasoningTokens: 10}},
			billing.Usage{PromptTokens: 30, CompletionTokens: 9},
			30 + 18,
		},
		"a negative part": {
			[]providers.Usage{{PromptTokens: 30, CachedPromptTokens: 20, CacheWriteTokens: -20, CompletionTokens: 9, ReasoningTokens: -1}},
			billing.Usage{PromptTokens: 30, CompletionTokens: 9},
			30 + 18,
		},
		"parts whose sum isn't a number": {
			[]providers.Usage{{PromptTokens: 30, CachedPromptTokens: math.MaxInt64, CacheWriteTokens: math.MaxInt64, CompletionTokens: 9}},
			billing.Usage{PromptTokens: 30, CompletionTokens: 9},
			30 + 18,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := []step{text("one two"), finish("stop")}
			for _, report := range c.reports {
				steps = append(steps, step{event: providers.Event{Usage: &report}})
			}
			f := setup(t, &script{steps: steps}, func(m *gateway.Model, _ *gateway.ProviderEntry) { m.Price = partly })
			result, err := f.Call(t.Context(), request(), nil)
			require.NoError(t, err)
			require.Equal(t, c.want, result.Usage)
			require.Equal(t, billing.UsageProvider, f.ended(t).UsageSource)
			require.Equal(t, c.charged, f.spent(t))
		})
	}
}

// TestHoldOfTheDearestPart: a hold is enough for a prompt of which every token is of the dearest part, in the dearest tier that the bound of the
// prompt reaches.
func TestHoldOfTheDearestPart(t *testing.T) {
	t.Parallel()
	const bytes = 16 + 8 + int64(len("hello there"))
	for above, each := range map[int64]int64{bytes: 2, bytes - 1: 4} {
		f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(10, 1, 0)}}, func(m *gateway.Model, _ *gateway.ProviderEntry) {
			m.Price = partly
			m.Price.Tiers[0].Above = above
		})
		_, err := f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 12, f.spent(t))
		calls, err := f.book.Calls(t.Context(), wallet(), billing.Stretch{})
		require.NoError(t, err)
		require.Equal(t, each*bytes+each*100, calls[0].ReservedMicros)
		require.Equal(t, above, calls[0].Price.Tiers[0].Above)
	}
}
