package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/egress"
)

// appName is the name of the app in the JSON configuration, of its global Caddyfile block, and of its paths in
// messages.
const appName = "svc"

func init() { caddy.RegisterModule(new(App)) }

// App is the configuration of the gateway: its store, plans, providers, models, platforms and limits. The handlers
// `http.handlers.svc_*` of any number of servers and routes share it.
//
// Every secret in it is a reference, `{env.NAME}` or `{file.PATH}`. Loading the configuration reads the secrets and reports
// everything that is missing or wrong at once; it opens no store and makes no connection.
type App struct {
	// The address under which the service is reached from outside: `scheme://host[:port]` with http or https, nothing
	// after it, because addresses built from it are compared and signed byte by byte. Required.
	BaseURL string `json:"base_url,omitempty"`

	// The store. Required.
	Store *Store `json:"store,omitempty"`

	// Where the rate limit is counted when several nodes share it. Default: in memory with a sqlite store, in the store
	// with postgres.
	Redis *Redis `json:"redis,omitempty"`

	// The key that encrypts what is secret in the store: exactly one `{env.NAME}` or `{file.PATH}` with the base64 of
	// 32 bytes, optionally followed by older ones, which stay readable until `caddy svc rekey` has run. Required.
	MasterKey config.Secret `json:"master_key,omitempty"`

	// The plans. The first is the one an organization gets when none is named. Without any, organizations have no
	// limits.
	Plans []*Plan `json:"plans,omitempty"`

	// The providers of models.
	Providers []*Provider `json:"providers,omitempty"`

	// The models that clients may call. Every organization has all of them, unless the operator disables one for it.
	Models []*Model `json:"models,omitempty"`

	// The messaging platforms and marketplaces, by the names of their modules.
	Platforms Platforms `json:"platforms,omitempty" caddy:"namespace=svc.platforms"`

	// The companion worker.
	Worker *Worker `json:"worker,omitempty"`

	// Intervals of the background work. Rarely needed.
	Timing *Timing `json:"timing,omitempty"`

	// Bounds of the resources that all requests together may use.
	Limits *Limits `json:"limits,omitempty"`

	// Whether this server may hold a small part of a busy wallet in advance, so that a call without an `Idempotency-Key` needs one
	// commit instead of two: `on` or `off`. Default: `on`.
	Tranches string `json:"tranches,omitempty"`

	// Where organizations may receive events: `public` allows https addresses on the public internet, `any` also private networks, and
	// http on this host. Default: `public`.
	EventEndpoints string `json:"event_endpoints,omitempty"`

	// Where files that customers send may be fetched, if platforms name them by an address: `public` or `any`, as for events. `any`
	// is for trials with a platform of your own: the sender of a signed delivery can then read any address of your network.
	// Default: `public`.
	CustomerFiles string `json:"customer_files,omitempty"`

	// How the process uses its memory.
	Memory *Memory `json:"memory,omitempty"`

	settings settings
	lifecycle
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc", New: func() caddy.Module { return new(App) }}
}

// ReadApp returns the svc app of a whole configuration in Caddy's JSON form. It checks the app as [App.Provision] does
// first, but reads no secret and opens nothing. Errors call the configuration name.
func ReadApp(configuration []byte, name string) (*App, error) {
	var read struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(caddy.RemoveMetaFields(configuration), &read); err != nil {
		return nil, fmt.Errorf("%s is no Caddy configuration: %w", name, err)
	}
	return readApp(read.Apps, name)
}

// readApp is [ReadApp] for the apps of a configuration.
func readApp(apps map[string]json.RawMessage, name string) (*App, error) {
	raw, found := apps[appName]
	if !found {
		return nil, fmt.Errorf("%s has no %s block; name the configuration that the server runs with (--config)", name, appName)
	}
	app := new(App)
	if err := caddy.StrictUnmarshalJSON(raw, app); err != nil {
		return nil, fmt.Errorf("the %s app of %s: %w", appName, name, err)
	}
	if err := app.faults().Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return app, nil
}

// faults checks a configuration, whether it was a Caddyfile or JSON. It returns everything that is wrong and can be seen
// without reading a secret, in the order of the fields.
func (a *App) faults() *config.Faults {
	fs := new(config.Faults)
	moduleFaults(fs)
	baseURLFaults(fs, a.BaseURL)
	a.Store.faults(fs)
	a.Redis.faults(fs)
	a.masterKeyFaults(fs)
	a.planFaults(fs)
	providers := a.providerFaults(fs)
	a.modelFaults(fs, providers)
	a.Platforms.faults(fs)
	a.Worker.faults(fs)
	a.Timing.faults(fs)
	a.Limits.faults(fs)
	if a.Tranches != "" && !slices.Contains(onOff, a.Tranches) {
		fs.Addf("svc.tranches", "%q is not known; allowed: %s", a.Tranches, config.Listed(onOff))
	}
	targetFaults(fs, "svc.event_endpoints", a.EventEndpoints)
	targetFaults(fs, "svc.customer_files", a.CustomerFiles)
	a.Memory.faults(fs)
	return fs
}

