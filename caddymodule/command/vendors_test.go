package command_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// someMetrics are metrics of a worker, in Prometheus's text format.
const someMetrics = `# TYPE svc_endpoint_attempts_total counter
svc_endpoint_attempts_total{outcome="answered",provider="one",upstream_model="a\"b"} 10
svc_endpoint_attempts_total{outcome="canceled",provider="one",upstream_model="a\"b"} 2
svc_endpoint_attempts_total{outcome="timeout",provider="one",upstream_model="a\"b"} 3
svc_endpoint_attempts_total{outcome="answered",provider="two",upstream_model="c"} 1
# TYPE svc_endpoint_rest_seconds gauge
svc_endpoint_rest_seconds{failure="timeout",provider="one",state="resting",upstream_model="a\"b"} 61.6
svc_endpoint_rest_seconds{failure="",provider="two",state="ok",upstream_model="c"} 0
# TYPE svc_endpoint_other_model gauge
svc_endpoint_other_model{answering_model="d-mini",provider="two",upstream_model="c"} 1
# TYPE svc_calls_running gauge
svc_calls_running 4
`

// TestVendors: vendors shows the endpoints of the processes with readable metrics.
func TestVendors(t *testing.T) {
	t.Parallel()
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, someMetrics)
		}
	}))
	t.Cleanup(worker.Close)
	c := newCommandLine(t)
	c.json("migrate")
	c.refused("no site of the configuration has /metrics", "vendors")
	c.serve(scriptedService(t, http.StatusOK).URL, worker.URL)
	address := strings.TrimPrefix(worker.URL, "http://")
	require.Equal(t, []any{
		map[string]any{
			"process": address, "provider": "one", "upstreamModel": `a"b`, "state": "resting", "restSeconds": json.Number("62"), "failure": "timeout", "otherModel": "",
			"attempts": json.Number("15"), "failures": json.Number("3"),
		},
		map[string]any{
			"process": address, "provider": "two", "upstreamModel": "c", "state": "ok", "restSeconds": json.Number("0"), "failure": "", "otherModel": "d-mini",
			"attempts": json.Number("1"), "failures": json.Number("0"),
		},
	}, c.json("vendors")["data"])
	require.Regexp(t, `one +a"b +resting for 1m2s +timeout +15 +3 +`+address+`\ntwo +c +d-mini +ok +1 +0 +`+address, c.run("", "vendors").stdout)
	c.write("Caddyfile", c.caddyfile()+"http://"+address+" {\n\tmetrics /metrics\n}\n")
	require.Len(t, c.json("vendors")["data"], 2, "at a site")
	worker.Close()
	c.refused(": nobody listens there", "vendors")
}
