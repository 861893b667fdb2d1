package gateway

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/billing"
)

// tracerName is the instrumentation scope of this package's spans.
const tracerName = "github.com/caddy-svc/caddy-svc/internal/gateway"

// The attributes of a vendor's call, by OpenTelemetry's conventions for generative AI as of November 2026, which are still in development and have
// changed their names before: https://github.com/open-telemetry/semantic-conventions-genai. Attributes with contents of prompts and replies are
// never set.
const (
	keyOperation     = attribute.Key("gen_ai.operation.name")
	keyProvider      = attribute.Key("gen_ai.provider.name")
	keyRequestModel  = attribute.Key("gen_ai.request.model")
	keyStream        = attribute.Key("gen_ai.request.stream")
	keyMaxTokens     = attribute.Key("gen_ai.request.max_tokens")
	keyTemperature   = attribute.Key("gen_ai.request.temperature")
	keyTopP          = attribute.Key("gen_ai.request.top_p")
	keyResponseModel = attribute.Key("gen_ai.response.model")
	keyFinishReasons = attribute.Key("gen_ai.response.finish_reasons")
	keyFirstChunk    = attribute.Key("gen_ai.response.time_to_first_chunk") // seconds
	keyInputTokens   = attribute.Key("gen_ai.usage.input_tokens")
	keyCachedTokens  = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	keyOutputTokens  = attribute.Key("gen_ai.usage.output_tokens")
	keyErrorType     = attribute.Key("error.type")
	// keyModel is our own: the public id of the model.
	keyModel = attribute.Key("svc.model")
	// keyCall is our own: the id of the call in the ledger.
	keyCall = attribute.Key("svc.call.id")
)

// ChatOperation is the conventions' name of the only operation.
const ChatOperation = "chat"

// wellKnownProviders are the conventions' names of vendors that usually have another provider name in a configuration.
var wellKnownProviders = map[string]string{
	"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "gemini": "gcp.gemini", "mistral": "mistral_ai", "moonshot": "moonshot_ai",
	"vertex": "gcp.vertex_ai", "xai": "x_ai",
}

// WellKnownProvider returns the conventions' name of a vendor, by the provider's name in a configuration.
func WellKnownProvider(name string) string {
	if known, ok := wellKnownProviders[name]; ok {
		return known
	}
	return name
}

// startSpan begins the span of the vendor's call as a child of the request's span. If that isn't recorded, it does nothing and
// allocates nothing. The vendor gets the span's context if the provider's entry says so.
func (c *call) startSpan(ctx context.Context) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return
	}
	attributes := []attribute.KeyValue{
		keyOperation.String(ChatOperation), keyProvider.String(WellKnownProvider(c.provider.Name)), keyRequestModel.String(c.upstream.Model),
		keyStream.Bool(c.upstream.Stream), keyMaxTokens.Int64(c.upstream.MaxTokens),
		keyModel.String(c.model.ID), keyCall.String(c.id),
	}
	if c.upstream.Temperature != nil {
		attributes = append(attributes, keyTemperature.Float64(*c.upstream.Temperature))
	}
	if c.upstream.TopP != nil {
		attributes = append(attributes, keyTopP.Float64(*c.upstream.TopP))
	}
	_, c.span = parent.TracerProvider().Tracer(tracerName).Start(ctx, ChatOperation+" "+c.upstream.Model, //nolint:spancheck // endSpan ends it
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(c.upstreamAt), trace.WithAttributes(attributes...))
	if sc := c.span.SpanContext(); c.provider.SendTraceparent && sc.IsValid() {
		c.upstream.Traceparent = "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
	}
}

// endSpan ends the span, if there is one, with the time of the end of the vendor's call.
func (c *call) endSpan(outcome Outcome, usage billing.Usage, source billing.UsageSource) {
	if c.span == nil {
		return
	}
	if c.finish != "" {
		c.span.SetAttributes(keyFinishReasons.StringSlice([]string{c.finish}))
	}
	if c.answering != "" {
		c.span.SetAttributes(keyResponseModel.String(c.answering))
	}
	if !c.firstTextAt.IsZero() {
		c.span.SetAttributes(keyFirstChunk.Float64(c.firstTextAt.Sub(c.upstreamAt).Seconds()))
	}
	if source != billing.UsageNone {
		c.span.SetAttributes(keyInputTokens.Int64(usage.PromptTokens), keyCachedTokens.Int64(usage.CachedPromptTokens),
			keyOutputTokens.Int64(usage.CompletionTokens))
	}
	if outcome != OutcomeCompleted {
		c.span.SetAttributes(keyErrorType.String(string(outcome)))
		c.span.SetStatus(codes.Error, "")
	}
	var options []trace.SpanEndOption
	if !c.upstreamEnd.IsZero() {
		options = append(options, trace.WithTimestamp(c.upstreamEnd))
	}
	c.span.End(options...)
	c.span = nil
}
