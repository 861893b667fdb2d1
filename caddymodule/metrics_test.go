package caddymodule

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

var helpText = regexp.MustCompile(`help: "([^"]+)"`)

var fullName = regexp.MustCompile(`fqName: "([^"]+)"`)

// registered returns the product's collectors, and the names of all metrics with their labels. A histogram has the names of its
// series.
func registered(t *testing.T) (families []string, series map[string][]string) {
	t.Helper()
	app := &App{Redis: new(Redis), Providers: []*Provider{{Name: "acme"}}}
	registry := prometheus.NewRegistry()
	require.NoError(t, registerMetrics(registry, app))
	require.NoError(t, registerMetrics(registry, &App{Redis: new(Redis), Providers: []*Provider{{Name: "acme"}}}))
	series = map[string][]string{}
	for _, collector := range append(app.gauges(), processCollectors...) {
		described := make(chan *prometheus.Desc, 16)
		collector.Describe(described)
		close(described)
		for desc := range described {
			name := fullName.FindStringSubmatch(desc.String())[1]
			families = append(families, name)
			var names []string
			for _, label := range labelNames.FindAllStringSubmatch(desc.String(), -1) {
				names = append(names, strings.FieldsFunc(label[1]+label[2], func(r rune) bool { return r == ',' })...)
			}
			switch collector.(type) {
			case prometheus.Histogram, *prometheus.HistogramVec:
				series[name+"_bucket"] = append(names, "le")
				series[name+"_sum"], series[name+"_count"] = names, names
			default:
				series[name] = append(series[name], names...)
			}
		}
	}
	return families, series
}

// addProcessSeries adds what Caddy's own metrics say of each process, and what Prometheus says of each target.
func addProcessSeries(t *testing.T, series map[string][]string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gathered, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range gathered {
		series[family.GetName()] = nil
	}
	series["up"] = nil
}

// labelNames finds the labels in the text of a description: constant ones with their values, and variable ones.
var labelNames = regexp.MustCompile(`(\w+)="|variableLabels: \{([^}]*)\}`)

// TestMetricsAreDocumented: docs/operating.md has the table of metrics with their labels and help texts, and -update writes it there.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	requireTable(t, "../docs/operating.md", "metrics", "TestMetricsAreDocumented", metricsTable())
}

// requireTable requires that a page has the table between its marks. With -update it writes the table there.
func requireTable(t *testing.T, path, mark, test, table string) {
	t.Helper()
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	command := "go test ./caddymodule -run " + test + " -update"
	begin, end := "<!-- "+mark+": "+command+" -->\n", "<!-- /"+mark+" -->"
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	documented := before + begin + table + end + after
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(documented), 0o600))
		return
	}
	require.Equal(t, documented, string(page), command)
}

// metricsTable renders the metrics in Markdown, ordered by name.
func metricsTable() string {
	app := &App{Redis: new(Redis), Providers: []*Provider{{Name: "acme"}}, Models: []*Model{{Name: "acme/a", ShutdownDate: "2027-01-14"}}}
	rows := map[string]string{}
	for _, collector := range append(app.gauges(), processCollectors...) {
		described := make(chan *prometheus.Desc, 16)
		collector.Describe(described)
		close(described)
		for desc := range described {
			name := fullName.FindStringSubmatch(desc.String())[1]
			var labels []string
			for _, label := range labelNames.FindAllStringSubmatch(desc.String(), -1) {
				labels = append(labels, strings.FieldsFunc(label[1]+label[2], func(r rune) bool { return r == ',' })...)
			}
			rows[name] = "| `" + name + strings.ReplaceAll("{"+strings.Join(labels, ",")+"}", "{}", "") + "` | " + helpText.FindStringSubmatch(desc.String())[1] + " |\n"
		}
	}
	table := "| metric | meaning |\n|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table += rows[name]
	}
	return table
}

