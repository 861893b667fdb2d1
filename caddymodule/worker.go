package caddymodule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/events"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/tracing"
	"github.com/caddy-svc/caddy-svc/internal/worker"
)

// workerAppName is the name of the worker's app in the JSON configuration.
const workerAppName = "svc_worker"

func init() { caddy.RegisterModule(new(WorkerApp)) }

// WorkerApp replies to customers: it leases conversations from the queue of the app `svc`, calls the model and sends the
// reply. `caddy svc-worker` makes a configuration with it out of the server's Caddyfile, without the sites. A JSON
// configuration may also have it beside the sites.
type WorkerApp struct {
	// How long conversations that are being answered may take when the worker stops. After that they are cut where nothing
	// is lost, and another worker continues them. More than 0, up to 24h. Default: `60s`.
	GracePeriod caddy.Duration `json:"grace_period,omitempty"`

	app     *App
	running atomic.Bool
	// stop ends the loop; ended is closed when it has ended, with err as the cause.
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// CaddyModule returns the Caddy module information.
func (*WorkerApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc_worker", New: func() caddy.Module { return new(WorkerApp) }}
}

// Provision finds the app with the queue.
func (w *WorkerApp) Provision(ctx caddy.Context) (err error) {
	var fs config.Faults
	// Caddy's own grace period has no end by default.
	rules := []caddyfile.Rule{caddyfile.Duration("grace_period", &w.GracePeriod, time.Minute)}
	caddyfile.Faults(rules, &fs, workerAppName)
	if err := fs.Err(); err != nil {
		return err
	}
	caddyfile.Fill(rules)
	if w.app, err = configuredApp(ctx, workerAppName); err != nil {
		return err
	}
	w.app.worker = w
	return nil
}

// Start begins to work as soon as the app svc is ready. It implements caddy.App.
func (w *WorkerApp) Start() error {
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.ended = stop, make(chan struct{})
	go func() {
		defer close(w.ended)
		w.err = w.work(ctx)
		w.running.Store(false)
		if w.err != nil {
			w.app.log.Error("the worker has ended", "error", w.err)
		}
	}()
	return nil
}

// work runs the loop until ctx ends, and then until its conversations have come to a stop.
func (w *WorkerApp) work(ctx context.Context) error {
	select {
	case <-w.app.ready:
	case <-ctx.Done():
		return nil
	}
	traces, err := newWorkerTraces(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := endTraces(traces); err != nil {
			w.app.log.Warn("spans were lost", "error", err)
		}
	}()
	config := w.app.workerConfig(w.app.runtime)
	if traces != nil {
		config.Tracer = traces.Tracer(workerAppName)
	}
	loop := worker.New(config)
	w.running.Store(true)
	// Events written too late for this worker, while it stops, are delivered by the next one.
	delivering := repeat.Start(time.Hour, w.app.deliverer(w.app.runtime).Run)
	defer delivering.Stop()
	fetching := repeat.Start(time.Hour, w.app.fetcher(w.app.runtime).Run)
	defer fetching.Stop()
	if err := loop.Run(ctx, time.Duration(w.GracePeriod)); err != nil {
		return fmt.Errorf("running the worker: %w", err)
	}
	if ctx.Err() == nil {
		return errors.New("the worker's loop ended by itself")
	}
	return nil
}

// Stop leases no new conversation, waits up to the grace period for the conversations that are being answered, and
// gives their leases back. It implements caddy.App.
func (w *WorkerApp) Stop() error {
	w.stop()
	<-w.ended
	return nil
}

// Interface guards.
var (
	_ caddy.App         = (*WorkerApp)(nil)
	_ caddy.Provisioner = (*WorkerApp)(nil)
)

// workerConfig configures a worker of a runtime.
func (a *App) workerConfig(rt *runtime) worker.Config {
	return worker.Config{
		Queue: rt.queue, DB: rt.shared.db, Ring: rt.shared.ring, Gateway: rt.calls, Platforms: rt.platforms,
		Knowledge:   rt.shared.knowledge,
		Concurrency: int(*a.Worker.Concurrency), Lease: time.Duration(a.Timing.Lease),
		Observer: workerMetrics{}, Logger: a.log,
	}
}

// deliverer returns the part of a worker that sends events to organizations' endpoints.
func (a *App) deliverer(rt *runtime) *events.Deliverer {
	return events.New(events.Config{
		DB: rt.shared.db, Ring: rt.shared.ring, Policy: targetPolicy(a.EventEndpoints),
		Usage: func(ctx context.Context, delivery *store.EventDelivery) (string, error) {
			return rt.shared.book.UsageBody(ctx, a.BaseURL, delivery)
		},
		Lease: time.Duration(a.Timing.Lease),
		Tried: func(outcome string) { eventTriesTotal.WithLabelValues(outcome).Inc() }, Logger: a.log,
	})
}

// fetcher returns the part of a worker that fetches the files of customers' messages.
func (a *App) fetcher(rt *runtime) *media.Fetcher {
	return media.New(media.Config{
		DB: rt.shared.db, Ring: rt.shared.ring, Platforms: rt.platforms, Policy: targetPolicy(a.CustomerFiles),
		Lease:   time.Duration(a.Timing.Lease),
		Fetched: func(outcome string) { fileFetchesTotal.WithLabelValues(outcome).Inc() }, Logger: a.log,
	})
}

// RunWorker runs a worker with the server's configuration, in Caddy's JSON form, until ctx ends, and then until the worker
// has stopped. It may be called once per process, which is expected to end after it. Errors call the configuration name.
func RunWorker(ctx context.Context, server []byte, name string) error {
	configuration, err := workerConfig(server, name)
	if err != nil {
		return err
	}
	if err := requireFreeListener(server); err != nil {
		return fmt.Errorf("%s: svc.worker.listen: %w", name, err)
	}
	if err := caddy.Load(configuration, true); err != nil {
		return fmt.Errorf("starting the worker: %w", err)
	}
	found, err := caddy.ActiveContext().AppIfConfigured(workerAppName)
	worker, ok := found.(*WorkerApp)
	if err != nil || !ok {
		return errors.Join(fmt.Errorf("the worker's app is a %T", found), err, caddy.Stop())
	}
	select {
	case <-ctx.Done():
		caddy.Log().Named(workerAppName).Info("stopping: conversations that are being answered may finish")
	case <-worker.ended:
	}
	beginExit()
	err = caddy.Stop()
	endExit()
	return errors.Join(worker.err, err)
}

// workerConfig returns the configuration of a worker's process, made of the server's: the app svc unchanged, the worker,
// and its private listener if the worker block names one. Sites, certificates and the admin interface are left out.
func workerConfig(server []byte, name string) ([]byte, error) {
	app, config, err := readConfig(server, name)
	if err != nil {
		return nil, err
	}
	grace, err := gracePeriod(config.Apps["http"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	logging, err := workerLogging(config.Logging)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	apps := map[string]any{
		appName:       config.Apps[appName],
		workerAppName: &WorkerApp{GracePeriod: grace},
	}
	if address := valueOr(app.Worker, Worker{}).Listen; address != "" {
		apps["http"] = privateListener(address)
		// The certificates in the storage are the server's to look after.
		apps["tls"] = map[string]any{"disable_storage_clean": true}
	}
	return json.Marshal(map[string]any{
		"admin":   map[string]any{"disabled": true, "config": map[string]any{"persist": false}},
		"logging": logging,
		"apps":    apps,
	})
}

// requireFreeListener fails if the worker's listener overlaps with one of the server's, or another process listens there: both would
// share the requests. server was read before.
func requireFreeListener(server []byte) error {
	var config struct {
		Admin struct {
			Listen   string `json:"listen"`
			Disabled bool   `json:"disabled"`
		} `json:"admin"`
		Apps struct {
			Svc struct {
				Worker *Worker `json:"worker"`
			} `json:"svc"`
			HTTP struct {
				Servers map[string]struct {
					Listen []string `json:"listen"`
				} `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(caddy.RemoveMetaFields(server), &config); err != nil {
		return fmt.Errorf("finding the listeners of the configuration: %w", err)
	}
	listen := valueOr(config.Apps.Svc.Worker, Worker{}).Listen
	if listen == "" {
		return nil
	}
	worker, err := caddy.ParseNetworkAddress(listen)
	if err != nil {
		return err
	}
	others := map[string]string{}
	if !config.Admin.Disabled {
		others[cmp.Or(config.Admin.Listen, caddy.DefaultAdminListen)] = "Caddy's admin interface"
	}
	for _, server := range config.Apps.HTTP.Servers {
		for _, address := range server.Listen {
			others[address] = "a site"
		}
	}
	for _, address := range slices.Sorted(maps.Keys(others)) {
		if other, err := caddy.ParseNetworkAddress(address); err == nil && overlap(worker, other) {
			return fmt.Errorf("%s is also the address of %s (%s), which would lose a part of its requests to the worker; "+
				"give the worker another port", listen, others[address], address)
		}
	}
	if err := taken(listen); err != nil {
		return fmt.Errorf("%w. Stop it, or give the worker another port", err)
	}
	return nil
}

// gracePeriod returns how long the server's http app waits when it stops, 0 if the configuration doesn't say.
func gracePeriod(site json.RawMessage) (caddy.Duration, error) {
	if site == nil {
		return 0, nil
	}
	var options struct {
		GracePeriod caddy.Duration `json:"grace_period"`
	}
	if err := json.Unmarshal(site, &options); err != nil {
		return 0, fmt.Errorf("the grace_period of the http app: %w", err)
	}
	return options.GracePeriod, nil
}

// workerLogging returns the server's logging without its files, because two processes that roll one file lose lines. The
// default log goes to standard error instead of its file. Other logs with files, such as those of sites, are left out.
func workerLogging(server map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	raw, given := server["logs"]
	if !given {
		return server, nil
	}
	var logs map[string]map[string]json.RawMessage
	if err := json.Unmarshal(raw, &logs); err != nil {
		return nil, fmt.Errorf("the logs: %w", err)
	}
	for name, log := range logs {
		var writer struct {
			Output string `json:"output"`
		}
		if log["writer"] == nil {
			continue
		}
		if err := json.Unmarshal(log["writer"], &writer); err != nil {
			return nil, fmt.Errorf("the writer of the log %s: %w", name, err)
		}
		switch {
		case writer.Output != "file":
		case name == "default":
			delete(log, "writer")
		default:
			delete(logs, name)
		}
	}
	kept, err := json.Marshal(logs)
	if err != nil {
		return nil, fmt.Errorf("the logs: %w", err)
	}
	logging := maps.Clone(server)
	logging["logs"] = kept
	return logging, nil
}

// privateListener returns the http app of a worker: probes and metrics, for the operator only.
func privateListener(address string) map[string]any {
	type object = map[string]any
	handle := func(handler string) []object { return []object{{"handler": handler}} }
	failed := []object{{"handle": handle("svc_error")}}
	return object{"grace_period": "5s", "servers": object{"worker": object{
		"listen":          []string{address},
		"automatic_https": object{"disable": true},
		"protocols":       []string{"h1"},
		"routes": []object{
			{"match": []object{{"path": []string{"/metrics"}}}, "handle": handle("metrics"), "terminal": true},
			{"match": []object{{"path": []string{"/health/*"}}}, "handle": handle("svc_health"), "terminal": true},
			failed[0],
		},
		"errors": object{"routes": failed},
	}}}
}

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

// newWorkerTraces returns the provider of a worker's spans by OpenTelemetry's variables, which replace the `tracing` of a site because
// a worker has no site. It returns nil if no variable enables traces. It makes no request.
func newWorkerTraces(ctx context.Context) (*sdktrace.TracerProvider, error) {
	variables := []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || // no other value is one, by the specification
		!slices.ContainsFunc(variables, func(name string) bool { return os.Getenv(name) != "" }) {
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

// endTraces exports the remaining spans and ends the provider, which may be nil.
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

// workerMetrics implements [worker.Observer].
type workerMetrics struct{}

func (workerMetrics) Leased(n int) { conversationsLeasedTotal.Add(float64(n)) }
func (workerMetrics) LeaseLost()   { leasesLostTotal.Inc() }
func (workerMetrics) TurnBegan(channelType string, waited time.Duration) {
	queueWaitSeconds.WithLabelValues(channelType).Observe(waited.Seconds())
}

func (workerMetrics) Answered(channelType string, waited time.Duration) {
	answerSeconds.WithLabelValues(channelType).Observe(waited.Seconds())
}
func (workerMetrics) TurnEnded(outcome string) { turnsTotal.WithLabelValues(outcome).Inc() }
func (workerMetrics) Sent(channelType, outcome string) {
	sendsTotal.WithLabelValues(channelType, outcome).Inc()
}

func (workerMetrics) Refreshed(channelType, outcome string) {
	refreshesTotal.WithLabelValues(channelType, outcome).Inc()
}
