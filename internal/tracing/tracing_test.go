package tracing

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

var _ sdktrace.IDGenerator = IDs{}

// TestAnswersHaveSpansOfTheirOwn: both ends of the queue compute the same span, another one for each message of each channel.
func TestAnswersHaveSpansOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[trace.TraceID]bool{}
	for _, channel := range []string{"chn_1", "chn_11"} {
		for _, message := range []string{"1", "11", "1\n1"} {
			answer := Answer(channel, message)
			require.True(t, answer.IsValid())
			require.True(t, answer.IsSampled())
			require.True(t, answer.Equal(Answer(channel, message)))
			require.False(t, seen[answer.TraceID()])
			seen[answer.TraceID()] = true
		}
	}
}

// TestIDs: only a root span gets the ids of WithRoot.
func TestIDs(t *testing.T) {
	t.Parallel()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(IDs{})).Tracer("test")
	root := Answer("chn_1", "1")
	ctx, span := tracer.Start(WithRoot(t.Context(), root), "root")
	defer span.End()
	require.Equal(t, root.TraceID(), span.SpanContext().TraceID())
	require.Equal(t, root.SpanID(), span.SpanContext().SpanID())
	_, child := tracer.Start(ctx, "child")
	defer child.End()
	require.Equal(t, root.TraceID(), child.SpanContext().TraceID())
	require.NotEqual(t, root.SpanID(), child.SpanContext().SpanID())
	_, other := tracer.Start(t.Context(), "other")
	defer other.End()
	require.True(t, other.SpanContext().IsValid())
	require.NotEqual(t, root.TraceID(), other.SpanContext().TraceID())
}
