package caddymodule

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// Model is a model that clients can call, with its limits and its price.
type Model struct {
	// The id that clients send: `<provider>/<model>`, where the part before the first slash names a provider of this
	// configuration and the rest is 1 to 128 letters, digits and `. _ : / @ + -`. Required, unique.
	Name string `json:"name,omitempty"`

	// The vendor's name of the model. Default: the part of the id after the first slash.
	UpstreamModel string `json:"upstream_model,omitempty"`

	// The name for people, at most 200 characters. Default: the id.
	DisplayName string `json:"display_name,omitempty"`

	// The short label for a model picker, at most 200 characters. Default: the display name.
	FriendlyName string `json:"friendly_name,omitempty"`

	// The class of the model: 1 to 64 lower-case letters, digits, hyphens and underscores. Default: `economy`.
	Tier string `json:"tier,omitempty"`

	// Who owns the model, at most 200 characters. Default: the provider's name.
	OwnedBy string `json:"owned_by,omitempty"`

	// Whether the model runs on servers in the service's home country. Default: false.
	VNHosted bool `json:"vn_hosted,omitempty"`

	// When the model was made, in Unix seconds. Default: 1735689600, which is 2025-01-01.
	Created *int64 `json:"created,omitempty"`

	// How many tokens prompt and answer may have together, from 1 to 100,000,000. The vendor judges prompts that may fit, so
	// a number below the vendor's own is no strict limit. Required.
	ContextWindow *int64 `json:"context_window,omitempty"`

	// How many tokens an answer may have at most, from 1 to context_window. Required.
	MaxOutputTokens *int64 `json:"max_output_tokens,omitempty"`

	// The field in which the bound of generated tokens goes to the vendor: `max_tokens` or `max_completion_tokens`,
	// which some vendor models want. Default: `max_tokens`.
	MaxTokensField string `json:"max_tokens_field,omitempty"`

	// Whether the model generates hidden tokens, which only the usage at the end of its answer counts. The vendor's call then goes
	// on to its end, and is paid, also when the client of a stream leaves. Default: false.
	Reasoning bool `json:"reasoning,omitempty"`

	// Whether every call reserves the price of max_output_tokens, also if the request asks for fewer tokens. It is for vendors
	// whose hidden tokens may exceed the request's bound: a call never costs more than was reserved for it. Default: false, which
	// reserves the request's max_tokens.
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
}

const (
	// defaultTier is the only class that the public interface names.
	defaultTier = "economy"

	mostTokens       int64 = 100_000_000
	highestPrice     int64 = 1_000_000_000_000_000
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
	return []caddyfile.Rule{
		modelText("upstream_model", &m.UpstreamModel, "the vendor's name of the model", &rest).As("<name>"),
		modelText("display_name", &m.DisplayName, "a name", &m.Name),
		modelText("friendly_name", &m.FriendlyName, "a name", &m.DisplayName),
		caddyfile.Text("tier", &m.Tier, "<name>", "a class, e.g. "+defaultTier).Also(func(fs *config.Faults, path string) {
			if m.Tier != "" && (len(m.Tier) > 64 || !tierName.MatchString(m.Tier)) {
				fs.Addf(path, "must be 1 to 64 lower-case letters, digits, hyphens and underscores, e.g. %s", defaultTier)
			}
		}).Filled(func() { m.Tier = cmp.Or(m.Tier, defaultTier) }),
		modelText("owned_by", &m.OwnedBy, "a name", new(m.provider())),
		caddyfile.Bool("vn_hosted", &m.VNHosted),
		// 2025-01-01T00:00:00Z. The default is fixed, so that a restart doesn't change the model list.
		caddyfile.Integer("created", &m.Created, 0, latestCreated).Or(1_735_689_600).As("<unix seconds>"),
		caddyfile.Integer("context_window", &m.ContextWindow, 1, mostTokens).Required().As("<tokens>"),
		caddyfile.Integer("max_output_tokens", &m.MaxOutputTokens, 1, mostTokens).Required().As("<tokens>").
			Also(func(fs *config.Faults, path string) {
				if m.ContextWindow != nil && m.MaxOutputTokens != nil && *m.MaxOutputTokens > *m.ContextWindow {
					fs.Addf(path, "is more than context_window, which holds prompt and answer together: %d", *m.ContextWindow)
				}
			}),
		caddyfile.OneOf("max_tokens_field", &m.MaxTokensField, "max_tokens", "max_completion_tokens"),
		caddyfile.Bool("reasoning", &m.Reasoning),
		caddyfile.Bool("reserve_max_output", &m.ReserveMaxOutput),
		caddyfile.Bool("live_only", &m.LiveOnly),
		caddyfile.Price("price_input", &m.PriceInput, highestPrice).Required(),
		caddyfile.Price("price_output", &m.PriceOutput, highestPrice).Required(),
		caddyfile.Price("price_cached_input", &m.PriceCachedInput, highestPrice).
			Filled(func() { m.PriceCachedInput = cmp.Or(m.PriceCachedInput, m.PriceInput) }),
	}
}

// modelText is a text for people, with the place of its default.
func modelText(word string, to *string, what string, otherwise *string) caddyfile.Rule {
	return caddyfile.Text(word, to, "<text>", what).Also(func(fs *config.Faults, path string) {
		if !config.Printable(*to, longestModelName) {
			fs.Addf(path, "must be at most %d printable characters", longestModelName)
		}
	}).Filled(func() { *to = cmp.Or(*to, *otherwise) })
}

// faults adds the faults of the id. providers are the names of the providers.
func (m *Model) faults(fs *config.Faults, path string, providers []string) {
	provider, rest, found := strings.Cut(m.Name, "/")
	if !found || !isBlockName(provider) || len(rest) > 128 || !modelPart.MatchString(rest) {
		fs.Addf(path, "the id must be PROVIDER/MODEL, e.g. openai/gpt-4o-mini; MODEL is 1 to 128 letters, digits and . _ : / @ + -")
		return
	}
	if !slices.Contains(providers, provider) {
		fs.Addf(path, "there is no provider %q; there are: %s", provider, config.Listed(providers))
	}
}
