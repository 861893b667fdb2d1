package parrot

import (
	"fmt"
	"testing"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

func TestContract(t *testing.T) {
	phrase := func(text, why string, usage providers.Usage) string {
		return fmt.Sprintf(`{"says":%s,"why":%q,"cost":{"heard":%d,"said":%d}}`, providers.Quote(text), why, usage.PromptTokens, usage.CompletionTokens)
	}
	providertest.Run(t, providertest.Suite{
		Driver: Driver{}, Options: map[string]string{"cage": "7"},
		Vendor: &providertest.Vendor{
			Answer: phrase,
			Stream: func(pieces []string, why string, usage providers.Usage) (parts []string) {
				for _, piece := range pieces {
					parts = append(parts, fmt.Sprintf("data: {\"says\":%s}\n\n", providers.Quote(piece)))
				}
				return append(parts, "data: "+phrase("", why, usage)+"\n\n")
			},
			Error: func(message string) string { return fmt.Sprintf(`{"squawk":%q}`, message) },
		},
	})
}
