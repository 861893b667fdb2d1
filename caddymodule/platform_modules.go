package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
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

func (m platformModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  caddy.ModuleID(platformNamespace + "." + m.Describe().Name),
		New: func() caddy.Module { return m },
	}
}

// platformDrivers are the drivers of this build.
func platformDrivers() []platforms.Driver {
	drivers, _ := driversOf(platformNamespace, builtin.Platforms(), describedPlatform)
	return drivers
}

func platformName(driver platforms.Driver) string { return driver.Describe().Name }

func describedPlatform(driver platforms.Driver) (name string, err error) {
	d, err := messaging.Describe(driver)
	if err != nil {
		return "", err
	}
	return d.Name, nil
}

// platformDriver returns the driver of a name, nil if this build has none.
func platformDriver(name string) platforms.Driver {
	return driverOf(platformDrivers(), platformName, name)
}

func platformNames() []string { return namesOf(platformDrivers(), platformName) }

// moduleFaults adds the Caddy modules of this build that were made to be platforms or protocols and can't be.
func moduleFaults(fs *config.Faults) {
	_, faulty := driversOf(platformNamespace, builtin.Platforms(), describedPlatform)
	_, others := driversOf(providerNamespace, builtin.Providers(), describedProtocol)
	for _, fault := range append(faulty, others...) {
		fs.Addf(string(fault.id), "%v", fault.err)
	}
}

// moduleFault is why a module of this build can't be used.
type moduleFault struct {
	id  caddy.ModuleID
	err error
}

// driversOf returns the drivers of this build, the built-in ones first, then those that are Caddy modules of the namespace, and
// the modules that can't be used. described returns the name in a driver's description.
func driversOf[D any](namespace string, builtin []D, described func(D) (string, error)) (drivers []D, faulty []moduleFault) {
	drivers = builtin
	names := map[string]bool{}
	for _, driver := range builtin {
		name, _ := described(driver)
		names[name] = true
	}
	for _, module := range caddy.GetModules(namespace) {
		if names[module.ID.Name()] {
			continue
		}
		driver, err := guestDriver(module, described)
		if err != nil {
			faulty = append(faulty, moduleFault{module.ID, err})
			continue
		}
		drivers = append(drivers, driver)
	}
	return drivers, faulty
}

func guestDriver[D any](module caddy.ModuleInfo, described func(D) (string, error)) (driver D, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the module panicked")
		}
	}()
	made := module.New()
	driver, ok := made.(D)
	if !ok {
		return driver, fmt.Errorf("the module is a %T and no %s", made, reflect.TypeFor[D]())
	}
	name, err := described(driver)
	switch {
	case err != nil:
		return driver, err
	case name != module.ID.Name():
		return driver, fmt.Errorf("the module describes %q; the id of a module ends with the name that it describes", name)
	}
	return driver, nil
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
	return messaging.NewCatalog(platformDrivers())
}

// newPlatforms makes the platforms of the configuration.
func (a *App) newPlatforms() (*messaging.Set, error) {
	return messaging.New(messaging.Config{
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
		shared.db.Routes, queue, shared.ring, shared.bodies, a.log)
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
