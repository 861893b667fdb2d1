package gemini_test

import (
	"fmt"
	"testing"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/gemini"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	response := func(text, finish string, usage providers.Usage) string {
		if finish != "" {
			finish = `,"finishReason":` + map[string]string{"stop": `"STOP"`, "length": `"MAX_TOKENS"`, "content_filter": `"SAFETY"`}[finish]
		}
		return fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%s}],"role":"model"}%s,"index":0}],`+
			`"usageMetadata":{"promptTokenCount":%d,"cachedContentTokenCount":%d,"candidatesTokenCount":%d,"thoughtsTokenCount":%d}}`,
			providers.Quote(text), finish, usage.PromptTokens, usage.CachedPromptTokens, usage.CompletionTokens-usage.ReasoningTokens, usage.ReasoningTokens)
	}
	providertest.Run(t, providertest.Suite{Driver: gemini.Driver{}, Vendor: &providertest.Vendor{
		Answer: response,
		Stream: func(pieces []string, finish string, usage providers.Usage) (parts []string) {
			for _, piece := range pieces {
				parts = append(parts, "data: "+response(piece, "", usage)+"\r\n\r\n")
			}
			return append(parts, "data: "+response("", finish, usage)+"\r\n\r\n")
		},
		Error: func(message string) string {
			return fmt.Sprintf(`{"error":{"code":400,"message":%q,"status":"INVALID_ARGUMENT"}}`, message)
		},
	}})
}
