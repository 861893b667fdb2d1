package caddymodule

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/providers"
)

// NoKey as a provider's api_key sends requests without Authorization.
const NoKey config.Secret = "none"

// Provider configures how a vendor of models, or a model server of your own, is reached.
type Provider struct {
	// The name that stands before the slash in the ids of its models: 1 to 64 letters, digits, dots, hyphens and
	// underscores, the first one a letter or digit. Required, unique.
	Name string `json:"name,omitempty"`

	// The name of a vendor in the description of a protocol, such as `openai` or `ollama`. It sets the protocol, its options and the
	// address, unless they are given.
	Preset string `json:"preset,omitempty"`

	// The name of a module in the namespace `svc.providers`, which speaks the vendor's protocol. Default: the preset's. Required
	// without one.
	Protocol string `json:"protocol,omitempty"`

	// The options of the protocol's module, each a text: an address, a name, or exactly one `{env.NAME}` or `{file.PATH}`. Default of
	// each: the preset's.
	Options map[string]string `json:"options,omitempty"`

	// The address that the protocol appends its paths to: http or https, host, an optional port and path; no query, fragment
	// or user. Default: the preset's. Required without one, except for protocols that need no network, which refuse it.
	BaseURL string `json:"base_url,omitempty"`

	// The operator's key for this provider: exactly one `{env.NAME}` or `{file.PATH}`, or `none` to send no
	// Authorization. Without it only calls with an organization's own key (BYOK) work; all others get 502
	// `provider_error` without a call. Protocols that need no network need no key.
	APIKey config.Secret `json:"api_key,omitempty"`

	// How long connecting may take: name resolution, TCP and TLS together. More than 0, up to 24h. Default: `5s`.
	ConnectTimeout caddy.Duration `json:"connect_timeout,omitempty"`

	// How long a stream may take to its first event, counted from when the request was sent, and to its first text if another
	// endpoint of the model may answer and the model isn't marked as reasoning. More than 0, up to 24h. Default: `60s`.
	FirstByteTimeout caddy.Duration `json:"first_byte_timeout,omitempty"`

	// How long a running stream may be silent between two reads. More than 0, up to 24h. Default: `60s`.
	IdleTimeout caddy.Duration `json:"idle_timeout,omitempty"`

	// How long the whole answer of a call without streaming may take. More than 0, up to 24h. Default: `300s`.
	ResponseTimeout caddy.Duration `json:"response_timeout,omitempty"`

	// How long any call may take from start to end. The hold on the wallet lives this long plus `hold_ttl`. More than
	// 0, up to 24h. Default: `10m`.
	MaxDuration caddy.Duration `json:"max_duration,omitempty"`

	// How many calls to this provider may run at a time in this process, over all organizations, from 1 to 1,000,000. One
	// more gets 503 `provider_overloaded`; a worker lets its customer wait. Each uses some 70 KiB while it waits for a
	// provider that hangs. In a worker's process the calls to one of several providers are also limited to three quarters
	// of its `concurrency`. Default: 2000.
	MaxCalls *int64 `json:"max_calls,omitempty"`

	// Whether the vendor gets the trace context (`traceparent`) of calls of traced requests, so that a model server of your own
	// can join the trace. Refused by protocols that need no network. Default: false.
	SendTraceparent bool `json:"send_traceparent,omitempty"`

	// Caddy's HTTP transport (module `http.reverse_proxy.transport.http`) with all its options except the following, which
	// would break calls and are refused with the reason: `versions` with 3, `proxy_protocol`, `read_timeout`,
	// `write_timeout`, placeholders in the TLS server name, and TLS options that need another app. Unless given,
	// `dial_timeout` is connect_timeout and `max_idle_conns_per_host` is 1,024. Refused by protocols that need no network.
	TransportRaw json.RawMessage `json:"transport,omitempty" caddy:"namespace=http.reverse_proxy.transport inline_key=protocol"`
}

// Named implements the list of providers.
func (p *Provider) Named() *string { return &p.Name }

// Rules are the options of a provider. [Provider.faults] applies the protocol's own checks.
func (p *Provider) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Text("preset", &p.Preset, "<vendor>", "a vendor, e.g. openai").Filled(p.fillPreset),
		{Word: "protocol", Syntax: "<name>", HasBlock: true, Read: p.readProtocol, Block: placeholder("<options of the module svc.providers.name>")},
		caddyfile.Text("base_url", &p.BaseURL, "<url>", "an address, e.g. https://api.example.com/v1"),
		caddyfile.Secret("api_key", &p.APIKey, NoKey),
		caddyfile.Duration("connect_timeout", &p.ConnectTimeout, 5*time.Second),
		caddyfile.Duration("first_byte_timeout", &p.FirstByteTimeout, time.Minute),
		caddyfile.Duration("idle_timeout", &p.IdleTimeout, time.Minute),
		caddyfile.Duration("response_timeout", &p.ResponseTimeout, 5*time.Minute),
		caddyfile.Duration("max_duration", &p.MaxDuration, 10*time.Minute),
		caddyfile.Integer("max_calls", &p.MaxCalls, 1, 1_000_000).Or(2000),
		caddyfile.Bool("send_traceparent", &p.SendTraceparent),
		{
			Word: "transport", Syntax: "http", HasBlock: true, Block: placeholder("<options of reverse_proxy's http transport>"),
			Read: readTransport(&p.TransportRaw),
		},
	}
}

