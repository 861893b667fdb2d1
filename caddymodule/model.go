package caddymodule

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// Model is a model that clients can call, with its limits and its price.
type Model struct {
	// The id that clients send: `<provider>/<model>`, where the part before the first slash names a provider of this
	// configuration, unless the model has endpoints, and the rest is 1 to 128 letters, digits and `. _ : / @ + -`. Required, unique.
	Name string `json:"name,omitempty"`

	// The vendor's name of the model. Default: the part of the id after the first slash.
	UpstreamModel string `json:"upstream_model,omitempty"`

	// The places that can answer, up to 32. If one fails before its first text, another one is tried. The limits and prices of
	// the model apply to all of them, so context_window is the smallest of theirs. Default: the provider of the id alone.
	Endpoints []*Endpoint `json:"endpoints,omitempty"`

	// The name for people, up to 200 characters. Default: the id.
	DisplayName string `json:"display_name,omitempty"`

	// The short label for a model picker, up to 200 characters. Default: the display name.
	FriendlyName string `json:"friendly_name,omitempty"`

	// The class of the model: 1 to 64 lower-case letters, digits, hyphens and underscores. Default: `economy`.
	Tier string `json:"tier,omitempty"`

	// Who owns the model, up to 200 characters. Default: the provider's name.
	OwnedBy string `json:"owned_by,omitempty"`

	// Whether the model runs on servers in the service's home country. Default: false.
	VNHosted bool `json:"vn_hosted,omitempty"`

	// When the model was made, in Unix seconds. Default: 1735689600, which is 2025-01-01.
	Created *int64 `json:"created,omitempty"`

	// How many tokens prompt and answer may have together, from 1 to 100,000,000. The vendor judges prompts that may fit, so
	// a number below the vendor's own is no strict limit. Required.
	ContextWindow *int64 `json:"context_window,omitempty"`

	// The largest number of tokens that an answer may have, from 1 to context_window. Required.
	MaxOutputTokens *int64 `json:"max_output_tokens,omitempty"`

	// The field in which the bound of generated tokens goes to the vendor: `max_tokens` or `max_completion_tokens`,
	// which some vendor models want. Default: the option of the provider's protocol.
	MaxTokensField string `json:"max_tokens_field,omitempty"`

	// Whether the model refuses `temperature` and `top_p`. The vendor doesn't get them then, so the model's own apply. Default: false.
	DropSampling *bool `json:"drop_sampling,omitempty"`

	// Whether the model refuses `stop`. The vendor gets no stop sequences then, and the answer still ends before the first of them.
	// Stop sequences that the protocol refuses are always applied like this. Default: false.
	DropStop *bool `json:"drop_stop,omitempty"`

	// The vendor's word for the least thinking of the model, such as `none`, `minimal`, `low` or `disabled`: 1 to 64 letters, digits,
	// dots, hyphens and underscores. Default: nothing is sent about thinking.
	Thinking string `json:"thinking,omitempty"`

	// The smallest `max_tokens` of a request, from 1 to max_output_tokens. A smaller one is 400 `invalid_request`, because a model
	// that can't answer without thinking would use it up before the answer begins; a conversation's is raised to it. Default: 1.
	LeastMaxTokens *int64 `json:"least_max_tokens,omitempty"`

	// The day on which the vendor ends the model, as YYYY-MM-DD, in UTC. A start of the server logs a warning from 90 days before, and
	// an error from 7 days before. Default: unknown.
	ShutdownDate string `json:"shutdown_date,omitempty"`

	// Whether the model generates hidden tokens, which only the usage at the end of its answer counts. The vendor's call then goes
	// on to its end, and is paid, also when the client of a stream leaves. Default: false.
	Reasoning *bool `json:"reasoning,omitempty"`

	// Whether every call reserves the price of max_output_tokens, even if the request has a lower max_tokens. It is for vendors
	// with hidden tokens that may exceed the request's bound: a call never costs more than was reserved for it. Default: false,
	// which reserves the request's max_tokens.
	ReserveMaxOutput bool `json:"reserve_max_output,omitempty"`

	// Whether keys of the test environment can't use the model, since their calls cost you real money at the vendor. For them
	// it is an unknown model. Default: false.
	LiveOnly bool `json:"live_only,omitempty"`

	// The price of a million prompt tokens in micros (millionths of the currency unit), from 0 to 10^15. Required.
	PriceInput *int64 `json:"price_input,omitempty"`

	// The price of a million generated tokens in micros, from 0 to 10^15. Required.
	PriceOutput *int64 `json:"price_output,omitempty"`

	// The price of a million prompt tokens that the vendor read from its cache, in micros, from 0 to 10^15. Default:
	// the price of prompt tokens.
	PriceCachedInput *int64 `json:"price_cached_input,omitempty"`

	// The price of a million prompt tokens that the vendor wrote to its cache for its usual, short time, in micros, from 0 to 10^15.
	// Default: the price of prompt tokens.
	PriceCacheWrite *int64 `json:"price_cache_write,omitempty"`

	// The price of a million prompt tokens that the vendor wrote to its cache for an hour or longer, in micros, from 0 to 10^15.
	// Default: the price of prompt tokens.
	PriceCacheWriteLong *int64 `json:"price_cache_write_long,omitempty"`

	// The prices of whole calls with long prompts, up to 3.
	PriceTiers []*PriceTier `json:"price_tiers,omitempty"`

	// The prices in some hours of the week, until the first of prices begins.
	PriceHours []*PriceHours `json:"price_hours,omitempty"`

	// The prices that replace the ones above from a moment on, in the order of their times. They are whole: nothing of an earlier
	// price applies any longer.
	Prices []*PriceRow `json:"prices,omitempty"`
}

