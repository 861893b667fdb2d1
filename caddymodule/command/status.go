package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// probeWait bounds each attempt to reach a part of the service.
	probeWait = 3 * time.Second
	// mostStalled limits the stalled turns that are read to report their reasons.
	mostStalled = 1000
	// localReadiness is where the Caddyfile of a new installation has its readiness.
	localReadiness = "http://127.0.0.1:8081/health/ready"
)

// statusAnswer is the state of the service, on this machine and in the store.
type statusAnswer struct {
	Running []partAnswer   `json:"running"`
	Stored  storedAnswer   `json:"stored"`
	Waiting waitingAnswer  `json:"waiting"`
	Stalled map[string]int `json:"stalled"`
	// Conditions are everything that needs the operator; none is empty, not null.
	Conditions []conditions.Object `json:"conditions"`
}

// partAnswer is a part of the service that was tried.
type partAnswer struct {
	Part    string `json:"part"`
	Address string `json:"address"`
	State   string `json:"state"`

	ok bool
}

type storedAnswer struct {
	Store          string `json:"store"`
	Organizations  int64  `json:"organizations"`
	Suspended      int64  `json:"suspended"`
	Users          int64  `json:"users"`
	Invited        int64  `json:"invited"`
	Keys           int64  `json:"apiKeys"`
	Models         int    `json:"models"`
	ProviderKeys   int64  `json:"providerKeys"`
	Agents         int64  `json:"agents"`
	KnowledgeBases int64  `json:"knowledgeBases"`
	Channels       int64  `json:"channels"`
}

type waitingAnswer struct {
	// Conversations wait for a worker, the first of them for OldestSeconds. Answering are with a worker now.
	Conversations int64 `json:"conversations"`
	OldestSeconds int64 `json:"oldestSeconds"`
	Answering     int64 `json:"answering"`
	// Attention are answers that wait for a change, such as credits; GivenUp failed too often.
	Attention int64 `json:"attention"`
	GivenUp   int64 `json:"givenUp"`
	// OpenHolds are model calls that run, or that were not settled before their process ended.
	OpenHolds int64 `json:"openHolds"`
}

func (a statusAnswer) text(w *strings.Builder) {
	fmt.Fprintln(w, "RUNNING")
	for _, part := range a.Running {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", part.Part, part.Address, part.State)
	}
	s := a.Stored
	fmt.Fprintf(w, "STORED\n  store\t%s\n  organizations\t%d, suspended %d\n  people\t%d, invited %d\n  API keys\t%d\n  models\t%d\n",
		s.Store, s.Organizations, s.Suspended, s.Users, s.Invited, s.Keys, s.Models)
	fmt.Fprintf(w, "  provider keys\t%d\n  assistants\t%d, knowledge bases %d\n  channels\t%d\n",
		s.ProviderKeys, s.Agents, s.KnowledgeBases, s.Channels)
	q := a.Waiting
	fmt.Fprintf(w, "WAITING\n  conversations\t%d, the first for %s; %d with a worker\n", q.Conversations,
		time.Duration(q.OldestSeconds)*time.Second, q.Answering)
	fmt.Fprintf(w, "  answers\t%d wait for a change, %d given up\n  calls\t%d with an open hold\n", q.Attention, q.GivenUp, q.OpenHolds)
	fmt.Fprintln(w, "CONDITIONS")
	for i := range a.Conditions {
		c := &a.Conditions[i]
		fmt.Fprintf(w, "  %s\tsince %s\t%s\n  \t%s\t%s\n", c.Severity, c.Since[:len("2006-01-02T15:04")], c.Text, c.Node, c.Action)
	}
	if len(a.Conditions) == 0 {
		fmt.Fprintln(w, "  none; `caddy svc doctor` checks the books")
	}
}

func statusCommand(f *commandFlags) *cobra.Command {
	return f.verb(&cobra.Command{
		Use:   "status",
		Short: "Shows on one screen what runs, what is stored, who waits, and what needs you",
		Long: `Shows on one screen what runs, what is stored, who waits, and what needs you.

What runs is tried from this machine: the addresses that the sites of the configuration listen on, base_url as a client reaches
it, and the worker's probe (worker { listen … }). The conditions that need you are those that servers and workers have found, with
what this command sees itself; the exit status doesn't depend on them. It changes nothing and doesn't read the ledger, which
doctor does.`,
	}, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		listeners, err := e.sites("")
		if err != nil {
			return nil, err
		}
		return e.status(ctx, listeners)
	})
}

