package caddymodule

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
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
		useless := func(given bool, option string) {
			if given {
				fs.Addf(path+"."+option, "the %s protocol makes no requests; leave it out", d.Name)
			}
		}
		useless(p.BaseURL != "", "base_url")
		useless(p.SendTraceparent, "send_traceparent")
		useless(p.TransportRaw != nil, "transport")
	} else {
		providerURLFaults(fs, path+".base_url", p.BaseURL, d.ExampleURL)
		transportFaults(fs, path+".transport", p.TransportRaw)
	}
	driverFaults(fs, path+".protocol", driver, driver.Describe().Options, p.Options)
}

func providerURLFaults(fs *config.Faults, path, address, exampleURL string) {
	example := "e.g. " + cmp.Or(exampleURL, "https://api.example.com/v1")
	if address == "" {
		fs.Addf(path, "missing; %s", example)
		return
	}
	u := addressFaults(fs, path, address, "the address must not contain a user or password; use api_key", example)
	if u != nil && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/completions") {
		fs.Addf(path, "is the address in front of the paths of single operations; leave out what begins with /chat/completions, %s", example)
	}
}

// timeouts returns the timeouts of calls.
func (p *Provider) timeouts() providers.Timeouts {
	return providers.Timeouts{
		Connect: time.Duration(p.ConnectTimeout), FirstByte: time.Duration(p.FirstByteTimeout),
		Idle: time.Duration(p.IdleTimeout), Response: time.Duration(p.ResponseTimeout),
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
	if options := readOptions(r, path, o, driver.Describe().Options); len(options) > 0 {
		caddyfile.Set(r, path, o, &p.Options, options)
	}
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

// read returns p for the gateway, with its references resolved and its adapter.
func (p *Provider) read(ctx caddy.Context, repl *caddy.Replacer, fs *config.Faults) gateway.ProviderEntry {
	path := config.Element("provider", p.Name)
	read := p.entry()
	if p.APIKey != NoKey {
		read.APIKey = resolved(p.APIKey, repl, fs, path+".api_key")
		if !config.VisibleASCII(read.APIKey) {
			fs.Addf(path+".api_key", "what %s holds can't be sent in a header; allowed: visible ASCII characters", string(p.APIKey))
		}
	}
	driver := protocols.named(p.Protocol)
	made := &providers.Config{BaseURL: p.BaseURL, Timeouts: p.timeouts(), Logger: plainLogger(ctx, appName)}
	made.Options = resolveOptions(repl, fs, path+".protocol", driver.Describe().Options, p.Options)
	account := fmt.Appendf(nil, "%q %q %s %q %q", p.Protocol, p.BaseURL, p.TransportRaw, made.Options, read.APIKey)
	read.Account = fmt.Sprintf("%x", sha256.Sum256(account))
	if !driver.Describe().Local {
		transport, err := loadTransport(ctx, p.TransportRaw, made.Timeouts.Connect)
		if err != nil {
			fs.Addf(path+".transport", "%v", err)
			return read
		}
		made.Transport = transport
	}
	var err error
	if read.Provider, err = newProvider(driver, made); err != nil {
		fs.Addf(path+".protocol", "%v", err)
	}
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

// preset returns the preset that the provider names and its protocol, or nil if there is none.
func (p *Provider) preset() (preset *providers.Preset, protocol string) {
	if p.Preset == "" {
		return nil, ""
	}
	for _, driver := range protocols.all() {
		d := driver.Describe()
		for i := range d.Presets {
			if d.Presets[i].Name == p.Preset {
				return &d.Presets[i], d.Name
			}
		}
	}
	return nil, ""
}

// fillPreset sets the values of the preset that weren't given.
func (p *Provider) fillPreset() {
	preset, protocol := p.preset()
	if preset == nil {
		return
	}
	p.Protocol = cmp.Or(p.Protocol, protocol)
	if !preset.Incomplete() {
		p.BaseURL = cmp.Or(p.BaseURL, preset.BaseURL)
	}
	if options := maps.Clone(preset.Options); options != nil {
		maps.Copy(options, p.Options)
		p.Options = options
	}
}

// presetFaults adds the faults of the preset, and reports whether its values can be checked.
func (p *Provider) presetFaults(fs *config.Faults, path string) bool {
	if p.Preset == "" {
		return true
	}
	preset, protocol := p.preset()
	switch {
	case preset == nil:
		var names []string
		for _, driver := range protocols.all() {
			for _, preset := range driver.Describe().Presets {
				names = append(names, preset.Name)
			}
		}
		fs.Addf(path+".preset", "%s is not known; allowed: %s", config.Quoted(p.Preset), config.Listed(names))
		return false
	case p.Protocol != "" && p.Protocol != protocol:
		fs.Addf(path+".protocol", "the preset %s speaks %s; leave one of them out", p.Preset, protocol)
		return false
	case preset.Incomplete() && (p.BaseURL == "" || p.BaseURL == preset.BaseURL):
		fs.Addf(path+".base_url", "missing; the address of %s is your own, e.g. %s", preset.Label, preset.BaseURL)
		return false
	}
	return true
}

// unknownProtocol adds the fault of a protocol that this build doesn't have.
func unknownProtocol(fs *config.Faults, path, protocol string) {
	allowed := "allowed: " + config.Listed(protocols.names())
	if protocol == "" {
		fs.Addf(path, "missing; %s", allowed)
		return
	}
	if preset, speaks := (&Provider{Preset: protocol}).preset(); preset != nil {
		fs.Addf(path, "%s speaks the protocol %s; use `preset %s`", preset.Label, speaks, protocol)
		return
	}
	fs.Addf(path, "%s is not known; %s", config.Quoted(protocol), allowed)
}