// tranchesOff is the value of tranches that switches them off.
const tranchesOff = "off"

var onOff = []string{"on", tranchesOff}

// anyTarget is the value of event_endpoints and customer_files that allows every address.
const anyTarget = "any"

var targets = []string{"public", anyTarget}

func targetFaults(fs *config.Faults, path, target string) {
	if target != "" && !slices.Contains(targets, target) {
		fs.Addf(path, "%q is not known; allowed: %s", target, config.Listed(targets))
	}
}

// targetPolicy returns which addresses an option allows.
func targetPolicy(target string) egress.Policy {
	return egress.Policy{AllowPrivate: target == anyTarget}
}

func baseURLFaults(fs *config.Faults, address string) {
	const path, form = "svc.base_url", "scheme://host[:port] with http or https, e.g. https://api.example.com"
	if address == "" {
		fs.Addf(path, "missing; give %s", form)
		return
	}
	u, err := url.Parse(address)
	switch {
	case err == nil && (u.Path != "" || strings.HasSuffix(address, "/")):
		fs.Addf(path, "takes no path and no slash at the end, only %s", form)
	case err != nil, u.Scheme != "http" && u.Scheme != "https", !validHost(u), address != u.Scheme+"://"+u.Host:
		fs.Addf(path, "must be %s", form)
	}
}

func (a *App) masterKeyFaults(fs *config.Faults) {
	const path = "svc.master_key"
	if a.MasterKey == "" {
		fs.Addf(path, "missing; give %s that holds the base64 of 32 random bytes", config.ReferenceForms)
		return
	}
	a.MasterKey.Check(fs, path, "")
}

func (a *App) planFaults(fs *config.Faults) {
	names := make(nameCounts)
	for i, plan := range a.Plans {
		if plan == nil || plan.Name == "" {
			fs.Nameless("plan", i)
			continue
		}
		plan.faults(fs, names.path(fs, "plan", plan.Name))
	}
}

// providerFaults also returns the names of the providers, which models refer to.
func (a *App) providerFaults(fs *config.Faults) (known []string) {
	names := make(nameCounts)
	for i, provider := range a.Providers {
		if provider == nil || provider.Name == "" {
			fs.Nameless("provider", i)
			continue
		}
		provider.faults(fs, names.path(fs, "provider", provider.Name))
		known = append(known, provider.Name)
	}
	return slices.Compact(known)
}

func (a *App) modelFaults(fs *config.Faults, providers []string) {
	names := make(nameCounts)
	for i, model := range a.Models {
		if model == nil || model.Name == "" {
			fs.Nameless("model", i)
			continue
		}
		model.faults(fs, names.path(fs, "model", model.Name), providers)
	}
}

type nameCounts map[string]int

// path returns the path of the next element called name, and adds a fault if the name was used before.
func (n nameCounts) path(fs *config.Faults, list, name string) string {
	n[name]++
	path := config.Repeated(config.Element(list, name), n[name])
	if n[name] > 1 {
		fs.Addf(path, "the name is taken by an earlier %s; names are unique", list)
	}
	return path
}

// plan returns the plan of an organization: the one called name, else the first, else one without limits. A name that the
// configuration no longer has gets the first plan, so that removing a plan never lifts limits.
func (a *App) plan(name string) *Plan {
	for _, plan := range a.Plans {
		if plan.Name == name {
			return plan
		}
	}
	if len(a.Plans) > 0 {
		return a.Plans[0]
	}
	return new(Plan)
}

// DefaultPlan is the name of the plan of an organization that names none; "" if there are no plans.
func (a *App) DefaultPlan() string { return a.plan("").Name }

// PlanNames are the names of the plans, in their order.
func (a *App) PlanNames() []string {
	return namesOf(a.Plans, func(p *Plan) string { return p.Name })
}

// ModelNames are the ids of the models.
func (a *App) ModelNames() []string {
	return namesOf(a.Models, func(m *Model) string { return m.Name })
}

// ProviderNames are the names of the providers.
func (a *App) ProviderNames() []string {
	return namesOf(a.Providers, func(p *Provider) string { return p.Name })
}

func namesOf[T any](list []T, name func(T) string) []string {
	names := make([]string, len(list))
	for i, element := range list {
		names[i] = name(element)
	}
	return names
}

// SweepInterval is the pause between two sweeps of expired holds.
func (a *App) SweepInterval() time.Duration { return a.Timing.sweepInterval() }
