package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// settleWait is how long a call waits for its settlement's commit.
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
	// Upstream is the time from the vendor's call to the end of its answer, 0 if there was none. The settlement isn't part of it.
	Upstream time.Duration
	// FirstText is the time from the vendor's call to the first piece of text, 0 if there was none.
	FirstText time.Duration
}

// Observer counts calls. It must not block.
type Observer interface {
	CallEnded(Ended)
	// SettleLate counts settlements that were not committed within the time a call waits.
	SettleLate()
	// SettledLate reports the charge of a late settlement when it is committed.
	SettledLate(model string, settled billing.Settled)
}

// Config configures a [Gateway]; every field but CallLimit, Places, EarlyStatus, Processors, Observer, Logger and Now is
// required.
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
	// HoldTTL is how long a hold outlives the longest possible call.
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

// Gateway runs model calls. It is safe for concurrent use and holds no state of a call that has ended.
type Gateway struct {
	Config
	tokens *tokenCounter
	// late are calls that have answered their clients before their end is in the books.
	late *lateCalls
	// drains are the places for calls that go on without their client.
	drains *places
}

// New returns a gateway for one configuration.
func New(cfg Config) *Gateway {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	if cfg.EarlyStatus <= 0 {
		cfg.EarlyStatus = DefaultEarlyStatus
	}
	g := &Gateway{Config: cfg, tokens: newTokenCounter(cfg.Processors), drains: newPlaces(maxDrains)}
	g.late = &lateCalls{settle: g.settleAgain, logger: cfg.Logger}
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

// Detached returns how many calls go on without their client.
func (g *Gateway) Detached() int { return g.drains.used(maxDrains) }

// Model returns the model of a public id; false when the catalog lacks it.
func (g *Gateway) Model(id string) (*Model, bool) { return g.Catalog.Model(id) }
