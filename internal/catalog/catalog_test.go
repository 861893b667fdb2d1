package catalog

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func everything(string, string) bool { return true }

// price returns the LiteLLM entry of a chat model with these members beside its limits and prices.
func liteLLM(members string) string {
	return `{"litellm_provider":"acme","mode":"chat","max_input_tokens":1000,"max_output_tokens":100,"input_cost_per_token":1e-06,"output_cost_per_token":2e-06` +
		members + `}`
}

// modelsDev returns the models.dev entry of a model with these members beside its limits and the cost.
func modelsDev(cost, members string) string {
	return `{"limit":{"context":1000,"output":100},"cost":{"input":1,"output":2` + cost + `}` + members + `}`
}

// TestReadFiles guarantees the mapping of both forms: units, limits, cache prices, tiers, switches and the day of the end.
func TestReadFiles(t *testing.T) {
	t.Parallel()
	plain := Model{Vendor: "acme", Name: "m", Window: 1000, MaxOutput: 100, Price: Price{Input: 1_000_000, Output: 2_000_000}}
	with := func(change func(*Model)) Model {
		m := plain
		change(&m)
		return m
	}
	for name, test := range map[string]struct {
		liteLLM, modelsDev string
		want               Model
	}{
		"plain": {liteLLM(""), modelsDev("", ""), plain},
		"cache": {
			liteLLM(`,"cache_read_input_token_cost":1e-07,"cache_creation_input_token_cost":1.25e-06,"cache_creation_input_token_cost_above_1hr":2e-6`), "",
			with(func(m *Model) {
				m.Price.CachedInput, m.Price.CacheWrite, m.Price.LongCacheWrite = 100_000, 1_250_000, 2_000_000
			}),
		},
		"cache of models.dev": {
			"", modelsDev(`,"cache_read":0.1,"cache_write":1.25`, ""),
			with(func(m *Model) { m.Price.CachedInput, m.Price.CacheWrite = 100_000, 1_250_000 }),
		},
		"parts for nothing aren't sold for nothing": {
			liteLLM(`,"cache_read_input_token_cost":0,"cache_creation_input_token_cost":0.0`), modelsDev(`,"cache_read":0,"cache_write":0e3`, ""), plain,
		},
		"tiers": {
			liteLLM(`,"input_cost_per_token_above_200k_tokens":2e-06,"output_cost_per_token_above_200k_tokens":3e-06,"cache_read_input_token_cost":5e-8,
				"cache_read_input_token_cost_above_200k_tokens":2e-7,"cache_creation_input_token_cost_above_1hr_above_200k_tokens":4e-6,
				"input_cost_per_token_above_128k_tokens":1.5e-06,"input_cost_per_token_above_200k_tokens_priority":9,"input_cost_per_token_batches":9`), "",
			with(func(m *Model) {
				m.Price.CachedInput = 50_000
				m.Tiers = []Tier{{128_000, Price{Input: 1_500_000, Output: 2_000_000}}, {200_000, Price{2_000_000, 200_000, 0, 4_000_000, 3_000_000}}}
			}),
		},
		"ranges": {
			strings.Replace(liteLLM(`,"tiered_pricing":[
				{"range":[0,32000.0],"input_cost_per_token":1e-06,"output_cost_per_token":2e-06},
				{"range":[32000.0,1e6],"input_cost_per_token":3e-06,"output_cost_per_token":4e-06,"cache_read_input_token_cost":1e-06}]`), `,"input_cost_per_token":1e-06,"output_cost_per_token":2e-06`, "", 1), "",
			with(func(m *Model) {
				m.Tiers = []Tier{{32_000, Price{Input: 3_000_000, CachedInput: 1_000_000, Output: 4_000_000}}}
			}),
		},
		"tiers of models.dev": {
			"", modelsDev(`,"context_over_200k":{"input":9,"output":9},"tiers":[{"input":2,"output":3,"cache_read":0.2,"tier":{"type":"context","size":272000}}]`, ""),
			with(func(m *Model) {
				m.Tiers = []Tier{{272_000, Price{Input: 2_000_000, CachedInput: 200_000, Output: 3_000_000}}}
			}),
		},
		"one tier of models.dev": {
			"", modelsDev(`,"context_over_200k":{"input":2}`, ""),
			with(func(m *Model) { m.Tiers = []Tier{{200_000, Price{Input: 2_000_000, Output: 2_000_000}}} }),
		},
		"reasoning": {
			liteLLM(`,"supports_reasoning":true,"output_cost_per_reasoning_token":2e-06`), modelsDev(`,"reasoning":2.0`, `,"reasoning":true`),
			with(func(m *Model) { m.Reasoning = true }),
		},
		"sampling": {"", modelsDev("", `,"temperature":false`), with(func(m *Model) { m.NoSampling = true })},
		"end":      {liteLLM(`,"deprecation_date":"2027-01-14"`), "", with(func(m *Model) { m.Shutdown = "2027-01-14" })},
		"no day":   {liteLLM(`,"deprecation_date":"soon"`), "", plain},
		"an older name of the limits": {
			`{"litellm_provider":"acme","mode":"chat","max_tokens":512.0,"input_cost_per_token":0.000001,"output_cost_per_token":0.000002}`, "",
			with(func(m *Model) { m.Window, m.MaxOutput = 512, 512 }),
		},
		"more output than window": {liteLLM(`,"max_tokens":7`), `{"limit":{"context":1000,"output":9000},"cost":{"input":1,"output":2}}`, plain},
	} {
		for form, text := range map[string]string{"LiteLLM": test.liteLLM, "models.dev": test.modelsDev} {
			if text == "" {
				continue
			}
			whole := `{"sample_spec":{"mode":"chat"},"acme/m":` + text + `}`
			if form == "models.dev" {
				whole = `{"acme":{"id":"acme","models":{"m":` + text + `}}}`
			}
			file, err := Read(strings.NewReader(whole), everything)
			require.NoError(t, err, name)
			require.Equal(t, form, file.Source)
			require.Equal(t, []string{"acme"}, file.Vendors)
			require.Empty(t, file.Skipped, name)
			want := test.want
			if name == "more output than window" && form == "models.dev" {
				want.MaxOutput = 1000
			}
			require.Equal(t, []Model{want}, file.Models, "%s in %s", name, form)
		}
	}
}

