// Package gateway runs one model call from a validated request to a settled outcome. The chat handler and the worker share it, so
// that a call costs the same in both.
//
// The path of a call (call.go): enter the limits → pick model and endpoint → bound the prompt → hold the highest possible price →
// open the vendor's call → pass text on (vendor.go) → settle (settle.go). Before the first text an attempt that fails may be
// repeated at another endpoint (endpoints.go). Call returns, and the client may receive the end of its answer, only after the
// settlement is committed.
//
// Invariants:
//   - Every call ends in exactly one [Outcome], and one function settles all of them.
//   - Without a committed hold the vendor isn't called, unless the call is free (own provider key, price 0).
//   - The upstream call is detached from the request and joined to it by AfterFunc, so that settling survives a client that left.
//   - No text of the vendor reaches [Failure.Message].
//
// HTTP and SSE belong to handlers, vendor dialects to providers, rows and ledgers to billing. Keys and rate limits are checked
// before Call.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/hours"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/providers"
)

// settleWait is the time for which a call waits for the commit of its settlement.
const settleWait = 5 * time.Second

// Ended describes a finished call to an [Observer].
type Ended struct {
	// Model and Provider are empty when the model was not found.
	Model, Provider string
	// VendorModel is the vendor's name of the requested model.
	VendorModel  string
	Outcome      Outcome
	Stream, BYOK bool
	Usage        billing.Usage
	UsageSource  billing.UsageSource
	Settled      billing.Settled
	// Upstream is the time from the vendor's call to the end of its answer, without the settlement. It is 0 if the vendor wasn't
	// called.
	Upstream time.Duration
	// FirstText is the time from the vendor's call to the first piece of text. It is 0 if there was none.
	FirstText time.Duration
}

// Observer counts calls. It must not block.
type Observer interface {
	CallEnded(Ended)
	// SettleLate counts settlements that were not committed while their call waited.
	SettleLate()
	// SettledLate reports the charge of a late settlement when it is committed.
	SettledLate(model string, settled billing.Settled)
}

// Config configures a [Gateway]. Every field is required, except CallLimit, Places, EarlyStatus, Processors, Observer, Logger and
// Now.
type Config struct {
	Catalog *Catalog
	Book    *billing.Book
	DB      *store.DB
	Ring    *vault.Ring
	Calls   *InFlight
	// CallLimit limits the calls of each organization that run in this process. 0 means unlimited. If there are several providers, none gets more
	// than three quarters of them.
	CallLimit int
	// Places limits all calls of this process, as in a worker, where an organization gets no more than half of them. 0 means unlimited. Providers
	// share the places, and the places of each organization, like CallLimit.
	Places int
	// HoldTTL is the time for which a hold outlives the longest possible call.
	HoldTTL time.Duration
	// EarlyStatus is how long a stream waits for the first text of its model before its status and its first chunk are sent. 0 means
	// [DefaultEarlyStatus].
	EarlyStatus time.Duration
	// Processors limits the counts of tokens that run at a time, each with one processor. Nil means unlimited.
	Processors *semaphore.Weighted
	Observer   Observer
	Logger     *slog.Logger
	Now        func() time.Time
}

// Gateway runs model calls. It is safe for concurrent use and keeps no state of a call that has ended.
type Gateway struct {
	Config
	tokens *tokenCounter
	// late are calls that have answered their clients before their end is in the books.
	late *lateCalls
	// drains counts the calls that go on without their client.
	drains load
}

// New returns a gateway for one configuration.
func New(cfg Config) *Gateway {
	cfg.Logger, cfg.Observer = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), cmp.Or[Observer](cfg.Observer, unobserved{})
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.EarlyStatus <= 0 {
		cfg.EarlyStatus = DefaultEarlyStatus
	}
	g := &Gateway{Config: cfg, tokens: newTokenCounter(cfg.Processors)}
	g.late = &lateCalls{settle: g.settleAgain, logger: cfg.Logger}
	cfg.Calls.adopt(cfg.Catalog)
	return g
}

type unobserved struct{}

func (unobserved) CallEnded(Ended) {}
func (unobserved) SettleLate()     {}

func (unobserved) SettledLate(string, billing.Settled) {}

// FreeBalance returns the free balance of an organization in an environment, in micros: its balance without holds. The error is one of reading.
func (g *Gateway) FreeBalance(ctx context.Context, orgID string, env store.Env) (int64, error) {
	wallet, err := g.Book.Wallet(ctx, billing.WalletID{OrgID: orgID, Env: env})
	if err != nil {
		return 0, fmt.Errorf("reading the free balance: %w", err)
	}
	return wallet.BalanceMicros - wallet.HeldMicros, nil
}

