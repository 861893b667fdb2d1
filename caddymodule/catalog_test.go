package caddymodule

import (
	"io/fs"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// catalogDate returns the day of the program's catalogue.
func catalogDate(t *testing.T) time.Time {
	t.Helper()
	parts := regexp.MustCompile(`^# The catalogue of (\d{4}-\d{2}-\d{2}):`).FindStringSubmatch(catalogText)
	require.NotNil(t, parts, "the first line has no day")
	day, err := time.Parse(time.DateOnly, parts[1])
	require.NoError(t, err)
	return day
}

// TestCatalog guarantees that every row of the program's catalogue can be sold as it is: with a price above 0, limits, and a price of
// cached input that isn't above that of input.
func TestCatalog(t *testing.T) {
	t.Parallel()
	rows, err := readCatalog()
	require.NoError(t, err)
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		require.Positive(t, *row.PriceInput, row.Name)
		require.Positive(t, *row.PriceOutput, row.Name)
		require.NotEmpty(t, row.DisplayName, row.Name)
		if row.PriceCachedInput != nil {
			require.Positive(t, *row.PriceCachedInput, row.Name)
			require.LessOrEqual(t, *row.PriceCachedInput, *row.PriceInput, row.Name)
		}
	}
	require.Equal(t, []string{"openrouter/openai/gpt-6-luna"}, CatalogModels("openrouter"))
	require.Empty(t, CatalogModels("open"))
}

// vendorName matches vendors' names of models.
var vendorName = regexp.MustCompile(`\b(?:gpt-(?:[0-9]|oss)|claude-[a-z]+-[0-9]|gemini-[0-9]|grok-[0-9]|deepseek-(?:chat|reasoner|flash|v[0-9])|` +
	`mistral-(?:small|medium|large)|llama-[0-9])[\w.-]*\w`)

// TestNamedModelsLive guarantees that every model of a vendor that we name to people, in examples, help, messages and pages, is in the
// catalogue, and that no such model ends within a year after the catalogue's day. The clock doesn't count.
func TestNamedModelsLive(t *testing.T) {
	t.Parallel()
	rows, err := readCatalog()
	require.NoError(t, err)
	end := catalogDate(t).AddDate(1, 0, 0)
	known := map[string]bool{}
	for _, row := range rows {
		last, err := row.shutdown()
		require.NoError(t, err)
		lives := last.IsZero() || last.After(end)
		name := path.Base(row.Name)
		if before, twice := known[name]; !twice || before { // of each vendor
			known[name] = lives
		}
	}
	named := 0
	check := func(file string) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range vendorName.FindAllString(string(text), -1) {
			named++
			require.True(t, known[name], "%s names %s, which isn't in the catalogue or ends before %s", file, name, end.Format(time.DateOnly))
		}
	}
	for _, root := range []string{"../README.md", "../Caddyfile.example", "../docs", "../packaging", "../caddymodule", "../tests/caddyfile", "../handlers/openapi", "../scripts"} {
		require.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && !strings.HasSuffix(file, "_test.go") && filepath.Ext(file) != ".png" {
				check(file)
			}
			return err
		}))
	}
	require.Greater(t, named, 50)
}