// TestSkippedModels guarantees that a model is skipped, with its reason, unless its price is known and can be believed.
func TestSkippedModels(t *testing.T) {
	t.Parallel()
	const missing = "its price is missing or 0"
	for entry, want := range map[string]string{
		strings.Replace(liteLLM(""), `"input_cost_per_token":1e-06`, `"input_cost_per_token":0`, 1):                     missing,
		strings.Replace(liteLLM(""), `"output_cost_per_token":2e-06`, `"output_cost_per_token":null`, 1):                missing,
		strings.Replace(liteLLM(""), `"input_cost_per_token":1e-06,`, ``, 1):                                            missing,
		strings.Replace(liteLLM(""), `"input_cost_per_token":1e-06`, `"input_cost_per_token":-1e-06`, 1):                "its price input_cost_per_token is negative",
		strings.Replace(liteLLM(""), `"input_cost_per_token":1e-06`, `"input_cost_per_token":0.0021`, 1):                "its price input_cost_per_token is absurdly large",
		strings.Replace(liteLLM(""), `"input_cost_per_token":1e-06`, `"input_cost_per_token":1e+300`, 1):                "its price input_cost_per_token is absurdly large",
		strings.Replace(liteLLM(""), `"input_cost_per_token":1e-06`, `"input_cost_per_token":1e9999`, 1):                "its price input_cost_per_token is no number",
		strings.Replace(liteLLM(""), `"input_cost_per_token":1e-06`, `"input_cost_per_token":"1"`, 1):                   "its price input_cost_per_token is no number",
		strings.Replace(liteLLM(""), `"mode":"chat"`, `"mode":"embedding"`, 1):                                          "it is for embedding, not for chat",
		strings.Replace(liteLLM(""), `"mode":"chat",`, ``, 1):                                                           "it is for an unknown use, not for chat",
		strings.Replace(liteLLM(""), `"max_input_tokens":1000,`, ``, 1):                                                 "its context window or largest output is missing",
		strings.Replace(liteLLM(""), `"max_output_tokens":100`, `"max_output_tokens":-5`, 1):                            "its limit max_output_tokens is negative",
		strings.Replace(liteLLM(""), `"max_output_tokens":100`, `"max_output_tokens":"many"`, 1):                        "its limit max_output_tokens is no number",
		liteLLM(`,"cache_read_input_token_cost":3e-06`):                                                                 "its cached input costs more than its input",
		liteLLM(`,"cache_read_input_token_cost":-3e-07`):                                                                "its price cache_read_input_token_cost is negative",
		liteLLM(`,"output_cost_per_reasoning_token":3e-06`):                                                             "its reasoning tokens have a price of their own",
		liteLLM(`,"input_cost_per_token_above_128k_tokens":-1`):                                                         "its price input_cost_per_token_above_128k_tokens is negative",
		liteLLM(`,"tiered_pricing":[]`):                                                                                 "its tiered_pricing is no list",
		liteLLM(`,"tiered_pricing":[{"range":[5,9],"input_cost_per_token":1e-6,"output_cost_per_token":1e-6}]`):         "its tiered_pricing doesn't begin at 0",
		liteLLM(`,"tiered_pricing":[{"range":[0],"input_cost_per_token":1e-6}]`):                                        "its tiered_pricing has a range without two ends",
		liteLLM(`,"input_cost_per_token":9e-06`):                                                                        `it has "input_cost_per_token" twice`,
		modelsDev("", `,"status":"deprecated"`):                                                                         "its vendor ends it",
		modelsDev(`,"tiers":[{"input":2,"output":3,"tier":{"type":"time","size":9}}]`, ""):                              "its tiers aren't by the prompt's length",
		modelsDev(`,"tiers":[{"input":2,"tier":{"type":"context","size":9}},{"tier":{"type":"context","size":9}}]`, ""): "its tiers have no rising sizes",
		modelsDev(`,"tiers":[{"input":2}]`, ""):                                                                         "its tiers aren't by the prompt's length",
		liteLLM(`,"input_cost_per_token_above_1k_tokens":1e-6,"input_cost_per_token_above_2k_tokens":1e-6,"input_cost_per_token_above_3k_tokens":1e-6,
			"input_cost_per_token_above_4k_tokens":1e-6`): "it has more than 3 tiers",
		modelsDev(`,"tiers":7`, ""):                                          "its tiers are no list",
		`{"limit":{"context":1000,"output":100}}`:                            missing,
		`{"cost":{"input":1,"output":2}}`:                                    "its limits are missing",
		`{"limit":{"context":0,"output":100},"cost":{"input":1,"output":2}}`: "its context window or largest output is missing",
	} {
		whole := `{"acme/m":` + entry + `}`
		if !strings.Contains(entry, "litellm_provider") {
			whole = `{"acme":{"models":{"m":` + entry + `}}}`
		}
		file, err := Read(strings.NewReader(whole), everything)
		require.NoError(t, err, entry)
		require.Empty(t, file.Models, entry)
		require.Equal(t, []Skipped{{"acme/m", want}}, file.Skipped, entry)
	}
	odd, err := Read(strings.NewReader(`{"acme/a b":`+liteLLM("")+`,"acme/`+strings.Repeat("x", 129)+`":`+liteLLM("")+`}`), everything)
	require.NoError(t, err)
	require.Empty(t, odd.Models)
	require.Len(t, odd.Skipped, 2)
}