// TestLabelsNameNoTenant guarantees that no label of a metric names a key, a customer or a
// channel, and only svc_queue_lag_seconds names organizations.
func TestLabelsNameNoTenant(t *testing.T) {
	t.Parallel()
	_, series := registered(t)
	const allowed = `answering_model byok code error_type gen_ai_operation_name gen_ai_provider_name gen_ai_request_model failure gen_ai_token_type handler kind le model
		outcome platform provider reason share source state stream type upstream_model version`
	for name, labels := range series {
		for _, label := range labels {
			if name != "svc_queue_lag_seconds" || label != "organization" {
				require.Contains(t, strings.Fields(allowed), label, name)
			}
		}
	}
}

// TestBoardAndRulesNameMetrics: what Grafana's board and Prometheus' rules name exists, with the labels by which they select and
// group, the board shows every metric, and every alert has a test. scripts/promtool.sh checks the expressions themselves.
func TestBoardAndRulesNameMetrics(t *testing.T) {
	t.Parallel()
	families, series := registered(t)
	addProcessSeries(t, series)
	series["svc_model_shutdown_timestamp_seconds"] = []string{"model"} // only models with a shutdown_date have it
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join("..", "packaging", path))
		require.NoError(t, err)
		return string(text)
	}
	board, rules, tests := read("grafana/caddy-svc.json"), read("prometheus/caddy-svc.yml"), read("prometheus/caddy-svc_test.yml")
	require.True(t, json.Valid([]byte(board)))
	for _, name := range families {
		if !strings.HasPrefix(name, "gen_ai_") { // figures of our own under names that other boards look for
			require.Contains(t, board, name, "the board has no panel of it")
		}
	}
	for _, kind := range conditions.Kinds() {
		require.Contains(t, rules, kind, "no alert has the kind, or names the one that has")
	}
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		require.Contains(t, tests, "alertname: "+alert[1], "the alert has no test")
	}

	expressions := regexp.MustCompile(`"(?:expr|query)": "(.*)"`).FindAllStringSubmatch(board, -1)
	require.Greater(t, len(expressions), 50)
	for _, expression := range expressions {
		requireSeries(t, series, strings.ReplaceAll(expression[1], `\"`, `"`))
	}
	for line := range strings.Lines(rules + tests) {
		if !strings.HasPrefix(strings.TrimSpace(line), "summary:") {
			requireSeries(t, series, line)
		}
	}
	for _, recorded := range regexp.MustCompile(`svc:[\w:]+`).FindAllString(board+rules+tests, -1) {
		require.Contains(t, rules, "record: "+recorded)
	}
}

// requireSeries checks the series and labels in a line of PromQL.
func requireSeries(t *testing.T, series map[string][]string, line string) {
	t.Helper()
	scraped := []string{"job", "instance", "model"} // model: of recorded series
	grouped := scraped
	for _, found := range regexp.MustCompile(`\b((?:svc|gen_ai|go|process)_\w+|up)(?:\{([^}]*)\})?`).FindAllStringSubmatch(line, -1) {
		labels, exists := series[found[1]]
		require.True(t, exists, "there is no %s: %s", found[1], line)
		grouped = append(grouped, labels...)
		for _, matcher := range regexp.MustCompile(`(\w+)[=!]`).FindAllStringSubmatch(found[2], -1) {
			require.Contains(t, append([]string{"job", "instance"}, labels...), matcher[1], "%s has no such label: %s", found[1], line)
		}
	}
	for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(line, -1) {
		for label := range strings.SplitSeq(by[1], ", ") {
			require.Contains(t, grouped, label, line)
		}
	}
}