// placeholder returns rules that represent another module's options in a syntax.
func placeholder(options string) func() []caddyfile.Rule {
	return func() []caddyfile.Rule { return []caddyfile.Rule{{Word: options}} }
}

// faults adds the faults of the name and of everything that depends on the protocol.
func (p *Provider) faults(fs *config.Faults, path string) {
	if !isBlockName(p.Name) {
		fs.Addf(path, "the name must be %s", blockNameForm)
	}
	p.protocolFaults(fs, path)
}

func (p *Provider) protocolFaults(fs *config.Faults, path string) {
	if !p.presetFaults(fs, path) {
		return
	}
	filled := *p
	filled.fillPreset()
	p = &filled
	driver := protocols.named(p.Protocol)
	if driver == nil {
		unknownProtocol(fs, path+".protocol", p.Protocol)
		return
	}
	if d := driver.Describe(); d.Local {
		if p.BaseURL != "" {
			fs.Addf(path+".base_url", "the %s protocol makes no requests; leave it out", d.Name)
		}
		if p.SendTraceparent {
			fs.Addf(path+".send_traceparent", "the %s protocol makes no requests; leave it out", d.Name)
		}
		if p.TransportRaw != nil {
			fs.Addf(path+".transport", "the %s protocol makes no requests; leave it out", d.Name)
		}
	} else {
		providerURLFaults(fs, path+".base_url", p.BaseURL, d.ExampleURL)
		transportFaults(fs, path+".transport", p.TransportRaw)
	}
	p.optionFaults(fs, path+".protocol", driver)
}

// providerURLFaults never quotes the address: a user part would be a secret.
func providerURLFaults(fs *config.Faults, path, address, exampleURL string) {
	example := "e.g. " + cmp.Or(exampleURL, "https://api.example.com/v1")
	if address == "" {
		fs.Addf(path, "missing; %s", example)
		return
	}
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", !validHost(u):
		fs.Addf(path, "must be an http or https address with a host and no placeholders, %s", example)
	case u.User != nil:
		fs.Addf(path, "the address must not contain a user or password; use api_key")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		fs.Addf(path, "takes no query and no fragment, %s", example)
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/completions"):
		fs.Addf(path, "is the address in front of the paths of single operations; leave out what begins with /chat/completions, %s", example)
	}
}

// timeouts returns the timeouts of calls.
func (p *Provider) timeouts() providers.Timeouts {
	return providers.Timeouts{
		Connect:     time.Duration(p.ConnectTimeout),
		FirstByte:   time.Duration(p.FirstByteTimeout),
		Idle:        time.Duration(p.IdleTimeout),
		Response:    time.Duration(p.ResponseTimeout),
		MaxDuration: time.Duration(p.MaxDuration),
	}
}

// valueOr returns what p points to, or otherwise if p is nil.
func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// readProtocol reads `protocol NAME { … }`.
func (p *Provider) readProtocol(r *caddyfile.Reader, path string, o caddyfile.Option) {
	var name string
	caddyfile.Text("", &name, "", "a protocol: "+config.Listed(protocols.names())).Read(r, path, o)
	caddyfile.Set(r, path, o, &p.Protocol, name)
	driver := protocols.named(name)
	if driver == nil {
		return // the value's own fault
	}
	options := map[string]string{}
	var rules []caddyfile.Rule
	declared := driver.Describe().Options
	for i := range declared {
		rules = append(rules, optionRule(&declared[i], options))
	}
	r.Block(path, o, rules)
	if len(options) > 0 {
		caddyfile.Set(r, path, o, &p.Options, options)
	}
}

// optionFaults checks the options at path, each at its own name below it.
func (p *Provider) optionFaults(fs *config.Faults, path string, driver providers.Driver) {
	options := driver.Describe().Options
	for i := range options {
		o := &options[i]
		optionFaults(fs, path+"."+o.Name, o, p.Options[o.Name])
	}
	unknownFaults(fs, path, p.Options, optionNames(options))
	if checker, ok := driver.(option.Checker); ok {
		problemFaults(fs, path, checker.CheckOptions(maps.Clone(p.Options)))
	}
}

// readOptions returns the options with their references resolved, and adds a fault for each reference that can't be
// resolved.
func (p *Provider) readOptions(repl *caddy.Replacer, fs *config.Faults, path string, driver providers.Driver) map[string]string {
	read := map[string]string{}
	options := driver.Describe().Options
	for _, name := range optionNames(options) {
		if value := p.Options[name]; value != "" {
			read[name] = value
		}
	}
	resolveOptions(repl, fs, path, options, read)
	return read
}

