package gateway_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// TestSentPromptIsLetGo: once the vendor has the prompt, the call doesn't hold its client's body any more, and still
// estimates what a vendor without usage is owed.
func TestSentPromptIsLetGo(t *testing.T) {
	t.Parallel()
	answer := []step{text("one two"), finish("stop")}
	for name, c := range map[string]struct {
		prompt string
		tokens int64
	}{
		"short": {"hello there", 12},
		"long":  {strings.Repeat("hello ", 4000), (24_000 + 24) / 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: answer}, func(m *gateway.Model, _ *gateway.ProviderEntry) {
				m.ContextWindow = 100_000
			})
			body := providers.Quote(c.prompt)
			sent := 0
			sink := newClient()
			req := request(streamed, func(req *gateway.Request) {
				req.Messages[0].Content = body
				req.Sent = func() { sent++ }
			})
			sink.onText = func(int) {
				clear(body) // the next request has the memory
				require.Positive(t, sent)
				require.Nil(t, req.Messages)
			}
			result, err := f.Call(t.Context(), req, sink)
			require.NoError(t, err)
			require.Equal(t, c.tokens, result.Usage.PromptTokens)
		})
	}
}