// status tries the parts of the service and reads the store.
func (e *commandEnv) status(ctx context.Context, listeners []string) (answer, error) {
	counts, err := e.db.Counts(ctx)
	if err != nil {
		return nil, err
	}
	queue := inbox.New(e.db, nil)
	depth, err := queue.Depth(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the queue: %w", err)
	}
	turns, err := queue.StandingTurns(ctx, time.UnixMilli(0), mostStalled)
	if err != nil {
		return nil, fmt.Errorf("reading the queue: %w", err)
	}
	holds, err := e.book().OpenHolds(ctx)
	if err != nil {
		return nil, err
	}
	a := statusAnswer{
		Running: e.probe(ctx, listeners),
		Stored: storedAnswer{
			Store: e.location.Redacted(), Organizations: counts.Organizations, Suspended: counts.Suspended, Users: counts.Users,
			Invited: counts.Invited, Keys: counts.Keys, Models: len(e.app.Models), ProviderKeys: counts.ProviderKeys,
			Agents: counts.Agents, KnowledgeBases: counts.KnowledgeBases, Channels: counts.Channels,
		},
		Waiting: waitingAnswer{
			Conversations: depth.Due, OldestSeconds: int64(depth.OldestDue.Seconds()), Answering: depth.Leased,
			Attention: depth.Attention, GivenUp: depth.Dead, OpenHolds: holds,
		},
		Stalled: map[string]int{},
	}
	for _, turn := range turns {
		a.Stalled[turn.Code]++
	}
	found := a.judge(counts, e.masterKeyFault(ctx))
	if slices.ContainsFunc(a.Running, func(part partAnswer) bool { return !part.ok }) {
		for _, missing := range e.app.MissingSecrets(e.repl) {
			found = append(found, conditions.Condition{
				Kind: conditions.PartDown, Text: missing + ". A server or worker with this environment doesn't start.",
			})
		}
	}
	now, err := e.app.ServiceConditions(ctx, e.db)
	if err != nil {
		return nil, err
	}
	stored, err := conditions.List(ctx, e.db)
	if err != nil {
		return nil, err
	}
	a.Conditions = []conditions.Object{}
	for _, c := range conditions.Merge(append(found, now...), stored) {
		a.Conditions = append(a.Conditions, c.Show())
	}
	return a, nil
}

// judge returns the conditions that only this command finds. masterKey is the problem with the master key, or empty.
func (a statusAnswer) judge(counts store.Counts, masterKey string) (found []conditions.Condition) {
	add := func(holds bool, kind conditions.Kind, format string, args ...any) {
		if holds {
			found = append(found, conditions.Condition{Kind: kind, Text: fmt.Sprintf(format, args...)})
		}
	}
	for _, part := range a.Running {
		add(!part.ok, conditions.PartDown, "%s (%s): %s", part.Part, part.Address, part.State)
	}
	add(masterKey != "", conditions.PartDown, "master_key: %s", masterKey)
	add(counts.Organizations == 0, conditions.Setup, "There is no organization: `caddy svc org create`.")
	add(counts.Organizations > 0 && counts.Keys == 0, conditions.Setup, "There is no API key: `caddy svc key create`.")
	add(a.Stored.Models == 0, conditions.Setup, "The configuration has no model.")
	return found
}

