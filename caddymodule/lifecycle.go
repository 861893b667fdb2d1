package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/handlers/widget"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/console"
	"github.com/caddy-svc/caddy-svc/internal/dashboard"
	"github.com/caddy-svc/caddy-svc/internal/events"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/topup"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/internal/worker"
)

const (
	// readyWait is how long a request waits while the app starts: Caddy starts apps in random order, so requests can
	// come before the store is open and migrated.
	readyWait = 5 * time.Second
	// startWait bounds opening and migrating. It is long because the migration of a big table may take minutes, during
	// which requests get 500. It ends a start that would hang for ever.
	startWait = 15 * time.Minute
)

var errNotReady = errors.New("the store is not ready")

// lifecycle is the state of an App while its configuration is in use. Start opens, so that validating a configuration opens
// nothing. Cleanup closes, because requests of a configuration go on after Stop.
type lifecycle struct {
	log *slog.Logger
	// attached means that a handler or a worker uses the app, so that this process also does the background work.
	attached atomic.Bool
	// docsMounted means that the configuration has svc_docs, so that errors can link to it.
	docsMounted atomic.Bool
	// tried are the addresses that were free before the start.
	tried map[string]bool
	// worker is the worker that this process runs, nil in a server.
	worker *WorkerApp
	// ready is closed when runtime is set.
	ready   chan struct{}
	runtime *runtime
	// ctx is cancelled when the configuration is no longer in use.
	ctx context.Context //nolint:containedctx // the configuration's lifetime, as Caddy gives it
	// endingWallets are the wallets that ended soon at walletsRead, in epoch milliseconds.
	endingWallets []billing.EndingWallet
	walletsRead   int64
	// cleanup are the steps that undo Start, in the order of Start.
	cleanup []func() error
}

// noStack is above every level: no error gets a stack, since most are a vendor's failures.
const noStack = slog.Level(127)

// plainLogger returns Caddy's logger with a name for the packages without Caddy. Caddy's own Slogger adds a stack to every error.
func plainLogger(ctx caddy.Context, name string) *slog.Logger {
	return slog.New(zapslog.NewHandler(ctx.Logger().Core(), zapslog.WithName(name), zapslog.AddStacktraceAt(noStack)))
}

// Start opens the store, brings its schema up to date and checks that the master key is the store's. Requests that come
// before wait for it. It implements caddy.App.
func (a *App) Start() error {
	ctx, cancel := context.WithTimeoutCause(a.ctx, startWait, errors.New("the start took longer than 15 minutes"))
	defer cancel()
	location := a.settings.location
	shared, err := openStore(ctx, location, a.log)
	if err != nil {
		return err
	}
	a.cleanup = append(a.cleanup, func() error { return closeStore(location) })
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
	a.cleanup = append(a.cleanup, func() error { a.runtime.platforms.Close(); return nil })
	if windows, ok := limiter.(*limit.Windows); ok {
		if err := a.countWithKeys(windows, shared.db.APIKeys); err != nil {
			return err
		}
	}
	release := shared.use(ctx, a)
	a.cleanup = append(a.cleanup, func() error { release(); return nil })
	releaseFloor := a.Memory.useFloor(a.log)
	a.cleanup = append(a.cleanup, func() error { releaseFloor(); return nil })
	close(a.ready)
	a.cleanup = append(a.cleanup, a.startWatch(a.runtime))
	a.log.Info("serving", "process", a.role(), "version", Version(), "base_url", a.BaseURL, "store", location.Redacted(), "models", len(a.Models))
	return nil
}

// Stop implements caddy.App. It closes nothing: requests may still run, and on exit Caddy stops apps in random order.
func (*App) Stop() error { return nil }

// Cleanup undoes Start. It implements caddy.CleanerUpper, and also runs after a failed start.
func (a *App) Cleanup() error {
	var errs []error
	for _, undo := range slices.Backward(a.cleanup) {
		errs = append(errs, undo())
	}
	a.cleanup = nil
	return errors.Join(errs...)
}