// TestNamesTwice guarantees that no one of two prices of a model is chosen.
func TestNamesTwice(t *testing.T) {
	t.Parallel()
	dear := strings.Replace(liteLLM(""), "1e-06", "9e-06", 1)
	bad := strings.Replace(liteLLM(""), "1e-06", "-9e-06", 1)
	both := []Skipped{{"acme/m", "the file has it twice, with different entries"}}
	for whole, want := range map[string][]Skipped{
		`{"acme/m":` + liteLLM("") + `,"m":` + liteLLM("") + `}`:                                           nil,
		`{"acme/m":` + liteLLM("") + `,"m":` + dear + `}`:                                                  both,
		`{"acme/m":` + liteLLM("") + `,"acme/m":` + dear + `}`:                                             both,
		`{"acme/m":` + liteLLM("") + `,"m":` + bad + `}`:                                                   both,
		`{"m":` + bad + `,"acme/m":` + liteLLM("") + `}`:                                                   both,
		`{"m":` + dear + `,"acme/m":` + liteLLM("") + `,"acme/m":` + liteLLM("") + `}`:                     both,
		`{"acme":{"models":{"m":` + modelsDev("", "") + `,"m":` + modelsDev(`,"cache_read":1`, "") + `}}}`: both,
	} {
		file, err := Read(strings.NewReader(whole), everything)
		require.NoError(t, err, whole)
		require.Equal(t, want, file.Skipped, whole)
		require.Len(t, file.Models, 1-len(want), whole)
	}
}

