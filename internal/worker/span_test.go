package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/tracing"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/providers"
)

// TestSpansOfATurn: the first try has the span that webhooks link to, later ones are below it, and each has its calls below it.
func TestSpansOfATurn(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
		if n == 1 {
			return "", broken(providers.FailureUnreachable)
		}
		return echo(asked), nil
	}
	recorder := tracetest.NewSpanRecorder()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithIDGenerator(tracing.IDs{}))
	w := h.worker(func(c *Config) { c.Tracer = traces.Tracer("test") })
	h.deliver(t, bot, inbox.Item{Kind: platforms.Text, CustomerRef: "lan", Address: "to-lan", MessageID: "m1", Text: "hello"})
	h.drain(t, w)
	h.hurry(t)
	h.drain(t, w)

	root := tracing.Answer(bot, "m1")
	var names, outcomes []string
	for _, span := range recorder.Ended() {
		require.Equal(t, root.TraceID(), span.SpanContext().TraceID(), span.Name())
		names = append(names, span.Name())
		for _, kv := range span.Attributes() {
			require.NotContains(t, kv.Value.String(), "hello")
			require.NotContains(t, kv.Value.String(), "lan")
			if kv.Key == keyOutcome {
				outcomes = append(outcomes, kv.Value.AsString())
			}
		}
	}
	require.Equal(t, []string{"chat std-1", "answer bot", "chat std-1", "send bot", "answer bot"}, names)
	require.Equal(t, []string{"retried", "sent", "answered"}, outcomes)
	ended := recorder.Ended()
	require.Equal(t, root.SpanID(), ended[1].SpanContext().SpanID())
	require.False(t, ended[1].Parent().IsValid())
	require.Equal(t, root.SpanID(), ended[4].Parent().SpanID())
	for call, turn := range map[int]int{0: 1, 2: 4, 3: 4} {
		require.Equal(t, ended[turn].SpanContext().SpanID(), ended[call].Parent().SpanID())
	}
}
