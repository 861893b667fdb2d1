package caddymodule

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/hours"
)

// highestPrice is the highest price of a million tokens in micros.
const highestPrice int64 = 1_000_000_000_000_000

// Rates are the prices of a million tokens of each kind, in micros (millionths of the currency unit), each from 0 to 10^15.
type Rates struct {
	// The price of prompt tokens. Required.
	Input *int64 `json:"input,omitempty"`

	// The price of generated tokens. Required.
	Output *int64 `json:"output,omitempty"`

	// The price of prompt tokens that the vendor read from its cache. Default: the price of prompt tokens.
	CachedInput *int64 `json:"cached_input,omitempty"`

	// The price of prompt tokens that the vendor wrote to its cache for its usual, short time. Default: the price of prompt tokens.
	CacheWrite *int64 `json:"cache_write,omitempty"`

	// The price of prompt tokens that the vendor wrote to its cache for an hour or longer. Default: the price of prompt tokens.
	CacheWriteLong *int64 `json:"cache_write_long,omitempty"`
}

// Rules are the options of rates.
func (r *Rates) Rules() []caddyfile.Rule {
	return rateRules("", &r.Input, &r.Output, &r.CachedInput, &r.CacheWrite, &r.CacheWriteLong)
}

// rateRules are the options of rates whose words begin with prefix.
func rateRules(prefix string, input, output, cachedInput, cacheWrite, cacheWriteLong **int64) []caddyfile.Rule {
	part := func(word string, to **int64) caddyfile.Rule {
		return caddyfile.Price(prefix+word, to, highestPrice).Filled(func() { *to = cmp.Or(*to, *input) })
	}
	return []caddyfile.Rule{
		caddyfile.Price(prefix+"input", input, highestPrice).Required(),
		caddyfile.Price(prefix+"output", output, highestPrice).Required(),
		part("cached_input", cachedInput), part("cache_write", cacheWrite), part("cache_write_long", cacheWriteLong),
	}
}

// entry returns r for the ledger. The defaults of r must be filled in.
func (r *Rates) entry() billing.Rates {
	return billing.Rates{
		Input: *r.Input, Output: *r.Output, CachedInput: *r.CachedInput, CacheWrite: *r.CacheWrite, LongCacheWrite: *r.CacheWriteLong,
	}
}

// PriceTier is the price of a whole call with a long prompt.
type PriceTier struct {
	// The number of prompt tokens, cached ones included, above which the whole call has these prices: 1 to 100,000,000. Required.
	Above string `json:"above,omitempty"`

	Rates
}

// Named implements the list of tiers.
func (t *PriceTier) Named() *string { return &t.Above }

// above returns the number of tokens, or 0 for a faulty text.
func (t *PriceTier) above() int64 {
	number, err := strconv.ParseInt(t.Above, 10, 64)
	if err != nil || number < 1 || number > mostTokens {
		return 0
	}
	return number
}

func (t *PriceTier) faults(fs *config.Faults, path string) {
	if t.above() == 0 {
		fs.Addf(path, "the name must be a number of prompt tokens from 1 to %d, above which the prices of the block apply", mostTokens)
	}
}

// tierRule is the list of tiers of a price.
func tierRule(word string, to *[]*PriceTier) caddyfile.Rule {
	return caddyfile.List(word, to, (*PriceTier).faults).As("<prompt tokens>").Also(func(fs *config.Faults, path string) {
		if len(*to) > billing.MaxTiers {
			fs.Addf(path, "there are %d tiers; allowed: at most %d", len(*to), billing.MaxTiers)
		}
		last := new(PriceTier)
		for _, tier := range *to {
			if tier == nil || tier.above() == 0 {
				return
			}
			if tier.above() <= last.above() && tier.Above != last.Above { // a fault of the list
				fs.Addf(config.Element(listPath(path), tier.Above), "doesn't rise above the tier before it; write tiers in rising order")
			}
			last = tier
		}
	})
}

// listPath returns the path of a list without the root, as [config.Element] expects it.
func listPath(path string) string { return strings.TrimPrefix(path, appName+".") }

// PriceHours is the price in some hours of the week.
type PriceHours struct {
	// Days, a time of day and a time zone, such as `mon-fri 09:00-12:00 Asia/Shanghai`. Time beyond midnight needs two blocks.
	// Required.
	Hours string `json:"hours,omitempty"`

	Rates

	// The prices of whole calls with long prompts in these hours, at most 3.
	Tiers []*PriceTier `json:"tiers,omitempty"`
}

// Named implements the list of hours.
func (h *PriceHours) Named() *string { return &h.Hours }

// Rules are the options of hours.
func (h *PriceHours) Rules() []caddyfile.Rule {
	return append(h.Rates.Rules(), likeModels(tierRule("tier", &h.Tiers)))
}

// likeModels shortens the syntax of a rule that a model also has.
func likeModels(rule caddyfile.Rule) caddyfile.Rule {
	rule.Block = placeholder("<options of price_" + rule.Word + ">")
	return rule
}

// read returns the hours and their time zone.
func (h *PriceHours) read() (read *hours.Hours, zone string, err error) {
	i := strings.LastIndexByte(h.Hours, ' ')
	line, zone := h.Hours[:max(0, i)], h.Hours[i+1:]
	read, err = hours.Parse(zone, []string{line})
	return read, zone, err
}

