package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
)

// vendorsAnswer are the endpoints of all models at each server or worker of this machine.
type vendorsAnswer struct {
	Data []endpointAnswer `json:"data"`
}

// endpointAnswer is the state of an endpoint in a process.
type endpointAnswer struct {
	// Process is the address of the process's metrics.
	Process  string `json:"process"`
	Provider string `json:"provider"`
	Upstream string `json:"upstreamModel"`
	// State is ok, resting or probing.
	State string `json:"state"`
	// RestSeconds is the rest of the time for which calls go elsewhere.
	RestSeconds int64 `json:"restSeconds"`
	// Failure is the class of the last failure. It may be empty.
	Failure string `json:"failure"`
	// Other is the name of the answering model if it is another one than Upstream. It may be empty.
	Other string `json:"otherModel"`
	// Attempts are all calls of the endpoint since the process began, and Failures the calls that failed.
	Attempts int64 `json:"attempts"`
	Failures int64 `json:"failures"`
}

// until is the state in words.
func (e *endpointAnswer) until() string {
	if e.State == "resting" {
		return fmt.Sprintf("resting for %s", time.Duration(e.RestSeconds)*time.Second)
	}
	return e.State
}

func (a vendorsAnswer) text(w *strings.Builder) {
	fmt.Fprintln(w, "PROVIDER\tMODEL\tANSWERS AS\tSTATE\tLAST FAILURE\tATTEMPTS\tFAILURES\tPROCESS")
	for i := range a.Data {
		e := &a.Data[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n",
			e.Provider, e.Upstream, e.Other, e.until(), e.Failure, e.Attempts, e.Failures, e.Process)
	}
}

func vendorsCommand(f *commandFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "vendors",
		Short: "Shows which endpoints of the models answer, which rest after a failure, and for how long",
		Long: `Shows which endpoints of the models answer, which rest after a failure, and for how long, in each server and worker of this
machine. It reads their metrics: at the sites of the configuration with Caddy's metrics handler, and at worker { listen … }.`,
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		addresses, err := e.sites(`"handler":"metrics"`)
		if err != nil {
			return nil, err
		}
		if e.app.Worker != nil && e.app.Worker.Listen != "" {
			addresses = append(addresses, e.app.Worker.Listen)
		}
		if len(addresses) == 0 {
			return nil, errors.New("no site of the configuration has /metrics, and there is no worker { listen … }; " +
				"docs/operating.md#metrics-and-probes has an example")
		}
		endpoints, err := readEndpoints(ctx, addresses)
		if endpoints == nil && err != nil {
			return nil, err
		}
		return vendorsAnswer{Data: endpoints}, err
	})
}

// readEndpoints reads the endpoints of the processes that serve metrics at the addresses. Processes that don't respond are in the error.
func readEndpoints(ctx context.Context, addresses []string) (found []endpointAnswer, err error) {
	for _, address := range addresses {
		read, failed := readProcess(ctx, address)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %s", address, reason(failed)))
		}
		found = append(found, read...)
	}
	return found, err
}

// maxMetrics limits the metrics that are read, in bytes.
const maxMetrics = 64 << 20

func readProcess(ctx context.Context, address string) ([]endpointAnswer, error) {
	status, _, text, err := get(ctx, listenerTransport(address), "http://localhost/metrics", maxMetrics)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("responds with status %d", status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	var found []endpointAnswer
	for _, name := range []string{"svc_endpoint_rest_seconds", "svc_endpoint_other_model", "svc_endpoint_attempts_total"} {
		for _, metric := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			found = addMetric(found, address, name, labels, metric.GetGauge().GetValue()+metric.GetCounter().GetValue())
		}
	}
	return found, nil
}

// addMetric adds the value of a metric to its endpoint.
func addMetric(found []endpointAnswer, process, name string, labels map[string]string, value float64) []endpointAnswer {
	i := slices.IndexFunc(found, func(e endpointAnswer) bool {
		return e.Provider == labels["provider"] && e.Upstream == labels["upstream_model"]
	})
	if i < 0 {
		i = len(found)
		found = append(found, endpointAnswer{Process: process, Provider: labels["provider"], Upstream: labels["upstream_model"]})
	}
	e := &found[i]
	switch name {
	case "svc_endpoint_rest_seconds":
		e.State, e.Failure, e.RestSeconds = labels["state"], labels["failure"], int64(value+0.5)
		return found
	case "svc_endpoint_other_model":
		e.Other = labels["answering_model"]
		return found
	}
	e.Attempts += int64(value)
	if outcome := labels["outcome"]; outcome != "answered" && outcome != "canceled" {
		e.Failures += int64(value)
	}
	return found
}
