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

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule"
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
	return f.verb(&cobra.Command{
		Use:   "vendors",
		Short: "Shows which endpoints of the models answer, which rest after a failure, and for how long",
		Long: `Shows which endpoints of the models answer, which rest after a failure, and for how long, in each server and worker of this
machine. It reads their metrics: at the sites of the configuration with Caddy's metrics handler, and at worker { listen … }.`,
	}, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
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
		var found []endpointAnswer
		for _, address := range addresses {
			read, failed := readProcess(ctx, address)
			if failed != nil { // the others are shown all the same
				err = errors.Join(err, fmt.Errorf("%s: %s", address, reason(failed)))
			}
			found = append(found, read...)
		}
		if found == nil && err != nil {
			return nil, err
		}
		return vendorsAnswer{Data: found}, err
	})
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
	case "svc_endpoint_other_model":
		e.Other = labels["answering_model"]
	default:
		e.Attempts += int64(value)
		if outcome := labels["outcome"]; outcome != "answered" && outcome != "canceled" {
			e.Failures += int64(value)
		}
	}
	return found
}

const (
	// trialQuestion is the prompt of a trial call.
	trialQuestion = "Say hello in five words."
	// trialWait bounds a trial call.
	trialWait = 90 * time.Second
)

// triedAnswer is the result of a trial call.
type triedAnswer struct {
	OrgID         string `json:"orgId"`
	Model         string `json:"model"`
	Reply         string `json:"reply"`
	ChargedMicros string `json:"chargedMicros"`
}

func (a triedAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "%s replied %q, which cost %s micros.\n", a.Model, a.Reply, a.ChargedMicros)
}

func (f *commandFlags) tryCommand() *cobra.Command {
	var orgID string
	command := &cobra.Command{
		Use:   "try [MODEL] [--org ORG_ID]",
		Short: "Asks a model one short question, and says why it fails",
		Long: `Asks a model one short question through the configuration's provider, and says why if it fails. It needs no running server. The
call is charged to the organization, like any other. MODEL is by default the first model of the configuration, and --org may be
left out while there is one organization.`,
		Example: "  $ caddy svc try openai/gpt-6-luna --org org_…",
		Args:    cobra.MaximumNArgs(1),
	}
	command.Flags().StringVar(&orgID, "org", "", "the `id` of the organization that pays")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		names := e.app.ModelNames()
		model := strings.Join(e.args, "")
		if model == "" && len(names) > 0 {
			model = names[0]
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("there is no model %q: the configuration has none", model)
		}
		if !slices.Contains(names, model) {
			return nil, fmt.Errorf("there is no model %q; the configuration has: %s", model, strings.Join(names, ", "))
		}
		organization, err := e.payer(ctx, orgID)
		if err != nil {
			return nil, err
		}
		tried, err := f.try(ctx, organization, model)
		if err != nil {
			return nil, err
		}
		return tried, nil
	})
}

// payer returns the id of an organization that exists, the only one's if none is given.
func (e *commandEnv) payer(ctx context.Context, orgID string) (string, error) {
	if orgID != "" {
		return orgID, e.checkOrganization(ctx, orgID)
	}
	organizations, err := e.db.Organizations.All(ctx)
	if err != nil {
		return "", err
	}
	if len(organizations) != 1 {
		return "", errors.New("--org is needed unless there is exactly one organization; `caddy svc org list` shows them")
	}
	return organizations[0].ID, nil
}

// try makes a trial call. The error states the cause and the remedy.
func (f *commandFlags) try(ctx context.Context, orgID, model string) (triedAnswer, error) {
	adapted, err := f.adapt()
	if err != nil {
		return triedAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, trialWait)
	defer cancel()
	result, err := caddymodule.TrialCall(ctx, adapted, f.config, orgID, model, trialQuestion)
	if err != nil {
		return triedAnswer{}, fmt.Errorf("the call of %s failed: %w", model, err)
	}
	return triedAnswer{
		OrgID: orgID, Model: result.Model, Reply: result.Text, ChargedMicros: billing.FormatMicros(result.ChargedMicros),
	}, nil
}
