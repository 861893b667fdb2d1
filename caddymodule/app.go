// Package caddymodule is the Caddy shell of the gateway: the app `svc` with its JSON form and its block in the Caddyfile, the
// HTTP handlers with their directives, the worker's app, metrics, and the code that builds the plain packages out of a
// configuration. Only this package, its folders and the main packages import Caddy.
//
// It decides nothing about requests, money or keys: those rules are in handlers, billing and internal/*, which are tested
// without Caddy.
//
// Invariants:
//   - A configuration comes as a Caddyfile or as JSON; [App.faults] checks both. The Caddyfile reader adds file and line,
//     nothing else.
//   - All faults of the svc block are reported together, each with the allowed values.
//   - Exported fields hold placeholders of secrets. Provision resolves them into unexported fields, and no message quotes
//     the text in a secret's place.
//   - Provision opens no store and makes no connection, so `caddy validate` doesn't either.
package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddytokens "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/egress"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// appName is the name of the app in the JSON configuration, of its global Caddyfile block, and of its paths in
// messages.
const appName = "svc"

func init() { caddy.RegisterModule(new(App)) }

// App is the configuration of the gateway: its store, plans, providers, models, platforms and limits. The handlers
// `http.handlers.svc_*` of any number of servers and routes share it.
//
// Every secret in it is a reference, `{env.NAME}` or `{file.PATH}`. Loading the configuration reads the secrets and reports
// all missing or wrong options together; it opens no store and makes no connection.
//
// Syntax of the global option:
//
//	svc {
//	    base_url        <scheme://host[:port]>
//	    store           sqlite <path> | postgres <{env.NAME} or {file.PATH}> {
//	        direct <{env.NAME} or {file.PATH}>
//	    }
//	    redis           <{env.NAME} or {file.PATH}> | sentinel <master> <host:port...> | cluster <host:port...> {
//	        nodes             <n>
//	        username          <name>
//	        password          <{env.NAME} or {file.PATH}>
//	        sentinel_password <{env.NAME} or {file.PATH}>
//	        tls               [<PEM file of an authority>]
//	    }
//	    master_key      <{env.NAME} or {file.PATH}>
//	    plan <name> {
//	        requests_per_minute <n>
//	        channels            <n>
//	        knowledge_bytes     <size>
//	    }
//	    provider <name> {
//	        preset             <vendor>
//	        protocol           <name> {
//	            <options of the module svc.providers.name>
//	        }
//	        base_url           <url>
//	        api_key            <{env.NAME} or {file.PATH}> | none
//	        connect_timeout    <duration>
//	        first_byte_timeout <duration>
//	        idle_timeout       <duration>
//	        response_timeout   <duration>
//	        max_duration       <duration>
//	        max_calls          <n>
//	        send_traceparent   [true|false]
//	        transport          http {
//	            <options of reverse_proxy's http transport>
//	        }
//	    }
//	    model <provider>/<model> {
//	        upstream_model         <name>
//	        endpoint <provider>[/<upstream>] {
//	            order            <n>
//	            weight           <n>
//	            max_tokens_field max_tokens | max_completion_tokens
//	            thinking         <word>
//	            cost {
//	                input            <micros per million tokens>
//	                output           <micros per million tokens>
//	                cached_input     <micros per million tokens>
//	                cache_write      <micros per million tokens>
//	                cache_write_long <micros per million tokens>
//	                tier <prompt tokens> {
//	                    <options of price_tier>
//	                }
//	            }
//	        }
//	        display_name           <text>
//	        friendly_name          <text>
//	        tier                   <name>
//	        owned_by               <text>
//	        vn_hosted              [true|false]
//	        created                <unix seconds>
//	        context_window         <tokens>
//	        max_output_tokens      <tokens>
//	        max_tokens_field       max_tokens | max_completion_tokens
//	        drop_sampling          [true|false]
//	        drop_stop              [true|false]
//	        thinking               <word>
//	        least_max_tokens       <tokens>
//	        shutdown_date          <YYYY-MM-DD>
//	        reasoning              [true|false]
//	        reserve_max_output     [true|false]
//	        live_only              [true|false]
//	        price_input            <micros per million tokens>
//	        price_output           <micros per million tokens>
//	        price_cached_input     <micros per million tokens>
//	        price_cache_write      <micros per million tokens>
//	        price_cache_write_long <micros per million tokens>
//	        price_tier <prompt tokens> {
//	            input            <micros per million tokens>
//	            output           <micros per million tokens>
//	            cached_input     <micros per million tokens>
//	            cache_write      <micros per million tokens>
//	            cache_write_long <micros per million tokens>
//	        }
//	        price_hours <days, time and zone> {
//	            input            <micros per million tokens>
//	            output           <micros per million tokens>
//	            cached_input     <micros per million tokens>
//	            cache_write      <micros per million tokens>
//	            cache_write_long <micros per million tokens>
//	            tier <prompt tokens> {
//	                <options of price_tier>
//	            }
//	        }
//	        price <time> {
//	            input            <micros per million tokens>
//	            output           <micros per million tokens>
//	            cached_input     <micros per million tokens>
//	            cache_write      <micros per million tokens>
//	            cache_write_long <micros per million tokens>
//	            tier <prompt tokens> {
//	                <options of price_tier>
//	            }
//	            hours <days, time and zone> {
//	                <options of price_hours>
//	            }
//	        }
//	    }
//	    catalog_model <provider>/<model> {
//	        <options of a model>
//	    }
//	    currency        <code>
//	    currency_rate   <number>
//	    markup          <number>
//	    platform <name> {
//	        header   <name>
//	        api_base <url>
//	        ack      empty
//	        <options of the module svc.platforms.<name>>
//	    }
//	    payments <name> {
//	        <options of the module svc.payments.<name>>
//	    }
//	    payment_rate <currency> {
//	        micros <n>
//	        max    <n>
//	    }
//	    transfer {
//	        bank    <number>
//	        account <number>
//	        holder  <text>
//	    }
//	    worker {
//	        concurrency <n>
//	        listen      <address>
//	    }
//	    timing {
//	        hold_ttl       <duration>
//	        sweep_interval <duration>
//	        lease          <duration>
//	        early_status   <duration>
//	    }
//	    limits {
//	        buffered_bytes      <size>
//	        body_grace          <duration>
//	        body_grace_with_key <duration>
//	        body_rate           <size>
//	        streams             <n>
//	        calls               <n>
//	        kept_answers        <size>
//	    }
//	    tranches        on | off
//	    event_endpoints public | any
//	    customer_files  public | any
//	    operator_endpoint <url> {
//	        secret <{env.NAME} or {file.PATH}>
//	    }
//	    memory {
//	        gc_floor <size>
//	    }
//	}
//
// plan, provider, model, endpoint, catalog_model, platform, payments, payment_rate and the parts of prices may be repeated with other names.
// The first plan is the default one, and the parts of prices rise; no other order counts.
type App struct {
	// The address under which the service is reached from outside: `scheme://host[:port]` with http or https, nothing
	// after it, because addresses built from it are compared and signed byte by byte. Required.
	BaseURL string `json:"base_url,omitempty"`

	// The store. Required.
	Store *Store `json:"store,omitempty"`

	// Where the rate limit is counted when several nodes share it. Default: in memory with a sqlite store, in the store
	// with postgres.
	Redis *Redis `json:"redis,omitempty"`

	// The key that encrypts secrets in the store: exactly one `{env.NAME}` or `{file.PATH}` with the base64 of 32
	// bytes, optionally followed by older ones, which stay readable until `caddy svc rekey` has run. Required.
	MasterKey config.Secret `json:"master_key,omitempty"`

	// The plans. An organization gets the first plan if its creation names none. Without plans, organizations have no
	// limits.
	Plans []*Plan `json:"plans,omitempty"`

	// The providers of models.
	Providers []*Provider `json:"providers,omitempty"`

	// The models that clients may call. Every organization has all of them, unless the operator disables one for it.
	Models []*Model `json:"models,omitempty"`

	// Rows that come before the rows of this program's catalogue, by the provider's name and the vendor's name of the model. They are the defaults of
	// a model: names, limits and switches one by one, and the prices together if the model's own block has none of them. `caddy svc
	// catalog import` writes rows. A row sells nothing by itself.
	CatalogModels []*Model `json:"catalog_models,omitempty"`

	// The currency of all your amounts, as its ISO 4217 code such as `VND`. Pages write amounts with its sign. Default: none, and pages call the
	// unit of amounts credits.
	Currency string `json:"currency,omitempty"`

	// How many of your currency units a unit of the catalogue's currency costs, a decimal number above 0 such as `26350.5`. The
	// prices of the catalogue, in US dollars, are multiplied by it; prices in a model's own block aren't. Default: `1`.
	CurrencyRate string `json:"currency_rate,omitempty"`

	// The factor between the prices of the catalogue and yours, a decimal number above 0 such as `1.2`. Default: `1`.
	Markup string `json:"markup,omitempty"`

	// The messaging platforms and marketplaces, by the names of their modules.
	Platforms Platforms `json:"platforms,omitempty" caddy:"namespace=svc.platforms"`

	// The providers of payments, by the names of their modules.
	Payments PaymentProviders `json:"payments,omitempty" caddy:"namespace=svc.payments"`

	// What payments are worth, by their currency. Payments in other currencies wait for a person. Required with `payments` or `transfer`.
	PaymentRates []*PaymentRate `json:"payment_rates,omitempty"`

	// The bank account in Vietnam to which organizations transfer money.
	Transfer *Transfer `json:"transfer,omitempty"`

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

	// The addresses that get an event when a condition begins or ends.
	OperatorEndpoints []*OperatorEndpoint `json:"operator_endpoints,omitempty"`

	// How the process uses its memory.
	Memory *Memory `json:"memory,omitempty"`

	settings settings
	lifecycle
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc", New: func() caddy.Module { return new(App) }}
}

