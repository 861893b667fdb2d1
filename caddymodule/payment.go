package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/topup"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/payments/vietqr"
)

// PaymentProviders are the options of the providers of payments, by name. Each is a module of the namespace `svc.payments`, which declares its
// options in its description.
type PaymentProviders map[string]map[string]string

// PaymentRate is what payments in a currency are worth.
type PaymentRate struct {
	// The ISO 4217 code of the currency, such as `VND`. Required, unique.
	Currency string `json:"currency,omitempty"`

	// The credits, in micros, for the currency's smallest unit: for `VND` 1000000 if your amounts are in dong, for `USD` 10000 if they are in
	// dollars, because the smallest unit is a cent. From 1 to 1,000,000,000,000. Required.
	Micros *int64 `json:"micros,omitempty"`

	// The largest payment, in the currency's smallest unit, that is credited without a person. Default: unlimited.
	Max *int64 `json:"max,omitempty"`
}

// Named returns the place of the currency's code.
func (p *PaymentRate) Named() *string { return &p.Currency }

// Rules are the options of a rate.
func (p *PaymentRate) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Integer("micros", &p.Micros, 1, 1e12).Required(),
		caddyfile.Integer("max", &p.Max, 1, math.MaxInt64),
	}
}

func (p *PaymentRate) faults(fs *config.Faults, path string) {
	if !text.ValidCurrency(p.Currency) {
		fs.Addf(path, "the name must be an ISO 4217 code such as VND or USD")
	}
}

// Transfer is the bank account in Vietnam to which organizations transfer money. Pages show it with a VietQR code. One of the providers of payments
// must watch it.
type Transfer struct {
	// The bank's number of six digits (BIN), such as `970436`. Required.
	Bank string `json:"bank,omitempty"`

	// The number of the account: 1 to 19 capitals and digits. Required.
	Account string `json:"account,omitempty"`

	// The holder of the account, as the bank writes it. Required.
	Holder string `json:"holder,omitempty"`
}

// Rules are the options of the account.
func (t *Transfer) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Text("bank", &t.Bank, "<number>", "six digits, such as 970436"),
		caddyfile.Text("account", &t.Account, "<number>", "the number of the account"),
		caddyfile.Text("holder", &t.Holder, "<text>", "the holder of the account"),
	}
}

func paymentsPath(name string) string { return config.Element("payments", name) }

// paymentRule is the option payments.
func (a *App) paymentRule() caddyfile.Rule {
	return caddyfile.Rule{
		Word: "payments", Syntax: "<name>", Named: true, Once: true, HasBlock: true,
		Block: placeholder("<options of the module svc.payments.<name>>"),
		Read: func(r *caddyfile.Reader, path string, o caddyfile.Option) {
			name := o.Args[0].Text
			if fault := paymentProviders.missing(name); fault != "" {
				r.Faultf(path, o, "%s", fault)
				return
			}
			read := PaymentProviders{name: readOptions(r, path, o, paymentProviders.named(name).Describe().Options)}
			maps.Copy(read, a.Payments)
			caddyfile.Set(r, path, o, &a.Payments, read)
		},
		Faults: func(fs *config.Faults, _ string) { a.paymentFaults(fs) },
	}
}

func (a *App) paymentFaults(fs *config.Faults) {
	for _, name := range slices.Sorted(maps.Keys(a.Payments)) {
		path := paymentsPath(name)
		if fault := paymentProviders.missing(name); fault != "" {
			fs.Addf(path, "%s", fault)
			continue
		}
		driver := paymentProviders.named(name)
		d, values := driver.Describe(), a.Payments[name]
		driverFaults(fs, path, driver, d.Options, values)
		proves := func(o option.Option) bool {
			return slices.Contains(d.Secrets, o.Name) && (o.Required || values[o.Name] != "")
		}
		if !slices.ContainsFunc(d.Options, proves) {
			fs.Addf(path, "nothing proves deliveries; give %s", strings.Join(d.Secrets, " or "))
		}
		if len(a.PaymentRates) == 0 {
			fs.Addf(path, "no payment could be credited; say what a currency is worth with `payment_rate VND { micros 1000000 }`")
		}
	}
}

