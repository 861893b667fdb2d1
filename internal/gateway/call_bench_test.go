package gateway_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// TestEndpointsAllocateNothing: while its endpoints work, a call of a model with several allocates no more than of a model with one.
func TestEndpointsAllocateNothing(t *testing.T) { //nolint:paralleltest // others would allocate beside it
	allocations := func(endpoints ...gateway.Endpoint) float64 {
		f := setup(t, &script{steps: answered()}, func(m *gateway.Model, _ *gateway.ProviderEntry) {
			m.Price, m.Endpoints = billing.Price{}, endpoints
		})
		f.script.forgetful = true
		return testing.AllocsPerRun(200, func() {
			_, err := f.Call(t.Context(), request(), nil)
			require.NoError(t, err)
		})
	}
	one := allocations()
	several := allocations(gateway.Endpoint{Provider: "acme", Upstream: "a", Weight: 1}, gateway.Endpoint{Provider: "acme", Upstream: "b", Weight: 2})
	require.InDelta(t, one, several, 1)
}

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