const (
	// defaultTier is the only class that the public interface names.
	defaultTier = "economy"

	mostTokens       int64 = 100_000_000
	longestModelName       = 200
	latestCreated    int64 = 253_402_300_799 // 9999-12-31
)

var (
	modelPart = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)
	tierName  = regexp.MustCompile(`^[a-z0-9_-]+$`)
)

// provider is the part of the id before the first slash.
func (m *Model) provider() string {
	provider, _, _ := strings.Cut(m.Name, "/")
	return provider
}

// Named implements the list of models.
func (m *Model) Named() *string { return &m.Name }

// Rules are the options of a model.
func (m *Model) Rules() []caddyfile.Rule {
	_, rest, _ := strings.Cut(m.Name, "/")
	window, output := valueOr(m.ContextWindow, 0), valueOr(m.MaxOutputTokens, 0)
	_, noDay := m.shutdown()
	rules := []caddyfile.Rule{
		modelText("upstream_model", &m.UpstreamModel, "the vendor's name of the model", &rest).As("<name>"),
		caddyfile.List("endpoint", &m.Endpoints, (*Endpoint).faults).
			As("<provider>[/<upstream>]").Also(m.endpointFaults),
		modelText("display_name", &m.DisplayName, "a name", &m.Name),
		modelText("friendly_name", &m.FriendlyName, "a name", &m.DisplayName),
		caddyfile.Text("tier", &m.Tier, "<name>", "a class, e.g. "+defaultTier).
			Refuse(m.Tier != "" && (len(m.Tier) > 64 || !tierName.MatchString(m.Tier)),
				"must be 1 to 64 lower-case letters, digits, hyphens and underscores, e.g. %s", defaultTier).
			Filled(func() { m.Tier = cmp.Or(m.Tier, defaultTier) }),
		modelText("owned_by", &m.OwnedBy, "a name", new(m.provider())),
		caddyfile.Bool("vn_hosted", &m.VNHosted),
		// 2025-01-01T00:00:00Z. The default is fixed, so that a restart doesn't change the model list.
		caddyfile.Integer("created", &m.Created, 0, latestCreated).Or(1_735_689_600).As("<unix seconds>"),
		caddyfile.Integer("context_window", &m.ContextWindow, 1, mostTokens).Required().As("<tokens>"),
		caddyfile.Integer("max_output_tokens", &m.MaxOutputTokens, 1, mostTokens).Required().As("<tokens>").
			Refuse(m.ContextWindow != nil && m.MaxOutputTokens != nil && output > window,
				"is more than context_window, which holds prompt and answer together: %d", window),
		maxTokensField(&m.MaxTokensField),
		caddyfile.Override("drop_sampling", &m.DropSampling),
		caddyfile.Override("drop_stop", &m.DropStop),
		thinking(&m.Thinking),
		caddyfile.Integer("least_max_tokens", &m.LeastMaxTokens, 1, mostTokens).Or(1).As("<tokens>").
			Refuse(m.MaxOutputTokens != nil && m.LeastMaxTokens != nil && *m.LeastMaxTokens > output,
				"is more than max_output_tokens, which bounds every answer: %d", output),
		caddyfile.Text("shutdown_date", &m.ShutdownDate, "<YYYY-MM-DD>", "a day, e.g. 2027-01-14").
			Refuse(noDay != nil, "%q is not a day; write for example 2027-01-14", m.ShutdownDate),
		caddyfile.Override("reasoning", &m.Reasoning),
		caddyfile.Bool("reserve_max_output", &m.ReserveMaxOutput),
		caddyfile.Bool("live_only", &m.LiveOnly),
	}
	rules = append(rules, rateRules("price_", &m.PriceInput, &m.PriceOutput, &m.PriceCachedInput, &m.PriceCacheWrite, &m.PriceCacheWriteLong)...)
	return append(rules, tierRule("price_tier", &m.PriceTiers), hoursRule("price_hours", &m.PriceHours),
		caddyfile.List("price", &m.Prices, (*PriceRow).faults).As("<time>").Also(m.rowFaults))
}

