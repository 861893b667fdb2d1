package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/caddy-svc/caddy-svc/internal/tracing"
)

const (
	// workerServiceName is the resource's service.name unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has another.
	workerServiceName = "caddy-svc-worker"
	// tracesFlushWait bounds how long a worker that ends waits for its last spans to be exported.
	tracesFlushWait = 2 * time.Second
)

// serverServiceName is the service.name of a server's spans, unless a variable has another.
const serverServiceName = "caddy-svc"

// nameService gives the spans of Caddy's `tracing` the name and version of this service, unless OpenTelemetry's variables have others.
// Caddy has no other way, and reads the variables when it provisions the first site with `tracing`: a Caddyfile is adapted before.
// Another process than a server's stays as it is.
func nameService() {
	if !isServer() {
		return
	}
	const nameVariable, attributesVariable = "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"
	attributes := os.Getenv(attributesVariable)
	if os.Getenv(nameVariable) == "" && !strings.Contains(attributes, "service.name=") {
		os.Setenv(nameVariable, serverServiceName) //nolint:errcheck // a name without faults
	}
	if !strings.Contains(attributes, "service.version=") {
		os.Setenv(attributesVariable, strings.Trim(attributes+",service.version="+Version(), ",")) //nolint:errcheck // as above
	}
}

// newWorkerTraces returns the provider of a worker's spans by OpenTelemetry's variables, nil if none of them asks for traces. A worker
// has no site whose `tracing` could. It makes no request.
func newWorkerTraces(ctx context.Context) (*sdktrace.TracerProvider, error) {
	if !tracesWanted() {
		return nil, nil //nolint:nilnil // nothing is traced
	}
	described, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", workerServiceName), attribute.String("service.version", Version())),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("reading OpenTelemetry's resource: %w", err)
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("making the exporter of traces: %w", err)
	}
	return sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(described), sdktrace.WithIDGenerator(tracing.IDs{})), nil
}

// tracesWanted reports whether a variable names an exporter or an address for traces.
func tracesWanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") { // no other value is one, by the specification
		return false
	}
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// endTraces exports what is left and ends the provider; nil is fine.
func endTraces(traces *sdktrace.TracerProvider) error {
	if traces == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), tracesFlushWait, errors.New("exporting the last spans took longer than 2 s"))
	defer cancel()
	if err := traces.Shutdown(ctx); err != nil {
		return fmt.Errorf("exporting the last spans: %w", err)
	}
	return nil
}
