package caddymodule

import (
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const workerTestApp = `"svc": {"base_url": "http://localhost", "store": {"engine": "sqlite", "path": "svc.db"},
	"master_key": "{env.SVC_TEST_NEVER_SET}", "worker": {"listen": "127.0.0.1:8082"}}`

// TestWorkerConfig guarantees what a worker takes of the server's configuration: the app, the grace period and the
// logging, and neither its sites nor its certificates nor its log files.
func TestWorkerConfig(t *testing.T) {
	t.Parallel()
	made, err := workerConfig([]byte(`{
		"@id": "meta",
		"admin": {"listen": "localhost:2019"},
		"storage": {"module": "file_system", "root": "/srv"},
		"logging": {
			"sink": {"writer": {"output": "stderr"}},
			"logs": {
				"default": {"level": "DEBUG", "writer": {"output": "file", "filename": "svc.log"}, "exclude": ["http.log.access.log0"]},
				"log0": {"writer": {"output": "file", "filename": "access.log"}, "include": ["http.log.access.log0"]},
				"audit": {"writer": {"output": "stdout"}, "include": ["svc"]},
				"plain": {"level": "WARN"}
			}
		},
		"apps": {
			"http": {"grace_period": "20s", "servers": {"srv0": {"listen": [":443"]}}},
			"tls": {"automation": {}},
			`+workerTestApp+`
		}
	}`), "Caddyfile")
	require.NoError(t, err)
	require.JSONEq(t, `{
		"admin": {"disabled": true, "config": {"persist": false}},
		"logging": {
			"sink": {"writer": {"output": "stderr"}},
			"logs": {
				"default": {"level": "DEBUG", "exclude": ["http.log.access.log0"]},
				"audit": {"writer": {"output": "stdout"}, "include": ["svc"]},
				"plain": {"level": "WARN"}
			}
		},
		"apps": {
			`+workerTestApp+`,
			"svc_worker": {"grace_period": 20000000000},
			"tls": {"disable_storage_clean": true},
			"http": {"grace_period": "5s", "servers": {"worker": {
				"listen": ["127.0.0.1:8082"],
				"automatic_https": {"disable": true},
				"protocols": ["h1"],
				"routes": [
					{"match": [{"path": ["/metrics"]}], "handle": [{"handler": "metrics"}], "terminal": true},
					{"match": [{"path": ["/health/*"]}], "handle": [{"handler": "svc_health"}], "terminal": true},
					{"handle": [{"handler": "svc_error"}]}
				],
				"errors": {"routes": [{"handle": [{"handler": "svc_error"}]}]}
			}}}
		}
	}`, string(made))
	var config caddy.Config
	require.NoError(t, caddy.StrictUnmarshalJSON(made, &config), "Caddy knows all of it")
}

// TestWorkerConfigWithoutListener guarantees that a worker opens no port unless its configuration has a listener.
func TestWorkerConfigWithoutListener(t *testing.T) {
	t.Parallel()
	made, err := workerConfig([]byte(`{"apps": {"svc": {"base_url": "http://localhost", "master_key": "{env.K}",
		"store": {"engine": "sqlite", "path": "svc.db"}}}}`), "Caddyfile")
	require.NoError(t, err)
	var config struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	require.NoError(t, json.Unmarshal(made, &config))
	require.Len(t, config.Apps, 2)
	require.JSONEq(t, `{}`, string(config.Apps[workerAppName]), "the default grace period")
}

func TestWorkerConfigRefuses(t *testing.T) {
	t.Parallel()
	for want, server := range map[string]string{
		"is no Caddy configuration":           `[]`,
		"Caddyfile has no svc block":          `{"apps": {"http": {}}}`,
		"svc.base_url: missing":               `{"apps": {"svc": {}}}`,
		"unknown field":                       `{"apps": {"svc": {"workers": 1}}}`,
		"the grace_period of the http app":    `{"apps": {"http": {"grace_period": "soon"}, ` + workerTestApp + `}}`,
		"Caddyfile: the logs":                 `{"logging": {"logs": []}, "apps": {` + workerTestApp + `}}`,
		"Caddyfile: the writer of the log a:": `{"logging": {"logs": {"a": {"writer": 1}}}, "apps": {` + workerTestApp + `}}`,
	} {
		_, err := workerConfig([]byte(server), "Caddyfile")
		require.ErrorContains(t, err, want)
	}
}

// TestWorkerTraces guarantees that OpenTelemetry's variables alone say whether a worker traces, under which name, and what it
// samples, and that an exporter which doesn't exist is an error.
//
//nolint:paralleltest // it sets variables of the process
func TestWorkerTraces(t *testing.T) {
	const exporter, address, disabled = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED"
	const nowhere = "http://127.0.0.1:1"
	for _, row := range []struct {
		what      string
		variables map[string]string
		// service is the name of the service, "" if nothing is traced.
		service, fault string
		unsampled      bool
	}{
		{what: "no variable"},
		{what: "an exporter", variables: map[string]string{exporter: "none"}, service: "caddy-svc-worker"},
		{what: "an address", variables: map[string]string{address: nowhere}, service: "caddy-svc-worker", unsampled: true},
		{
			what: "an address for traces", variables: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": nowhere},
			service: "caddy-svc-worker", unsampled: true,
		},
		{what: "a name", variables: map[string]string{exporter: "none", "OTEL_SERVICE_NAME": "mine"}, service: "mine"},
		{
			what: "a name among the attributes", variables: map[string]string{exporter: "none", "OTEL_RESOURCE_ATTRIBUTES": "service.name=mine"},
			service: "mine",
		},
		{what: "disabled", variables: map[string]string{exporter: "none", address: nowhere, disabled: "TRUE"}},
		{what: "only true disables", variables: map[string]string{exporter: "none", disabled: "1"}, service: "caddy-svc-worker"},
		{what: "unknown exporter", variables: map[string]string{exporter: "pigeon"}, fault: "making the exporter of traces"},
	} {
		t.Run(row.what, func(t *testing.T) {
			for _, name := range []string{
				exporter, address, disabled, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER",
			} {
				t.Setenv(name, row.variables[name])
			}
			if row.unsampled {
				t.Setenv("OTEL_TRACES_SAMPLER", "always_off") // nothing is exported to nowhere
			}
			traces, err := newWorkerTraces(t.Context())
			if row.fault != "" {
				require.ErrorContains(t, err, row.fault)
				return
			}
			require.NoError(t, err)
			defer func() { require.NoError(t, endTraces(traces)) }()
			if row.service == "" {
				require.Nil(t, traces)
				return
			}
			require.NotNil(t, traces)
			_, span := traces.Tracer("test").Start(t.Context(), "answer")
			require.Equal(t, row.unsampled, !span.IsRecording())
			if recorded, ok := span.(sdktrace.ReadOnlySpan); ok {
				require.Contains(t, recorded.Resource().String(), "service.name="+row.service)
				require.Contains(t, recorded.Resource().String(), "service.version="+Version())
			}
			span.End()
		})
	}
}
