package caddymodule

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"
)

const (
	// readyWait is how long a request waits for a start that is under way: Caddy starts apps in random order, so
	// requests can come before the store is open and migrated.
	readyWait = 5 * time.Second
	// startWait bounds opening and migrating. It is long, since a migration of a big table may take minutes while
	// requests are answered 500; what it prevents is a start that hangs for ever.
	startWait = 15 * time.Minute
)

var errNotReady = errors.New("the store is not ready")

// lifecycle is what an App holds while its configuration is in use. Opening happens in Start, so that validating a
// configuration opens nothing; closing happens in Cleanup, because requests of this configuration go on after Stop.
type lifecycle struct {
	log *slog.Logger
	// attached: a handler or a worker uses the app in this process, so that it does the background work, too.
	attached atomic.Bool
	// docsMounted: a handler serves the interface description, so errors can point at it.
	docsMounted atomic.Bool
	// worker is the worker that this process runs, nil in a server.
	worker *WorkerApp
	// ready is closed when runtime is set.
	ready   chan struct{}
	runtime *runtime
	// cancel ends a start that is under way.
	ctx context.Context //nolint:containedctx // the configuration's lifetime, as Caddy gives it
	// leave gives back what Start took, last first.
	leave []func() error
}

// provision prepares a's runtime. It opens nothing.
func (l *lifecycle) provision(ctx caddy.Context, a *App) error {
	l.ctx = ctx
	l.log = plainLogger(ctx)
	l.ready = make(chan struct{})
	return registerMetrics(ctx.GetMetricsRegistry(), a)
}

// noStack is above every level: a vendor's failure is no place in our code to look at.
const noStack = slog.Level(127)

// plainLogger is Caddy's logger for the packages that don't know Caddy. Caddy's own Slogger adds a stack to every error.
func plainLogger(ctx caddy.Context) *slog.Logger {
	return slog.New(zapslog.NewHandler(ctx.Logger().Core(), zapslog.WithName(appName), zapslog.AddStacktraceAt(noStack)))
}

// attach says that this process serves with the app, rather than only reading its configuration.
func (a *App) attach() { a.attached.Store(true) }

// Start opens the store, brings its schema up to date and makes sure that the master key is the store's; requests that came
// before wait for it. It implements caddy.App.
func (a *App) Start() error {
	ctx, cancel := context.WithTimeoutCause(a.ctx, startWait, errors.New("the start took longer than 15 minutes"))
	defer cancel()
	location := a.settings.location
	shared, err := openStore(ctx, location, a.log)
	if err != nil {
		return err
	}
	a.leave = append(a.leave, func() error { return closeStore(location) })
	if err := shared.migrate(ctx); err != nil {
		return err
	}
	if err := a.requireMasterKey(ctx, shared.db); err != nil {
		return err
	}
	limiter, err := a.limiter(shared)
	if err != nil {
		return err
	}
	a.runtime, err = a.newRuntime(shared, limiter)
	if err != nil {
		return err
	}
	a.leave = append(a.leave, func() error { a.runtime.platforms.Close(); return nil })
	leave := shared.use(a.wishes())
	a.leave = append(a.leave, func() error { leave(); return nil })
	close(a.ready)
	return nil
}

// wishes are what a wants of the store it shares.
func (a *App) wishes() wishes {
	w := wishes{bufferedBytes: a.Limits.bufferedBytes(), bodyPace: a.Limits.bodyPace(), log: a.log}
	if a.attached.Load() {
		w.sweep = a.Timing.sweepInterval()
	}
	return w
}

// Stop implements caddy.App. It closes nothing: requests may still run, and on exit Caddy stops apps in random order.
func (*App) Stop() error { return nil }

// Cleanup gives the shared store back. It implements caddy.CleanerUpper, and runs after a failed start, too.
func (a *App) Cleanup() error {
	var faults []error
	for _, leave := range slices.Backward(a.leave) {
		faults = append(faults, leave())
	}
	a.leave = nil
	return errors.Join(faults...)
}

// whenReady returns the runtime, waiting for a start that is under way.
func (a *App) whenReady(ctx context.Context) (*runtime, error) {
	select {
	case <-a.ready:
		return a.runtime, nil
	default:
	}
	timer := time.NewTimer(readyWait)
	defer timer.Stop()
	select {
	case <-a.ready:
		return a.runtime, nil
	case <-timer.C:
		return nil, errNotReady
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

// ending is set by a main of ours that is about to end its process; Caddy's own flag belongs to its own main.
var ending atomic.Bool

// exiting reports whether the whole process is about to end, as opposed to a reload: Caddy tells by a flag only, since
// its "stopping" event also comes with every reload.
func exiting() bool { return ending.Load() || caddy.Exiting() }

// drained ends when the process exits and http has waited for running requests, those of earlier configurations
// included, as long as it may. It is the process's, as its exit is.
var drained, drain = context.WithCancel(context.Background())

// beginExit says that the process ends when its apps have stopped.
func beginExit() { ending.Store(true) }

// endExit is called when all apps have stopped, also when the last configuration had none of ours, and waits for stores
// that close in the background.
func endExit() {
	drain()
	retired.Wait()
}

// Caddy's main calls this when all apps have stopped.
func init() { caddy.OnExit(func(context.Context) { endExit() }) }
