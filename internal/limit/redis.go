package limit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is the longest that a request waits for Redis.
const patience = 100 * time.Millisecond

// LocalReason is the reason why a request was counted in a local window.
type LocalReason string

const (
	// LocalOpen means that Redis failed before, and the breaker is open.
	LocalOpen LocalReason = "open"
	// LocalLate means that Redis didn't answer within 100 ms.
	LocalLate LocalReason = "late"
	// LocalFailed means that Redis, or the connection to it, reported a fault.
	LocalFailed LocalReason = "failed"
	// LocalBusy means that the queue of waiting requests is full.
	LocalBusy LocalReason = "busy"
	// LocalKey means that the organization's key in Redis holds something that isn't a window.
	LocalKey LocalReason = "key"
)

// RedisObserver counts what [Redis] does. Its methods are called while requests wait.
type RedisObserver interface {
	// Pipelined is called for each pipeline, with the number of its requests, its duration, and whether it failed.
	Pipelined(requests int, took time.Duration, failed bool)
	// Local is called for each request that was counted in a local window.
	Local(LocalReason)
}

// RedisOptions are the arguments of [NewRedis].
type RedisOptions struct {
	// Client belongs to the limiter: [Redis.Close] closes it. [NewRedisClient] makes one with fitting deadlines.
	Client redis.UniversalClient
	// Nodes is how many processes share the limit while Redis is down: each admits limit ÷ Nodes, at least 1. 0 is 1.
	Nodes int64
	// Observer may be nil.
	Observer RedisObserver
	// Logger gets a line when the limiter gives Redis up and one when Redis is back; nil for none.
	Logger *slog.Logger
}

// Redis counts in windows of Redis' own clock, for any number of processes. Requests that arrive together share pipelines; a
// refused one costs nothing until the window ends, because this process remembers the refusal.
//
// A request waits for Redis for at most 100 ms. Without an answer it is counted in this process, against its share of the
// limit; when half of the last ten pipelines failed, all requests are, until Redis answers again. It is safe for concurrent use
// and outlives the configurations that use it.
type Redis struct {
	client   redis.UniversalClient
	nodes    int64
	observer RedisObserver
	log      *slog.Logger
	tempo

	local   *Memory
	refused *refusals
	breaker breaker
	asks    chan *ask
	// opened wakes the goroutine that waits for Redis' return.
	opened chan struct{}
	// keyTold is when a key that holds no window was last logged, in Unix seconds.
	keyTold atomic.Int64

	//nolint:containedctx // the limiter's own lifetime
	ctx    context.Context
	cancel context.CancelFunc
	owned  sync.WaitGroup
	once   sync.Once
}

// NewRedis returns a counter in the Redis behind o.Client, and connects in the background. While Redis doesn't answer, requests
// are counted in this process. Close must be called.
func NewRedis(o RedisOptions) *Redis {
	return newRedis(o, tempo{patience: patience, window: window, clock: time.Now})
}

// tempo has the values that tests change.
type tempo struct {
	// patience is the longest that a request waits.
	patience time.Duration
	// window is the length of the windows in Redis.
	window time.Duration
	// clock is this process's.
	clock func() time.Time
}

func newRedis(o RedisOptions, t tempo) *Redis {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Redis{
		client: o.Client, nodes: max(1, o.Nodes), observer: o.Observer, log: o.Logger,
		tempo: t, local: NewMemory(t.clock), refused: newRefusals(),
		asks: make(chan *ask, queued), opened: make(chan struct{}, 1),
		ctx: ctx, cancel: cancel,
	}
	if r.observer == nil {
		r.observer = unobserved{}
	}
	r.log = cmp.Or(r.log, slog.New(slog.DiscardHandler))
	for range flushers {
		r.owned.Go(r.flush)
	}
	r.owned.Go(r.watch)
	return r
}

// Take implements [Limiter]. The window is that of Redis' clock, or a local one with this process's share of the limit. The
// only error is the end of ctx, after which the request may have been counted.
func (r *Redis) Take(ctx context.Context, orgID string, limit int64) (Decision, error) {
	if limit <= 0 {
		return unlimited(), nil
	}
	asked := r.clock()
	if d, ok := r.refused.remembered(orgID, limit, asked); ok {
		return d, nil
	}
	if r.breaker.open.Load() {
		return r.takeLocal(orgID, limit, LocalOpen), nil
	}
	a := &ask{orgID: orgID, limit: limit, done: make(chan struct{})}
	select {
	case r.asks <- a:
	default:
		return r.takeLocal(orgID, limit, LocalBusy), nil
	}
	d, failed, err := r.await(ctx, a)
	switch {
	case err != nil:
		return Decision{}, err
	case failed != "":
		return r.takeLocal(orgID, limit, failed), nil
	}
	r.refused.remember(orgID, d, asked)
	return d, nil
}

// await waits for the answer to a, for r.patience at most. Without one it returns the reason.
func (r *Redis) await(ctx context.Context, a *ask) (Decision, LocalReason, error) {
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	select {
	case <-a.done:
		return a.decision, a.failed, nil
	case <-timer.C:
		a.waiting.Store(endedLate)
	case <-r.ctx.Done():
		a.waiting.Store(left)
	case <-ctx.Done():
		a.waiting.Store(left)
		return Decision{}, "", fmt.Errorf("counting a request: %w", context.Cause(ctx))
	}
	// Redis may have counted the request, or do so yet: counting it twice is the safe side.
	return Decision{}, LocalLate, nil
}

// takeLocal counts in this process.
func (r *Redis) takeLocal(orgID string, limit int64, reason LocalReason) Decision {
	r.observer.Local(reason)
	d, _ := r.local.Take(r.ctx, orgID, max(1, limit/r.nodes)) // never fails
	return d
}

// Answers reports whether requests are counted in Redis.
func (r *Redis) Answers() bool { return !r.breaker.open.Load() }

// Close ends the limiter's goroutines and closes the client. Later requests are counted in this process. It may be called
// again.
func (r *Redis) Close() error {
	var err error
	r.once.Do(func() {
		r.breaker.trip()
		r.cancel()
		r.owned.Wait()
		err = r.client.Close()
	})
	if err != nil {
		return fmt.Errorf("closing the connections to Redis: %w", err)
	}
	return nil
}

// unobserved is the observer when none was given.
type unobserved struct{}

func (unobserved) Pipelined(int, time.Duration, bool) {}
func (unobserved) Local(LocalReason)                  {}
