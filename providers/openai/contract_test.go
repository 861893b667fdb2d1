package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	usageOf := func(u providers.Usage) string {
		return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,`+
			`"prompt_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
			u.PromptTokens, u.CompletionTokens, u.CachedPromptTokens, u.CacheWriteTokens, u.ReasoningTokens)
	}
	report := func(u providers.Usage) string { return "data: {\"choices\":[]," + usageOf(u) + "}\n\n" }
	providertest.Run(t, providertest.Suite{Driver: openai.Driver{}, Vendor: &providertest.Vendor{
		Read: readRequest,
		Adjust: func(req *providers.Request) {
			for i := range req.Messages {
				if req.Messages[i].Role == "tool" { // OpenAI requires the id of a call
					req.Messages[i].Role = "user"
				}
			}
		},
		Thinking: []string{"none", "minimal"},
		Answer: func(text, finish string, usage providers.Usage) string {
			return fmt.Sprintf(`{"choices":[{"message":{"content":%s},"finish_reason":%q}],%s}`, providers.Quote(text), finish, usageOf(usage))
		},
		Stream: func(pieces []string, finish string, usage providers.Usage) (parts []string) {
			for _, piece := range pieces {
				content, _ := json.Marshal(piece)
				parts = append(parts, fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", content))
			}
			return append(parts, fmt.Sprintf("data: {\"choices\":[{\"delta\":{},\"finish_reason\":%q}]}\n\n", finish), report(usage)+"data: [DONE]\n\n")
		},
		Report:     report,
		UsageParts: providers.Usage{CachedPromptTokens: 1, CacheWriteTokens: 1, ReasoningTokens: 1},
		Error:      func(message string) string { return fmt.Sprintf(`{"error":{"message":%q}}`, message) },
	}})
}

func readRequest(_ *http.Request, body []byte) (providers.Request, error) {
	var asked struct {
		Model    string
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Temperature   *float64
		TopP          *float64 `json:"top_p"`
		Max           int64    `json:"max_tokens"`
		MaxCompletion int64    `json:"max_completion_tokens"`
		Stop          []string
		Thinking      string `json:"reasoning_effort"`
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	known := json.NewDecoder(bytes.NewReader(body))
	known.DisallowUnknownFields()
	err := known.Decode(&asked)
	if err == nil && asked.Stream != asked.StreamOptions.IncludeUsage {
		err = fmt.Errorf("a stream without usage: %s", body)
	}
	req := providers.Request{
		Model: asked.Model, Temperature: asked.Temperature, TopP: asked.TopP, MaxTokens: asked.Max + asked.MaxCompletion, Stop: asked.Stop,
		MaxTokensField: "max_tokens", Thinking: asked.Thinking, Stream: asked.Stream,
	}
	if asked.MaxCompletion > 0 {
		req.MaxTokensField = "max_completion_tokens"
	}
	for _, m := range asked.Messages {
		req.Messages = append(req.Messages, providers.Message{Role: m.Role, Content: providers.JSONString(m.Content)})
	}
	return req, err
}
