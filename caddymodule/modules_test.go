package caddymodule

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	caddyfiletext "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/providers"
)

// The modules of these tests are registered below namespaces of their own, so that no other test has them in its build.
const (
	guestPlatforms = "svc_test.platforms"
	guestProviders = "svc_test.providers"
)

// guestModule is a Caddy module that a test registers.
type guestModule struct {
	id   string
	made func() caddy.Module
}

// CaddyModule implements [caddy.Module].
func (m guestModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: caddy.ModuleID(m.id), New: m.made}
}

// guestPlatform is a module whose description is the bot platform's with a change, or which panics.
type guestPlatform struct {
	guestModule
	bot.Driver
	change func(*platforms.Description)
}

// Describe implements [platforms.Driver].
func (g guestPlatform) Describe() *platforms.Description {
	d := g.Driver.Describe()
	g.change(d)
	return d
}

// guestProtocol is a module whose description is as given.
type guestProtocol struct {
	guestModule
	described *providers.Description
}

// Describe implements [providers.Driver].
func (g guestProtocol) Describe() *providers.Description {
	if g.described != nil && g.described.Name == "panics" {
		panic(planted)
	}
	return g.described
}

// New implements [providers.Driver].
func (guestProtocol) New(*providers.Config) (providers.Provider, error) { return nil, nil } //nolint:nilnil // nothing is called

func init() {
	register := func(namespace, name string, made func() caddy.Module) {
		caddy.RegisterModule(guestModule{namespace + "." + name, made})
	}
	platform := func(name string, change func(*platforms.Description)) {
		register(guestPlatforms, name, func() caddy.Module { return guestPlatform{change: change} })
	}
	named := func(name string) func(*platforms.Description) {
		return func(d *platforms.Description) { d.Name = name }
	}
	platform("good", named("good"))
	platform("renamed", named("other"))
	platform("faulty", func(d *platforms.Description) { d.Name, d.Channels[0].Label = "faulty", "" })
	platform("panics", func(*platforms.Description) { panic(planted) })
	register(guestPlatforms, "stranger", func() caddy.Module { return guestModule{} })
	protocol := func(name string, d *providers.Description) {
		register(guestProviders, name, func() caddy.Module { return guestProtocol{described: d} })
	}
	protocol("good", &providers.Description{Name: "good", Label: "Good"})
	protocol("renamed", &providers.Description{Name: "other", Label: "Other"})
	protocol("faulty", &providers.Description{Name: "faulty"})
	protocol("nothing", nil)
	protocol("panics", &providers.Description{Name: "panics"})
}

// TestModulesThatCannotBeUsed guarantees that a module which was built in and can't be used is a fault that says why, whatever
// it does wrong, and that what it panics with is nowhere.
func TestModulesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	said := func(faulty config.Faults) map[string]string {
		all := map[string]string{}
		for _, fault := range faulty {
			all[caddy.ModuleID(fault.Path).Name()] = fault.Text
		}
		return all
	}
	names, _, faulty := drivers[platforms.Driver]{guestPlatforms, "platform", builtin.Platforms(), messagingPlatforms.describe}.find()
	require.Equal(t, []string{"bot", "social", "localchat", "market_a", "market_b", "good"}, names)
	require.Equal(t, map[string]string{
		"renamed":  `the module describes "other"; the id of a module ends with the name that it describes`,
		"faulty":   "platform faulty: channel type bot has no label",
		"panics":   "the description of a platform panicked",
		"stranger": "the module is a caddymodule.guestModule and no platforms.Driver",
	}, said(faulty))

	names, _, others := drivers[providers.Driver]{guestProviders, "protocol", builtin.Providers(), protocols.describe}.find()
	require.Equal(t, []string{"openai", "anthropic", "gemini", "echo", "good"}, names)
	require.Equal(t, map[string]string{
		"renamed": `the module describes "other"; the id of a module ends with the name that it describes`,
		"faulty":  "the label is missing",
		"nothing": "the protocol has no description",
		"panics":  "the module panicked",
	}, said(others))
}

// guest is a driver outside this repository, with every kind of option.
type guest struct{ panics bool }

func (guest) Describe() *providers.Description {
	return &providers.Description{Name: "guest", Label: "Guest", Options: []option.Option{
		{Name: "region", Required: true, Help: "The vendor's region.", Check: func(value string) string {
			if strings.ToLower(value) != value {
				return "must be in lower case"
			}
			return ""
		}},
		{Name: "auth_url", Kind: option.Address, Help: "Where tokens come from."},
		{Name: "account", Kind: option.Identifier, Help: "The account."},
		{Name: "signing_key", Kind: option.Secret, Help: "The key of signatures."},
	}}
}