// TestModelsFromTheCatalog guarantees that a model gets names, limits and switches from the catalogue one by one, and its prices together
// or not at all. A typed value wins, and so does a typed false.
func TestModelsFromTheCatalog(t *testing.T) {
	t.Parallel()
	row := &Model{
		Name: "acme/m", DisplayName: "M", ContextWindow: new(int64(1000)), MaxOutputTokens: new(int64(900)), Thinking: "none", DropStop: new(true),
		PriceInput: new(int64(10)), PriceOutput: new(int64(20)), PriceCachedInput: new(int64(1)), ShutdownDate: "2030-01-01",
	}
	for name, test := range map[string]struct {
		typed, want Model
	}{
		"nothing": {Model{Name: "acme/m"}, *row},
		"another id": {
			Model{Name: "acme/mine", UpstreamModel: "m", PriceInput: new(int64(0)), PriceOutput: new(int64(0))},
			Model{
				Name: "acme/mine", UpstreamModel: "m", DisplayName: "M", ContextWindow: new(int64(1000)), MaxOutputTokens: new(int64(900)), Thinking: "none",
				DropStop: new(true), PriceInput: new(int64(0)), PriceOutput: new(int64(0)), ShutdownDate: "2030-01-01",
			},
		},
		"an id of another model": {Model{Name: "acme/m", UpstreamModel: "n"}, Model{Name: "acme/m", UpstreamModel: "n"}},
		"another provider":       {Model{Name: "emca/m"}, Model{Name: "emca/m"}},
		"everything": {
			Model{
				Name: "acme/m", DisplayName: "Mine", ContextWindow: new(int64(7)), MaxOutputTokens: new(int64(6)), Thinking: "low", DropStop: new(false),
				PriceInput: new(int64(5)), ShutdownDate: "2029-01-01",
			},
			Model{
				Name: "acme/m", DisplayName: "Mine", ContextWindow: new(int64(7)), MaxOutputTokens: new(int64(6)), Thinking: "low", DropStop: new(false),
				PriceInput: new(int64(5)), ShutdownDate: "2029-01-01",
			},
		},
		"a small window": {
			Model{Name: "acme/m", ContextWindow: new(int64(7))},
			Model{
				Name: "acme/m", DisplayName: "M", ContextWindow: new(int64(7)), MaxOutputTokens: new(int64(7)), Thinking: "none", DropStop: new(true),
				PriceInput: new(int64(10)), PriceOutput: new(int64(20)), PriceCachedInput: new(int64(1)), ShutdownDate: "2030-01-01",
			},
		},
	} {
		typed := test.typed
		app := &App{CatalogModels: []*Model{nil, row}, Models: []*Model{nil, &typed}}
		app.useCatalog()
		require.Equal(t, &test.want, app.Models[1], name)
		require.Equal(t, test.typed, typed, "%s: the typed model is another one", name)
	}
	shipped := &App{Models: []*Model{{Name: "openai/gpt-6-luna"}}}
	shipped.useCatalog()
	require.EqualValues(t, 100_000, *shipped.Models[0].PriceInput)
	shipped = &App{Models: []*Model{{Name: "openai/gpt-6-luna"}}, CatalogModels: []*Model{{Name: "openai/gpt-6-luna", PriceInput: new(int64(3)), PriceOutput: new(int64(4))}}}
	shipped.useCatalog()
	require.EqualValues(t, 3, *shipped.Models[0].PriceInput, "a row of the configuration comes first")
	require.Nil(t, shipped.Models[0].PriceCachedInput, "prices aren't mixed")
	require.Equal(t, "none", shipped.Models[0].Thinking, "a list of prices knows no switches")
}

// TestCatalogCurrency guarantees that rate and markup apply to prices of the catalogue alone, exactly and rounded up.
func TestCatalogCurrency(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rate, markup string
		want         int64
	}{
		{"", "", 100_000},
		{"26350.5", "", 2_635_050_000},
		{"", "1.2", 120_000},
		{"26350.5", "1.2", 3_162_060_000},
		{"0.000001", "", 1},
		{"0.00000101", "", 1},
		{"0.1000001", "1.000001", 10_001},
		{"999999999999", "999999999999", 1<<63 - 1},
	} {
		app := &App{CurrencyRate: test.rate, Markup: test.markup, Models: []*Model{{Name: "openai/gpt-6-luna"}, {Name: "openai/gpt-6.1-sol", PriceInput: new(int64(7))}}}
		app.useCatalog()
		require.Equal(t, test.want, *app.Models[0].PriceInput, "%s × %s", test.rate, test.markup)
		require.EqualValues(t, 7, *app.Models[1].PriceInput)
		require.Nil(t, app.Models[1].PriceOutput)
	}
	require.EqualValues(t, 34, *multiplied(100, big.NewRat(1, 3)))

	all := &App{CurrencyRate: "2", Models: []*Model{{Name: "openai/gpt-6-luna"}, {Name: "deepseek/deepseek-flash"}, {Name: "gemini/gemini-3.8-flash"}}}
	all.useCatalog()
	for _, m := range all.Models {
		caddyfile.Fill(m.Rules())
	}
	luna, deepseek, flash := all.Models[0], all.Models[1], all.Models[2]
	require.EqualValues(t, 250_000, *luna.PriceCacheWrite)
	require.EqualValues(t, 500_000, *luna.PriceCacheWriteLong)
	require.EqualValues(t, 1_500_000, *luna.PriceTiers[0].Output)
	require.EqualValues(t, 12_000, *deepseek.PriceHours[1].CachedInput)
	require.EqualValues(t, 3_000_000, *flash.Prices[0].CachedInput, "unknown, so as dear as the input")
	again := &App{Models: []*Model{{Name: "gemini/gemini-3.8-flash"}}}
	again.useCatalog()
	require.Nil(t, again.Models[0].Prices[0].CachedInput, "the defaults of a model are no part of the catalogue")
	require.EqualValues(t, 1_500_000, *again.Models[0].Prices[0].Input)

	for _, bad := range []string{"0", "0.0", "-1", "1e3", "1,2", "1.", ".5", "x", "1234567890123", "1/3"} {
		app := goodApp(t)
		app.Currency, app.CurrencyRate, app.Markup = bad, bad, bad
		app.Models = []*Model{{Name: "echo/echo-1"}}
		app.useCatalog()
		var paths []string
		for _, fault := range *app.faults() {
			paths = append(paths, fault.Path)
		}
		require.Subset(t, paths, []string{"svc.currency", "svc.currency_rate", "svc.markup"}, bad)
	}
}

