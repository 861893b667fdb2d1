package gateway_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// traced returns a context with a recorded span, as Caddy's tracing makes it, and the spans that end below it.
func traced(t *testing.T) (context.Context, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	t.Cleanup(func() {
		span.End()
		require.NoError(t, provider.Shutdown(context.WithoutCancel(ctx)))
	})
	return ctx, recorder
}

// TestSpanOfTheVendorsCall: the span has what the conventions name, the figures of the books, and no text.
func TestSpanOfTheVendorsCall(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		steps  []step
		open   error
		want   map[string]any
		absent []string
		status codes.Code
	}{
		"answered": {
			steps:  answered(),
			want:   map[string]any{"gen_ai.usage.input_tokens": int64(10), "gen_ai.usage.output_tokens": int64(20), "gen_ai.response.finish_reasons": []string{"stop"}},
			absent: []string{"error.type", "gen_ai.response.model"},
		},
		"with the vendor's model": {
			steps: append([]step{{event: providers.Event{Text: "zero ", Model: "std-1-2026-08-07"}}}, answered()...),
			want:  map[string]any{"gen_ai.response.model": "std-1-2026-08-07"},
		},
		"failed": {
			open: &providers.Error{Failure: providers.FailureOverloaded, Cause: errors.New("sk-secret")},
			want: map[string]any{"error.type": "provider_overloaded"}, status: codes.Error,
			absent: []string{"gen_ai.usage.input_tokens", "gen_ai.response.time_to_first_chunk"},
		},
		"broken off": {
			steps: []step{text("half"), broken(providers.FailureBroken)},
			want:  map[string]any{"error.type": "provider_error"}, status: codes.Error,
		},
		"panicked": {
			steps: []step{{panics: true}},
			want:  map[string]any{"error.type": "provider_error"}, status: codes.Error,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, recorder := traced(t)
			f := setup(t, &script{steps: row.steps, open: row.open})
			_, _ = f.Call(ctx, request(streamed), newClient())
			spans := recorder.Ended()
			require.Len(t, spans, 1)
			span := spans[0]
			require.Equal(t, trace.SpanContextFromContext(ctx).SpanID(), span.Parent().SpanID())
			require.Equal(t, trace.SpanKindClient, span.SpanKind())
			require.Equal(t, "chat std-1", span.Name())
			require.Equal(t, row.status, span.Status().Code)
			attributes := map[string]any{}
			for _, kv := range span.Attributes() {
				attributes[string(kv.Key)] = kv.Value.AsInterface()
				require.NotContains(t, kv.Value.String(), "hello", "a prompt")
				require.NotContains(t, kv.Value.String(), "sk-secret")
			}
			row.want["gen_ai.operation.name"] = "chat"
			row.want["gen_ai.provider.name"] = "acme"
			row.want["gen_ai.request.model"] = "std-1"
			row.want["gen_ai.request.stream"] = true
			row.want["svc.model"] = modelID
			for key, value := range row.want {
				require.Equal(t, value, attributes[key], key)
			}
			for _, key := range row.absent {
				require.NotContains(t, attributes, key)
			}
			require.Empty(t, span.Events())
			require.Empty(t, f.script.seen()[0].Traceparent, "the operator has not allowed it")
		})
	}
}

// TestTraceparentForTheVendor: only a provider that is configured so gets the context, which is that of its own call.
func TestTraceparentForTheVendor(t *testing.T) {
	t.Parallel()
	ctx, recorder := traced(t)
	f := setup(t, &script{steps: answered()}, func(_ *gateway.Model, p *gateway.ProviderEntry) { p.SendTraceparent = true })
	_, err := f.Call(ctx, request(), nil)
	require.NoError(t, err)
	sc := recorder.Ended()[0].SpanContext()
	require.Equal(t, "00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-01", f.script.seen()[0].Traceparent)

	_, err = f.Call(t.Context(), request(), nil)
	require.NoError(t, err)
	require.Empty(t, f.script.seen()[1].Traceparent, "nothing is traced")
	require.Len(t, recorder.Ended(), 1)
}

// TestARepeatedRequestHasNoSpan: an answer that is replayed comes from no vendor.
func TestARepeatedRequestHasNoSpan(t *testing.T) {
	t.Parallel()
	ctx, recorder := traced(t)
	f := setup(t, &script{steps: answered()})
	for range 2 {
		_, err := f.Call(ctx, request(func(r *gateway.Request) { r.IdempotencyKey = "key" }), nil)
		require.NoError(t, err)
	}
	require.Len(t, recorder.Ended(), 1)
	require.Contains(t, recorder.Ended()[0].Attributes(), attribute.Int64("gen_ai.usage.output_tokens", 20))
}

// TestWithoutATraceThereIsNothing: a call of a request without a recorded span costs no memory for traces.
//
//nolint:paralleltest // it counts allocations
func TestWithoutATraceThereIsNothing(t *testing.T) {
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() { gateway.Untraced(ctx) }))
}
