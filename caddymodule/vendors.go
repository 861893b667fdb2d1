package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// VendorReport is the state of the configured models at their vendors. Each text is a sentence.
type VendorReport struct {
	// Warnings name models that are absent from their vendor's list or that their vendor ends within 90 days, and vendors without a list.
	Warnings []string
	// Faults name models that their vendor ends within 7 days, by "svc.model[NAME]", and vendors whose list can't be read, by
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
		requests.Go(func() { lists[i] = app.settings.vendors[p.Name].list(ctx, p) })
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

// list requests the list of the provider p.
func (v vendor) list(ctx context.Context, p *Provider) (read vendorList) {
	lister, ok := v.provider.(providers.Lister)
	switch {
	case !ok:
		return vendorList{without: "its protocol has no list of models"}
	case v.apiKey == "" && p.APIKey != NoKey:
		return vendorList{without: "it has no key of the operator's, so its list of models isn't requested"}
	}
	defer func() {
		if cause := recover(); cause != nil {
			read = vendorList{failed: fmt.Sprintf("the module panicked: %T", cause)}
		}
	}()
	models, err := lister.ListModels(ctx, v.apiKey)
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