// TestPricesAreDecimal guarantees exact prices: no float64 is as exact as the text, and a part of a micro is rounded up.
func TestPricesAreDecimal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1.5e-07": 150_000, "0.00000015": 150_000, "15E-8": 150_000, "1.5000000000000002e-07": 150_001, "3e-13": 1, "0": 0, "-0.0": 0,
		"6e-07": 600_000, "0.0000000375": 37_500, "2.0e-3": 2_000_000_000, "1e-999": 1,
	} {
		price, err := object{"p": []byte(text)}.price("p", 12)
		require.NoError(t, err, text)
		require.Equal(t, want, price, text)
	}
}

// TestBrokenFiles guarantees a clear message about a file that can't be read whole.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	whole := `{"acme/m":` + liteLLM("") + `,"n":` + liteLLM("") + `}`
	for i := range whole {
		_, err := Read(strings.NewReader(whole[:i]), everything)
		require.EqualError(t, err, "the file is cut off; download it again", whole[:i])
	}
	for text, want := range map[string]string{
		whole + whole:               "something follows the JSON object",
		"<html>":                    errForm.Error(),
		"[1]":                       errForm.Error(),
		"{}":                        errForm.Error(),
		`{"a":{"b":1}}`:             errForm.Error(),
		`{"a":5}`:                   errForm.Error(),
		`{"a":{"models":[]}}`:       errForm.Error(),
		`{"a":{"models":{"m":1}},}`: `reading the name of a model: invalid character '}'`,
		`{"a":{"models":,}}`:        `reading "a": invalid character ','`,
	} {
		_, err := Read(strings.NewReader(text), everything)
		require.ErrorContains(t, err, want, text)
	}
	broken := errors.New("the disk is gone")
	_, err := Read(io.MultiReader(strings.NewReader(whole[:40]), failing{broken}), everything)
	require.ErrorIs(t, err, broken)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestLargeFiles guarantees that a file of LiteLLM's size is read with the memory of an entry and what was asked for, and that a
// file without end isn't.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("{")
	for i := range 6000 {
		fmt.Fprintf(&text, "%q:%s,\n", fmt.Sprintf("acme/m%d", i), liteLLM(`,"note":"`+strings.Repeat("x", 80)+`"`))
	}
	text.WriteString(`"acme/last":` + liteLLM("") + "}")
	require.Greater(t, text.Len(), 1_400_000)
	file, err := Read(strings.NewReader(text.String()), func(_, name string) bool { return name == "last" })
	require.NoError(t, err)
	require.Len(t, file.Models, 1)

	_, err = Read(io.MultiReader(strings.NewReader(`{"a":"`), endless{}), everything)
	require.EqualError(t, err, "the file has more than 16 MiB")
}

// endless is a text without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
