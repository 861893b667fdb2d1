package caddymodule

import (
	"context"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// quietTime is how long a store of an old configuration must have had no request before it is closed: a
	// connection that the old servers accepted may still bring one.
	quietTime = 5 * time.Second
	// exitWait bounds what the exit of the process waits for calls that were cut, and then for the last writes.
	exitWait = 5 * time.Second
)

// stores holds what all configurations on one database share, by its location. They outlive a reload, which is why they
// are global.
var (
	stores = caddy.NewUsagePool()
	// retired are stores whose last configuration is gone but that still have calls.
	retired sync.WaitGroup
)

// StoreKinds are the kinds of durable operations. Every process locks their rows in this order.
func StoreKinds() []store.Kind { return []store.Kind{limit.Counter, billing.Ledger, inbox.Kind} }

// sharedStore is an open database with everything that must be one per process and database: its writer, the count of
// calls that live on it, the documents that are being ingested, the sweepers.
type sharedStore struct {
	db    *store.DB
	book  *billing.Book
	calls *gateway.InFlight
	// knowledge interrupts what it ingests when the store is closed.
	knowledge *knowledge.Library
	// streams and bodies bound what all requests take together, whichever configuration they began under.
	streams handlers.Streams
	bodies  *handlers.ByteBudget
	// processors are for hashes of passwords and counts of tokens, which keep one for tens of milliseconds each: Go interrupts
	// them every 10 ms only, so the other half is for everybody's requests.
	processors *semaphore.Weighted
	newest     *newestLog
	log        *slog.Logger // writes to newest

	mu       sync.Mutex
	migrated bool
	// users are what the configurations in use want, the newest last.
	users     []*wishes
	sweeper   *billing.Sweeper
	sweeping  time.Duration
	retention *inbox.RetentionSweeper
}

// wishes are what a configuration wants of the store that it shares with others.
type wishes struct {
	// bufferedBytes is the budget of body bytes.
	bufferedBytes int64
	// bodyPace is how fast bodies must arrive.
	bodyPace handlers.Pace
	// sweep is the pause between two sweeps, 0 if nobody in this process serves with the configuration.
	sweep time.Duration
	log   *slog.Logger
}

var _ caddy.Destructor = (*sharedStore)(nil)

// openStore returns the shared store of a location, opened by the first who asks.
func openStore(ctx context.Context, location store.Location, log *slog.Logger) (*sharedStore, error) {
	value, _, err := stores.LoadOrNew(location, func() (caddy.Destructor, error) {
		newest := newNewestLog(log)
		log := slog.New(newest)
		db, err := store.Open(ctx, location, store.Options{Kinds: StoreKinds(), Logger: log, Observer: writerMetrics{}})
		if err != nil {
			return nil, err //nolint:wrapcheck // Start says what was being done
		}
		return &sharedStore{
			db: db, book: billing.NewBook(db), calls: gateway.NewInFlight(), knowledge: knowledge.New(db, log),
			bodies: handlers.NewByteBudget(DefaultBufferedBytes), newest: newest, log: log,
			processors: semaphore.NewWeighted(int64(max(1, goruntime.GOMAXPROCS(0)/2))),
		}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", location.Redacted(), err)
	}
	return value.(*sharedStore), nil //nolint:forcetypeassert,errcheck // the pool holds nothing else
}

// migrate brings the schema up to date, once per store and process.
func (s *sharedStore) migrate(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.migrated {
		return nil
	}
	if err := s.db.Migrate(ctx); err != nil {
		return fmt.Errorf("migrating the store: %w", err)
	}
	s.migrated = true
	return nil
}

// use makes the wishes of a configuration hold until it is gone. Of several the newest decides, so that a reload that
// fails gives the one before its own back.
func (s *sharedStore) use(w wishes) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := &w
	s.users = append(s.users, user)
	s.grant(w)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.users = slices.DeleteFunc(s.users, func(other *wishes) bool { return other == user })
		if len(s.users) > 0 {
			s.grant(*s.users[len(s.users)-1])
		}
	}
}

// grant applies w. Sweepers that run go on as long as the store is open: its calls may outlive their configuration.
func (s *sharedStore) grant(w wishes) {
	s.newest.Store(w.log)
	s.bodies.SetLimit(w.bufferedBytes, w.bodyPace)
	if w.sweep == 0 || w.sweep == s.sweeping {
		return
	}
	if s.sweeper != nil {
		s.sweeper.Stop()
	}
	if s.retention == nil {
		s.retention = inbox.NewRetentionSweeper(s.db, s.log)
		s.retention.Start()
	}
	s.sweeper, s.sweeping = billing.NewSweeper(s.book, w.sweep, s.log), w.sweep
	s.sweeper.Start()
}

// Destruct runs when the last configuration on the store is gone. After a reload the calls that began under it go on,
// and the store is closed behind them in the background. On exit http has already waited for them as long as it may:
// what still runs is cut, settles, and is waited for a little.
func (s *sharedStore) Destruct() error {
	if !exiting() {
		retired.Go(func() {
			if err := s.retire(); err != nil {
				s.log.Error("closing a store that is no longer configured", "error", err)
			}
		})
		return nil
	}
	drain() // those that retire have no more time than this one
	return s.exit()
}

// retire closes the store when its calls have ended and no more come, or the process can't wait any longer.
func (s *sharedStore) retire() error {
	for {
		entered := s.calls.Entered()
		if s.calls.Wait(drained) != nil {
			return s.exit()
		}
		select {
		case <-time.After(quietTime):
		case <-drained.Done():
			return s.exit()
		}
		if s.calls.Close(entered) {
			return s.close()
		}
	}
}

// exit cuts the calls that are left, waits for their settlements, and closes.
func (s *sharedStore) exit() error {
	s.calls.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), exitWait)
	defer cancel()
	if err := s.calls.Wait(ctx); err != nil {
		s.log.Error("calls are still unsettled at exit; their holds will expire", "calls", s.calls.Running())
	}
	return s.close()
}

func (s *sharedStore) close() error {
	s.mu.Lock()
	sweeper, retention := s.sweeper, s.retention
	s.mu.Unlock()
	if sweeper != nil {
		sweeper.Stop()
		retention.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), exitWait)
	defer cancel()
	if err := s.knowledge.Close(ctx); err != nil {
		s.log.Error("documents were still being ingested at exit; they count as interrupted", "error", err)
	}
	if err := s.db.Close(ctx); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// closeStore gives a reference of openStore back.
func closeStore(location store.Location) error {
	_, err := stores.Delete(location)
	return err //nolint:wrapcheck // Destruct says what was being done
}

// newestLog passes records on to the log of the newest configuration in use. What is shared by configurations outlives
// the one it began with, whose log Caddy closes when it is gone.
type newestLog struct{ atomic.Pointer[slog.Logger] }

var _ slog.Handler = (*newestLog)(nil)

func newNewestLog(log *slog.Logger) *newestLog {
	n := new(newestLog)
	n.Store(log)
	return n
}

// Enabled implements slog.Handler.
func (n *newestLog) Enabled(ctx context.Context, level slog.Level) bool {
	return n.Load().Handler().Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (n *newestLog) Handle(ctx context.Context, record slog.Record) error {
	return n.Load().Handler().Handle(ctx, record) //nolint:wrapcheck // it is handed through
}

// WithAttrs implements slog.Handler. What it returns stays with the log of now.
func (n *newestLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return n.Load().Handler().WithAttrs(attrs)
}

// WithGroup implements slog.Handler. What it returns stays with the log of now.
func (n *newestLog) WithGroup(name string) slog.Handler { return n.Load().Handler().WithGroup(name) }
