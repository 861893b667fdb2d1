package gateway_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// TestRoomForOutput: where the window bounds max_tokens, a vendor with a denser vocabulary than ours can accept it, too; a prompt
// that nearly fills the window leaves half of the rest to the output.
func TestRoomForOutput(t *testing.T) {
	t.Parallel()
	for words, want := range map[int]int64{
		300: window - 324 - 108, // a third of the prompt is spare
		600: 188,                // half of the rest
		975: 1,
		990: 1, // more than the window by our count, which the vendor may see otherwise
	} {
		f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(1, 1, 0)}},
			func(m *gateway.Model, _ *gateway.ProviderEntry) { m.MaxOutputTokens = window })
		_, err := f.Call(t.Context(), request(func(r *gateway.Request) {
			r.MaxTokens = 0
			r.Messages[0].Content = providers.Quote(strings.Repeat(" hello", words))
		}), nil)
		require.NoError(t, err)
		require.Equal(t, want, f.script.seen()[0].MaxTokens, "%d words", words)
	}
	// No vocabulary needs more tokens than bytes.
	f := setup(t, &script{steps: []step{text("x"), finish("stop"), usage(1, 1, 0)}},
		func(m *gateway.Model, _ *gateway.ProviderEntry) { m.MaxOutputTokens = window })
	_, err := f.Call(t.Context(), request(func(r *gateway.Request) {
		r.MaxTokens = 0
		r.Messages[0].Content = providers.Quote(strings.Repeat("1,", 100))
	}), nil)
	require.NoError(t, err)
	require.EqualValues(t, window-224, f.script.seen()[0].MaxTokens)
}