// BudgetRoom returns the largest amount that the budgets of an assistant and of its organization let it spend, in micros. Without a budget it is
// the largest number. The error is one of reading.
func (g *Gateway) BudgetRoom(ctx context.Context, orgID, agentID string, env store.Env) (int64, error) {
	return g.Book.BudgetRoom(ctx, billing.WalletID{OrgID: orgID, Env: env}, &billing.Budgeted{AgentID: agentID})
}

// Detached returns the number of calls that go on without their client.
func (g *Gateway) Detached() int { return g.drains.count(placeOwner{}) }

// Model returns the model with a public id. It returns false if the catalog lacks it.
func (g *Gateway) Model(id string) (*Model, bool) { return g.Catalog.Model(id) }

// Model is one model that organizations can call; docs/contract.md#models describes its public fields.
type Model struct {
	// ID is the public id, "<provider>/<model>".
	ID string
	// Provider names the [ProviderEntry] that serves a model without Endpoints.
	Provider string
	// Upstream is the vendor's name of a model without Endpoints.
	Upstream string
	// Endpoints are the places that can answer, each with the limits and prices of the model. Without any, Provider answers.
	Endpoints []Endpoint

	DisplayName, FriendlyName, Tier, OwnedBy string
	// Created is in Unix seconds.
	Created  int64
	VNHosted bool

	// ContextWindow is the size of the context in tokens.
	ContextWindow int64
	// MaxOutputTokens limits the tokens that a request can have generated.
	MaxOutputTokens int64
	// ReserveMaxOutput: a call reserves the price of MaxOutputTokens, also if it requests fewer.
	ReserveMaxOutput bool
	// LiveOnly means that keys of the test environment can't use the model; see [Model.OpenTo].
	LiveOnly bool
	// Reasoning means that the model generates hidden tokens, which are counted only in the usage at the end of its answer.
	Reasoning bool
	// DropSampling and DropStop mean that the vendor doesn't get temperature and top_p, or stop sequences, because the model refuses them.
	DropSampling, DropStop bool
	// Thinking is [providers.Request.Thinking] for a model without Endpoints.
	Thinking string
	// LeastMaxTokens is the smallest max_tokens that leaves room for an answer. 0 means 1.
	LeastMaxTokens int64
	// Shutdown is the day on which the vendor ends the model. The zero time means that it is unknown.
	Shutdown time.Time
	// MaxTokensField is the vendor's name of max_tokens for a model without Endpoints.
	MaxTokensField string
	// Price is the price of every call, unless the model has Prices: then each call has the price of its start.
	Price  billing.Price
	Prices *Prices

	// serving are the endpoints that are not drained. A [Catalog] sets it, and maxDuration, the longest of their providers.
	serving     []*endpoint
	maxDuration time.Duration
}

// Enabled reports whether a caller can use the model. exceptions are the models for which its organization has an exception: a model without one is
// enabled. keyModels are the models of the caller's key.
func (m *Model) Enabled(exceptions map[string]bool, env store.Env, keyModels store.KeyModels) bool {
	on, exception := exceptions[m.ID]
	return (on || !exception) && m.OpenTo(env) && keyModels.Allow(m.ID)
}

// OpenTo reports whether calls of an environment can use the model. A closed model isn't listed and counts as unknown.
func (m *Model) OpenTo(env store.Env) bool { return !m.LiveOnly || env != store.Test }

// KeyMode is the source of a provider's secret for calls without a key of their own.
type KeyMode int

// The ways a provider's `api_key` can be configured.
const (
	// KeyMissing allows only calls with the organization's own key. Other calls end as provider_error.
	KeyMissing KeyMode = iota
	// KeyOperator means that the operator's key is sent.
	KeyOperator
	// KeyNone means that no Authorization is sent (`api_key none`).
	KeyNone
)

// ProviderEntry is a configured model vendor.
type ProviderEntry struct {
	Name     string
	Provider providers.Provider
	KeyMode  KeyMode
	// APIKey is the operator's secret when KeyMode is KeyOperator.
	APIKey string
	// MaxDuration limits a whole call. Its hold lives that long and HoldTTL more.
	MaxDuration time.Duration
	// FirstText limits the wait for the first text of a stream if another endpoint may answer, unless the model is marked as reasoning. 0 means
	// unlimited.
	FirstText time.Duration
	// MaxCalls limits the calls that run in this process. 0 means unlimited.
	MaxCalls int
	// MaxStops and RefusesBlankStops are [providers.Description.MaxStops] and [providers.Description.RefusesBlankStops].
	MaxStops          int
	RefusesBlankStops bool
	// SendTraceparent: the vendor gets the trace context of traced requests.
	SendTraceparent bool
	// Account identifies the address and the key. A reload keeps the cool-downs of a provider whose Account is unchanged.
	Account string
}