// masterKeyFault returns the problem with the master key, or an empty text.
func (e *commandEnv) masterKeyFault(ctx context.Context) string {
	ring, err := e.app.Ring(e.repl)
	if err == nil {
		err = conditions.CheckMasterKey(ctx, e.db, ring)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// probe tries the parts of the service from this machine.
func (e *commandEnv) probe(ctx context.Context, listeners []string) []partAnswer {
	var parts []partAnswer
	for _, address := range listeners {
		part := partAnswer{Part: "site", Address: address, State: "listens", ok: true}
		connection, err := dialListener(ctx, address)
		if err == nil {
			err = connection.Close()
		}
		if err != nil {
			part.State, part.ok = "doesn't listen: "+reason(err), false
		}
		parts = append(parts, part)
	}
	parts = append(parts, probeService(ctx, e.app.BaseURL))
	if e.app.Worker == nil || e.app.Worker.Listen == "" {
		return append(parts, partAnswer{Part: "worker", Address: "-", State: "unknown: worker { listen ADDRESS } is not configured", ok: true})
	}
	return append(parts, probeWorker(ctx, e.app.Worker.Listen))
}

// probeService requests the models as a client would, without a key. If the service works, the response is 401.
func probeService(ctx context.Context, baseURL string) partAnswer {
	part := partAnswer{Part: "service", Address: baseURL}
	transport := &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}
	status, header, _, err := get(ctx, transport, baseURL+"/v1/models", mostProbe)
	switch {
	case err != nil:
		part.State = "doesn't respond: " + reason(err)
	case header.Get("X-Request-Id") == "":
		part.State = fmt.Sprintf("something else responds, with status %d", status)
	case status >= http.StatusInternalServerError:
		part.State = fmt.Sprintf("responds with status %d", status)
	default:
		part.State, part.ok = "responds", true
	}
	return part
}

func probeWorker(ctx context.Context, listen string) partAnswer {
	part := partAnswer{Part: "worker", Address: listen}
	status, _, _, err := get(ctx, listenerTransport(listen), "http://worker/health/ready", mostProbe)
	switch {
	case err != nil:
		part.State = "doesn't respond: " + reason(err)
	case status == http.StatusServiceUnavailable:
		part.State = "is not ready"
	case status != http.StatusOK:
		part.State = fmt.Sprintf("something else responds, with status %d", status)
	default:
		part.State, part.ok = "is ready", true
	}
	return part
}

// reason says in a few words why an address can't be reached.
func reason(err error) string {
	unknownHost, refused := new(net.DNSError), new(net.OpError)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nobody listens there"
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such socket"
	case errors.As(err, &unknownHost):
		return "the host isn't known"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", probeWait)
	case errors.As(err, &refused):
		return refused.Err.Error()
	default:
		return err.Error() // such as that of a certificate
	}
}

// mostProbe limits the answer of a probe, in bytes.
const mostProbe = 64 << 10

// listenerTransport connects to a listener of this machine, whatever the requested host.
func listenerTransport(listen string) *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialListener(ctx, listen)
	}}
}

// get returns the response of an address with its body, up to a number of bytes.
func get(ctx context.Context, transport http.RoundTripper, address string, most int64) (status int, header http.Header, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, nil, nil, err
	}
	w, err := transport.RoundTrip(r)
	if err != nil {
		return 0, nil, nil, err
	}
	body, err = io.ReadAll(io.LimitReader(w.Body, most))
	return w.StatusCode, w.Header, body, errors.Join(err, w.Body.Close())
}