// whenReady returns the runtime. While the app starts it waits for up to [readyWait].
func (a *App) whenReady(ctx context.Context) (*runtime, error) {
	if a.isReady() {
		return a.runtime, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyWait, errNotReady)
	defer cancel()
	select {
	case <-a.ready:
		return a.runtime, nil
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

// workerExiting is set when a worker's process is about to end. Caddy's own flag is for processes with Caddy's main.
var workerExiting atomic.Bool

// exiting reports whether the process is about to end, as opposed to a reload. Caddy has only a flag for this: its
// "stopping" event also comes with every reload.
func exiting() bool { return workerExiting.Load() || caddy.Exiting() }

// drained ends when the process exits and Caddy has waited for running requests, including requests of earlier
// configurations, as long as grace_period allows. It is global because the exit is the process's.
var drained, drain = context.WithCancel(context.Background())

// beginExit announces that the process ends when its apps have stopped.
func beginExit() { workerExiting.Store(true) }

// endExit waits for stores that close in the background. It must be called when all apps have stopped, even if the last
// configuration had none of ours.
func endExit() {
	drain()
	retired.Wait()
}

// Caddy's main calls this when all apps have stopped.
func init() { caddy.OnExit(func(context.Context) { endExit() }) }

// settings are the values that Provision read from a configuration's references, once for its lifetime. They are
// unexported, so that no dump of the configuration shows them.
type settings struct {
	// location is the store's canonical address.
	location store.Location
	// redis is nil if there is none.
	redis *redisSettings
	// ring holds the keys behind master_key.
	ring *vault.Ring
	// vendors are the providers by name.
	vendors map[string]gateway.ProviderEntry
	// operatorEndpoints are the operator's own endpoints of events by id.
	operatorEndpoints map[string]events.OperatorEndpoint
	// platforms are the options of the platforms that are configured, by name, with references resolved.
	platforms map[string]map[string]string
	// payments are the configured providers of payments.
	payments map[string]topup.Provider
}

// Provision checks the configuration, reads its secrets and builds the providers' transports. Its error has all faults of
// the configuration or, if there are none, all secrets that are missing or unusable. It opens no store and makes no
// connection. It implements caddy.Provisioner.
func (a *App) Provision(ctx caddy.Context) error {
	nameService()
	a.useCatalog()
	if err := a.faults().Err(); err != nil {
		return err
	}
	a.fill()
	read, err := a.readSettings(ctx)
	if err != nil {
		return err
	}
	a.settings = read
	ending, ended := a.endingModels(time.Now())
	for _, warning := range slices.Concat(a.secretWarnings(caddy.NewReplacer()), a.oddities(), ending, a.ComingPrices(time.Now())) {
		ctx.Logger().Warn(warning)
	}
	for _, fault := range ended {
		ctx.Logger().Error(fault)
	}
	a.ctx, a.log, a.ready = ctx, plainLogger(ctx, appName), make(chan struct{})
	return registerMetrics(ctx.GetMetricsRegistry(), a)
}

// readSettings resolves all references. The error lists each reference that failed, by path.
func (a *App) readSettings(ctx caddy.Context) (settings, error) {
	var fs config.Faults
	repl := caddy.NewReplacer()
	read := settings{
		location: a.Store.read(repl, &fs), redis: a.Redis.read(repl, &fs), vendors: make(map[string]gateway.ProviderEntry, len(a.Providers)),
	}
	var err error
	if read.ring, err = a.Ring(repl); err != nil {
		fs.Addf("svc.master_key", "%v", err)
	}
	for _, p := range a.Providers {
		read.vendors[p.Name] = p.read(ctx, repl, &fs)
	}
	read.operatorEndpoints = readOperatorEndpoints(a.OperatorEndpoints, repl, &fs)
	read.platforms = a.Platforms.read(repl, &fs)
	read.payments = a.Payments.read(repl, &fs)
	return read, fs.Err()
}

// Ring reads the keys behind master_key with repl. The error never holds a key.
func (a *App) Ring(repl *caddy.Replacer) (*vault.Ring, error) {
	text, err := a.MasterKey.Resolve(repl)
	if err != nil {
		return nil, err
	}
	ring, err := vault.ParseRing(text)
	if err != nil {
		return nil, fmt.Errorf("what %s holds is no master key: %w", string(a.MasterKey), err)
	}
	return ring, nil
}

// requireMasterKey is [conditions.CheckMasterKey] for Start; its error says what to do. If the store can't be read it only logs a
// warning, because a reload must not depend on that.
func (a *App) requireMasterKey(ctx context.Context, db *store.DB) error {
	err := conditions.CheckMasterKey(ctx, db, a.settings.ring)
	switch {
	case errors.Is(err, conditions.ErrOtherMasterKey):
		return fmt.Errorf("svc.master_key (%s): %w (%s)\n"+
			"Give the master key with which this store was used, behind the new one if there is a new one. If it is lost for good, "+
			"docs/operating.md says under \"A lost master key\" how to go on with another", a.MasterKey, err, a.settings.location.Redacted())
	case err != nil:
		a.log.Warn("the master key was not checked against the store", slog.Any("error", err))
	}
	return nil
}

// modulePath is the path of this module.
const modulePath = "github.com/caddy-svc/caddy-svc"

// version is set by the scripts that build releases, with -ldflags -X.
var version string

// Version returns the version of this program: that of the release or commit which a script built, or that of the module in a program
// that xcaddy built, or "devel".
func Version() string {
	if version != "" {
		return version
	}
	if built, ok := debug.ReadBuildInfo(); ok {
		return moduleVersion(built)
	}
	return develVersion
}

// develVersion is the version of a program that was built from a folder.
const develVersion = "devel"

func moduleVersion(built *debug.BuildInfo) string {
	for _, module := range append([]*debug.Module{&built.Main}, built.Deps...) {
		if module.Path == modulePath && module.Replace == nil && strings.HasPrefix(module.Version, "v") {
			return module.Version
		}
	}
	return develVersion
}

// runtime holds the parts that the handlers of a configuration share. It is built once the store is ready, and immutable.
type runtime struct {
	shared    *sharedStore
	auth      *identity.Authenticator
	limiter   limit.Limiter
	calls     *gateway.Gateway
	queue     *inbox.Queue
	platforms *messaging.Set
	models    *v1.Models
	chat      *v1.Chat
	// The interfaces and the pages are built by their first request, because descriptions of operations and templates would be most of an idle
	// process's memory, which each call's garbage collection would read, and most of a reload's duration.
	api, operator      func() *endpoint.Server
	docs, operatorDocs func() (*openapi.Docs, error)
	dashboard          func() *dashboard.Dashboard
	console            func() *console.Console
	widget             func() *widget.Widget
	// webhooks are the receivers by the names of their platforms.
	webhooks map[string]func(http.ResponseWriter, *http.Request) error
	payments *webhook.Payments
}

// newRuntime builds the parts; it does no I/O.
func (a *App) newRuntime(shared *sharedStore, limiter limit.Limiter) (*runtime, error) {
	catalog, err := a.Catalog()
	if err != nil {
		return nil, fmt.Errorf("building the model catalog: %w", err)
	}
	places := 0
	if a.worker != nil {
		places = int(*a.Worker.Concurrency)
	}
	calls := gateway.New(gateway.Config{
		Catalog: catalog, Book: shared.book, DB: shared.db, Ring: shared.ring, Calls: shared.calls,
		CallLimit: int(*a.Limits.Calls), Places: places,
		HoldTTL: time.Duration(a.Timing.HoldTTL), EarlyStatus: time.Duration(a.Timing.EarlyStatus),
		Processors: shared.processors, Observer: callMetrics{}, Logger: a.log,
	})
	auth := identity.NewAuthenticator(shared.db.APIKeys)
	sessions := handlers.NewSessions(identity.NewSessions(shared.db, shared.ring, shared.processors), a.BaseURL)
	queue := inbox.New(shared.db, shared.ring)
	queue.Log = a.log
	topUps := a.newTopUps(shared)
	set, err := a.newPlatforms()
	if err != nil {
		return nil, err
	}
	chat := &v1.Chat{
		Gateway: calls, Bodies: shared.bodies, Streams: &shared.streams, StreamLimit: int(*a.Limits.Streams), Logger: a.log,
	}
	deps := api.Deps{
		Authenticator: auth, Sessions: sessions, Providers: a.ProviderNames(),
		Wallets: shared.book, DB: shared.db, Conversations: queue, Ring: shared.ring,
		Chat: chat, PlaygroundCall: worker.PlaygroundCall,
		Models: catalog, Platforms: set, Catalog: set.Catalog, Plans: a, Knowledge: shared.knowledge,
		BaseURL: a.BaseURL, Bodies: shared.bodies, Logger: a.log, EventTargets: targetPolicy(a.EventEndpoints),
		StartDoctor: func(ctx context.Context, actor string, all bool) error {
			return shared.doctor.Start(ctx, a.processName(), actor, a.doctorCheck(shared, set.Catalog, all))
		},
		Rates: endpoint.Rates{Windows: shared.windows, Calls: handlers.RateLimit{Limiter: limiter, Plans: a}},
		Book:  shared.book, Endpoints: calls.Endpoints, TopUps: topUps,
	}
	operatorDeps := deps
	operatorDeps.Authenticator, operatorDeps.Rates.Calls = identity.NewOperatorKeys(shared.db), handlers.RateLimit{}
	tenants := sync.OnceValue(func() *endpoint.Server { return api.New(deps) })
	operator := sync.OnceValue(func() *endpoint.Server { return api.NewOperator(operatorDeps) })
	rt := &runtime{
		shared: shared, auth: auth, limiter: limiter, calls: calls, queue: queue, platforms: set,
		models: v1.NewModels(catalog, shared.db.Organizations), chat: chat, api: tenants, operator: operator,
		dashboard:    sync.OnceValue(func() *dashboard.Dashboard { return a.newDashboard(tenants(), set.Catalog, sessions, shared.bodies) }),
		docs:         sync.OnceValues(func() (*openapi.Docs, error) { return a.newDocs(tenants(), set.Catalog, false) }),
		operatorDocs: sync.OnceValues(func() (*openapi.Docs, error) { return a.newDocs(operator(), set.Catalog, true) }),
		webhooks:     a.webhooks(set, shared, queue),
		payments:     &webhook.Payments{Payments: topUps, Bodies: shared.bodies, Log: a.log},
	}
	rt.console = sync.OnceValue(func() *console.Console {
		operators := identity.NewOperators(shared.db, shared.ring, shared.processors)
		return a.newConsole(operator(), &operatorDeps, handlers.NewOperatorSessions(operators, a.BaseURL), shared.bodies)
	})
	// The widget's waiting visitors are served by a worker of this process that leases no other conversations.
	live := a.workerConfig(rt)
	live.Exit = drained.Done()
	rt.widget = sync.OnceValue(func() *widget.Widget {
		return widget.New(tenants(), widget.Deps{
			DB: shared.db, Inbox: queue, Live: worker.New(live), Ring: shared.ring, Limiter: limiter,
			Streams: new(v1.Streams), Bodies: shared.bodies, Logger: a.log,
		})
	})
	return rt, nil
}

// Catalog returns the configured models and providers for the gateway. If the app isn't provisioned, its providers can't be called.
func (a *App) Catalog() (*gateway.Catalog, error) {
	return gateway.NewCatalog(store.Column(a.Models, (*Model).entry), store.Column(a.Providers, func(p *Provider) gateway.ProviderEntry {
		if read, provisioned := a.settings.vendors[p.Name]; provisioned {
			return read
		}
		return p.entry()
	}))
}

// entry returns m for the gateway. The defaults of m must be filled in.
func (m *Model) entry() gateway.Model {
	shutdown, _ := m.shutdown() // checked when the configuration was read
	return gateway.Model{
		ID: m.Name, Provider: m.provider(), Upstream: m.UpstreamModel,
		DisplayName: m.DisplayName, FriendlyName: m.FriendlyName, Tier: m.Tier, OwnedBy: m.OwnedBy,
		Created: *m.Created, VNHosted: m.VNHosted,
		ContextWindow: *m.ContextWindow, MaxOutputTokens: *m.MaxOutputTokens, MaxTokensField: m.MaxTokensField,
		DropSampling: *m.DropSampling, DropStop: *m.DropStop, Thinking: m.Thinking, LeastMaxTokens: *m.LeastMaxTokens, Shutdown: shutdown,
		Endpoints: m.endpoints(), Reasoning: *m.Reasoning, ReserveMaxOutput: m.ReserveMaxOutput, LiveOnly: m.LiveOnly,
		Price: priceOf(&m.baseRow().Rates, m.PriceTiers), Prices: m.prices(),
	}
}

// entry returns p for the gateway, without the values of its references and its adapter.
func (p *Provider) entry() gateway.ProviderEntry {
	protocol := protocols.named(p.Protocol).Describe()
	entry := gateway.ProviderEntry{
		Name: p.Name, KeyMode: gateway.KeyOperator, MaxDuration: p.timeouts().MaxDuration, FirstText: p.timeouts().FirstByte,
		MaxCalls: int(*p.MaxCalls), MaxStops: protocol.MaxStops, RefusesBlankStops: protocol.RefusesBlankStops, SendTraceparent: p.SendTraceparent,
	}
	if preset, _ := p.preset(); preset != nil {
		entry.MaxStops = preset.MaxStops
	}
	if protocol.Local || p.APIKey == NoKey {
		entry.KeyMode = gateway.KeyNone
	} else if p.APIKey == "" {
		entry.KeyMode = gateway.KeyMissing
	}
	return entry
}

// RequestsPerMinute is the limit of a plan. 0 means unlimited. It implements [handlers.Plans].
func (a *App) RequestsPerMinute(plan string) int64 { return valueOr(a.plan(plan).RequestsPerMinute, 0) }

// ChannelLimit is how many channels a plan allows. It implements [api.PlanLimits].
func (a *App) ChannelLimit(plan string) int64 { return *a.plan(plan).Channels }

// KnowledgeLimit is how many bytes of documents a plan allows. It implements [api.PlanLimits].
func (a *App) KnowledgeLimit(plan string) int64 { return *a.plan(plan).KnowledgeBytes }
