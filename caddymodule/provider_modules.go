package caddymodule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/providers"
)

// providerNamespace is the namespace of Caddy modules that speak a vendor's protocol: each is a [providers.Driver] whose
// protocol has the name of the module.
const providerNamespace = "svc.providers"

func init() {
	for _, driver := range builtin.Providers() {
		caddy.RegisterModule(providerModule{driver})
	}
}

// providerModule is the Caddy module of a built-in protocol.
type providerModule struct{ providers.Driver }

// CaddyModule returns the Caddy module information.
func (m providerModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  caddy.ModuleID(providerNamespace + "." + m.Describe().Name),
		New: func() caddy.Module { return m },
	}
}

// providerDrivers are the drivers of this build, the built-in ones first. A module that is no driver, or whose protocol has
// another name, is left out: no configuration can name it.
func providerDrivers() []providers.Driver {
	drivers := builtin.Providers()
	names := driverNames(drivers)
	for _, module := range caddy.GetModules(providerNamespace) {
		driver, ok := module.New().(providers.Driver)
		if ok && driver.Describe().Name == module.ID.Name() && !slices.Contains(names, module.ID.Name()) {
			drivers = append(drivers, driver)
		}
	}
	return drivers
}

// providerDriver returns the driver of a protocol, nil if this build has none.
func providerDriver(name string) providers.Driver {
	for _, driver := range providerDrivers() {
		if driver.Describe().Name == name {
			return driver
		}
	}
	return nil
}

// protocolNames are the names of the protocols of this build.
func protocolNames() []string { return driverNames(providerDrivers()) }

func driverNames(drivers []providers.Driver) []string {
	return namesOf(drivers, func(d providers.Driver) string { return d.Describe().Name })
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
	return provider, err //nolint:wrapcheck // the caller names the place
}
