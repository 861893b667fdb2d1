package caddymodule

import (
	"errors"
	"fmt"

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

func (m providerModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  caddy.ModuleID(providerNamespace + "." + m.Describe().Name),
		New: func() caddy.Module { return m },
	}
}

// providerDrivers are the drivers of this build.
func providerDrivers() []providers.Driver {
	drivers, _ := driversOf(providerNamespace, builtin.Providers(), describedProtocol)
	return drivers
}

func protocolName(driver providers.Driver) string { return driver.Describe().Name }

func describedProtocol(driver providers.Driver) (name string, err error) {
	d := driver.Describe()
	if d == nil {
		return "", errors.New("the protocol has no description")
	}
	return d.Name, d.Check()
}

// providerDriver returns the driver of a protocol, nil if this build has none.
func providerDriver(name string) providers.Driver {
	return driverOf(providerDrivers(), protocolName, name)
}

// protocolNames are the names of the protocols of this build.
func protocolNames() []string { return namesOf(providerDrivers(), protocolName) }

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
