package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/events"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/worker"
)

// workerAppName is the name of the worker's app in the JSON configuration.
const workerAppName = "svc_worker"

func init() { caddy.RegisterModule(new(WorkerApp)) }

// WorkerApp answers customers: it takes conversations from the queue of the app `svc`, calls the model and sends the reply.
// `caddy svc-worker` makes a configuration with it out of the server's Caddyfile, without the sites. A JSON configuration
// may also have it beside the sites.
type WorkerApp struct {
	// How long conversations that are being answered may take when the worker stops. After that they are cut where nothing
	// is lost, and another worker continues them. More than 0, at most 24h. Default: `60s`.
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

// Stop takes no new conversation, waits for those that are being answered, at most the grace period, and gives their
// leases back. It implements caddy.App.
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
