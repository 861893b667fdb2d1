package caddymodule

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// withPreset returns the provider with its preset and defaults, and its faults.
func withPreset(t *testing.T, provider string) (p *Provider, faults []string) {
	t.Helper()
	p = new(Provider)
	require.NoError(t, json.Unmarshal([]byte(provider), p))
	before, err := json.Marshal(p)
	require.NoError(t, err)
	var fs config.Faults
	p.faults(&fs, "p")
	for _, fault := range fs {
		faults = append(faults, fault.String())
	}
	after, err := json.Marshal(p)
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after), "a check changes nothing")
	p.fillPreset()
	return p, faults
}

// TestPreset: a preset stands for protocol, address and options, and each given value wins.
func TestPreset(t *testing.T) {
	t.Parallel()
	p, faults := withPreset(t, `{"name":"p","preset":"minimax"}`)
	require.Empty(t, faults)
	require.Equal(t, "openai", p.Protocol)
	require.Equal(t, "https://api.minimax.io/v1", p.BaseURL)
	require.Equal(t, map[string]string{
		"thinking_field": "thinking.type", "max_tokens_field": "max_completion_tokens", "reasoning_fields": `{"reasoning_split":true}`,
	}, p.Options)

	p, faults = withPreset(t, `{"name":"p","preset":"kimi","protocol":"openai","base_url":"https://api.moonshot.cn/v1","options":{"omit":"none"}}`)
	require.Empty(t, faults)
	require.Equal(t, "https://api.moonshot.cn/v1", p.BaseURL)
	require.Equal(t, map[string]string{"omit": "none", "thinking_field": "thinking.type", "max_tokens_field": "max_completion_tokens"}, p.Options)
	again, _ := withPreset(t, `{"name":"p","preset":"kimi"}`)
	require.Equal(t, "temperature,top_p", again.Options["omit"], "a preset is the same for every provider")

	p, faults = withPreset(t, `{"name":"p","preset":"bedrock","base_url":"https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1"}`)
	require.Empty(t, faults)
	require.Equal(t, "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", p.BaseURL)

	p, faults = withPreset(t, `{"name":"p","preset":"gemini"}`)
	require.Empty(t, faults)
	require.Equal(t, "gemini", p.Protocol)

	for provider, want := range map[string]string{
		`{"preset":"azure"}`: "p.base_url: missing; the address of Azure OpenAI is your own, e.g. https://RESOURCE.openai.azure.com/openai/v1",
		`{"preset":"azure","base_url":"https://RESOURCE.openai.azure.com/openai/v1"}`:    "p.base_url: missing; the address of Azure OpenAI is your own, e.g. https://RESOURCE.openai.azure.com/openai/v1",
		`{"preset":"groq","base_url":"https://api.groq.com/openai/v1/chat/completions"}`: "p.base_url: is the address in front of the paths of single operations; leave out what begins with /chat/completions, e.g. https://api.openai.com/v1",
		`{"preset":"groq","protocol":"echo"}`:                                            "p.protocol: the preset groq speaks openai; leave one of them out",
		`{"preset":"groq","options":{"omit":"all"}}`:                                     "p.protocol.omit: must be some of temperature, top_p, stream_options, none, with commas between them",
		`{"protocol":"groq"}`: "p.protocol: Groq speaks the protocol openai; use `preset groq`",
	} {
		_, faults := withPreset(t, strings.Replace(provider, "{", `{"name":"p",`, 1))
		require.Equal(t, []string{want}, faults, provider)
	}
	_, faults = withPreset(t, `{"name":"p","preset":"gork"}`)
	require.Len(t, faults, 1)
	require.Regexp(t, `^p\.preset: "gork" is not known; allowed: openai, azure, .*, lmstudio, `, faults[0])
}

// TestStopsOfPresets: the gateway sends as many stop sequences as the vendor accepts, or else the protocol.
func TestStopsOfPresets(t *testing.T) {
	t.Parallel()
	for provider, want := range map[string]int{
		`{"preset":"xai"}`: 0, `{"preset":"deepseek"}`: 16, `{"preset":"ollama"}`: -1, `{"preset":"gemini"}`: 5, `{"preset":"anthropic"}`: -1,
		`{"protocol":"openai"}`: 4, `{"protocol":"anthropic"}`: -1,
	} {
		p, _ := withPreset(t, provider)
		p.MaxCalls = new(int64)
		require.Equal(t, want, p.entry().MaxStops, provider)
	}
}

// TestPresetInACaddyfile: the preset is filled in before the provider is made.
func TestPresetInACaddyfile(t *testing.T) {
	t.Parallel()
	adapted, err := adapt(fmt.Sprintf(`{
	svc {
		base_url http://localhost:8080
		store sqlite %s/svc.db
		master_key {file.none}
		provider local {
			preset vllm
			protocol openai {
				thinking_field reasoning_effort
			}
			api_key none
		}
		model local/a {
			context_window 8192
			max_output_tokens 4096
			price_input 0
			price_output 0
		}
	}
}
`, t.TempDir()))
	require.NoError(t, err)
	app, err := ReadApp([]byte(adapted), "the file")
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:8000/v1", app.Providers[0].BaseURL)
	require.Equal(t, map[string]string{"thinking_field": "reasoning_effort"}, app.Providers[0].Options)
	var fs config.Faults
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	require.NotNil(t, app.Providers[0].read(ctx, caddy.NewReplacer(), &fs).Provider)
	require.Empty(t, fs)
}

// TestPresetsAreDocumented: docs/vendors.md has the table of presets, and -update writes it there. No two presets share a name.
func TestPresetsAreDocumented(t *testing.T) {
	t.Parallel()
	table := "| preset | | `base_url` | options |\n|---|---|---|---|\n"
	names := map[string]bool{}
	for _, driver := range protocols.all() {
		d := driver.Describe()
		for _, preset := range d.Presets {
			require.False(t, names[preset.Name], preset.Name)
			names[preset.Name] = true
			var options []string
			for _, name := range slices.Sorted(maps.Keys(preset.Options)) {
				options = append(options, fmt.Sprintf("`%s %s`", name, preset.Options[name]))
			}
			table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", preset.Name, preset.Label, preset.BaseURL, strings.Join(options, ", "))
		}
	}
	requireTable(t, "../docs/vendors.md", "presets", "TestPresetsAreDocumented", table)
}
