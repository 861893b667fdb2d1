package caddymodule

import "github.com/caddy-svc/caddy-svc/internal/worker"

// newWorker puts a worker together out of what the handlers work with, too; it does no I/O.
func (a *App) newWorker(rt *runtime) *worker.Worker {
	return worker.New(worker.Config{
		Queue: rt.queue, DB: rt.shared.db, Ring: a.settings.ring, Gateway: rt.calls, Platforms: rt.platforms,
		Knowledge:   rt.shared.knowledge,
		Concurrency: a.Worker.concurrency(), Lease: a.Timing.lease(), Observer: workerMetrics{}, Logger: a.log,
	})
}