// TestOutputSpeed: only a whole answer whose tokens the provider has counted says how fast the provider is.
func TestOutputSpeed(t *testing.T) {
	t.Parallel()
	provider := store.NewID("speedy") // the metrics are the process's
	ended := gateway.Ended{
		Model: provider + "/one", Provider: provider, Outcome: gateway.OutcomeCompleted, UsageSource: billing.UsageProvider,
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
		if metric.GetLabel()[0].GetValue() == provider {
			require.EqualValues(t, 1, metric.GetHistogram().GetSampleCount())
			require.InDelta(t, 45, metric.GetHistogram().GetSampleSum(), 1e-9)
			return
		}
	}
	t.Fatal("the call was not observed")
}

// TestGenAIMetrics: the metrics of OpenTelemetry's conventions have the figures of the call under the vendors' own names. A failed
// call has its outcome, one that reached no provider nothing at all, and tokens that only we have estimated are not counted.
func TestGenAIMetrics(t *testing.T) {
	t.Parallel()
	ended := gateway.Ended{
		Model: "xai/grok-test", Provider: "xai", VendorModel: "grok-test", Outcome: gateway.OutcomeCompleted, Stream: true,
		Usage: billing.Usage{PromptTokens: 7, CachedPromptTokens: 3, CompletionTokens: 90}, UsageSource: billing.UsageProvider,
		Upstream: 2 * time.Second, FirstText: time.Second / 2,
	}
	whole, failed, guessed, refused := ended, ended, ended, ended
	whole.Stream = false
	failed.Outcome, failed.FirstText, failed.UsageSource, failed.Usage = gateway.OutcomeProviderTimeout, 0, billing.UsageNone, billing.Usage{}
	guessed.UsageSource = billing.UsageEstimated
	refused.Upstream, refused.FirstText, refused.UsageSource = 0, 0, billing.UsageNone
	for _, e := range []gateway.Ended{ended, whole, failed, guessed, refused} {
		callMetrics{}.CallEnded(e)
	}
	type figures struct {
		count uint64
		sum   float64
	}
	read := func(of *prometheus.HistogramVec, more ...string) (sum figures) {
		wanted := map[string]string{"gen_ai_operation_name": "chat", "gen_ai_provider_name": "x_ai", "gen_ai_request_model": "grok-test"}
		if len(more) > 0 {
			wanted[more[0]] = more[1]
		}
		registry := prometheus.NewRegistry()
		require.NoError(t, registry.Register(of))
		gathered, err := registry.Gather()
		require.NoError(t, err)
		for _, metric := range gathered[0].GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if maps.Equal(labels, wanted) {
				sum = figures{metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum()}
			}
		}
		return sum
	}
	require.Equal(t, figures{3, 6}, read(genAISeconds, "error_type", ""))
	require.Equal(t, figures{1, 2}, read(genAISeconds, "error_type", "provider_timeout"))
	require.Equal(t, figures{2, 1}, read(genAIFirstChunk))
	require.Equal(t, figures{2, 14}, read(genAITokens, "gen_ai_token_type", "input"))
	require.Equal(t, figures{2, 180}, read(genAITokens, "gen_ai_token_type", "output"))
}

// TestCallKindsAreBounded: figures of calls make no kinds of series, so that what is kept of them is bounded by the configuration.
func TestCallKindsAreBounded(t *testing.T) {
	t.Parallel()
	model := store.NewID("bounded")
	for n := range int64(100) {
		callMetrics{}.CallEnded(gateway.Ended{
			Model: model, Provider: "bounded", VendorModel: "m", Outcome: gateway.OutcomeCompleted, UsageSource: billing.UsageProvider,
			Usage: billing.Usage{PromptTokens: 1 + n, CachedPromptTokens: n, CompletionTokens: 2 * n}, Settled: billing.Settled{ChargedMicros: n},
			Upstream: time.Duration(1 + n), FirstText: time.Duration(1 + n),
		})
	}
	kept := 0
	keptSeries.RLock()
	defer keptSeries.RUnlock()
	for kind := range keptSeries.of {
		if kind.model == model {
			kept++
		}
	}
	require.Equal(t, 1, kept)
}
