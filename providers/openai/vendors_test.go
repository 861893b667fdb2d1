package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
	"github.com/caddy-svc/caddy-svc/providers/openai/openaitest"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

// sent returns the header and the body that a provider with the options sends.
func sent(t *testing.T, options map[string]string, req *providers.Request) (header http.Header, body string) {
	t.Helper()
	vendor := openaitest.New(t, providers.Config{
		BaseURL: "http://vendor", Options: options, Transport: openaitest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			raw, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			header, body = r.Header, string(raw)
			return &http.Response{
				StatusCode: 200, Header: http.Header{}, ContentLength: -1,
				Body: io.NopCloser(strings.NewReader("data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")),
			}, nil
		}),
	})
	require.NoError(t, providertest.Ask(t, vendor, req).Err)
	require.True(t, json.Valid([]byte(body)), body)
	return header, body
}

// TestPresets shows the request to each vendor, of a model that thinks and of one that doesn't.
func TestPresets(t *testing.T) {
	t.Parallel()
	const (
		begin    = `{"model":"m","messages":[{"role":"user","content":"hi"}]`
		sampling = `,"temperature":0.5,"top_p":0.9`
		few      = `,"max_tokens":7,"stop":["X"]`
		many     = `,"max_completion_tokens":7,"stop":["X"]`
		stream   = `,"stream":true,"stream_options":{"include_usage":true}}`
		effort   = `,"reasoning_effort":"none"`
		typed    = `,"thinking":{"type":"none"}`
		template = `,"chat_template_kwargs":{"enable_thinking":"none"}`
	)
	want := map[string]struct{ parameters, thinking, end string }{
		"openai":         {sampling + many, effort, stream},
		"azure":          {sampling + many, effort, stream},
		"bedrock":        {sampling + few, effort, stream},
		"bedrock_mantle": {sampling + few, effort, stream},
		"xai":            {sampling + few, effort, stream},
		"deepseek":       {sampling + few, typed, stream},
		"mistral":        {sampling + few, effort, `,"stream":true}`},
		"groq":           {sampling + few, effort + `,"include_reasoning":false`, stream},
		"openrouter":     {sampling + few, `,"reasoning":{"effort":"none"}`, stream},
		"kimi":           {many, typed, stream},
		"minimax":        {sampling + many, typed + `,"reasoning_split":true`, stream},
		"ollama":         {sampling + few, effort, stream},
		"vllm":           {sampling + few, template, stream},
		"llamacpp":       {sampling + few, template, stream},
		"lmstudio":       {sampling + few, effort, stream},
	}
	description := openai.Driver{}.Describe()
	require.NoError(t, description.Check())
	require.Len(t, description.Presets, len(want))
	temperature, topP := 0.5, 0.9
	for _, preset := range description.Presets {
		expected := want[preset.Name]
		for _, thinks := range []bool{true, false} {
			req := &providers.Request{
				Model: "m", Messages: []providers.Message{{Role: "user", Content: providers.Quote("hi")}}, Temperature: &temperature, TopP: &topP,
				MaxTokens: 7, Stop: []string{"X"}, Stream: true, APIKey: "k", Reasoning: thinks,
			}
			if thinks {
				req.Thinking = "none"
			} else {
				expected.thinking = ""
			}
			header, body := sent(t, preset.Options, req)
			require.Equal(t, begin+expected.parameters+expected.thinking+expected.end, body, preset.Name)
			if preset.Name == "azure" {
				require.Equal(t, []string{"k"}, header["Api-Key"])
				require.NotContains(t, header, "Authorization")
			} else {
				require.Equal(t, []string{"Bearer k"}, header["Authorization"], preset.Name)
			}
		}
	}
}

// TestOptionsOfTheConfiguration: values that a configuration gives win over a preset's, and the model's field over both.
func TestOptionsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	req := openaitest.Ask("ok", true)
	req.Thinking, req.Reasoning, req.MaxTokensField = "false", true, "max_tokens"
	header, body := sent(t, map[string]string{
		"key_header": "authorization", "max_tokens_field": "max_completion_tokens", "thinking_field": "a.b_c.d", "reasoning_fields": " { } ", "omit": "none",
	}, req)
	require.Contains(t, body, `,"max_tokens":100,"a":{"b_c":{"d":false}},"stream":true,"stream_options":`)
	require.Equal(t, []string{"Bearer " + openaitest.OperatorKey}, header["Authorization"])

	for name, values := range map[string][]string{
		"key_header":       {"two words", "x:y", "ü"},
		"max_tokens_field": {"max"},
		"thinking_field":   {"", ".", "a.", "a.b.c.d", `a"b`, "A"},
		"reasoning_fields": {"", "{", "[]", "null", `{"a":1}}`, `{} {}`},
		"omit":             {"", "stop", "temperature top_p", "temperature,"},
	} {
		for _, option := range (openai.Driver{}).Describe().Options {
			for _, value := range values {
				if option.Name == name {
					require.NotEmpty(t, option.Check(value), "%s %q", name, value)
				}
			}
		}
	}
}
