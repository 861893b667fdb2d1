package limit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is the most that a request may wait for Redis (reliability notes §3.2 item 6).
const patience = 100 * time.Millisecond

// LocalReason says why a request was counted in a local window.
type LocalReason string

const (
	// LocalOpen says that Redis failed before, and the breaker keeps requests from it.
	LocalOpen LocalReason = "open"
	// LocalLate says that there was no answer within 100 ms.
	LocalLate LocalReason = "late"
	// LocalFailed says that Redis, or the way to it, reported a fault.
	LocalFailed LocalReason = "failed"
	// LocalBusy says that more requests wait than the queue holds.
	LocalBusy LocalReason = "busy"
	// LocalKey says that the organization's key in Redis holds something that isn't a window.
	LocalKey LocalReason = "key"
)

// RedisObserver counts what [Redis] does. Its methods are called on the way of requests.
type RedisObserver interface {
	// Pipelined is called for each pipeline, with how many requests shared it, how long it took, and whether it failed.
	Pipelined(requests int, took time.Duration, failed bool)
	// Local is called for each request that was counted in a local window.
	Local(LocalReason)
}

// RedisOptions are what [NewRedis] needs.
type RedisOptions struct {
	// Client is taken over: [Redis.Close] closes it. [NewRedisClient] makes one with deadlines that fit.
	Client redis.UniversalClient
	// Nodes is how many processes share the limit while Redis is gone: each admits limit ÷ Nodes, at least 1. 0 is 1.
	Nodes int64
	// Observer may be nil.
	Observer RedisObserver
	// Logger gets a line when Redis is given up and one when it is back; nil for none.
	Logger *slog.Logger
}

// Redis counts in the windows of Redis' own clock, for any number of processes. Requests that come at the same time share
// pipelines; one that is refused costs nothing until the window ends, for this process remembers the refusal.
//
// Redis is never waited for longer than 100 ms. A request without an answer is counted in this process instead, at its
// share of the limit; when half of the last ten pipelines failed, all are, until Redis answers again. It is safe for
// concurrent use and outlives the configurations that use it.
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
	// opened wakes the one who looks for Redis' return.
	opened chan struct{}
	// keyTold is when a key that holds no window was last logged, in unix seconds.
	keyTold atomic.Int64

	//nolint:containedctx // the limiter's own lifetime
	ctx    context.Context
	cancel context.CancelFunc
	owned  sync.WaitGroup
	once   sync.Once
}

// NewRedis returns a counter in the Redis behind o.Client, and looks in the background whether it answers. A Redis that
// doesn't is no fault: requests are then counted in this process until it does. Close must be called.
func NewRedis(o RedisOptions) *Redis {
	return newRedis(o, tempo{patience: patience, window: window, clock: time.Now})
}

// tempo is what only tests change.
type tempo struct {
	// patience is the most that a request waits.
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
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	for range flushers {
		r.owned.Go(r.flush)
	}
	r.owned.Go(r.watch)
	return r
}

// Take asks to admit one request of the organization; a limit of 0 or less is none. The window is that of Redis' clock,
// or a local one with this process's share of the limit. An error is only ever the end of ctx; then the request may have
// been counted.
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

// await waits for the answer to a, at most for r.patience. Without one it says why.
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
	// Redis may have counted the request already, or do so yet: too much is the safe side.
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

// Close ends the limiter's goroutines and closes the client. Requests that still come are counted in this process. It may
// be called again.
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

// unobserved is the observer of those who gave none.
type unobserved struct{}

func (unobserved) Pipelined(int, time.Duration, bool) {}
func (unobserved) Local(LocalReason)                  {}