// shutdown returns the beginning of the day on which the vendor ends the model. The zero time means that the day is unknown.
func (m *Model) shutdown() (time.Time, error) {
	if m.ShutdownDate == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.DateOnly, m.ShutdownDate)
}

// modelText is a text for people, with the place of its default.
func modelText(word string, to *string, what string, otherwise *string) caddyfile.Rule {
	return caddyfile.Text(word, to, "<text>", what).
		Refuse(!config.Printable(*to, longestModelName), "must be at most %d printable characters", longestModelName).
		Filled(func() { *to = cmp.Or(*to, *otherwise) })
}

// faults adds the faults of the id. providers are the names of the providers.
func (m *Model) faults(fs *config.Faults, path string, providers []string) {
	if m.nameFaults(fs, path); !isModelName(m.Name) {
		return
	}
	if len(m.Endpoints) == 0 && !slices.Contains(providers, m.provider()) {
		fs.Addf(path, "there is no provider %q; there are: %s", m.provider(), config.Listed(providers))
	}
	if !m.priced() {
		fs.Addf(path, "the catalogue has no price for it; type price_input and price_output, or import prices with caddy svc catalog import")
	}
	for _, e := range m.Endpoints {
		if e == nil {
			continue
		}
		if provider, _ := e.split(""); isBlockName(provider) && !slices.Contains(providers, provider) {
			fs.Addf(config.Element(listPath(path)+".endpoint", e.Name), "there is no provider %q; there are: %s", provider, config.Listed(providers))
		}
	}
}

func (m *Model) nameFaults(fs *config.Faults, path string) {
	if !isModelName(m.Name) {
		fs.Addf(path, "the id must be PROVIDER/MODEL, e.g. openai/gpt-6-luna; MODEL is 1 to 128 letters, digits and . _ : / @ + -")
	}
}

func isModelName(name string) bool {
	provider, rest, found := strings.Cut(name, "/")
	return found && isBlockName(provider) && len(rest) <= 128 && modelPart.MatchString(rest)
}

// Endpoint is a provider, and its name of a model, for the calls of that model.
type Endpoint struct {
	// `<provider>` or `<provider>/<upstream>`: a provider of this configuration and the vendor's name of the model. Several
	// endpoints may have one provider. Required, unique in the model. Default of the upstream: the model's.
	Name string `json:"name,omitempty"`

	// The level of the endpoint, from 0 to 100. A level is used only while no endpoint of a lower level can answer. Default: 0.
	Order *int64 `json:"order,omitempty"`

	// The share of the endpoint in the conversations of its level, from 0 to 1000. 0 drains the endpoint: it gets no calls. Default: 1.
	Weight *int64 `json:"weight,omitempty"`

	// The same option of the model, for this endpoint. Default: the model's.
	MaxTokensField string `json:"max_tokens_field,omitempty"`

	// The same option of the model, for this endpoint. Default: the model's.
	Thinking string `json:"thinking,omitempty"`

	// Your own price at the endpoint. The margin of a call is its charge less its cost by this price, which changes no charge. Default:
	// unknown.
	Cost *EndpointCost `json:"cost,omitempty"`
}

// EndpointCost is the operator's own price at an endpoint.
type EndpointCost struct {
	Rates

	// The prices of whole calls with long prompts, up to 3.
	Tiers []*PriceTier `json:"tiers,omitempty"`
}

// Rules are the options of a cost.
func (c *EndpointCost) Rules() []caddyfile.Rule {
	return append(c.Rates.Rules(), likeModels(tierRule("tier", &c.Tiers)))
}

// Named implements the list of endpoints.
func (e *Endpoint) Named() *string { return &e.Name }

// Rules are the options of an endpoint.
func (e *Endpoint) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Integer("order", &e.Order, 0, 100).Or(0),
		caddyfile.Integer("weight", &e.Weight, 0, 1000).Or(1),
		maxTokensField(&e.MaxTokensField),
		thinking(&e.Thinking),
		caddyfile.Block("cost", &e.Cost).Filled(func() {
			if e.Cost != nil {
				caddyfile.Fill(e.Cost.Rules())
			}
		}),
	}
}

