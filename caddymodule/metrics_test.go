package caddymodule

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

var fullName = regexp.MustCompile(`fqName: "([^"]+)"`)

// TestMetricsAreDocumented guarantees that every metric has its line in docs/operating.md, and that a configuration can
// be registered beside another.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	require.NoError(t, registerMetrics(registry, &App{Redis: new(Redis), Providers: []*Provider{{Name: "acme"}}}))
	require.NoError(t, registerMetrics(registry, &App{Redis: new(Redis), Providers: []*Provider{{Name: "acme"}}}))
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		registry.Describe(described)
	}()
	count := 0
	for desc := range described {
		name := fullName.FindStringSubmatch(desc.String())[1]
		require.Contains(t, string(page), "`"+name, "docs/operating.md doesn't tell what %s is", name)
		count++
	}
	require.Equal(t, 42, count) // buffered_bytes has four
}

// TestOutputSpeed: only a whole answer whose tokens the provider has counted says how fast the provider is.
func TestOutputSpeed(t *testing.T) {
	t.Parallel()
	ended := gateway.Ended{
		Model: "speedy/one", Provider: "speedy", Outcome: gateway.OutcomeCompleted, UsageSource: billing.UsageProvider,
		Usage: billing.Usage{PromptTokens: 7, CompletionTokens: 90}, Upstream: 2 * time.Second,
	}
	callMetrics{}.CallEnded(ended)
	for _, change := range []func(*gateway.Ended){
		func(e *gateway.Ended) { e.Outcome = gateway.OutcomeProviderError },
		func(e *gateway.Ended) { e.UsageSource = billing.UsageEstimated },
		func(e *gateway.Ended) { e.Usage.CompletionTokens = 0 },
		func(e *gateway.Ended) { e.Upstream = 0 },
	} {
		other := ended
		change(&other)
		callMetrics{}.CallEnded(other)
	}
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(outputSpeed))
	gathered, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, gathered, 1)
	for _, metric := range gathered[0].GetMetric() {
		if metric.GetLabel()[0].GetValue() == "speedy" {
			require.EqualValues(t, 1, metric.GetHistogram().GetSampleCount())
			require.InDelta(t, 45, metric.GetHistogram().GetSampleSum(), 1e-9)
			return
		}
	}
	t.Fatal("the call was not observed")
}
