package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
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

// TestVendors has an answer of each vendor that deviates, as it comes over the wire, whole and in pieces.
func TestVendors(t *testing.T) {
	t.Parallel()
	v := openaitest.StartVendor(t, 1, openaitest.Long)
	for vendor, test := range map[string]struct {
		scenario, finish, usage string
		want                    providertest.Answer
	}{
		"OpenAI, a cache written and read": {
			"ok", "stop", `{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":900,"cache_write_tokens":1000},"completion_tokens_details":{"reasoning_tokens":256}}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{
				PromptTokens: 2006, CompletionTokens: 300, CachedPromptTokens: 900, CacheWriteTokens: 1000, ReasoningTokens: 256,
			}},
		},
		"OpenAI, a refusal": {
			"refusal", "stop", `{"prompt_tokens":9,"completion_tokens":7}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 9, CompletionTokens: 7}},
		},
		"Azure, a first event of its filter": {
			"azure-filter", "content_filter", `{"prompt_tokens":9,"completion_tokens":7,"total_tokens":16}`,
			providertest.Answer{FinishReason: "content_filter", Usage: &providers.Usage{PromptTokens: 9, CompletionTokens: 7}},
		},
		"xAI, reasoning beside the completion": {
			"ok", "stop", `{"prompt_tokens":10120,"completion_tokens":1499,"total_tokens":14428,"completion_tokens_details":{"reasoning_tokens":2809}}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 10120, CompletionTokens: 4308, ReasoningTokens: 2809}},
		},
		"Gemini's compatible endpoint, thoughts in the total": {
			"ok", "length", `{"prompt_tokens":102,"completion_tokens":758,"total_tokens":1725}`,
			providertest.Answer{FinishReason: "length", Usage: &providers.Usage{PromptTokens: 102, CompletionTokens: 1623, ReasoningTokens: 865}},
		},
		"DeepSeek": {
			"ok", "stop", `{"prompt_tokens":70,"completion_tokens":61,"total_tokens":131,"completion_tokens_details":{"reasoning_tokens":59},"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":6}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 70, CompletionTokens: 61, CachedPromptTokens: 64, ReasoningTokens: 59}},
		},
		"Mistral, content in parts": {
			"content-parts", "model_length", `{"prompt_tokens":13,"total_tokens":432,"completion_tokens":419}`,
			providertest.Answer{FinishReason: "length", Usage: &providers.Usage{PromptTokens: 13, CompletionTokens: 419}},
		},
		"Groq, usage in its extension": {
			"usage-groq", "stop", `{"queue_time":0.1,"prompt_tokens":18,"completion_tokens":556,"total_tokens":574}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 18, CompletionTokens: 556}},
		},
		"OpenRouter, comments before the answer": {
			"comments", "stop", `{"prompt_tokens":194,"completion_tokens":20,"total_tokens":214,"cost":0.00095,"prompt_tokens_details":{"cached_tokens":10}}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 194, CompletionTokens: 20, CachedPromptTokens: 10}},
		},
		"Kimi, usage in the choice, cached tokens without details": {
			"usage-choice", "stop", `{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"cached_tokens":80}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 100, CompletionTokens: 10, CachedPromptTokens: 80}},
		},
		"MiniMax, usage with the finish reason": {
			"usage-on-finish", "max_tokens", `{"total_tokens":249,"total_characters":0,"prompt_tokens":26,"completion_tokens":223,"completion_tokens_details":{"reasoning_tokens":214}}`,
			providertest.Answer{FinishReason: "length", Usage: &providers.Usage{PromptTokens: 26, CompletionTokens: 223, ReasoningTokens: 214}},
		},
		"vLLM, reasoning in a field of its own": {
			"reasoning", "stop", `{"prompt_tokens":15,"total_tokens":47,"completion_tokens":32,"prompt_tokens_details":null,"completion_tokens_details":null}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 15, CompletionTokens: 32}},
		},
		"llama.cpp": {
			"ok", "stop", `{"completion_tokens":10,"prompt_tokens":8,"total_tokens":18}`,
			providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 8, CompletionTokens: 10}},
		},
	} {
		test.want.Text = helloText
		scenario := test.scenario + ";finish=" + test.finish + ";usage=" + url.QueryEscape(test.usage)
		for _, stream := range []bool{true, false} {
			require.Equal(t, test.want, providertest.Ask(t, v, openaitest.Ask(scenario, stream)), "%s stream=%v", vendor, stream)
		}
	}
	for vendor, event := range map[string]string{
		"xAI, overload after a 200":        `{"code":"The service is currently unavailable","error":"Try later."}`,
		"Groq, overload in its extension":  `{"choices":[],"x_groq":{"id":"r","error":"over capacity"}}`,
		"OpenRouter, overload after a 200": `{"id":"gen","choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"error":{"code":503,"message":"Provider returned error"}}`,
		"vLLM, the error itself":           `{"object":"error","message":"no","type":"ServiceUnavailable","code":503}`,
		"DeepSeek, no resources":           `{"choices":[{"index":0,"delta":{},"finish_reason":"insufficient_system_resource"}]}`,
	} {
		role := `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
		got := providertest.Ask(t, openaitest.BodyOf(t, role+"data: "+event+"\n\n"), openaitest.Ask("ok", true))
		require.True(t, requireFailure(t, got.Err, providers.FailureOverloaded).Elsewhere, vendor)
	}
}
