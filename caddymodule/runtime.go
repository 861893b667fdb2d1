package caddymodule

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/handlers/widget"
	"github.com/caddy-svc/caddy-svc/internal/console"
	"github.com/caddy-svc/caddy-svc/internal/dashboard"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/worker"
)

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
		shared:       shared,
		auth:         auth,
		limiter:      limiter,
		calls:        calls,
		queue:        queue,
		platforms:    set,
		models:       v1.NewModels(catalog, shared.db.Organizations),
		chat:         chat,
		api:          tenants,
		dashboard:    sync.OnceValue(func() *dashboard.Dashboard { return a.newDashboard(tenants(), set.Catalog, sessions, shared.bodies) }),
		docs:         sync.OnceValues(func() (*openapi.Docs, error) { return a.newDocs(tenants(), set.Catalog, false) }),
		operator:     operator,
		operatorDocs: sync.OnceValues(func() (*openapi.Docs, error) { return a.newDocs(operator(), set.Catalog, true) }),
		webhooks:     a.webhooks(set, shared, queue),
		payments:     &webhook.Payments{Payments: topUps, Bodies: shared.bodies, Log: a.log},
	}
	rt.console = sync.OnceValue(func() *console.Console {
		operators := identity.NewOperators(shared.db, shared.ring, shared.processors)
		return a.newConsole(operator(), &operatorDeps, handlers.NewOperatorSessions(operators, a.BaseURL), shared.bodies)
	})
	// This process answers the widget's waiting visitors with a worker that leases no other conversations.
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
		return p.entry(a.settings.vendors[p.Name])
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

// entry returns p for the gateway, with its references resolved.
func (p *Provider) entry(read vendor) gateway.ProviderEntry {
	protocol := protocols.named(p.Protocol).Describe()
	stops := protocol.MaxStops
	if preset, _ := p.preset(); preset != nil {
		stops = preset.MaxStops
	}
	return gateway.ProviderEntry{
		Name: p.Name, Provider: read.provider, APIKey: read.apiKey, KeyMode: p.keyMode(read.local),
		MaxDuration: p.timeouts().MaxDuration, FirstText: p.timeouts().FirstByte, MaxCalls: int(*p.MaxCalls),
		MaxStops: stops, RefusesBlankStops: protocol.RefusesBlankStops, SendTraceparent: p.SendTraceparent,
		Account: read.account,
	}
}

func (p *Provider) keyMode(local bool) gateway.KeyMode {
	switch {
	case local || p.APIKey == NoKey:
		return gateway.KeyNone
	case p.APIKey == "":
		return gateway.KeyMissing
	default:
		return gateway.KeyOperator
	}
}

// RequestsPerMinute is the limit of a plan. 0 means unlimited. It implements [handlers.Plans].
func (a *App) RequestsPerMinute(plan string) int64 { return valueOr(a.plan(plan).RequestsPerMinute, 0) }

// ChannelLimit is how many channels a plan allows. It implements [api.PlanLimits].
func (a *App) ChannelLimit(plan string) int64 {
	return *a.plan(plan).Channels
}

// KnowledgeLimit is how many bytes of documents a plan allows. It implements [api.PlanLimits].
func (a *App) KnowledgeLimit(plan string) int64 {
	return *a.plan(plan).KnowledgeBytes
}

var (
	_ handlers.Plans = (*App)(nil)
	_ api.PlanLimits = (*App)(nil)
)