// secrets returns the references of the provider's secrets.
func (p *Provider) secrets() []namedSecret {
	path := config.Element("provider", p.Name)
	var all []namedSecret
	if p.APIKey != NoKey {
		all = append(all, namedSecret{path: path + ".api_key", reference: p.APIKey})
	}
	if driver := protocols.named(p.Protocol); driver != nil {
		all = append(all, secretOptions(path+".protocol", driver.Describe().Options, p.Options)...)
	}
	return all
}

// vendor is a provider with its references resolved.
type vendor struct {
	// apiKey is the operator's key, empty if there is none or none is sent.
	apiKey string
	// provider is the adapter; local, whether its protocol needs no network.
	provider providers.Provider
	local    bool
	// account is a digest of the address, the key and everything else by which requests differ.
	account string
}

// read resolves the references of the provider and makes its adapter.
func (p *Provider) read(ctx caddy.Context, repl *caddy.Replacer, fs *config.Faults) vendor {
	path := config.Element("provider", p.Name)
	var read vendor
	if p.APIKey != "" && p.APIKey != NoKey {
		key, err := p.APIKey.Resolve(repl)
		switch {
		case err != nil:
			fs.Addf(path+".api_key", "%v", err)
		case !config.VisibleASCII(key):
			fs.Addf(path+".api_key", "what %s holds can't be sent in a header; allowed: visible ASCII characters", string(p.APIKey))
		}
		read.apiKey = key
	}
	driver := protocols.named(p.Protocol)
	read.local = driver.Describe().Local
	made := &providers.Config{
		BaseURL: p.BaseURL, Options: p.readOptions(repl, fs, path+".protocol", driver), Timeouts: p.timeouts(), Logger: plainLogger(ctx),
	}
	account := fmt.Appendf(nil, "%q %q %s %q %q", p.Protocol, p.BaseURL, p.TransportRaw, made.Options, read.apiKey)
	read.account = fmt.Sprintf("%x", sha256.Sum256(account))
	if !read.local {
		transport, err := loadTransport(ctx, p.TransportRaw, made.Timeouts.Connect)
		if err != nil {
			fs.Addf(path+".transport", "%v", err)
			return read
		}
		made.Transport = transport
	}
	provider, err := newProvider(driver, made)
	if err != nil {
		fs.Addf(path+".protocol", "%v", err)
	}
	read.provider = provider
	return read
}

// newProvider makes the adapter. A guest that panics is a fault of the configuration that names it.
func newProvider(driver providers.Driver, config *providers.Config) (provider providers.Provider, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the module panicked: %T", cause)
		}
	}()
	provider, err = driver.New(config)
	if provider == nil && err == nil {
		err = errors.New("the module made no provider")
	}
	return provider, err
}

// Model is a model that clients can call, with its limits and its price.
type Model struct {
	// The id that clients send: `<provider>/<model>`, where the part before the first slash names a provider of this
	// configuration, unless the model has endpoints, and the rest is 1 to 128 letters, digits and `. _ : / @ + -`. Required, unique.
	Name string `json:"name,omitempty"`

	// The vendor's name of the model. Default: the part of the id after the first slash.
	UpstreamModel string `json:"upstream_model,omitempty"`

	// The places that can answer, up to 32. If one fails before its first text, another one of them answers. The limits and prices of
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

	// The prices of whole calls with long prompts, at most 3.
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
	rules := []caddyfile.Rule{
		modelText("upstream_model", &m.UpstreamModel, "the vendor's name of the model", &rest).As("<name>"),
		caddyfile.List("endpoint", &m.Endpoints, (*Endpoint).faults).
			As("<provider>[/<upstream>]").Also(m.endpointFaults),
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
		maxTokensField(&m.MaxTokensField),
		caddyfile.Override("drop_sampling", &m.DropSampling),
		caddyfile.Override("drop_stop", &m.DropStop),
		thinking(&m.Thinking),
		caddyfile.Integer("least_max_tokens", &m.LeastMaxTokens, 1, mostTokens).Or(1).As("<tokens>").
			Also(func(fs *config.Faults, path string) {
				if m.LeastMaxTokens != nil && m.MaxOutputTokens != nil && *m.LeastMaxTokens > *m.MaxOutputTokens {
					fs.Addf(path, "is more than max_output_tokens, which bounds every answer: %d", *m.MaxOutputTokens)
				}
			}),
		caddyfile.Text("shutdown_date", &m.ShutdownDate, "<YYYY-MM-DD>", "a day, e.g. 2027-01-14").Also(func(fs *config.Faults, path string) {
			if _, err := m.shutdown(); err != nil {
				fs.Addf(path, "%q is not a day; write for example 2027-01-14", m.ShutdownDate)
			}
		}),
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
	return caddyfile.Text(word, to, "<text>", what).Also(func(fs *config.Faults, path string) {
		if !config.Printable(*to, longestModelName) {
			fs.Addf(path, "must be at most %d printable characters", longestModelName)
		}
	}).Filled(func() { *to = cmp.Or(*to, *otherwise) })
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
		if e != nil {
			e.providerFaults(fs, strings.TrimPrefix(path, appName+"."), providers)
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