// TestUnpricedModels guarantees that a model with neither a price of its own nor one of the catalogue is refused with a hint, and that a
// price in its block must be whole.
func TestUnpricedModels(t *testing.T) {
	t.Parallel()
	const path = "svc.model[echo/echo-1]"
	hint := config.Fault{Path: path, Text: "the catalogue has no price for it; type price_input and price_output, or import prices with caddy svc catalog import"}
	missing := "missing; give an integer from 0 to 1000000000000000"
	app := goodApp(t)
	app.Models[0].PriceInput, app.Models[0].PriceOutput = nil, nil
	require.Equal(t, config.Faults{hint, {Path: path + ".price_input", Text: missing}, {Path: path + ".price_output", Text: missing}}, *app.faults())
	app.Models[0].PriceCachedInput = new(int64(1))
	require.Equal(t, config.Faults{{Path: path + ".price_input", Text: missing}, {Path: path + ".price_output", Text: missing}}, *app.faults())
}

// TestEndpointsFromTheCatalog guarantees that an endpoint gets the words of its own upstream, because the words of the model's vendor are an
// error at another vendor.
func TestEndpointsFromTheCatalog(t *testing.T) {
	t.Parallel()
	typed := &Model{Name: "openai/gpt-6-luna", DropStop: new(false), Endpoints: []*Endpoint{
		{Name: "openai"}, {Name: "anthropic/claude-haiku-5-5"}, nil, {Name: "deepseek/deepseek-flash", Thinking: "enabled"}, {Name: "acme"},
	}}
	app := &App{Models: []*Model{typed}}
	app.useCatalog()
	made := app.Models[0]
	require.Equal(t, []*Endpoint{
		{Name: "openai", Thinking: "none", MaxTokensField: "max_completion_tokens"},
		{Name: "anthropic/claude-haiku-5-5", Thinking: "low"},
		nil,
		{Name: "deepseek/deepseek-flash", Thinking: "enabled"},
		{Name: "acme"},
	}, made.Endpoints)
	require.True(t, *made.DropSampling, "Anthropic's model refuses it")
	require.False(t, *made.DropStop, "it was typed")
	require.Empty(t, typed.Endpoints[1].Thinking)
}

// TestCatalogByPreset guarantees that a provider's rows are those of its preset, or else of its name, and that a word for thinking goes only
// into the vendor's own field.
func TestCatalogByPreset(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		provider Provider
		model    string
		thinking string
	}{
		"a preset":         {Provider{Name: "main", Preset: "openai"}, "main/gpt-6-luna", "none"},
		"a name":           {Provider{Name: "openai", Protocol: "openai"}, "openai/gpt-6-luna", "none"},
		"a preset's field": {Provider{Name: "ds", Preset: "deepseek"}, "ds/deepseek-flash", "disabled"},
		"another field":    {Provider{Name: "deepseek", Protocol: "openai"}, "deepseek/deepseek-flash", ""},
		"the field by hand": {
			Provider{Name: "deepseek", Protocol: "openai", Options: map[string]string{"thinking_field": "thinking.type"}}, "deepseek/deepseek-flash", "disabled",
		},
		"another protocol": {Provider{Name: "anthropic", Protocol: "openai"}, "anthropic/claude-sonnet-5-5", ""},
		"the protocol":     {Provider{Name: "anthropic", Protocol: "anthropic"}, "anthropic/claude-sonnet-5-5", "between_tools"},
	} {
		app := &App{Providers: []*Provider{nil, &test.provider}, Models: []*Model{{Name: test.model}}}
		app.useCatalog()
		require.NotNil(t, app.Models[0].PriceInput, name)
		require.Equal(t, test.thinking, app.Models[0].Thinking, name)
	}
	renamed := &App{Providers: []*Provider{{Name: "openai", Preset: "ollama"}}, Models: []*Model{{Name: "openai/gpt-6-luna"}}}
	renamed.useCatalog()
	require.Nil(t, renamed.Models[0].PriceInput, "another vendor's model of this name")
}
