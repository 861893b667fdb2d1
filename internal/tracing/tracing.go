// Package tracing lets the trace of an answer be found from the webhook that brought its text, in another process: both ends of
// the queue compute the same ids from the message's own, so that nothing of a trace is stored with a message.
//
// It needs no SDK: [IDs] fits the SDK's interface of a generator.
package tracing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"

	"go.opentelemetry.io/otel/trace"
)

// Answer returns the span under which the answer to a customer's text begins, from the channel's id and the platform's id of the
// message. It is marked as sampled; whether it is, its own process decides.
func Answer(channelID, messageID string) trace.SpanContext {
	sum := sha256.Sum256([]byte("answer\n" + channelID + "\n" + messageID))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24]), TraceFlags: trace.FlagsSampled,
	})
}

type wantedKey struct{}

// WithRoot returns a context in which a root span gets the ids of root, if the provider's generator is [IDs].
func WithRoot(ctx context.Context, root trace.SpanContext) context.Context {
	return context.WithValue(ctx, wantedKey{}, root)
}

// IDs generates random ids, except the ids of [WithRoot] for root spans.
type IDs struct{}

// NewIDs returns the ids of a root span.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if root, wanted := ctx.Value(wantedKey{}).(trace.SpanContext); wanted {
		return root.TraceID(), root.SpanID()
	}
	var id trace.TraceID
	_, _ = rand.Read(id[:]) // never fails
	return id, randomSpan()
}

// NewSpanID returns the id of another span of a trace.
func (IDs) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return randomSpan() }

func randomSpan() (id trace.SpanID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}
