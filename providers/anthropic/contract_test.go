package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	stops := map[string]string{"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
	providertest.Run(t, providertest.Suite{Driver: Driver{}, Vendor: &providertest.Vendor{
		Read: readRequest,
		Adjust: func(req *providers.Request) {
			for i := range req.Messages {
				if req.Messages[i].Role == "tool" { // the API answers calls of tools only
					req.Messages[i].Role = "user"
				}
			}
		},
		Unwritable: []func(*providers.Request){func(req *providers.Request) { req.Messages[0].Content = providers.Quote(" ") }},
		Thinking:   []string{"disabled", "adaptive", "between_tools", "low", "max"},
		UsageParts: providers.Usage{CachedPromptTokens: 1, CacheWriteTokens: 1, LongCacheWriteTokens: 1, ReasoningTokens: 1},
		Report: func(usage providers.Usage) string {
			return event(`{"type":"message_delta","delta":{"stop_reason":null},"usage":%s}`, usageOf(usage))
		},
		Answer: func(text, finish string, usage providers.Usage) string {
			return fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":%s}],`+
				`"stop_reason":%q,"stop_sequence":null,"usage":%s}`, providers.Quote(text), stops[finish], usageOf(usage))
		},
		Stream: func(pieces []string, finish string, usage providers.Usage) (parts []string) {
			before := event(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],`+
				`"stop_reason":null,"usage":%s}}`, usageOf(providers.Usage{PromptTokens: min(usage.PromptTokens, 9), CompletionTokens: 1})) +
				event(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
			for _, piece := range pieces {
				parts = append(parts, before+textDelta(piece))
				before = ""
			}
			return append(parts, event(`{"type":"content_block_stop","index":0}`)+
				event(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":%s}`, stops[finish], usageOf(usage))+
				event(`{"type":"message_stop"}`))
		},
		Error: func(message string) string {
			return fmt.Sprintf(`{"type":"error","error":{"type":"api_error","message":%q},"request_id":"req_1"}`, message)
		},
	}})
}

// readRequest reads a request as the API does. It has no field for the system texts but one, and no role for them.
func readRequest(r *http.Request, body []byte) (req providers.Request, err error) {
	var asked struct {
		Model    string
		System   json.RawMessage
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		MaxTokens   int64 `json:"max_tokens"`
		Temperature *float64
		TopP        *float64 `json:"top_p"`
		Stop        []string `json:"stop_sequences"`
		Stream      bool
		Thinking    struct{ Type string }
		Output      struct{ Effort string } `json:"output_config"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return req, err
	}
	req = providers.Request{
		Model: asked.Model, MaxTokens: asked.MaxTokens, Temperature: asked.Temperature, TopP: asked.TopP, Stop: asked.Stop,
		Stream: asked.Stream, Thinking: asked.Thinking.Type + asked.Output.Effort,
	}
	if asked.System != nil {
		req.Messages = append(req.Messages, providers.Message{Role: "system", Content: providers.JSONString(asked.System)})
	}
	for _, m := range asked.Messages {
		req.Messages = append(req.Messages, providers.Message{Role: m.Role, Content: providers.JSONString(m.Content)})
	}
	if reason := refusal(r.Header.Get("Anthropic-Version"), body); reason != "" {
		return req, errors.New(reason)
	}
	return req, nil
}

// usageOf returns the usage object of a report.
func usageOf(u providers.Usage) string {
	return fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,`+
		`"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d},`+
		`"output_tokens":%d,"output_tokens_details":{"thinking_tokens":%d},"service_tier":"standard"}`,
		u.PromptTokens-u.CachedPromptTokens-u.CacheWriteTokens-u.LongCacheWriteTokens, u.CacheWriteTokens+u.LongCacheWriteTokens,
		u.CachedPromptTokens, u.CacheWriteTokens, u.LongCacheWriteTokens, u.CompletionTokens, u.ReasoningTokens)
}

// event returns an event of a stream with its name, which is the type in its data, padded as the API pads it.
func event(format string, args ...any) string {
	data := fmt.Sprintf(format, args...)
	var name string
	_, _ = fmt.Sscanf(data, `{"type":%q`, &name)
	return "event: " + name + "\ndata: " + data[:len(data)-1] + "   }\n\n"
}

// textDelta returns the event of a piece of the text.
func textDelta(piece string) string {
	return event(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}`, providers.Quote(piece))
}
