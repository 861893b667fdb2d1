package caddymodule

import (
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
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
	said := func(faulty []moduleFault) map[string]string {
		all := map[string]string{}
		for _, fault := range faulty {
			all[fault.id.Name()] = fault.err.Error()
		}
		return all
	}
	names, _, faulty := drivers[platforms.Driver]{guestPlatforms, builtin.Platforms(), messagingPlatforms.describe}.find()
	require.Equal(t, []string{"bot", "social", "localchat", "market_a", "market_b", "good"}, names)
	require.Equal(t, map[string]string{
		"renamed":  `the module describes "other"; the id of a module ends with the name that it describes`,
		"faulty":   "platform faulty: channel type bot has no label",
		"panics":   "the description of a platform panicked",
		"stranger": "the module is a caddymodule.guestModule and no platforms.Driver",
	}, said(faulty))

	names, _, others := drivers[providers.Driver]{guestProviders, builtin.Providers(), protocols.describe}.find()
	require.Equal(t, []string{"openai", "echo", "good"}, names)
	require.Equal(t, map[string]string{
		"renamed": `the module describes "other"; the id of a module ends with the name that it describes`,
		"faulty":  "the label is missing",
		"nothing": "the protocol has no description",
		"panics":  "the module panicked",
	}, said(others))
}
