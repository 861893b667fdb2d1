package caddymodule

import (
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

// The defaults of a [Model].
const (
	// DefaultTier is the only class that the public interface names.
	DefaultTier = "economy"
	// DefaultCreated is 2025-01-01T00:00:00Z. It is fixed, so that a restart doesn't change the model list.
	DefaultCreated int64 = 1_735_689_600
	// DefaultMaxTokensField is the field's name in requests of clients.
	DefaultMaxTokensField = "max_tokens"
)

const (
	mostTokens       int64 = 100_000_000
	highestPrice     int64 = 1_000_000_000_000_000
	longestModelName       = 200
	latestCreated    int64 = 253_402_300_799 // 9999-12-31
)

var (
	modelPart       = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)
	tierName        = regexp.MustCompile(`^[a-z0-9_-]+$`)
	maxTokensFields = []string{DefaultMaxTokensField, "max_completion_tokens"}
)

// provider is the part of the id before the first slash.
func (m *Model) provider() string {
	provider, _, _ := strings.Cut(m.Name, "/")
	return provider
}

func (m *Model) faults(fs *config.Faults, path string, providers []string) {
	m.nameFaults(fs, path, providers)
	for _, text := range []struct{ word, value string }{
		{"upstream_model", m.UpstreamModel},
		{"display_name", m.DisplayName},
		{"friendly_name", m.FriendlyName},
		{"owned_by", m.OwnedBy},
	} {
		if !config.Printable(text.value, longestModelName) {
			fs.Addf(path+"."+text.word, "must be at most %d printable characters", longestModelName)
		}
	}
	if m.Tier != "" && (len(m.Tier) > 64 || !tierName.MatchString(m.Tier)) {
		fs.Addf(path+".tier", "must be 1 to 64 lower-case letters, digits, hyphens and underscores, e.g. %s", DefaultTier)
	}
	if m.MaxTokensField != "" && !slices.Contains(maxTokensFields, m.MaxTokensField) {
		fs.Addf(path+".max_tokens_field", "%q is not known; allowed: %s", m.MaxTokensField, config.Listed(maxTokensFields))
	}
	fs.OptionalBetween(path+".created", m.Created, 0, latestCreated)
	fs.RequiredBetween(path+".context_window", m.ContextWindow, 1, mostTokens)
	fs.RequiredBetween(path+".max_output_tokens", m.MaxOutputTokens, 1, mostTokens)
	if m.ContextWindow != nil && m.MaxOutputTokens != nil && *m.MaxOutputTokens > *m.ContextWindow {
		fs.Addf(path+".max_output_tokens", "is more than context_window, which holds prompt and answer together: %d", *m.ContextWindow)
	}
	fs.RequiredBetween(path+".price_input", m.PriceInput, 0, highestPrice)
	fs.RequiredBetween(path+".price_output", m.PriceOutput, 0, highestPrice)
	fs.OptionalBetween(path+".price_cached_input", m.PriceCachedInput, 0, highestPrice)
}

func (m *Model) nameFaults(fs *config.Faults, path string, providers []string) {
	provider, rest, found := strings.Cut(m.Name, "/")
	if !found || !isBlockName(provider) || len(rest) > 128 || !modelPart.MatchString(rest) {
		fs.Addf(path, "the id must be PROVIDER/MODEL, e.g. openai/gpt-4o-mini; MODEL is 1 to 128 letters, digits and . _ : / @ + -")
		return
	}
	if !slices.Contains(providers, provider) {
		fs.Addf(path, "there is no provider %q; there are: %s", provider, config.Listed(providers))
	}
}

// withDefaults returns a copy of the model in which no optional field is empty.
func (m *Model) withDefaults() *Model {
	filled := *m
	provider, rest, _ := strings.Cut(m.Name, "/")
	fill := func(field *string, otherwise string) {
		if *field == "" {
			*field = otherwise
		}
	}
	fill(&filled.UpstreamModel, rest)
	fill(&filled.DisplayName, filled.Name)
	fill(&filled.FriendlyName, filled.DisplayName)
	fill(&filled.Tier, DefaultTier)
	fill(&filled.OwnedBy, provider)
	fill(&filled.MaxTokensField, DefaultMaxTokensField)
	if filled.Created == nil {
		created := DefaultCreated
		filled.Created = &created
	}
	if filled.PriceCachedInput == nil {
		filled.PriceCachedInput = filled.PriceInput
	}
	return &filled
}

// readModel reads `model PROVIDER/MODEL { … }`; [App.UnmarshalCaddyfile] has the syntax.
func (a *App) readModel(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		m := &Model{Name: o.Args[0].Text}
		r.Block(path, o, []caddyfile.Rule{
			{Word: "upstream_model", Read: r.Text(&m.UpstreamModel, "the vendor's name of the model")},
			{Word: "display_name", Read: r.Text(&m.DisplayName, "a name")},
			{Word: "friendly_name", Read: r.Text(&m.FriendlyName, "a name")},
			{Word: "tier", Read: r.Text(&m.Tier, "a class, e.g. "+DefaultTier)},
			{Word: "owned_by", Read: r.Text(&m.OwnedBy, "a name")},
			{Word: "vn_hosted", Read: r.Bool(&m.VNHosted)},
			{Word: "created", Read: r.Integer(&m.Created)},
			{Word: "context_window", Read: r.Integer(&m.ContextWindow)},
			{Word: "max_output_tokens", Read: r.Integer(&m.MaxOutputTokens)},
			{Word: "max_tokens_field", Read: r.Text(&m.MaxTokensField, config.Listed(maxTokensFields))},
			{Word: "reasoning", Read: r.Bool(&m.Reasoning)},
			{Word: "reserve_max_output", Read: r.Bool(&m.ReserveMaxOutput)},
			{Word: "live_only", Read: r.Bool(&m.LiveOnly)},
			{Word: "price_input", Read: r.Price(&m.PriceInput)},
			{Word: "price_output", Read: r.Price(&m.PriceOutput)},
			{Word: "price_cached_input", Read: r.Price(&m.PriceCachedInput)},
		})
		caddyfile.Set(r, path, o, &a.Models, append(a.Models, m))
	}
}