// maxTokensField is the rule of the vendor's name of max_tokens. The provider's protocol has the default.
func maxTokensField(to *string) caddyfile.Rule {
	return caddyfile.OneOf("max_tokens_field", to, "max_tokens", "max_completion_tokens").Filled(nil)
}

// thinking is the rule of the vendor's word for the least thinking.
func thinking(to *string) caddyfile.Rule {
	return caddyfile.Text("thinking", to, "<word>", "the vendor's word for the least thinking, e.g. minimal").
		Refuse(*to != "" && !isBlockName(*to), "must be %s", blockNameForm)
}

// split returns the endpoint's provider, and its upstream or the given one.
func (e *Endpoint) split(upstream string) (provider, model string) {
	provider, model, _ = strings.Cut(e.Name, "/")
	return provider, cmp.Or(model, upstream)
}

// faults adds the faults of the name.
func (e *Endpoint) faults(fs *config.Faults, path string) {
	provider, upstream, named := strings.Cut(e.Name, "/")
	if !isBlockName(provider) || named && (upstream == "" || !config.Printable(upstream, longestModelName)) {
		fs.Addf(path, "the name must be PROVIDER or PROVIDER/UPSTREAM, e.g. openai/gpt-6-luna")
	}
}

// endpointFaults adds the faults of all endpoints together.
func (m *Model) endpointFaults(fs *config.Faults, path string) {
	_, upstream, _ := strings.Cut(m.Name, "/")
	upstream = cmp.Or(m.UpstreamModel, upstream)
	drained := len(m.Endpoints) > 0
	seen := map[[2]string]string{}
	for _, e := range m.Endpoints {
		if e == nil || e.Name == "" { // a fault of the list
			return
		}
		drained = drained && valueOr(e.Weight, 1) == 0
		provider, model := e.split(upstream)
		key := [2]string{provider, model}
		if first := seen[key]; first != "" && first != e.Name {
			fs.Addf(config.Element(listPath(path), e.Name), "is the same endpoint as %s", config.Quoted(first))
		}
		seen[key] = e.Name
	}
	if drained {
		fs.Addf(path, "every endpoint has weight 0, so no call could be answered")
	}
	if len(m.Endpoints) > gateway.MaxEndpoints {
		fs.Addf(path, "there are %d endpoints; allowed: at most %d", len(m.Endpoints), gateway.MaxEndpoints)
	}
}

// endpoints returns the endpoints of m for the gateway. The defaults of m must be filled in.
func (m *Model) endpoints() []gateway.Endpoint {
	var all []gateway.Endpoint
	for _, e := range m.Endpoints {
		provider, upstream := e.split(m.UpstreamModel)
		all = append(all, gateway.Endpoint{
			Provider: provider, Upstream: upstream, MaxTokensField: cmp.Or(e.MaxTokensField, m.MaxTokensField),
			Thinking: cmp.Or(e.Thinking, m.Thinking), Order: *e.Order, Weight: *e.Weight,
		})
		if e.Cost != nil {
			all[len(all)-1].Cost = priceOf(&e.Cost.Rates, e.Cost.Tiers)
		}
	}
	return all
}

// endpointGauges reads the state of all endpoints at each scrape, because counting attempts by labels would delay each call.
func (a *App) endpointGauges() prometheus.Collector {
	s := new(scraped)
	rest := s.describe("endpoint", "rest_seconds",
		"How long an endpoint isn't asked because of its last failure. Its state is ok, resting or probing: one call tries it.",
		"provider", "upstream_model", "state", "failure")
	attempts := s.describe("endpoint", "attempts_total",
		"Calls of an endpoint: answered, canceled because the client left, or the class of the failure.", "provider", "upstream_model", "outcome")
	other := s.describe("endpoint", "other_model",
		"1 while an endpoint's answers name another model than the requested one or a version of it.",
		"provider", "upstream_model", "answering_model")
	s.collect = func(add func(*prometheus.Desc, prometheus.ValueType, float64, ...string)) {
		if !a.isReady() {
			return
		}
		for _, e := range a.runtime.calls.Endpoints() {
			state := "ok"
			if e.Cooled > 0 {
				state = "resting"
			} else if e.Probing {
				state = "probing"
			}
			add(rest, prometheus.GaugeValue, e.Cooled.Seconds(), e.Provider, e.Upstream, state, string(e.Failure))
			if e.Other != "" {
				add(other, prometheus.GaugeValue, 1, e.Provider, e.Upstream, e.Other)
			}
			for outcome, n := range e.Attempts {
				if n > 0 {
					add(attempts, prometheus.CounterValue, float64(n), e.Provider, e.Upstream, outcome)
				}
			}
		}
	}
	return s
}
