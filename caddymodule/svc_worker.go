package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/worker"
)

// workerAppName is the name of the worker's app in the JSON configuration.
const workerAppName = "svc_worker"

// DefaultGracePeriod is how long a stopping worker lets conversations finish, where Caddy's own default would be for
// ever.
const DefaultGracePeriod = time.Minute

func init() { caddy.RegisterModule(new(WorkerApp)) }

// WorkerApp answers customers: it takes conversations from the queue of the app `svc`, asks the model and sends the
// reply. `caddy svc-worker` makes a configuration with it out of the server's Caddyfile, without the sites; nothing else
// is needed to run it, and it may also stand beside the sites in a JSON configuration.
type WorkerApp struct {
	// How long conversations that are being answered may take to finish when the worker stops. After that they are cut
	// where nothing is lost, and another worker takes them up. More than 0, at most 24h. Default: `60s`.
	GracePeriod caddy.Duration `json:"grace_period,omitempty"`

	app     *App
	running atomic.Bool
	// stop ends the loop; ended is closed behind it, and err says why it ended.
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// CaddyModule returns the Caddy module information.
func (*WorkerApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  workerAppName,
		New: func() caddy.Module { return new(WorkerApp) },
	}
}

// Provision finds the app whose queue is worked on.
func (w *WorkerApp) Provision(ctx caddy.Context) (err error) {
	var fs config.Faults
	fs.Duration(workerAppName+".grace_period", w.GracePeriod)
	if err := fs.Err(); err != nil {
		return err
	}
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
	loop := w.app.newWorker(w.app.runtime)
	w.running.Store(true)
	if err := loop.Run(ctx, orDefault(w.GracePeriod, DefaultGracePeriod)); err != nil {
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

// newWorker puts a worker together out of what the handlers work with, too; it does no I/O.
func (a *App) newWorker(rt *runtime) *worker.Worker {
	return worker.New(worker.Config{
		Queue: rt.queue, DB: rt.shared.db, Ring: a.settings.ring, Gateway: rt.calls, Platforms: rt.platforms,
		Knowledge:   rt.shared.knowledge,
		Concurrency: a.Worker.concurrency(), Lease: a.Timing.lease(), Observer: workerMetrics{}, Logger: a.log,
	})
}
