package openai

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/providers"
)

// The options of the protocol, which presets set for their vendors.
const (
	keyHeader       = "key_header"
	maxTokensField  = "max_tokens_field"
	thinkingField   = "thinking_field"
	reasoningFields = "reasoning_fields"
	omit            = "omit"
)

var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	fieldPath  = regexp.MustCompile(`^[a-z_]+(\.[a-z_]+){0,2}$`)

	omissible = []string{"temperature", "top_p", "stream_options", "none"}
)

var options = []option.Option{
	{
		Name: keyHeader, Help: "The header of the key, by default Authorization, in which the word Bearer precedes it.",
		Check: problem("must be the name of a header, e.g. api-key", headerName.MatchString),
	},
	{
		Name: maxTokensField, Help: "The field of max_tokens for models without a max_tokens_field of their own, by default max_tokens.",
		Check: problem("must be max_tokens or max_completion_tokens", func(value string) bool {
			return value == "max_tokens" || value == "max_completion_tokens"
		}),
	},
	{
		Name: thinkingField, Help: "The field of a model's word for thinking, with dots for objects in objects, by default reasoning_effort.",
		Check: problem("must be up to 3 names of a-z and _ with dots between them, e.g. thinking.type", fieldPath.MatchString),
	},
	{
		Name: reasoningFields, Help: "A JSON object of fields that requests to models with the option reasoning get, by default {}.",
		Check: problem(`must be a JSON object, e.g. {"reasoning_split":true}`, func(value string) bool {
			var fields map[string]json.RawMessage
			return json.Unmarshal([]byte(value), &fields) == nil && fields != nil
		}),
	},
	{
		Name: omit, Help: "The fields that are never sent, with commas between them: temperature, top_p, stream_options, or none, the default.",
		Check: problem("must be some of "+strings.Join(omissible, ", ")+", with commas between them", func(value string) bool {
			return !slices.ContainsFunc(strings.Split(value, ","), func(field string) bool { return !slices.Contains(omissible, field) })
		}),
	},
}

// problem returns the check of an option, with the text for values that aren't right.
func problem(text string, right func(value string) bool) func(value string) string {
	return func(value string) string {
		if right(value) {
			return ""
		}
		return text
	}
}

// newDialect returns the dialect with the options, which have been checked.
func newDialect(values map[string]string) *dialect {
	path := strings.Split(cmp.Or(values[thinkingField], "reasoning_effort"), ".")
	d := &dialect{
		keyHeader:      http.CanonicalHeaderKey(values[keyHeader]),
		maxTokensField: cmp.Or(values[maxTokensField], "max_tokens"),
		thinking:       `,"` + strings.Join(path, `":{"`) + `":`, thinkingEnd: strings.Repeat("}", len(path)-1),
		omit: strings.Split(values[omit], ","),
	}
	if d.keyHeader == "Authorization" {
		d.keyHeader = ""
	}
	fields := strings.TrimSpace(values[reasoningFields])
	if fields = strings.TrimSuffix(strings.TrimPrefix(fields, "{"), "}"); strings.TrimSpace(fields) != "" {
		d.reasoning = "," + fields
	}
	return d
}

// presets are the vendors that imitate OpenAI, with what their documentation and their errors say about stops and fields. A stop
// sequence above the number, and each one if the number is 0, is applied by the gateway.
var presets = []providers.Preset{
	{Name: "openai", Label: "OpenAI", BaseURL: "https://api.openai.com/v1", MaxStops: 4, Options: map[string]string{
		maxTokensField: "max_completion_tokens",
	}},
	{Name: "azure", Label: "Azure OpenAI", BaseURL: "https://RESOURCE.openai.azure.com/openai/v1", MaxStops: 4, Options: map[string]string{
		keyHeader: "api-key", maxTokensField: "max_completion_tokens",
	}},
	{Name: "bedrock", Label: "Amazon Bedrock", BaseURL: "https://bedrock-runtime.REGION.amazonaws.com/openai/v1", MaxStops: 4},
	{Name: "bedrock_mantle", Label: "Amazon Bedrock (Mantle)", BaseURL: "https://bedrock-mantle.REGION.api.aws/v1", MaxStops: 4},
	{Name: "xai", Label: "xAI", BaseURL: "https://api.x.ai/v1"}, // its reasoning models refuse stop
	{Name: "deepseek", Label: "DeepSeek", BaseURL: "https://api.deepseek.com/v1", MaxStops: 16, Options: map[string]string{
		thinkingField: "thinking.type",
	}},
	{Name: "mistral", Label: "Mistral", BaseURL: "https://api.mistral.ai/v1", MaxStops: 4, Options: map[string]string{
		omit: "stream_options", // an unknown field is an error, and streams have usage without it
	}},
	{Name: "groq", Label: "Groq", BaseURL: "https://api.groq.com/openai/v1", MaxStops: 4, Options: map[string]string{
		reasoningFields: `{"include_reasoning":false}`, // otherwise some models think aloud, in <think>
	}},
	{Name: "openrouter", Label: "OpenRouter", BaseURL: "https://openrouter.ai/api/v1", MaxStops: 4, Options: map[string]string{
		thinkingField: "reasoning.effort",
	}},
	{Name: "kimi", Label: "Kimi", BaseURL: "https://api.moonshot.ai/v1", MaxStops: 5, Options: map[string]string{
		thinkingField: "thinking.type", maxTokensField: "max_completion_tokens", omit: "temperature,top_p",
	}},
	{Name: "minimax", Label: "MiniMax", BaseURL: "https://api.minimax.io/v1", Options: map[string]string{
		thinkingField: "thinking.type", maxTokensField: "max_completion_tokens", reasoningFields: `{"reasoning_split":true}`,
	}},
	{Name: "ollama", Label: "Ollama", BaseURL: "http://127.0.0.1:11434/v1", MaxStops: -1},
	{Name: "vllm", Label: "vLLM", BaseURL: "http://127.0.0.1:8000/v1", MaxStops: -1, Options: map[string]string{
		thinkingField: "chat_template_kwargs.enable_thinking",
	}},
	{Name: "llamacpp", Label: "llama.cpp", BaseURL: "http://127.0.0.1:8080/v1", MaxStops: -1, Options: map[string]string{
		thinkingField: "chat_template_kwargs.enable_thinking",
	}},
	{Name: "lmstudio", Label: "LM Studio", BaseURL: "http://127.0.0.1:1234/v1", MaxStops: -1},
}
