package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// trialTokens bounds the answer of a trial call, with room for a model that thinks before it answers.
const trialTokens = 512

// TrialCall sends a model one prompt for an organization, with the svc block of a configuration in Caddy's JSON form. It listens
// nowhere. The call is charged like any other. The error is that of the configuration or the store, or says why the vendor failed
// and what to do. Errors call the configuration name. It may be called once per process, which is expected to end after it.
func TrialCall(ctx context.Context, configuration []byte, name, orgID, model, question string) (result *gateway.Result, err error) {
	app, err := provisionTrial(configuration, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		beginExit()
		err = errors.Join(err, app.Stop(), app.Cleanup())
		endExit()
	}()
	if err := app.Start(); err != nil {
		return nil, fmt.Errorf("starting the service: %w", err)
	}
	asked, known := app.runtime.calls.Model(model)
	if !known {
		return nil, fmt.Errorf("%s has no model %q", name, model)
	}
	result, err = app.runtime.calls.Call(ctx, &gateway.Request{
		RequestID: store.NewID("req"), OrgID: orgID, Env: store.Live, Model: model, MaxTokens: max(trialTokens, asked.LeastMaxTokens),
		Messages: []providers.Message{{Role: "user", Content: providers.Quote(question)}}, BudgetVersion: 1, // its budgets are looked for
	}, nil)
	return result, app.explainTrial(err, asked)
}

// provisionTrial returns the app of a configuration.
func provisionTrial(configuration []byte, name string) (*App, error) {
	_, read, err := readConfig(configuration, name)
	if err != nil {
		return nil, err
	}
	off := false
	ctx, err := caddy.ProvisionContext(&caddy.Config{
		Admin:   &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &off}},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "FATAL"}}}},
		AppsRaw: caddy.ModuleMap{appName: read.Apps[appName]},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	app, err := configured[App](ctx, appName)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return app, nil
}

// explainTrial returns an error with the cause of a failed call in an operator's words. Other errors stay as they are.
func (a *App) explainTrial(err error, asked *gateway.Model) error {
	failed, ok := errors.AsType[*providers.Error](err)
	if !ok {
		return err
	}
	at := slices.IndexFunc(a.Providers, func(p *Provider) bool { return p.Name == asked.Provider })
	if at < 0 {
		return err
	}
	said := ""
	if failed.Detail != "" {
		said = fmt.Sprintf(" The vendor said: %q", failed.Detail)
	}
	return errors.New(vendorFault(failed, a.Providers[at], asked.Upstream) + said)
}

// vendorFault returns a sentence with the cause of a vendor's failure and the remedy.
func vendorFault(failed *providers.Error, provider *Provider, model string) string {
	address := provider.BaseURL
	if parsed, err := url.Parse(provider.BaseURL); err == nil {
		address = parsed.Host
	}
	cause := ""
	if failed.Cause != nil {
		cause = failed.Cause.Error() // Caddy's transport hides what its errors wrap
	}
	switch {
	case strings.HasSuffix(cause, syscall.ECONNREFUSED.Error()):
		return fmt.Sprintf("nobody listens at %s. Start the server there, or correct base_url of the provider %s.", address, provider.Name)
	case strings.HasSuffix(cause, "no such host"):
		return fmt.Sprintf("the host %s isn't known. Correct base_url of the provider %s, or this machine's DNS.", address, provider.Name)
	case failed.Status == http.StatusUnauthorized || failed.Status == http.StatusForbidden:
		if provider.APIKey == NoKey {
			return fmt.Sprintf("%s wants a key (%d), and api_key of the provider %s is none.", address, failed.Status, provider.Name)
		}
		return fmt.Sprintf("%s refused the key (%d). Correct %s, which api_key of the provider %s names.", address, failed.Status,
			string(provider.APIKey), provider.Name)
	case failed.Status == http.StatusNotFound:
		return fmt.Sprintf("%s has no model %q, or base_url %s is wrong (404).", address, model, provider.BaseURL)
	case failed.Status == http.StatusPaymentRequired, failed.Status == http.StatusTooManyRequests && failed.Permanent:
		return fmt.Sprintf("the account at %s has no credits or quota left (%d).", address, failed.Status)
	case failed.Failure == providers.FailureTimeout:
		return fmt.Sprintf("%s didn't answer in time. Try again, or raise the timeouts of the provider %s.", address, provider.Name)
	case failed.Failure == providers.FailureOverloaded:
		return fmt.Sprintf("%s is overloaded or limits its calls (%d). Try again in a minute.", address, failed.Status)
	case failed.Status >= http.StatusMultipleChoices:
		return fmt.Sprintf("%s answered with status %d.", address, failed.Status)
	case cause != "":
		return fmt.Sprintf("%s can't be asked: %s.", address, cause)
	default:
		return address + " gave an answer that isn't one of the provider's protocol. Is base_url right?"
	}
}

