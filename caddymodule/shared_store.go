package caddymodule

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const (
	// quietTime is how long no request must have come before the store of an old configuration is closed: a connection
	// that the old servers accepted may still bring one.
	quietTime = 5 * time.Second
	// exitWait bounds the wait of an exiting process for calls that were cut, and then for the last writes.
	exitWait = 5 * time.Second
)

var (
	// stores has the open stores by location. It is global because a store outlives a reload.
	stores = caddy.NewUsagePool()
	// retired counts stores that have lost their last configuration but still have calls.
	retired sync.WaitGroup
)

// StoreKinds are the kinds of durable operations. Every process locks their rows in this order: a turn's step that is written with a hold or a
// settlement also locks its conversation before the wallet.
func StoreKinds() []store.Kind { return []store.Kind{inbox.Kind, billing.Ledger} }

// sharedStore is an open database with everything of which a process has one per database: its writer, the count of its
// calls, the documents that are being ingested, the sweepers. All configurations on the database share it.
type sharedStore struct {
	db    *store.DB
	book  *billing.Book
	calls *gateway.InFlight
	// doctor runs until the store is closed.
	doctor *conditions.Doctor
	// knowledge is interrupted when the store is closed.
	knowledge *knowledge.Library
	// streams and bodies bound all requests together, whichever configuration they began under.
	streams v1.Streams
	bodies  *handlers.ByteBudget
	// windows count the requests to the organization API.
	windows *limit.Memory
	// processors are the half of the processors that hashes of passwords and counts of tokens may use. Each occupies a
	// processor for tens of milliseconds, and Go interrupts it only every 10 ms. The other half is left to all other
	// work.
	processors *semaphore.Weighted
	// ring has the keys of the newest configuration. Requests of an earlier configuration also use it, so that they can open
	// values that are sealed with a new key.
	ring   *vault.Ring
	newest *newestLog
	log    *slog.Logger // writes to newest

	mu       sync.Mutex
	migrated bool
	// configurations are the configurations in use, newest last.
	configurations []*App
	sweeper        *repeat.Task
	sweeping       time.Duration
	// retention and callRetention delete old conversations and old free calls, usage sums up calls, and closing closes months.
	retention, callRetention, usage, closing *repeat.Task
	tranches                                 *billing.Tranches
	// process describes this process in the store; announcing writes it at intervals.
	process       store.Process
	announcing    *repeat.Task
	announcements sync.Mutex
}

