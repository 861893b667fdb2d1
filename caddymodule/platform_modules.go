package caddymodule

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// platformNamespace is the namespace of Caddy modules that are messaging platforms: each is a [platforms.Driver] whose
// platform has the name of the module.
const platformNamespace = "svc.platforms"

func init() {
	for _, driver := range builtin.Platforms() {
		caddy.RegisterModule(platformModule{driver})
	}
}

// platformModule is the Caddy module of a built-in platform.
type platformModule struct{ platforms.Driver }

// CaddyModule returns the Caddy module information.
func (m platformModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  caddy.ModuleID(platformNamespace + "." + m.Describe().Name),
		New: func() caddy.Module { return m },
	}
}

// platformDrivers are the drivers of this build.
func platformDrivers() []platforms.Driver {
	return driversOf(platformNamespace, builtin.Platforms(), platformName)
}

func platformName(driver platforms.Driver) string { return driver.Describe().Name }

// platformDriver returns the driver of a name, nil if this build has none.
func platformDriver(name string) platforms.Driver {
	return driverOf(platformDrivers(), platformName, name)
}

func platformNames() []string { return namesOf(platformDrivers(), platformName) }

// driversOf returns the drivers of this build, the built-in ones first, then those that are Caddy modules of the namespace.
// A module that is no driver, or whose description has another name, is left out: no configuration can name it.
func driversOf[D any](namespace string, drivers []D, name func(D) string) []D {
	names := namesOf(drivers, name)
	for _, module := range caddy.GetModules(namespace) {
		driver, ok := module.New().(D)
		if ok && name(driver) == module.ID.Name() && !slices.Contains(names, module.ID.Name()) {
			drivers = append(drivers, driver)
		}
	}
	return drivers
}

// driverOf returns the driver of a name, the zero value if there is none.
func driverOf[D any](drivers []D, name func(D) string, wanted string) (found D) {
	at := slices.IndexFunc(drivers, func(d D) bool { return name(d) == wanted })
	if at < 0 {
		return found
	}
	return drivers[at]
}

// PlatformCatalog returns what the platforms of this build declare.
func PlatformCatalog() (*messaging.Catalog, error) {
	return messaging.NewCatalog(platformDrivers()) //nolint:wrapcheck // it names the platform
}

// newPlatforms makes the platforms of the configuration.
func (a *App) newPlatforms() (*messaging.Set, error) {
	return messaging.New(messaging.Config{ //nolint:wrapcheck // it names the platform
		Drivers: platformDrivers(), Options: a.settings.platforms, Logger: a.log,
	})
}

// webhooks are the receivers of all platforms, by the platform's name.
func (a *App) webhooks(
	set *messaging.Set, shared *sharedStore, queue *inbox.Queue,
) map[string]func(http.ResponseWriter, *http.Request) error {
	ackEmpty := map[string]bool{}
	for name, block := range a.Platforms {
		ackEmpty[name] = block != nil && block.values[optionAck] == AckEmpty
	}
	received := webhook.New(webhook.Config{BaseURL: a.BaseURL, Platforms: set, AckEmpty: ackEmpty},
		shared.db.Routes, queue, a.settings.ring, shared.bodies, a.log)
	receivers := map[string]func(http.ResponseWriter, *http.Request) error{}
	for _, d := range set.Platforms() {
		receivers[d.Name] = received.Receiver(d.Name)
	}
	return receivers
}

// signatureHeaders are the headers that the operator chose for signatures, by the name of the platform.
func (a *App) signatureHeaders() map[string]string {
	headers := map[string]string{}
	for name, block := range a.Platforms {
		if block != nil {
			headers[name] = block.values[optionHeader]
		}
	}
	return headers
}
