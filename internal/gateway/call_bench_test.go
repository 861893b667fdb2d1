package gateway_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// BenchmarkCall measures a whole call, with its hold and settlement and without: a call whose price is 0 waits for no commit.
func BenchmarkCall(b *testing.B) {
	for _, row := range []struct {
		name     string
		free     bool
		streamed bool
	}{{"free", true, false}, {"free streamed", true, true}, {"charged", false, false}} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			f := setup(b, &script{steps: answered()}, func(m *gateway.Model, _ *gateway.ProviderEntry) {
				if row.free {
					m.Price.Input, m.Price.Output, m.Price.CachedInput = 0, 0, 0
				}
			})
			for b.Loop() {
				var sink gateway.Sink
				if row.streamed {
					sink = newClient()
				}
				_, err := f.Call(b.Context(), request(), sink)
				require.NoError(b, err)
			}
		})
	}
}
