package caddymodule

import (
	"cmp"
	_ "embed"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	caddytokens "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

//go:embed catalog.caddyfile
var catalogText string

// readCatalog reads the rows of catalogText, which is part of the program.
var readCatalog = sync.OnceValues(func() ([]*Model, error) {
	tokens, err := caddytokens.Tokenize([]byte("svc {\n"+catalogText+"}\n"), "catalog.caddyfile")
	if err != nil {
		return nil, err
	}
	read := new(App)
	r, block := caddyfile.NewReader(caddytokens.NewDispenser(tokens))
	rule := read.catalogRule()
	r.Block(appName, block, []caddyfile.Rule{rule})
	var fs config.Faults
	rule.Faults(&fs, appName)
	return read.CatalogModels, r.Err(&fs, block)
})

// CatalogModels returns the ids of the models of a vendor that this program's catalogue has a price for.
func CatalogModels(vendor string) []string {
	rows, _ := readCatalog() // a test reads it
	var ids []string
	for _, row := range rows {
		if row.provider() == vendor {
			ids = append(ids, row.Name)
		}
	}
	return ids
}

// catalogRule is the option catalog_model. Its rows get no defaults, because a model has defaults of its own.
func (a *App) catalogRule() caddyfile.Rule {
	rule := caddyfile.List("catalog_model", &a.CatalogModels, (*Model).nameFaults).As("<provider>/<model>").Filled(nil)
	rule.Block = placeholder("<options of a model>")
	return rule
}

// factor matches a decimal number with up to 12 digits on each side of the point.
var factor = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,12})?$`)

func factorRule(word string, to *string) caddyfile.Rule {
	return caddyfile.Text(word, to, "<number>", "a number above 0, e.g. 1.2").
		Refuse(*to != "" && (!factor.MatchString(*to) || strings.Trim(*to, "0.") == ""),
			"%s is not a decimal number above 0 with up to 12 digits before and after the point, e.g. 1.2", config.Quoted(*to))
}

// useCatalog fills models from the catalogue. It replaces the elements of a.Models and changes none of them.
func (a *App) useCatalog() {
	rate := big.NewRat(1, 1)
	for _, text := range []string{a.CurrencyRate, a.Markup} {
		if number, ok := new(big.Rat).SetString(text); ok && factor.MatchString(text) { // else a fault of its own
			rate.Mul(rate, number)
		}
	}
	for i, m := range a.Models {
		if m == nil || !isModelName(m.Name) {
			continue
		}
		_, upstream, _ := strings.Cut(m.Name, "/")
		upstream = cmp.Or(m.UpstreamModel, upstream)
		made := *m
		for _, row := range a.catalogRows(m.provider(), upstream) {
			made = made.from(row, rate)
		}
		made.Endpoints = a.catalogEndpoints(&made, upstream)
		a.Models[i] = &made
	}
}

// catalogEndpoints returns the endpoints of m with the words of their upstreams' own rows, and drops the parameters that a row refuses,
// unless the model's block has the switch.
func (a *App) catalogEndpoints(m *Model, upstream string) []*Endpoint {
	made := slices.Clone(m.Endpoints)
	for i, e := range made {
		if e == nil {
			continue
		}
		provider, name := e.split(upstream)
		made[i] = new(*e)
		for _, row := range a.catalogRows(provider, name) {
			made[i].Thinking = cmp.Or(made[i].Thinking, row.Thinking)
			made[i].MaxTokensField = cmp.Or(made[i].MaxTokensField, row.MaxTokensField)
			m.DropSampling, m.DropStop = cmp.Or(m.DropSampling, row.DropSampling), cmp.Or(m.DropStop, row.DropStop)
		}
	}
	return made
}

// catalogRows returns the rows of a provider's model: rows of the configuration for the provider, then the program's row for the provider's
// vendor. Rows of the configuration may have prices only.
func (a *App) catalogRows(provider, upstream string) (found []*Model) {
	for _, row := range a.CatalogModels {
		if row != nil && row.Name == provider+"/"+upstream {
			found = append(found, row)
		}
	}
	vendor, sameWords := provider, true
	for _, p := range a.Providers {
		if p != nil && p.Name == provider {
			vendor, sameWords = p.vendor()
		}
	}
	rows, _ := readCatalog() // a test reads it
	for _, row := range rows {
		if row.Name != vendor+"/"+upstream {
			continue
		}
		if !sameWords {
			row = new(*row)
			row.Thinking = ""
		}
		found = append(found, row)
	}
	return found
}

// vendor returns the name of the provider's vendor in the catalogue: its preset, or else its name. It reports whether the vendor reads the
// catalogue's word for thinking in the field that this provider writes. Another protocol than the preset's, or another
// thinking_field, would make the word an error.
func (p *Provider) vendor() (name string, sameWords bool) {
	const thinkingField = "thinking_field" // of the protocol openai
	named := &Provider{Preset: cmp.Or(p.Preset, p.Name)}
	named.fillPreset()
	filled := *p
	filled.fillPreset()
	return named.Preset, named.Protocol == "" || named.Protocol == filled.Protocol && named.Options[thinkingField] == filled.Options[thinkingField]
}

// from returns a copy of m with the fields of row that m doesn't have. The prices come from row, multiplied by rate, if m has none of them.
func (m *Model) from(row *Model, rate *big.Rat) Model {
	made := *m
	to, has := reflect.ValueOf(&made).Elem(), reflect.ValueOf(row).Elem()
	for i := range to.NumField() {
		if to.Field(i).IsZero() && !strings.HasPrefix(to.Type().Field(i).Name, "Price") {
			to.Field(i).Set(has.Field(i))
		}
	}
	if !m.priced() {
		base := row.baseRow().times(rate)
		made.PriceInput, made.PriceOutput, made.PriceCachedInput = base.Input, base.Output, base.CachedInput
		made.PriceCacheWrite, made.PriceCacheWriteLong = base.CacheWrite, base.CacheWriteLong
		made.PriceTiers, made.PriceHours = base.Tiers, base.Hours
		made.Prices = changed(row.Prices, func(p *PriceRow) { *p = *p.times(rate) })
	}
	if m.ContextWindow != nil && m.MaxOutputTokens == nil && row.MaxOutputTokens != nil && *made.MaxOutputTokens > *m.ContextWindow {
		made.MaxOutputTokens = m.ContextWindow
	}
	return made
}

// priced reports whether the model has a price of any kind.
func (m *Model) priced() bool {
	of := reflect.ValueOf(m).Elem()
	for i := range of.NumField() {
		if strings.HasPrefix(of.Type().Field(i).Name, "Price") && !of.Field(i).IsZero() {
			return true
		}
	}
	return false
}

// times returns a copy of the row with all its prices multiplied by rate and rounded up.
func (p *PriceRow) times(rate *big.Rat) *PriceRow {
	tiers := func(list []*PriceTier) []*PriceTier {
		return changed(list, func(t *PriceTier) { t.multiply(rate) })
	}
	made := *p
	made.Tiers = tiers(p.Tiers)
	made.multiply(rate)
	made.Hours = changed(p.Hours, func(h *PriceHours) {
		h.multiply(rate)
		h.Tiers = tiers(h.Tiers)
	})
	return &made
}

func (r *Rates) multiply(rate *big.Rat) {
	for _, part := range []**int64{&r.Input, &r.Output, &r.CachedInput, &r.CacheWrite, &r.CacheWriteLong} {
		if *part != nil {
			*part = multiplied(**part, rate)
		}
	}
}

// changed returns a copy of list with copies of its elements, each changed.
func changed[T any](list []*T, change func(*T)) []*T {
	made := slices.Clone(list)
	for i, element := range made {
		if element != nil {
			made[i] = new(*element)
			change(made[i])
		}
	}
	return made
}

// multiplied returns price × rate, rounded up. A product that is no int64 becomes the largest one, which is a fault of the price.
func multiplied(price int64, rate *big.Rat) *int64 {
	product := new(big.Rat).Mul(new(big.Rat).SetInt64(price), rate)
	whole, rest := new(big.Int).QuoRem(product.Num(), product.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	result := int64(1<<63 - 1)
	if whole.IsInt64() {
		result = whole.Int64()
	}
	return &result
}
