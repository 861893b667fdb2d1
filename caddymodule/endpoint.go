package caddymodule

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// Endpoint is a place that answers the calls of a model.
type Endpoint struct {
	// `<provider>` or `<provider>/<upstream>`: a provider of this configuration and the vendor's name of the model. Several
	// endpoints may have one provider. Required, unique in the model. Default of the upstream: the model's.
	Name string `json:"name,omitempty"`

	// The level of the endpoint, from 0 to 100. A level is used only while no endpoint of a lower level can answer. Default: 0.
	Order *int64 `json:"order,omitempty"`

	// The share of the endpoint in the conversations of its level, from 0 to 1000. 0 drains the endpoint: it gets no calls. Default: 1.
	Weight *int64 `json:"weight,omitempty"`

	// As for the model, whose value is the default.
	MaxTokensField string `json:"max_tokens_field,omitempty"`

	// As for the model, whose value is the default.
	Thinking string `json:"thinking,omitempty"`

	// Your own price at the endpoint. The margin of a call is its charge less its cost by this price, which changes no charge. Default:
	// unknown.
	Cost *EndpointCost `json:"cost,omitempty"`
}

// EndpointCost is the operator's own price at an endpoint.
type EndpointCost struct {
	Rates

	// The prices of whole calls with long prompts, at most 3.
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
		Also(func(fs *config.Faults, path string) {
			if *to != "" && !isBlockName(*to) {
				fs.Addf(path, "must be %s", blockNameForm)
			}
		})
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

// providerFaults adds the fault of a provider that doesn't exist. providers are the names of the providers.
func (e *Endpoint) providerFaults(fs *config.Faults, model string, providers []string) {
	if provider, _ := e.split(""); isBlockName(provider) && !slices.Contains(providers, provider) {
		fs.Addf(config.Element(model+".endpoint", e.Name), "there is no provider %q; there are: %s", provider, config.Listed(providers))
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
			fs.Addf(config.Element(strings.TrimPrefix(path, appName+"."), e.Name), "is the same endpoint as %s", config.Quoted(first))
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
type endpointGauges struct {
	app                   *App
	rest, attempts, other *prometheus.Desc
}

var _ prometheus.Collector = (*endpointGauges)(nil)

func newEndpointGauges(a *App) *endpointGauges {
	return &endpointGauges{
		app: a,
		rest: prometheus.NewDesc(prometheus.BuildFQName(namespace, "endpoint", "rest_seconds"),
			"Rest of the time for which an endpoint isn't asked because of its last failure. Its state is ok, resting or probing: one call tries it.",
			[]string{"provider", "upstream_model", "state", "failure"}, nil),
		attempts: prometheus.NewDesc(prometheus.BuildFQName(namespace, "endpoint", "attempts_total"),
			"Calls of an endpoint: answered, canceled because the client left, or the class of the failure.",
			[]string{"provider", "upstream_model", "outcome"}, nil),
		other: prometheus.NewDesc(prometheus.BuildFQName(namespace, "endpoint", "other_model"),
			"1 while an endpoint's answers name another model than the requested one or a version of it.",
			[]string{"provider", "upstream_model", "answering_model"}, nil),
	}
}

func (g *endpointGauges) Describe(descs chan<- *prometheus.Desc) {
	descs <- g.rest
	descs <- g.attempts
	descs <- g.other
}

func (g *endpointGauges) Collect(metrics chan<- prometheus.Metric) {
	if !g.app.isReady() {
		return
	}
	for _, e := range g.app.runtime.calls.Endpoints() {
		state := "ok"
		if e.Cooled > 0 {
			state = "resting"
		} else if e.Probing {
			state = "probing"
		}
		metrics <- prometheus.MustNewConstMetric(g.rest, prometheus.GaugeValue, e.Cooled.Seconds(), e.Provider, e.Upstream, state, string(e.Failure))
		if e.Other != "" {
			metrics <- prometheus.MustNewConstMetric(g.other, prometheus.GaugeValue, 1, e.Provider, e.Upstream, e.Other)
		}
		for outcome, n := range e.Attempts {
			if n > 0 {
				metrics <- prometheus.MustNewConstMetric(g.attempts, prometheus.CounterValue, float64(n), e.Provider, e.Upstream, outcome)
			}
		}
	}
}
