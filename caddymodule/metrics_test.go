package caddymodule

import (
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
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
	require.Equal(t, 39, count) // buffered_bytes has four
}
