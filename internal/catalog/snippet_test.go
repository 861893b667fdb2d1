package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var soldModels = []Model{
	{
		Vendor: "acme", Name: "m", Window: 1000, MaxOutput: 100, Reasoning: true, NoSampling: true, Shutdown: "2027-01-14",
		Price: Price{Input: 10, CachedInput: 1, CacheWrite: 12, LongCacheWrite: 20, Output: 50}, Tiers: []Tier{{272_000, Price{Input: 20, Output: 75}}},
	},
	{Vendor: "emca", Name: "v/n", Window: 7, MaxOutput: 7, Price: Price{Input: 1, Output: 2}},
}

// TestSnippet guarantees the form of the rows. The Caddyfile reads it in TestCatalogImport of the commands.
func TestSnippet(t *testing.T) {
	t.Parallel()
	require.Equal(t, header+`
catalog_model a/v/n {
	context_window 7
	max_output_tokens 7
	price_input 1
	price_output 2
}
catalog_model main/m {
	context_window 1000
	max_output_tokens 100
	drop_sampling
	reasoning
	shutdown_date 2027-01-14
	price_input 10
	price_output 50
	price_cached_input 1
	price_cache_write 12
	price_cache_write_long 20
	price_tier 272000 {
		input 20
		output 75
	}
}
`, Snippet(soldModels, map[string]string{"main": "acme", "a": "emca"}))
	require.True(t, IsSnippet(Snippet(nil, nil)))
	require.True(t, IsSnippet(""))
	require.False(t, IsSnippet("{\n\tsvc {\n"))
}

// TestCompare guarantees that every difference is shown, and which one stops an import.
func TestCompare(t *testing.T) {
	t.Parallel()
	snippet := func(change func(m *Model)) string {
		m := soldModels[0]
		m.Tiers = []Tier{m.Tiers[0]}
		change(&m)
		return Snippet([]Model{m}, map[string]string{"main": "acme"})
	}
	before := snippet(func(*Model) {})
	for name, test := range map[string]struct {
		after string
		want  []Change
	}{
		"nothing":     {before, nil},
		"three times": {snippet(func(m *Model) { m.Price.Input = 30 }), []Change{{"main/m", "price_input", "10", "30", false}}},
		"more":        {snippet(func(m *Model) { m.Price.Input = 31 }), []Change{{"main/m", "price_input", "10", "31", true}}},
		"a third":     {snippet(func(m *Model) { m.Price.Output = 17 }), []Change{{"main/m", "price_output", "50", "17", false}}},
		"less":        {snippet(func(m *Model) { m.Price.Output = 16 }), []Change{{"main/m", "price_output", "50", "16", true}}},
		"a tier":      {snippet(func(m *Model) { m.Tiers[0].Output = 750 }), []Change{{"main/m", "price_tier 272000 output", "75", "750", true}}},
		"a window":    {snippet(func(m *Model) { m.Window = 9000 }), []Change{{"main/m", "context_window", "1000", "9000", false}}},
		"a switch":    {snippet(func(m *Model) { m.Reasoning = false }), []Change{{"main/m", "reasoning", "true", "", false}}},
		"a part":      {snippet(func(m *Model) { m.Price.CacheWrite = 0 }), []Change{{"main/m", "price_cache_write", "12", "", false}}},
	} {
		require.Equal(t, test.want, Compare(before, test.after), name)
	}
	gone := Compare(before, Snippet(nil, nil))
	require.Len(t, gone, 12)
	require.Contains(t, gone, Change{"main/m", "price_input", "10", "", true})
	for _, change := range Compare("", before) {
		require.False(t, change.Jump, "a new model")
	}
}