func init() { httpcaddyfile.RegisterGlobalOption(appName, parseGlobalOption) }

// parseGlobalOption reads the global option svc into the JSON form of the app. A second block is refused.
func parseGlobalOption(d *caddytokens.Dispenser, previous any) (any, error) {
	if previous != nil {
		d.Next()
		return nil, d.Err("svc: there is one svc block; a second one is refused. To spread it over files, use import inside it")
	}
	nameService()
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: appName, Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile reads the global option. The error has all faults of the block, each with file, line and the allowed form.
func (a *App) UnmarshalCaddyfile(d *caddytokens.Dispenser) error {
	r, block := caddyfile.NewReader(d)
	r.Block(appName, block, a.Rules())
	slices.SortStableFunc(a.Providers, func(a, b *Provider) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(a.Models, func(a, b *Model) int { return strings.Compare(a.Name, b.Name) })
	typed := slices.Clone(a.Models)
	defer func() { a.Models = typed }() // the JSON form has no prices of this program's catalogue
	a.useCatalog()
	return r.Err(a.faults(), block)
}

// ReadApp returns the svc app of a whole configuration in Caddy's JSON form. It checks the app as [App.Provision] does
// first, but reads no secret and opens nothing. Errors call the configuration name.
func ReadApp(configuration []byte, name string) (*App, error) {
	app, _, err := readConfig(configuration, name)
	return app, err
}

// serverConfig is the part of a server's configuration that other processes use.
type serverConfig struct {
	Logging map[string]json.RawMessage `json:"logging"`
	Apps    map[string]json.RawMessage `json:"apps"`
}

// readConfig is [ReadApp] with the configuration.
func readConfig(configuration []byte, name string) (app *App, read serverConfig, err error) {
	if err := json.Unmarshal(caddy.RemoveMetaFields(configuration), &read); err != nil {
		return nil, read, fmt.Errorf("%s is no Caddy configuration: %w", name, err)
	}
	raw, found := read.Apps[appName]
	if !found {
		return nil, read, fmt.Errorf("%s has no %s block; name the configuration that the server runs with (--config)", name, appName)
	}
	app = new(App)
	if err := caddy.StrictUnmarshalJSON(raw, app); err != nil {
		return nil, read, fmt.Errorf("the %s app of %s: %w", appName, name, err)
	}
	app.useCatalog()
	if err := app.faults().Err(); err != nil {
		return nil, read, fmt.Errorf("%s: %w", name, err)
	}
	app.fill()
	return app, read, nil
}

// Rules are the options of the svc block.
func (a *App) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Text("base_url", &a.BaseURL, "<scheme://host[:port]>", "scheme://host[:port]").
			Also(func(fs *config.Faults, path string) { baseURLFaults(fs, path, a.BaseURL) }),
		a.storeRule(),
		a.redisRule(),
		caddyfile.Secret("master_key", &a.MasterKey).
			Refuse(a.MasterKey == "", "missing; give %s that holds the base64 of 32 random bytes", config.ReferenceForms),
		caddyfile.List("plan", &a.Plans, (*Plan).faults),
		caddyfile.List("provider", &a.Providers, (*Provider).faults),
		caddyfile.List("model", &a.Models, func(m *Model, fs *config.Faults, path string) { m.faults(fs, path, slices.Compact(a.ProviderNames())) }).
			As("<provider>/<model>"),
		a.catalogRule(),
		caddyfile.Text("currency", &a.Currency, "<code>", "an ISO 4217 code, e.g. VND").
			Refuse(a.Currency != "" && !text.ValidCurrency(a.Currency), "%s is not an ISO 4217 code such as VND or USD", config.Quoted(a.Currency)),
		factorRule("currency_rate", &a.CurrencyRate),
		factorRule("markup", &a.Markup),
		a.platformRule(),
		a.paymentRule(),
		caddyfile.List("payment_rate", &a.PaymentRates, (*PaymentRate).faults).As("<currency>"),
		caddyfile.Block("transfer", &a.Transfer).Also(a.transferFaults),
		caddyfile.Block("worker", &a.Worker),
		caddyfile.Block("timing", &a.Timing),
		caddyfile.Block("limits", &a.Limits),
		caddyfile.OneOf("tranches", &a.Tranches, "on", tranchesOff),
		caddyfile.OneOf("event_endpoints", &a.EventEndpoints, "public", anyTarget),
		caddyfile.OneOf("customer_files", &a.CustomerFiles, "public", anyTarget),
		caddyfile.List("operator_endpoint", &a.OperatorEndpoints, (*OperatorEndpoint).faults).As("<url>"),
		caddyfile.Block("memory", &a.Memory),
	}
}

