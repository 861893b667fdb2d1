package caddymodule

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

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
