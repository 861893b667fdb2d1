package openai_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	count := func(u providers.Usage) string {
		return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, u.PromptTokens, u.CompletionTokens)
	}
	providertest.Run(t, providertest.Suite{Driver: openai.Driver{}, Vendor: &providertest.Vendor{
		Answer: func(text, finish string, usage providers.Usage) string {
			return fmt.Sprintf(`{"choices":[{"message":{"content":%s},"finish_reason":%q}],"usage":%s}`, providers.Quote(text), finish, count(usage))
		},
		Stream: func(pieces []string, finish string, usage providers.Usage) (parts []string) {
			for _, piece := range pieces {
				content, _ := json.Marshal(piece)
				parts = append(parts, fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", content))
			}
			return append(parts,
				fmt.Sprintf("data: {\"choices\":[{\"delta\":{},\"finish_reason\":%q}]}\n\n", finish),
				fmt.Sprintf("data: {\"choices\":[],\"usage\":%s}\n\ndata: [DONE]\n\n", count(usage)))
		},
		Error: func(message string) string { return fmt.Sprintf(`{"error":{"message":%q}}`, message) },
	}})
}
