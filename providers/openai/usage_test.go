package openai

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// The usage of each vendor in a form that it was seen to send. Reasoning is charged once where the vendor counts it in the
// completion, and not given away where only the total has it.
func TestUsageOfVendors(t *testing.T) {
	t.Parallel()
	for vendor, test := range map[string]struct {
		doc               string
		prompt, output    int64
		cached            int64
		written, reasoned int64
	}{
		"OpenAI": {
			`{"choices":[],"usage":{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":256,"accepted_prediction_tokens":0}}}`,
			2006, 300, 1920, 0, 256,
		},
		"xAI, reasoning beside the completion": {
			`{"choices":[],"usage":{"prompt_tokens":10120,"completion_tokens":1499,"total_tokens":14428,"prompt_tokens_details":{"text_tokens":10120,"cached_tokens":6},"completion_tokens_details":{"reasoning_tokens":2809},"num_sources_used":0}}`,
			10120, 4308, 6, 0, 2809,
		},
		"Gemini, thoughts only in the total": {
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":"."},"finish_reason":"stop"}],"usage":{"prompt_tokens":102,"completion_tokens":758,"total_tokens":1725}}`,
			102, 1623, 0, 0, 865,
		},
		"Gemini, nothing but thoughts": {
			`{"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":"length"}],"usage":{"prompt_tokens":21,"total_tokens":81}}`,
			21, 60, 0, 0, 60,
		},
		"DeepSeek": {
			`{"choices":[],"usage":{"prompt_tokens":70,"completion_tokens":61,"total_tokens":131,"completion_tokens_details":{"reasoning_tokens":59},"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":6}}`,
			70, 61, 64, 0, 59,
		},
		"Mistral": {
			`{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":13,"total_tokens":432,"completion_tokens":419}}`,
			13, 419, 0, 0, 0,
		},
		"Groq": {
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.1,"prompt_tokens":18,"prompt_time":0.001,"completion_tokens":556,"completion_time":0.46,"total_tokens":574,"total_time":0.46}}}`,
			18, 556, 0, 0, 0,
		},
		"OpenRouter": {
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":194,"completion_tokens":20,"total_tokens":214,"cost":0.00095,"cost_details":{"upstream_inference_cost":null},"prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}`,
			194, 20, 10, 0, 5,
		},
		"Moonshot, in the choice": {
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":19,"completion_tokens":200,"total_tokens":219,"cached_tokens":19,"prompt_tokens_details":{"cached_tokens":19}}}]}`,
			19, 200, 19, 0, 0,
		},
		"Ollama": {
			`{"choices":[],"usage":{"prompt_tokens":26,"completion_tokens":298,"total_tokens":324}}`,
			26, 298, 0, 0, 0,
		},
		"vLLM": {
			`{"choices":[],"usage":{"prompt_tokens":15,"total_tokens":47,"completion_tokens":32,"prompt_tokens_details":null,"completion_tokens_details":null}}`,
			15, 32, 0, 0, 0,
		},
		"llama.cpp": {
			`{"choices":[],"usage":{"completion_tokens":10,"prompt_tokens":8,"total_tokens":18},"timings":{"prompt_n":8}}`,
			8, 10, 0, 0, 0,
		},
		"Anthropic's compatible layer": {
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":503,"prompt_tokens":472,"total_tokens":975,"completion_tokens_details":null}}`,
			472, 503, 0, 0, 0,
		},
		"OpenAI, written to the cache": {
			`{"choices":[],"usage":{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":900,"cache_write_tokens":1000}}}`,
			2006, 300, 900, 1000, 0,
		},
		"Qwen, written to the cache": {
			`{"choices":[],"usage":{"prompt_tokens":1500,"completion_tokens":30,"total_tokens":1530,"prompt_tokens_details":{"cached_tokens":0,"cache_creation_input_tokens":1400,"cache_creation":{"ephemeral_5m_input_tokens":1400}}}}`,
			1500, 30, 0, 1400, 0,
		},
		"Kimi, no details": {
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"cached_tokens":80}}`,
			100, 10, 80, 0, 0,
		},
		"Kimi, more reasoning than completion": {
			`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":6000,"total_tokens":6101,"completion_tokens_details":{"reasoning_tokens":6001}}}`,
			100, 6001, 0, 0, 6001,
		},
		"MiniMax": {
			`{"choices":[],"usage":{"total_tokens":249,"total_characters":0,"prompt_tokens":26,"completion_tokens":223,"completion_tokens_details":{"reasoning_tokens":214}}}`,
			26, 223, 0, 0, 214,
		},
		"more written than the prompt has": {
			`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":41}}}`,
			100, 7, 60, 0, 0,
		},
		"more reasoning than completion, no total": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7,"completion_tokens_details":{"reasoning_tokens":9}}}`,
			10, 7, 0, 0, 7,
		},
		"a total that is too small": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":12}}`,
			10, 7, 0, 0, 0,
		},
		"no total": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7}}`,
			10, 7, 0, 0, 0,
		},
		"a total that is no number": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":"99"}}`,
			10, 7, 0, 0, 0,
		},
	} {
		c, ok := readChunk([]byte(test.doc), pieces)
		require.True(t, ok, vendor)
		require.True(t, c.counted, vendor)
		require.Equal(t, providers.Usage{
			PromptTokens: test.prompt, CompletionTokens: test.output,
			CachedPromptTokens: test.cached, CacheWriteTokens: test.written, ReasoningTokens: test.reasoned,
		}, c.usage, vendor)
	}
}