// openStore returns the shared store of a location and opens it if it isn't open. [closeStore] must be called once for
// each call.
func openStore(ctx context.Context, location store.Location, log *slog.Logger) (*sharedStore, error) {
	value, _, err := stores.LoadOrNew(location, func() (caddy.Destructor, error) {
		newest := new(newestLog)
		newest.Store(log)
		log := slog.New(newest)
		db, err := store.Open(ctx, location, store.Options{Kinds: StoreKinds(), Logger: log, Observer: writerMetrics{}})
		if err != nil {
			return nil, err
		}
		book := billing.NewBook(db)
		return &sharedStore{
			db: db, book: book, doctor: conditions.NewDoctor(db, log), tranches: book.StartTranches(log), calls: gateway.NewInFlight(),
			knowledge: knowledge.New(db, log), bodies: handlers.NewByteBudget(defaultBufferedBytes), newest: newest, log: log,
			windows:    limit.NewMemory(time.Now),
			processors: semaphore.NewWeighted(int64(max(1, goruntime.GOMAXPROCS(0)/2))),
			ring:       new(vault.Ring), process: store.Process{ID: rand.Text()},
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

// use applies the settings of a configuration until release is called. Of several configurations in use the newest one's
// apply, so that a reload which fails restores those before it.
func (s *sharedStore) use(ctx context.Context, a *App) (release func()) {
	s.change(func(all []*App) []*App { return append(all, a) })
	s.announceOnce(ctx)
	s.mu.Lock()
	if s.announcing == nil {
		s.announcing = repeat.Start(store.ProcessInterval, s.announceOnce)
	}
	s.mu.Unlock()
	return func() {
		if s.change(func(all []*App) []*App {
			return slices.DeleteFunc(all, func(other *App) bool { return other == a })
		}) {
			ctx, cancel := context.WithTimeout(context.Background(), exitWait)
			defer cancel()
			s.announceOnce(ctx)
		}
	}
}

// change changes which configurations are in use. It applies the newest and reports whether any are left.
func (s *sharedStore) change(with func([]*App) []*App) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configurations = with(s.configurations)
	if len(s.configurations) == 0 {
		return false
	}
	s.apply(s.configurations[len(s.configurations)-1])
	return true
}

// apply applies the settings of a. Sweepers that run go on until the store is closed, because its calls may outlive their
// configuration.
func (s *sharedStore) apply(a *App) {
	s.newest.Store(a.log)
	s.tranches.Allow(a.Tranches != tranchesOff)
	s.book.KeepAtMost(*a.Limits.KeptAnswers)
	s.ring.Replace(a.settings.ring)
	s.process.Name, s.process.KeyIDs = a.processName(), a.settings.ring.KeyIDs()
	s.bodies.SetLimit(*a.Limits.BufferedBytes, a.Limits.bodyPace())
	if !a.attached.Load() || a.SweepInterval() == s.sweeping {
		return
	}
	s.sweeper.Stop()
	if s.retention == nil {
		s.retention, s.callRetention = inbox.StartRetention(s.db, s.log), billing.StartRetention(s.db, s.log)
		s.usage, s.closing = billing.StartUsageSums(s.db, s.log), billing.StartClosing(s.db, s.log)
	}
	s.sweeper, s.sweeping = s.book.StartSweeper(a.SweepInterval(), s.log), a.SweepInterval()
}

// role is "worker" in a worker's process, and "server" in others.
func (a *App) role() string {
	if a.worker != nil {
		return "worker"
	}
	return "server"
}

// processName returns how an operator finds this process.
func (a *App) processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return fmt.Sprintf("%s, process %d on %s", a.role(), os.Getpid(), host)
}

// announceOnce records in the store that this process lives and which keys it has. `caddy svc rekey` requires the record.
func (s *sharedStore) announceOnce(ctx context.Context) {
	s.announcements.Lock() // so that the keys that are announced last are the newest
	defer s.announcements.Unlock()
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	if err := s.db.Processes.Announce(ctx, process); err != nil && ctx.Err() == nil {
		s.log.Warn("the store was not told which master keys this process has", "error", err)
	}
}

// Destruct runs when the last configuration on the store is gone. After a reload the calls that began under it go on, and
// the store is closed in the background when they have ended. On exit Caddy has already waited for them as long as
// grace_period allows: calls that still run are cut and get [exitWait] to settle.
func (s *sharedStore) Destruct() error {
	if !exiting() {
		retired.Go(func() {
			if err := s.retire(); err != nil {
				s.log.Error("closing a store that is no longer configured", "error", err)
			}
		})
		return nil
	}
	drain() // retired stores get no more time than this one
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
	tasks := []*repeat.Task{s.sweeper, s.retention, s.callRetention, s.usage, s.closing, s.announcing}
	s.mu.Unlock()
	for _, task := range tasks {
		task.Stop()
	}
	s.doctor.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), exitWait)
	defer cancel()
	if err := s.tranches.Stop(ctx); err != nil {
		s.log.Error("tranches of wallets were not given back; their leases will end", "error", err)
	}
	if err := s.knowledge.Close(ctx); err != nil {
		s.log.Error("documents were still being ingested at exit; they count as interrupted", "error", err)
	}
	if err := s.db.Processes.End(ctx, s.process.ID); err != nil {
		s.log.Warn("the store was not told that this process has ended; it is forgotten after a minute", "error", err)
	}
	if err := s.db.Close(ctx); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// closeStore releases a store that openStore returned.
func closeStore(location store.Location) error {
	_, err := stores.Delete(location)
	return err
}

// newestLog passes records to the log of the newest configuration in use. A shared store outlives the configuration that
// opened it, and Caddy closes the log of a configuration that is gone.
type newestLog struct{ atomic.Pointer[slog.Logger] }

func (n *newestLog) Enabled(ctx context.Context, level slog.Level) bool {
	return n.Load().Handler().Enabled(ctx, level)
}

func (n *newestLog) Handle(ctx context.Context, record slog.Record) error {
	return n.Load().Handler().Handle(ctx, record)
}

// WithAttrs implements slog.Handler. The handler it returns keeps the current log.
func (n *newestLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return n.Load().Handler().WithAttrs(attrs)
}

func (n *newestLog) WithGroup(name string) slog.Handler { return n.Load().Handler().WithGroup(name) }

// windows has the limiters with state in this process. The key is the store of the counted organizations or, with
// Redis, a [redisKey]. It is global because the limiters outlive a reload.
var windows = caddy.NewUsagePool()

// sharedWindows is a limiter with the function that closes it.
type sharedWindows struct {
	limit.Limiter

	end func() error
}

// Destruct implements caddy.Destructor.
func (w sharedWindows) Destruct() error { return w.end() }

// redisKey is the key of a limiter in Redis: configurations with the same key share it.
type redisKey struct {
	location store.Location
	redis    redisDigest
}

// limiter returns the rate limiter: in Redis if it is configured, else in the store with PostgreSQL, which several nodes may
// share, and in memory with SQLite. A worker's process limits nothing and doesn't connect to Redis.
func (a *App) limiter(shared *sharedStore) (limit.Limiter, error) {
	location := a.settings.location
	configured := a.settings.redis
	switch {
	case configured != nil && a.worker == nil:
		return a.joinWindows(redisKey{location, configured.digest}, func() sharedWindows {
			// It makes no connection, because a Redis that is down must not keep the server from starting.
			windows := limit.NewRedis(limit.RedisOptions{
				Client: limit.NewRedisClient(configured.server), Nodes: configured.nodes, Observer: redisMetrics{}, Logger: shared.log,
			})
			return sharedWindows{windows, windows.Close}
		})
	case location.Engine == store.Postgres:
		return limit.NewStore(shared.db.Windows()), nil
	default:
		return a.joinWindows(location, func() sharedWindows {
			return sharedWindows{limit.NewMemory(time.Now), func() error { return nil }}
		})
	}
}

// joinWindows returns the limiter of a key, and opens it if it isn't open. It is closed when the last app with it is
// cleaned up.
func (a *App) joinWindows(key any, open func() sharedWindows) (limit.Limiter, error) {
	value, _, err := windows.LoadOrNew(key, func() (caddy.Destructor, error) { return open(), nil })
	if err != nil {
		return nil, fmt.Errorf("opening the rate-limit windows: %w", err)
	}
	a.cleanup = append(a.cleanup, func() error {
		_, err := windows.Delete(key)
		return err
	})
	return value.(sharedWindows).Limiter, nil //nolint:forcetypeassert,errcheck // the pool holds nothing else
}

func init() { redis.SetLogger(redisLog{}) }

// redisLog writes the lines of the Redis client, which by default go to standard error, to Caddy's log. Their level is debug
// because they repeat the limiter's own log line for each connection.
type redisLog struct{}

// Printf implements the client's logger.
func (redisLog) Printf(_ context.Context, format string, v ...any) {
	if line := caddy.Log().Named(appName+".redis").Check(zap.DebugLevel, "from the Redis client"); line != nil {
		line.Write(zap.String("line", fmt.Sprintf(format, v...)))
	}
}
