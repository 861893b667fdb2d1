package anthropic

import (
	"bytes"
	"encoding/json"
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
				if req.Messages[i].Role == "tool" { // Anthropic requires the id of a call
					req.Messages[i].Role = "user"
				}
			}
		},
		Unwritable: []func(*providers.Request){func(req *providers.Request) { req.Messages[0].Content = providers.Quote(" \n") }},
		Thinking:   []string{"disabled", "low"},
		UsageParts: providers.Usage{CachedPromptTokens: 1, CacheWriteTokens: 1, LongCacheWriteTokens: 1, ReasoningTokens: 1},
		Report: func(usage providers.Usage) string {
			return event(`{"type":"message_delta","delta":{"stop_reason":null,"stop_sequence":null},"usage":%s}`, usageOf(usage))
		},
		Answer: func(text, finish string, usage providers.Usage) string {
			return fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":%s}],`+
				`"stop_reason":%q,"stop_sequence":null,"usage":%s}`, providers.Quote(text), stops[finish], usageOf(usage))
		},
		Stream: func(pieces []string, finish string, usage providers.Usage) (parts []string) {
			begun := usage
			begun.CompletionTokens = 1
			before := event(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],`+
				`"stop_reason":null,"usage":%s}}`, usageOf(begun)) +
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

func readRequest(r *http.Request, body []byte) (req providers.Request, err error) {
	var asked struct {
		Model    string
		System   json.RawMessage
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		MaxTokens     int64 `json:"max_tokens"`
		Temperature   *float64
		TopP          *float64 `json:"top_p"`
		StopSequences []string `json:"stop_sequences"`
		Thinking      struct{ Type string }
		OutputConfig  struct{ Effort string } `json:"output_config"`
		Stream        bool
	}
	known := json.NewDecoder(bytes.NewReader(body))
	known.DisallowUnknownFields()
	if err = known.Decode(&asked); err == nil && r.Header.Get("anthropic-version") != "2023-06-01" {
		err = fmt.Errorf("version %q", r.Header.Get("anthropic-version"))
	}
	req = providers.Request{
		Model: asked.Model, MaxTokens: asked.MaxTokens, Temperature: asked.Temperature, TopP: asked.TopP, Stop: asked.StopSequences,
		Thinking: asked.Thinking.Type + asked.OutputConfig.Effort, Stream: asked.Stream,
	}
	if asked.System != nil {
		req.Messages = append(req.Messages, providers.Message{Role: "system", Content: providers.JSONString(asked.System)})
	}
	for _, m := range asked.Messages {
		req.Messages = append(req.Messages, providers.Message{Role: m.Role, Content: providers.JSONString(m.Content)})
	}
	return req, err
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
