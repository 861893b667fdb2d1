package caddymodule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
)

// TestPricesOfAModel: a part without a price has that of input in its own row, tier and hours, and a model whose price never changes has no rows.
func TestPricesOfAModel(t *testing.T) {
	t.Parallel()
	rates := func(input int64) Rates { return Rates{Input: &input, Output: new(2 * input)} }
	m := &Model{
		Name: "echo/m", ContextWindow: new(int64(9)), MaxOutputTokens: new(int64(9)), PriceInput: new(int64(1)), PriceOutput: new(int64(2)),
		PriceCacheWrite: new(int64(0)), PriceTiers: []*PriceTier{{Above: "5", Rates: rates(10)}},
	}
	caddyfile.Fill(m.Rules())
	entry := m.entry()
	require.Nil(t, entry.Prices)
	require.Equal(t, billing.Price{
		Input: 1, Output: 2, CachedInput: 1, LongCacheWrite: 1,
		Tiers: billing.NewTiers([billing.MaxTiers]billing.Tier{
			{Above: 5, Rates: billing.Rates{Input: 10, Output: 20, CachedInput: 10, CacheWrite: 10, LongCacheWrite: 10}},
		}),
	}, entry.Price)

	m.PriceHours = []*PriceHours{{Hours: "mon 09:00-12:00 UTC", Rates: rates(100), Tiers: []*PriceTier{{Above: "7", Rates: rates(200)}}}}
	m.Prices = []*PriceRow{{From: "2026-12-01T00:00:00Z", Rates: rates(1000), Tiers: []*PriceTier{{Above: "8", Rates: rates(2000)}}}}
	caddyfile.Fill(m.Rules())
	entry = m.entry()
	for moment, want := range map[string]struct{ input, tier int64 }{
		"2026-11-30T08:59:59Z": {1, 10}, "2026-11-30T09:00:00Z": {100, 200}, "2026-12-01T00:00:00Z": {1000, 2000}, "2026-12-07T09:00:00Z": {1000, 2000},
	} {
		at, err := time.Parse(time.RFC3339, moment)
		require.NoError(t, err)
		price := entry.Prices.At(at)
		require.Equal(t, want.input, price.CachedInput, moment)
		require.Equal(t, want.tier, price.Tiers.All()[0].Input, moment)
	}
}

// TestComingPrices: a price is announced from 14 days before its beginning until then, with the prices before it.
func TestComingPrices(t *testing.T) {
	t.Parallel()
	app := goodApp(t)
	rates := func(input int64) Rates { return Rates{Input: &input, Output: new(2 * input)} }
	app.Models[0].Prices = []*PriceRow{
		{From: "2026-12-01T00:00:00Z", Rates: rates(7)}, {From: "2026-12-10T08:00:00+08:00", Rates: rates(9)}, {From: "2027-01-01T00:00:00Z", Rates: rates(11)},
	}
	app.fill()
	const path = "svc.model[echo/echo-1].price"
	second := path + "[2026-12-10T08:00:00+08:00]: from 2026-12-10 00:00 UTC on, input costs 9 instead of 7, and output 18 instead of 14"
	for now, want := range map[string][]string{
		"2026-11-16T23:59:59Z": nil,
		"2026-11-17T00:00:00Z": {path + "[2026-12-01T00:00:00Z]: from 2026-12-01 00:00 UTC on, input costs 7 instead of 0, and output 14 instead of 2"},
		"2026-12-01T00:00:00Z": {second},
		"2026-12-10T00:00:00Z": nil,
	} {
		at, err := time.Parse(time.RFC3339, now)
		require.NoError(t, err)
		require.Equal(t, want, app.ComingPrices(at), now)
	}
}
