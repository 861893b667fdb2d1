package gateway_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// BenchmarkCall measures a whole call, with its hold and settlement and without: a call whose price is 0 waits for no commit. A
// traced call has a span that goes nowhere.
func BenchmarkCall(b *testing.B) {
	for _, row := range []struct {
		name     string
		free     bool
		streamed bool
		traced   bool
	}{{"free", true, false, false}, {"free streamed", true, true, false}, {"free traced", true, false, true}, {"charged", false, false, false}} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			f := setup(b, &script{steps: answered()}, func(m *gateway.Model, _ *gateway.ProviderEntry) {
				if row.free {
					m.Price.Input, m.Price.Output, m.Price.CachedInput = 0, 0, 0
				}
			})
			ctx := b.Context()
			if row.traced {
				ctx, _ = sdktrace.NewTracerProvider().Tracer("test").Start(ctx, "request") //nolint:spancheck // it is never exported
			}
			for b.Loop() {
				var sink gateway.Sink
				if row.streamed {
					sink = newClient()
				}
				_, err := f.Call(ctx, request(), sink)
				require.NoError(b, err)
			}
		})
	}
}