// faults checks a configuration, whether it was a Caddyfile or JSON. It returns everything that is wrong and can be seen
// without reading a secret, in the order of the options.
func (a *App) faults() *config.Faults {
	// The Caddy modules of this build that were made to be platforms, protocols or providers of payments, and can't be used.
	_, _, faulty := messagingPlatforms.find()
	_, _, others := protocols.find()
	_, _, payers := paymentProviders.find()
	fs := new(slices.Concat(faulty, others, payers))
	caddyfile.Faults(a.Rules(), fs, appName)
	return fs
}

// fill sets the defaults of all options that weren't given. The configuration that Caddy shows doesn't have them.
func (a *App) fill() { caddyfile.Fill(a.Rules()) }

// tranchesOff is the value of tranches that switches them off.
const tranchesOff = "off"

// anyTarget is the value of event_endpoints and customer_files that allows every address.
const anyTarget = "any"

// targetPolicy returns which addresses an option allows.
func targetPolicy(target string) egress.Policy {
	return egress.Policy{AllowPrivate: target == anyTarget}
}

func baseURLFaults(fs *config.Faults, path, address string) {
	const form = "scheme://host[:port] with http or https, e.g. https://api.example.com"
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

// noPlan is the plan of all organizations if the configuration has no plans.
var noPlan = func() *Plan {
	plan := new(Plan)
	caddyfile.Fill(plan.Rules())
	return plan
}()

// plan returns the plan called name, else the first plan, else a plan without limits. A name that the configuration no
// longer has gets the first plan, so that removing a plan never lifts limits.
func (a *App) plan(name string) *Plan {
	if len(a.Plans) == 0 {
		return noPlan
	}
	return a.Plans[max(0, slices.IndexFunc(a.Plans, func(plan *Plan) bool { return plan.Name == name }))]
}

// DefaultPlan is the name of the plan of an organization that names none; "" if there are no plans.
func (a *App) DefaultPlan() string { return a.plan("").Name }

// PlanNames are the names of the plans, in their order.
func (a *App) PlanNames() []string { return namesOf(a.Plans) }

// ModelNames are the ids of the models.
func (a *App) ModelNames() []string { return namesOf(a.Models) }

// ProviderNames are the names of the providers.
func (a *App) ProviderNames() []string { return namesOf(a.Providers) }

// named is an element of a list of the configuration.
type named[T any] interface {
	*T
	Named() *string
}

func namesOf[T any, N named[T]](list []*T) []string {
	names := make([]string, 0, len(list))
	for _, element := range list {
		if element != nil && *N(element).Named() != "" { // an element without a name is a fault
			names = append(names, *N(element).Named())
		}
	}
	return names
}

// SweepInterval is the pause between two sweeps of expired holds.
func (a *App) SweepInterval() time.Duration { return time.Duration(a.Timing.SweepInterval) }