// Catalog is the set of models and providers of one configuration. It is immutable: a call keeps its catalog even if the
// configuration is reloaded.
type Catalog struct {
	models    []Model
	byID      map[string]*Model
	providers map[string]*ProviderEntry
	// health is the health of every endpoint, drained ones included.
	health map[healthKey]*health
}

// NewCatalog checks that ids are unique, that every provider exists, and that each model has an endpoint which isn't drained and
// none twice. The error joins all faults.
func NewCatalog(models []Model, entries []ProviderEntry) (*Catalog, error) {
	c := &Catalog{
		models: slices.Clone(models), byID: make(map[string]*Model, len(models)),
		providers: make(map[string]*ProviderEntry, len(entries)), health: make(map[healthKey]*health, len(models)),
	}
	var faults []error
	for i := range entries {
		entry := entries[i]
		entry.Provider = providers.WithDeadline(entry.Provider, entry.MaxDuration)
		if c.providers[entry.Name] != nil {
			faults = append(faults, fmt.Errorf("provider %q is configured twice", entry.Name))
		}
		c.providers[entry.Name] = &entry
	}
	slices.SortFunc(c.models, func(a, b Model) int { return strings.Compare(a.ID, b.ID) })
	for i := range c.models {
		m := &c.models[i]
		if c.byID[m.ID] != nil {
			faults = append(faults, fmt.Errorf("model %q is configured twice", m.ID))
		}
		faults = append(faults, c.serve(m)...)
		c.byID[m.ID] = m
	}
	return c, errors.Join(faults...)
}

// Models returns all models sorted by id. Callers must not change the slice.
func (c *Catalog) Models() []Model { return c.models }

// share returns the number of n places that one provider may use: three quarters, or all if there is no other provider.
func (c *Catalog) share(n int) int {
	if len(c.providers) < 2 {
		return n
	}
	return n - n/4
}

// Model finds a model by its public id.
func (c *Catalog) Model(id string) (*Model, bool) {
	m, ok := c.byID[id]
	return m, ok
}

// PriceRow is the price of a model from a moment on, until the next row begins.
type PriceRow struct {
	// From is the first moment. The zero time means that the row has no beginning.
	From  time.Time
	Price billing.Price
	// Hours are the hours of the week with another price. They don't overlap.
	Hours []PriceHours
}

// PriceHours is the price in some hours of the week.
type PriceHours struct {
	Hours *hours.Hours
	Price billing.Price
}

// Prices are the prices of a model over time. It is safe for concurrent use.
type Prices struct {
	rows []PriceRow
	// now is the price at the last requested moment, so that most calls compare two times.
	now atomic.Pointer[pricePeriod]
}

// pricePeriod is a time with one price, until excluded.
type pricePeriod struct {
	from, until time.Time
	price       *billing.Price
}

// NewPrices returns the prices of rows in the order of their times. The first row has no beginning.
func NewPrices(rows []PriceRow) *Prices { return &Prices{rows: rows} }

// At returns the price at a moment.
func (p *Prices) At(moment time.Time) *billing.Price {
	period := p.now.Load()
	if period == nil || moment.Before(period.from) || !moment.Before(period.until) {
		period = p.period(moment)
		p.now.Store(period)
	}
	return period.price
}

// longestPricePeriod limits the time for which a price is remembered.
const longestPricePeriod = 7 * 24 * time.Hour

// period computes the price at a moment and the time until the next change.
func (p *Prices) period(moment time.Time) *pricePeriod {
	found := &pricePeriod{from: moment, until: moment.Add(longestPricePeriod)}
	current := &p.rows[0]
	for i := range p.rows[1:] {
		row := &p.rows[1+i]
		if moment.Before(row.From) {
			found.end(row.From)
			break
		}
		current = row
	}
	found.price = &current.Price
	for i := range current.Hours {
		open, change := current.Hours[i].Hours.Next(moment)
		if open {
			found.price = &current.Hours[i].Price
		}
		if !change.IsZero() {
			found.end(change)
		}
	}
	return found
}

func (p *pricePeriod) end(change time.Time) {
	if change.Before(p.until) {
		p.until = change
	}
}
