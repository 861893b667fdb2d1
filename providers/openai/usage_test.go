package openai

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The usage of each vendor in a form that it was seen to send. Reasoning is charged once where the vendor counts it in the
// completion, and not given away where only the total has it.
func TestUsageOfVendors(t *testing.T) {
	t.Parallel()
	for vendor, test := range map[string]struct {
		doc            string
		prompt, output int64
		cached         int64
	}{
		"OpenAI": {
			`{"choices":[],"usage":{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":256,"accepted_prediction_tokens":0}}}`,
			2006, 300, 1920,
		},
		"xAI, reasoning beside the completion": {
			`{"choices":[],"usage":{"prompt_tokens":10120,"completion_tokens":1499,"total_tokens":14428,"prompt_tokens_details":{"text_tokens":10120,"cached_tokens":6},"completion_tokens_details":{"reasoning_tokens":2809},"num_sources_used":0}}`,
			10120, 4308, 6,
		},
		"Gemini, thoughts only in the total": {
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":"."},"finish_reason":"stop"}],"usage":{"prompt_tokens":102,"completion_tokens":758,"total_tokens":1725}}`,
			102, 1623, 0,
		},
		"Gemini, nothing but thoughts": {
			`{"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":"length"}],"usage":{"prompt_tokens":21,"total_tokens":81}}`,
			21, 60, 0,
		},
		"DeepSeek": {
			`{"choices":[],"usage":{"prompt_tokens":70,"completion_tokens":61,"total_tokens":131,"completion_tokens_details":{"reasoning_tokens":59},"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":6}}`,
			70, 61, 64,
		},
		"Mistral": {
			`{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":13,"total_tokens":432,"completion_tokens":419}}`,
			13, 419, 0,
		},
		"Groq": {
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.1,"prompt_tokens":18,"prompt_time":0.001,"completion_tokens":556,"completion_time":0.46,"total_tokens":574,"total_time":0.46}}}`,
			18, 556, 0,
		},
		"OpenRouter": {
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":194,"completion_tokens":20,"total_tokens":214,"cost":0.00095,"cost_details":{"upstream_inference_cost":null},"prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}`,
			194, 20, 10,
		},
		"Moonshot, in the choice": {
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":19,"completion_tokens":200,"total_tokens":219,"cached_tokens":19,"prompt_tokens_details":{"cached_tokens":19}}}]}`,
			19, 200, 19,
		},
		"Ollama": {
			`{"choices":[],"usage":{"prompt_tokens":26,"completion_tokens":298,"total_tokens":324}}`,
			26, 298, 0,
		},
		"vLLM": {
			`{"choices":[],"usage":{"prompt_tokens":15,"total_tokens":47,"completion_tokens":32,"prompt_tokens_details":null,"completion_tokens_details":null}}`,
			15, 32, 0,
		},
		"llama.cpp": {
			`{"choices":[],"usage":{"completion_tokens":10,"prompt_tokens":8,"total_tokens":18},"timings":{"prompt_n":8}}`,
			8, 10, 0,
		},
		"Anthropic's compatible layer": {
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":503,"prompt_tokens":472,"total_tokens":975,"completion_tokens_details":null}}`,
			472, 503, 0,
		},
		"a total that is too small": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":12}}`,
			10, 7, 0,
		},
		"no total": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7}}`,
			10, 7, 0,
		},
		"a total that is no number": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":"99"}}`,
			10, 7, 0,
		},
	} {
		c, ok := readChunk([]byte(test.doc), pieces)
		require.True(t, ok, vendor)
		require.True(t, c.counted, vendor)
		require.Equal(t, test.prompt, c.usage.PromptTokens, vendor)
		require.Equal(t, test.output, c.usage.CompletionTokens, vendor)
		require.Equal(t, test.cached, c.usage.CachedPromptTokens, vendor)
	}
}