// VendorReport is the state of the configured models at their vendors. Each text is a sentence.
type VendorReport struct {
	// Warnings name models that are absent from their vendor's list or that their vendor ends within 90 days, and vendors without a list.
	Warnings []string
	// Faults name models that their vendor ends within 7 days, by "svc.model[NAME]", and vendors without a readable list, by
	// "svc.provider[NAME]".
	Faults [][2]string
}

// CheckVendors requests the list of models of every provider of a configuration in Caddy's JSON form, each once and all at the same
// time, and compares the configured models with it. Errors call the configuration name. Like [TrialCall] it may be called once per process.
func CheckVendors(ctx context.Context, configuration []byte, name string) (*VendorReport, error) {
	app, err := provisionTrial(configuration, name)
	if err != nil {
		return nil, err
	}
	lists := make([]vendorList, len(app.Providers))
	var requests sync.WaitGroup
	for i, p := range app.Providers {
		requests.Go(func() { lists[i] = p.list(ctx, app.settings.vendors[p.Name]) })
	}
	requests.Wait()
	return app.reportVendors(lists, time.Now()), app.Cleanup()
}

// vendorList is the list of a provider's models, or the reason why there is none.
type vendorList struct {
	models []providers.ListedModel
	// without is set if the vendor can't be asked for a list; failed, if the request failed.
	without, failed string
}

// list requests the list of the provider, which is entry for the gateway.
func (p *Provider) list(ctx context.Context, entry gateway.ProviderEntry) (read vendorList) {
	lister, ok := entry.Provider.(providers.Lister)
	switch {
	case !ok:
		return vendorList{without: "its protocol has no list of models"}
	case entry.APIKey == "" && p.APIKey != NoKey:
		return vendorList{without: "it has no key of the operator's, so its list of models isn't requested"}
	}
	defer func() {
		if cause := recover(); cause != nil {
			read = vendorList{failed: fmt.Sprintf("the module panicked: %T", cause)}
		}
	}()
	models, err := lister.ListModels(ctx, entry.APIKey)
	failed := new(providers.Error)
	switch {
	case err == nil:
		return vendorList{models: models}
	case errors.Is(err, providers.ErrNoList):
		return vendorList{without: "its protocol has no list of models"}
	case !errors.As(err, &failed):
		return vendorList{failed: err.Error()}
	case failed.Status == http.StatusNotFound || failed.Status == http.StatusMethodNotAllowed:
		return vendorList{without: fmt.Sprintf("its vendor has no list of models (%d)", failed.Status)}
	default:
		return vendorList{failed: vendorFault(failed, p, "")}
	}
}

// reportVendors compares the models with the lists of the providers, which are in the order of a.Providers.
func (a *App) reportVendors(lists []vendorList, now time.Time) *VendorReport {
	report := new(VendorReport)
	for i, p := range a.Providers {
		subject := "svc.provider[" + p.Name + "]"
		if lists[i].without != "" {
			report.Warnings = append(report.Warnings, subject+": "+lists[i].without)
		}
		if lists[i].failed != "" {
			report.Faults = append(report.Faults, [2]string{subject, lists[i].failed})
		}
	}
	for _, m := range a.Models {
		places := m.endpoints()
		if len(places) == 0 {
			places = []gateway.Endpoint{{Provider: m.provider(), Upstream: m.UpstreamModel}}
		}
		for _, place := range places {
			at := slices.IndexFunc(a.Providers, func(p *Provider) bool { return p.Name == place.Provider })
			report.add(m, place.Provider, place.Upstream, &lists[at], now)
		}
	}
	return report
}

// add compares a model's upstream at a provider with the provider's list.
func (r *VendorReport) add(m *Model, provider, upstream string, list *vendorList, now time.Time) {
	subject := "svc.model[" + m.Name + "]"
	end, _ := m.shutdown() // checked when the configuration was read
	if listed := list.find(upstream); listed == nil && list.models != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: the list of the provider %s has no model %q", subject, provider, upstream))
	} else if listed != nil && !listed.Shutdown.IsZero() && (end.IsZero() || listed.Shutdown.Before(end)) {
		end = listed.Shutdown
	}
	text := fmt.Sprintf("the provider %s ends %s on %s; offer another model in its place", provider, upstream, end.Format(time.DateOnly))
	switch left := end.Sub(now); {
	case end.IsZero() || left > shutdownWarning:
	case left > shutdownError:
		r.Warnings = append(r.Warnings, subject+": "+text)
	default:
		r.Faults = append(r.Faults, [2]string{subject, text})
	}
}

// find returns the model with a vendor's name, or nil. Ollama lists a model without a tag with the tag latest.
func (l *vendorList) find(name string) *providers.ListedModel {
	for i, model := range l.models {
		if model.Name == name || model.Name == name+":latest" || slices.Contains(model.Aliases, name) {
			return &l.models[i]
		}
	}
	return nil
}