func (h *PriceHours) faults(fs *config.Faults, path string) {
	if _, _, err := h.read(); err != nil {
		fs.Addf(path, "the name must be days, a time and a time zone, e.g. \"mon-fri 09:00-12:00 Asia/Shanghai\"; "+
			"time beyond midnight is two blocks, until 24:00 and from 00:00")
	}
}

// hoursRule is the list of hours of a price.
func hoursRule(word string, to *[]*PriceHours) caddyfile.Rule {
	return caddyfile.List(word, to, (*PriceHours).faults).As("<days, time and zone>").Also(func(fs *config.Faults, path string) {
		var before []*hours.Hours
		var first string
		for _, h := range *to {
			if h == nil {
				return
			}
			read, zone, err := h.read()
			if err != nil {
				return
			}
			at := config.Element(listPath(path), h.Hours)
			if first = cmp.Or(first, zone); zone != first {
				fs.Addf(at, "is in another time zone than the hours before; write all hours of a price in one zone")
			}
			for _, other := range before {
				if hours.Overlap(read, other) {
					fs.Addf(at, "overlaps hours before it; a time can have only one price")
					break
				}
			}
			before = append(before, read)
		}
	})
}

// PriceRow is the price of a model from a moment on.
type PriceRow struct {
	// When the price begins, with its offset from UTC, such as `2026-12-01T00:00:00Z`. A call has the price of its start. Required.
	From string `json:"from,omitempty"`

	Rates

	// The prices of whole calls with long prompts, at most 3.
	Tiers []*PriceTier `json:"tiers,omitempty"`

	// The prices in some hours of the week. They end with this price.
	Hours []*PriceHours `json:"hours,omitempty"`
}

// Named implements the list of prices.
func (p *PriceRow) Named() *string { return &p.From }

// Rules are the options of a price.
func (p *PriceRow) Rules() []caddyfile.Rule {
	return append(p.Rates.Rules(), likeModels(tierRule("tier", &p.Tiers)), likeModels(hoursRule("hours", &p.Hours)))
}

func (p *PriceRow) from() (time.Time, error) { return time.Parse(time.RFC3339, p.From) }

func (p *PriceRow) faults(fs *config.Faults, path string) {
	if _, err := p.from(); err != nil {
		fs.Addf(path, "the name must be the moment when the price begins, e.g. 2026-12-01T00:00:00Z")
	}
}

// rowFaults adds the faults of all rows together.
func (m *Model) rowFaults(fs *config.Faults, path string) {
	var last time.Time
	before := new(PriceRow)
	for _, row := range m.Prices {
		if row == nil {
			return
		}
		from, err := row.from()
		if err != nil {
			return
		}
		if !from.After(last) && row.From != before.From { // a fault of the list
			fs.Addf(config.Element(listPath(path), row.From), "doesn't begin after the price before it; write prices in the order of their times")
		}
		last, before = from, row
	}
}

// baseRow returns the first row of the model's prices.
func (m *Model) baseRow() *PriceRow {
	rates := Rates{m.PriceInput, m.PriceOutput, m.PriceCachedInput, m.PriceCacheWrite, m.PriceCacheWriteLong}
	return &PriceRow{Rates: rates, Tiers: m.PriceTiers, Hours: m.PriceHours}
}

// priceOf returns a price for the ledger.
func priceOf(rates *Rates, tiers []*PriceTier) billing.Price {
	r := rates.entry()
	price := billing.Price{
		Input: r.Input, Output: r.Output, CachedInput: r.CachedInput, CacheWrite: r.CacheWrite, LongCacheWrite: r.LongCacheWrite,
	}
	var all [billing.MaxTiers]billing.Tier
	for i, tier := range tiers {
		all[i] = billing.Tier{Above: tier.above(), Rates: tier.entry()}
	}
	price.Tiers = billing.NewTiers(all)
	return price
}

// entry returns p for the gateway.
func (p *PriceRow) entry() gateway.PriceRow {
	row := gateway.PriceRow{Price: priceOf(&p.Rates, p.Tiers)}
	row.From, _ = p.from() // zero for the first row
	for _, h := range p.Hours {
		read, _, _ := h.read() //nolint:errcheck // faults has checked it
		row.Hours = append(row.Hours, gateway.PriceHours{Hours: read, Price: priceOf(&h.Rates, h.Tiers)})
	}
	return row
}

// prices returns the prices of m over time, or nil if they never change. The defaults of m must be filled in.
func (m *Model) prices() *gateway.Prices {
	if len(m.Prices) == 0 && len(m.PriceHours) == 0 {
		return nil
	}
	rows := []gateway.PriceRow{m.baseRow().entry()}
	for _, row := range m.Prices {
		rows = append(rows, row.entry())
	}
	return gateway.NewPrices(rows)
}

// comingPriceWarning is the time before the beginning of a price from which it is reported.
const comingPriceWarning = 14 * 24 * time.Hour

// ComingPrices returns a sentence, without its period, for each price that begins within 14 days. The defaults must be filled in.
func (a *App) ComingPrices(now time.Time) (coming []string) {
	for _, m := range a.Models {
		before := m.baseRow()
		for _, row := range m.Prices {
			from, err := row.from()
			if err == nil && from.After(now) && from.Sub(now) <= comingPriceWarning {
				coming = append(coming, fmt.Sprintf("%s: from %s on, input costs %d instead of %d, and output %d instead of %d",
					config.Element(listPath(config.Element("model", m.Name))+".price", row.From), from.UTC().Format("2006-01-02 15:04 UTC"),
					*row.Input, *before.Input, *row.Output, *before.Output))
			}
			before = row
		}
	}
	return coming
}
