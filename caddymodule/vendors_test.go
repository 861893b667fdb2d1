package caddymodule

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/echo"
)

// TestVendorReport guarantees what the operator reads about models that end or are absent from a vendor's list.
func TestVendorReport(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	day := func(text string) time.Time {
		at, err := time.Parse(time.DateOnly, text)
		require.NoError(t, err)
		return at
	}
	const subject = "svc.model[echo/echo-1]"
	ends := func(day string) string {
		return "the provider echo ends echo-1 on " + day + "; offer another model in its place"
	}
	for name, test := range map[string]struct {
		typed    string
		list     vendorList
		warnings []string
		faults   [][2]string
	}{
		"served":             {"", vendorList{models: []providers.ListedModel{{Name: "other"}, {Name: "echo-1"}}}, nil, nil},
		"served by a tag":    {"", vendorList{models: []providers.ListedModel{{Name: "echo-1:latest"}}}, nil, nil},
		"served by an alias": {"", vendorList{models: []providers.ListedModel{{Name: "e", Aliases: []string{"echo-1"}}}}, nil, nil},
		"absent":             {"", vendorList{models: []providers.ListedModel{}}, []string{subject + `: the list of the provider echo has no model "echo-1"`}, nil},
		"ends in 91 days":    {"", vendorList{models: []providers.ListedModel{{Name: "echo-1", Shutdown: day("2027-02-25")}}}, nil, nil},
		"ends in 90 days":    {"", vendorList{models: []providers.ListedModel{{Name: "echo-1", Shutdown: day("2027-02-24")}}}, []string{subject + ": " + ends("2027-02-24")}, nil},
		"ends in 8 days":     {"", vendorList{models: []providers.ListedModel{{Name: "echo-1", Shutdown: day("2026-12-04")}}}, []string{subject + ": " + ends("2026-12-04")}, nil},
		"ends in 7 days":     {"", vendorList{models: []providers.ListedModel{{Name: "echo-1", Shutdown: day("2026-12-03")}}}, nil, [][2]string{{subject, ends("2026-12-03")}}},
		"has ended":          {"", vendorList{models: []providers.ListedModel{{Name: "echo-1", Shutdown: day("2026-11-12")}}}, nil, [][2]string{{subject, ends("2026-11-12")}}},
		"ends by its option": {"2027-01-14", vendorList{models: []providers.ListedModel{{Name: "echo-1"}}}, []string{subject + ": " + ends("2027-01-14")}, nil},
		"the earlier end": {
			"2027-01-14", vendorList{models: []providers.ListedModel{{Name: "echo-1", Shutdown: day("2026-12-01")}}}, nil, [][2]string{{subject, ends("2026-12-01")}},
		},
		"the option's earlier end": {
			"2026-12-01", vendorList{models: []providers.ListedModel{{Name: "echo-1", Shutdown: day("2027-01-14")}}}, nil, [][2]string{{subject, ends("2026-12-01")}},
		},
		"absent and ending": {
			"2026-12-01",
			vendorList{models: []providers.ListedModel{}},
			[]string{subject + `: the list of the provider echo has no model "echo-1"`},
			[][2]string{{subject, ends("2026-12-01")}},
		},
		"no list": {
			"2027-01-14",
			vendorList{without: "its protocol has no list of models"},
			[]string{"svc.provider[echo]: its protocol has no list of models", subject + ": " + ends("2027-01-14")},
			nil,
		},
		"a failure": {"", vendorList{failed: "nobody listens."}, nil, [][2]string{{"svc.provider[echo]", "nobody listens."}}},
	} {
		app := goodApp(t)
		app.Models[0].ShutdownDate = test.typed
		app.fill()
		report := app.reportVendors([]vendorList{test.list, {}}, now)
		require.Equal(t, &VendorReport{Warnings: test.warnings, Faults: test.faults}, report, name)
	}
}

// TestVendorReportOfEndpoints guarantees that each endpoint of a model is looked up at its own provider, also if the id's isn't configured.
func TestVendorReportOfEndpoints(t *testing.T) {
	t.Parallel()
	app := goodApp(t)
	app.Models[0].Name = "tea/best"
	app.Models[0].Endpoints = []*Endpoint{{Name: "echo/a"}, {Name: "vendor"}}
	app.fill()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	report := app.reportVendors([]vendorList{
		{models: []providers.ListedModel{{Name: "a", Shutdown: now.AddDate(0, 0, 3)}}}, {models: []providers.ListedModel{{Name: "a"}}},
	}, now)
	require.Equal(t, &VendorReport{
		Warnings: []string{`svc.model[tea/best]: the list of the provider vendor has no model "best"`},
		Faults:   [][2]string{{"svc.model[tea/best]", "the provider echo ends a on 2026-11-29; offer another model in its place"}},
	}, report)
}

// listing is a provider with a scripted list of models.
type listing struct {
	providers.Provider

	list func() ([]providers.ListedModel, error)
}

func (l listing) ListModels(context.Context, string) ([]providers.ListedModel, error) {
	return l.list()
}

// TestVendorLists guarantees that a vendor without a list is no failure, and that a failure names its cause and remedy.
func TestVendorLists(t *testing.T) {
	t.Parallel()
	fails := func(err error) gateway.ProviderEntry {
		return gateway.ProviderEntry{Provider: listing{list: func() ([]providers.ListedModel, error) { return nil, err }}, APIKey: "sk-" + planted}
	}
	p := &Provider{Name: "acme", BaseURL: "https://acme.example/v1", APIKey: "{env.ACME}"}
	local, err := echo.Driver{}.New(new(providers.Config))
	require.NoError(t, err)
	keyless := fails(errors.New("was asked without a key"))
	keyless.APIKey = ""
	for name, test := range map[string]struct {
		of   gateway.ProviderEntry
		want vendorList
	}{
		"a protocol without lists": {gateway.ProviderEntry{Provider: local}, vendorList{without: "its protocol has no list of models"}},
		"a dialect without lists":  {fails(providers.ErrNoList), vendorList{without: "its protocol has no list of models"}},
		"only BYOK":                {keyless, vendorList{without: "it has no key of the operator's, so its list of models isn't requested"}},
		"no such path":             {fails(&providers.Error{Status: 404}), vendorList{without: "its vendor has no list of models (404)"}},
		"no such method":           {fails(&providers.Error{Status: 405}), vendorList{without: "its vendor has no list of models (405)"}},
		"a wrong key": {
			fails(&providers.Error{Status: 401}), vendorList{failed: "acme.example refused the key (401). Correct {env.ACME}, which api_key of the provider acme names."},
		},
		"too slow": {
			fails(&providers.Error{Failure: providers.FailureTimeout}),
			vendorList{failed: "acme.example didn't answer in time. Try again, or raise the timeouts of the provider acme."},
		},
		"another error": {fails(errors.New("no luck")), vendorList{failed: "no luck"}},
		"a panic": {
			gateway.ProviderEntry{Provider: listing{list: func() ([]providers.ListedModel, error) { panic("guest") }}, APIKey: "k"}, vendorList{failed: "the module panicked: string"},
		},
		"a list": {
			gateway.ProviderEntry{Provider: listing{list: func() ([]providers.ListedModel, error) { return []providers.ListedModel{{Name: "a"}}, nil }}, APIKey: "k"},
			vendorList{models: []providers.ListedModel{{Name: "a"}}},
		},
	} {
		require.Equal(t, test.want, p.list(t.Context(), test.of), name)
	}
}