func (g guest) New(*providers.Config) (providers.Provider, error) {
	if g.panics {
		panic(planted)
	}
	return nil, nil //nolint:nilnil // nothing is called
}

// CheckOptions implements [option.Checker].
func (guest) CheckOptions(values map[string]string) map[string]string {
	if (values["account"] == "") != (values["signing_key"] == "") {
		return map[string]string{"account": "goes with signing_key"}
	}
	return nil
}

func TestOptionsOfAProtocol(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options map[string]string
		want    []string
	}{
		{map[string]string{"region": "asia", "auth_url": "https://x", "account": "{env.A}", "signing_key": "{env.B}"}, nil},
		{map[string]string{"region": "asia", "account": "a b", "signing_key": planted, "auth_url": "https://me:" + planted + "@x"}, []string{
			"p.auth_url: takes no user and no password, e.g. https://api.example.com",
			"p.account: must be 1 to 128 visible ASCII characters, or exactly one {env.NAME} or {file.PATH}",
			"p.signing_key: must be exactly one {env.NAME} or {file.PATH}; the secret itself must not be in the configuration",
		}},
		{map[string]string{"account": "a", "other": planted}, []string{
			"p.region: missing; The vendor's region.",
			`p: "other" is not an option here; allowed: region, auth_url, account, signing_key`,
			"p.account: goes with signing_key",
		}},
		{map[string]string{"region": "Asia"}, []string{"p.region: must be in lower case"}},
	} {
		var fs config.Faults
		driverFaults(&fs, "p", guest{}, guest{}.Describe().Options, test.options)
		var found []string
		for _, f := range fs {
			found = append(found, f.String())
		}
		require.Equal(t, test.want, found)
	}
}

func TestOptionsOfAProtocolAreResolved(t *testing.T) {
	t.Parallel()
	p := &Provider{Options: map[string]string{
		"region": "asia", "account": "acc", "signing_key": string(secretFile(t, planted+"\n")),
	}}
	var fs config.Faults
	read := resolveOptions(caddy.NewReplacer(), &fs, "p", guest{}.Describe().Options, p.Options)
	require.Empty(t, fs)
	require.Equal(t, map[string]string{"region": "asia", "account": "acc", "signing_key": planted}, read)

	p.Options["signing_key"] = "{env.SVC_TEST_NO_SUCH_KEY}"
	require.NotContains(t, resolveOptions(caddy.NewReplacer(), &fs, "p", guest{}.Describe().Options, p.Options), "signing_key")
	require.EqualError(t, fs.Err(), "p.signing_key: {env.SVC_TEST_NO_SUCH_KEY} is not set")
}

func TestOptionsOfAProtocolInACaddyfile(t *testing.T) {
	t.Parallel()
	tokens, err := caddyfiletext.Tokenize([]byte("svc {\nregion asia\nregion twice\naccount {env.A}\nsigning_key "+planted+" "+planted+
		"\nauth_url \"\"\nseats 4\n}"), "Caddyfile")
	require.NoError(t, err)
	r, block := caddyfile.NewReader(caddyfiletext.NewDispenser(tokens))
	options := map[string]string{}
	var rules []caddyfile.Rule
	for _, declared := range (guest{}).Describe().Options {
		rules = append(rules, optionRule(&declared, options))
	}
	r.Block("svc", block, rules)
	require.Equal(t, map[string]string{"region": "asia", "account": "{env.A}"}, options)
	err = r.Err(new(config.Faults), block)
	require.NotContains(t, err.Error(), planted)
	for _, want := range []string{
		"svc.region: given twice; first at Caddyfile:2, at Caddyfile:3",
		"svc.signing_key: takes one value: exactly one {env.NAME} or {file.PATH}, at Caddyfile:5",
		"svc.auth_url: is empty; give an address, at Caddyfile:6",
		`svc: "seats" is not an option here; allowed: region, auth_url, account, signing_key, at Caddyfile:7`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// A guest that panics while it is made is a fault of the configuration, and what it panics with may be a secret.
func TestAModuleThatPanicsIsAFault(t *testing.T) {
	t.Parallel()
	_, err := newProvider(guest{panics: true}, &providers.Config{})
	require.EqualError(t, err, "the module panicked: string")
	_, err = newProvider(guest{}, &providers.Config{})
	require.EqualError(t, err, "the module made no provider")
}
