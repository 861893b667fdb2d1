package gateway_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/hours"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/providers"
)

// partly prices each part of a prompt, and twice as much above 30 prompt tokens.
var partly = billing.Price{
	Input: priceIn, Output: 2 * priceIn, CachedInput: priceIn / 10, CacheWrite: priceIn * 5 / 4, LongCacheWrite: 2 * priceIn,
	Tiers: billing.NewTiers([billing.MaxTiers]billing.Tier{{Above: 30, Rates: billing.Rates{Input: 2 * priceIn, Output: 4 * priceIn, LongCacheWrite: 4 * priceIn}}}),
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
			tiers := m.Price.Tiers.All()
			tiers[0].Above = above
			m.Price.Tiers = billing.NewTiers(tiers)
		})
		_, err := f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 12, f.spent(t))
		calls, err := f.book.Calls(t.Context(), wallet(), billing.Stretch{})
		require.NoError(t, err)
		require.Equal(t, each*bytes+each*100, calls[0].ReservedMicros)
		require.Equal(t, above, calls[0].Price.Tiers.All()[0].Above)
	}
}

// TestPriceOfTheStart: a call has the price of its start, though the price changes while it runs, and its hold is of that price, too.
func TestPriceOfTheStart(t *testing.T) {
	t.Parallel()
	change := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	now := change.Add(-time.Second)
	s := &script{steps: []step{{event: providers.Event{Text: "x"}, do: func() { now = change }}, finish("stop"), usage(10, 1, 0)}}
	f := setup(t, s, func(m *gateway.Model, _ *gateway.ProviderEntry) {
		m.Prices = gateway.NewPrices([]gateway.PriceRow{
			{Price: billing.Price{Input: priceIn, Output: priceIn}}, {From: change, Price: billing.Price{Input: 2 * priceIn, Output: 2 * priceIn}},
		})
	})
	f.Now = func() time.Time { return now }
	for range 2 {
		_, err := f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
	}
	require.EqualValues(t, 11+22, f.spent(t))
	calls, err := f.book.Calls(t.Context(), wallet(), billing.Stretch{})
	require.NoError(t, err)
	const tokens = 16 + 8 + int64(len("hello there")) + 100
	require.Equal(t, []int64{2 * tokens, tokens}, []int64{calls[0].ReservedMicros, calls[1].ReservedMicros})
	require.Equal(t, []int64{2 * priceIn, priceIn}, []int64{calls[0].Price.Input, calls[1].Price.Input})
}

// TestPricesOverTime: rows begin at their moments, and hours of the week in their zone, whatever the order of the questions is.
func TestPricesOverTime(t *testing.T) {
	at := func(text string) time.Time {
		moment, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return moment
	}
	week := func(zone, line string) *hours.Hours {
		read, err := hours.Parse(zone, []string{line})
		require.NoError(t, err)
		return read
	}
	price := func(n int64) billing.Price { return billing.Price{Input: n} }
	prices := gateway.NewPrices([]gateway.PriceRow{
		{Price: price(1), Hours: []gateway.PriceHours{
			{Hours: week("Asia/Shanghai", "mon-fri 09:00-12:00"), Price: price(2)}, {Hours: week("Asia/Shanghai", "mon-fri 14:00-18:00"), Price: price(3)},
		}},
		{From: at("2026-12-01T00:00:00Z"), Price: price(4)},
		{From: at("2027-01-01T00:00:00+08:00"), Price: price(5), Hours: []gateway.PriceHours{{Hours: week("Europe/Berlin", "sun 02:00-04:00"), Price: price(6)}}},
	})
	moments := []struct {
		at   string
		want int64
	}{
		// 2026-11-23 is a Monday.
		{"2020-01-01T00:00:00Z", 1},
		{"2026-11-23T00:59:59.999Z", 1},
		{"2026-11-23T01:00:00Z", 2},
		{"2026-11-23T03:59:59.999Z", 2},
		{"2026-11-23T04:00:00Z", 1},
		{"2026-11-23T06:00:00Z", 3},
		{"2026-11-28T02:00:00Z", 1}, // a Saturday
		{"2026-11-30T23:59:59.999Z", 1},
		{"2026-12-01T00:00:00Z", 4},
		{"2026-12-01T02:00:00Z", 4}, // the hours have ended with their row
		{"2026-12-31T15:59:59.999Z", 4},
		{"2026-12-31T16:00:00Z", 5},
		{"2027-03-28T00:59:59Z", 5},
		{"2027-03-28T01:00:00Z", 6}, // 02:00 doesn't exist on this day
		{"2027-03-28T02:00:00Z", 5},
		{"2037-01-01T00:00:00Z", 5},
	}
	for range 3 {
		for _, m := range moments {
			require.Equal(t, m.want, prices.At(at(m.at)).Input, m.at)
		}
		rand.Shuffle(len(moments), func(i, j int) { moments[i], moments[j] = moments[j], moments[i] })
	}
	moment := at("2026-11-23T01:00:00Z")
	prices.At(moment)
	require.Zero(t, testing.AllocsPerRun(100, func() { prices.At(moment) }))
}

// TestCostOfTheOperator: the row of a call's price has the endpoint that answered, its answering model, and the operator's own price there; a failed
// attempt costs the operator what it reported, by its own price. Neither changes a charge.
func TestCostOfTheOperator(t *testing.T) {
	t.Parallel()
	costs := func(endpoints []gateway.Endpoint, _ []gateway.ProviderEntry) {
		for i := range endpoints {
			endpoints[i].Cost = billing.Price{Input: int64(i+2) * priceIn, Output: priceIn}
		}
	}
	failing := &script{steps: []step{
		{event: providers.Event{Model: "cut-1", Usage: &providers.Usage{PromptTokens: 10, CompletionTokens: 3}}}, {err: fault(providers.FailureOverloaded)},
	}}
	for name, c := range map[string]struct {
		answer []step
		want   string
	}{
		"a named model": {[]step{{event: providers.Event{Text: "x", Model: "large-2026"}}, finish("stop"), usage(10, 1, 0)}, "23 two up-two large-2026 3000000"},
		"no name":       {[]step{text("x"), finish("stop"), usage(10, 1, 0)}, "23 two up-two  3000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := served(t, storetest.Open(t, store.SQLite, billing.Ledger), []*script{failing, {steps: c.answer}}, costs)
			_, err := f.Call(t.Context(), request(), nil)
			require.NoError(t, err)
			require.EqualValues(t, 12, f.spent(t))
			var got string
			require.NoError(t, f.db.Reader().QueryRowContext(t.Context(), `SELECT (SELECT cost_micros FROM attempts WHERE call_id = c.id) || ' ' || p.provider || ' '
				|| upstream_model || ' ' || answering_model || ' ' || (vendor_price ->> '$[0].input') FROM calls c JOIN prices p ON p.id = c.price_id`).Scan(&got))
			require.Equal(t, c.want, got)
		})
	}
}