func (a *App) transferFaults(fs *config.Faults, path string) {
	if a.Transfer == nil || *a.Transfer == (Transfer{}) {
		return
	}
	if err := (&vietqr.Transfer{Bank: a.Transfer.Bank, Account: a.Transfer.Account}).Check(); err != nil {
		fs.Addf(path, "%v", err)
	}
	if a.Transfer.Holder == "" {
		fs.Addf(path+".holder", "missing; payers compare it with the name that their bank shows")
	}
	if !slices.Contains(namesOf(a.PaymentRates), topup.TransferCurrency) {
		fs.Addf(path, "no transfer could be credited; say what a dong is worth with `payment_rate VND { micros 1000000 }`")
	}
}

// read resolves the references of the configured providers and makes their adapters.
func (p PaymentProviders) read(repl *caddy.Replacer, fs *config.Faults) map[string]topup.Provider {
	read := map[string]topup.Provider{}
	for name, values := range p {
		driver := paymentProviders.named(name)
		made, err := topup.NewProvider(driver, resolveOptions(repl, fs, paymentsPath(name), driver.Describe().Options, values))
		if err != nil {
			fs.Addf(paymentsPath(name), "%v", err)
		}
		read[name] = made
	}
	return read
}

// secrets lists the references of the providers' secrets.
func (p PaymentProviders) secrets() (all []namedSecret) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		all = append(all, secretOptions(paymentsPath(name), paymentProviders.named(name).Describe().Options, p[name])...)
	}
	return all
}

// newTopUps returns the configured payments.
func (a *App) newTopUps(shared *sharedStore) *topup.Payments {
	made := &topup.Payments{Book: shared.book, Providers: a.settings.payments, Rates: map[string]topup.Rate{}, Log: a.log}
	for _, rate := range a.PaymentRates {
		made.Rates[rate.Currency] = topup.Rate{Micros: *rate.Micros, Max: valueOr(rate.Max, 0)}
	}
	if *a.Transfer != (Transfer{}) {
		made.Transfer = (*topup.Transfer)(a.Transfer)
	}
	return made
}

// Payments receives the deliveries of the configured providers of payments, at `/payments/{provider}`, and credits wallets. It proves each delivery
// over the raw bytes, and acknowledges it when its payments are booked. A delivery that isn't proved ends with 401 `unauthenticated`.
//
// The request must reach it as the provider sent it: under `/payments/…`, with no handler before it that reads or rewrites the body.
//
// Syntax:
//
//	svc_payments [<matcher>]
type Payments struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*Payments) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_payments", New: func() caddy.Module { return new(Payments) }}
}

// errNoPayments is the fault of a route that would refuse every delivery.
var errNoPayments = errors.New("the svc block has no `payments <name>`, so every delivery would end with not_found")

// misplaced checks that no handler before this one changes the path of deliveries, and that a provider is configured.
func (*Payments) misplaced(at placement) error {
	if fault := at.site.strips(at.word, webhook.PaymentsPath); fault != "" {
		return errors.New(fault)
	}
	if len(at.app.Payments) == 0 {
		return errNoPayments
	}
	return nil
}

// Provision finds the app.
func (h *Payments) Provision(ctx caddy.Context) error {
	if err := h.noOptions.Provision(ctx); err != nil {
		return err
	}
	if len(h.app.Payments) == 0 {
		return fmt.Errorf("svc_payments: %w", errNoPayments)
	}
	return nil
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Payments) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	provider := ""
	err := h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) (err error) {
		provider, err = rt.payments.Serve(w, r)
		return err
	})
	countWebhook(cmp.Or(provider, "payments"), err)
	return err
}