// dialListener connects to an address in the form of Caddy's listeners; without a host it is on this machine.
func dialListener(ctx context.Context, listen string) (net.Conn, error) {
	address, err := caddy.ParseNetworkAddress(listen)
	if err != nil {
		return nil, err
	}
	if host := address.Host; !address.IsUnixNetwork() && (host == "" || host == "0.0.0.0" || host == "::") {
		address.Host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	return new(net.Dialer).DialContext(ctx, address.Network, address.JoinHostPort(0))
}

// sites returns the addresses of the configuration's servers that contain a text, in the order of the servers' names.
func (e *commandEnv) sites(with string) (addresses []string, err error) {
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]json.RawMessage `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	err = json.Unmarshal(e.configuration, &config)
	for _, name := range slices.Sorted(maps.Keys(config.Apps.HTTP.Servers)) {
		var server struct {
			Listen []string `json:"listen"`
		}
		raw := config.Apps.HTTP.Servers[name]
		err = errors.Join(err, json.Unmarshal(raw, &server))
		for _, address := range server.Listen {
			if strings.Contains(string(raw), with) && !slices.Contains(addresses, address) {
				addresses = append(addresses, address)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(errors.New("reading the sites of the configuration"), err)
	}
	return addresses, nil
}

// healthCommand is the health check of a container, which has no other program.
func healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "health [URL]",
		Short: "Succeeds if a probe, such as /health/ready, responds with status 200; for containers",
		Long: `Asks for the URL, by default ` + localReadiness + `, and ends with status 0 if the response has status 200
within ` + probeWait.String() + `, else with status 1. It reads no configuration and opens no store.`,
		Args:                  cobra.MaximumNArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			address := localReadiness
			if len(args) > 0 {
				address = args[0]
			}
			status, _, _, err := get(cmd.Context(), &http.Transport{DisableKeepAlives: true}, address, mostProbe)
			if err != nil {
				return fmt.Errorf("%s doesn't respond: %s", address, reason(err))
			}
			if status != http.StatusOK {
				return fmt.Errorf("%s responds with status %d", address, status)
			}
			return nil
		},
	}
}

// errFindings makes doctor end with status 1.
var errFindings = errors.New("the books, the queue, a channel's platform, the master key or a vendor break an invariant")

type doctorAnswer struct {
	OK bool `json:"ok"`
	billing.Report
	// Warnings are sentences about vendors and coming prices that need no haste.
	Warnings []string `json:"warnings,omitempty"`
}

func (a doctorAnswer) text(w *strings.Builder) {
	fmt.Fprint(w, a.String())
	for _, warning := range a.Warnings {
		fmt.Fprintf(w, "Warning: %s.\n", warning)
	}
	if a.OK {
		fmt.Fprintln(w, "No findings.")
	}
}

func doctorCommand(f *commandFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Checks the books (wallets, holds, ledger, calls), the queue of messages, the channels' platforms, events and the master key",
		Long: `Checks the invariants of the books, such as that every wallet is the sum of its ledger, and of the queue, such as that
every message is answered at most once, that this program contains the platform of every channel, and that events are
delivered, and that the master key opens provider keys, the credentials of channels, the secrets of event endpoints and the key of customers' ids.
It changes nothing in them and may run beside a working server. The exit status is 1 when something is found; the
findings say where to look. With --recent it reads of the books only what was written in that time, and what is still
open. It warns of prices that begin within 14 days. With --vendors it also requests each provider's list of models once: it
warns of a model that the list doesn't have or that its vendor ends within 90 days, and finds one that ends within 7.`,
	}
	recent := command.Flags().Duration("recent", 0, "check only the books of this last `time`, such as 25h (default: all)")
	vendors := command.Flags().Bool("vendors", false, "compare the models with the lists of their vendors")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		check := conditions.Check{DB: e.db, Catalog: channelTypes(), SweepInterval: e.app.SweepInterval(), Recent: *recent}
		var err error
		if check.Ring, err = e.app.Ring(e.repl); err != nil { // without the secret the doctor still checks the books
			_, _ = fmt.Fprintf(e.stderr, "svc.master_key was not checked: %v\n", err)
		}
		report, err := check.Examine(ctx)
		if err != nil {
			return nil, err
		}
		warnings := e.app.ComingPrices(time.Now())
		if *vendors {
			models, found, err := f.examineVendors(ctx, e.configuration)
			if err != nil {
				return nil, err
			}
			report.Invariants, warnings = append(report.Invariants, models), append(warnings, found...)
		}
		if !report.OK() {
			return doctorAnswer{Report: report, Warnings: warnings}, errFindings
		}
		return doctorAnswer{OK: true, Report: report, Warnings: warnings}, nil
	})
}

// examineVendors checks, for the doctor's report, that vendors still serve the configured models.
func (f *commandFlags) examineVendors(ctx context.Context, configuration []byte) (examined billing.Examined, warnings []string, err error) {
	examined = billing.Examined{
		ID: "VENDORS", Text: "no vendor ends a configured model within 7 days, and every vendor with a list of models shows it",
		Advice: "the vendor's page of deprecations, and the provider's api_key and base_url",
	}
	found, err := caddymodule.CheckVendors(ctx, configuration, f.config)
	if err != nil {
		return examined, nil, fmt.Errorf("checking the vendors: %w", err)
	}
	for _, fault := range found.Faults {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: fault[0], Detail: fault[1]})
	}
	return examined, found.Warnings, nil
}
