package limit

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-svc/caddy-svc/internal/store"
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
	// Nodes is the number of processes that share the limit while Redis is down: each admits limit ÷ Nodes, but 1 or more. 0 means 1.
	Nodes int64
	// Observer may be nil.
	Observer RedisObserver
	// Logger gets a line when the limiter gives Redis up and one when Redis is back. It may be nil.
	Logger *slog.Logger
}

// Redis counts in windows of Redis' own clock, for any number of processes. Requests that arrive together share pipelines; a
// refused one costs nothing until the window ends, because this process remembers the refusal.
//
// A request waits for Redis for up to 100 ms. Without an answer it is counted in this process, against its share of the
// limit; when half of the last ten pipelines failed, all requests are, until Redis is back. It is safe for concurrent use
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
	r.observer = cmp.Or[RedisObserver](r.observer, unobserved{})
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

// await waits for the result of a, for up to r.patience. Without one it returns the reason.
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
	return store.Wrap("closing the connections to Redis", err)
}

// unobserved is the observer when none was given.
type unobserved struct{}

func (unobserved) Pipelined(int, time.Duration, bool) {}
func (unobserved) Local(LocalReason)                  {}

// windowSource documents its KEYS, ARGV and return values itself.
//
//go:embed redis_window.lua
var windowSource string

// windowDigest identifies the script in a Redis that has it.
var windowDigest = redis.NewScript(windowSource).Hash()

var errReply = errors.New("limit: the window script answered out of form")

// windowKey returns the key of an organization's window. The part in braces decides its slot in a cluster.
func windowKey(orgID string) string { return "rl:{" + orgID + "}:window" }

// scriptCall is one call of the script: the requests of one organization under one limit in a pipeline. A burst mostly belongs to one
// organization, and running the script is most of Redis' work.
type scriptCall struct {
	key   string
	limit int64
	asks  []*ask
	cmd   *redis.Cmd
}

// decide gives the requests of the call their decisions, in the order of their arrival.
func (c *scriptCall) decide() error {
	reply, err := c.cmd.Int64Slice()
	if err != nil {
		return err
	}
	if len(reply) != 2 || reply[0] < 0 {
		return fmt.Errorf("%w: %v", errReply, reply)
	}
	admitted, resetIn := reply[0], time.Duration(reply[1])*time.Millisecond
	for _, a := range c.asks {
		a.decision = decide(admitted, c.limit, resetIn)
		if a.decision.Allowed {
			admitted++
		}
	}
	return nil
}

const (
	// flushers is how many pipelines run at a time: two were fastest in measurements.
	flushers = 2
	// pipelined bounds the requests of a pipeline, so that one answer stays small.
	pipelined = 256
	// queued bounds the waiting requests: Redis couldn't answer more within their patience.
	queued = 4096
)

// ask is one request on its way through a pipeline.
type ask struct {
	orgID string
	limit int64
	// waiting is one of the states below.
	waiting atomic.Int32
	// done is closed when the answer is there: decision, or the reason why there is none.
	done     chan struct{}
	decision Decision
	failed   LocalReason
}

// The states of an ask. Only endedLate is evidence against Redis: a client may leave at any time.
const (
	waits     int32 = iota // the zero value
	left                   // the client left, or the limiter was closed
	endedLate              // our own timer ended the wait
)

// flush sends pipelines until the limiter is closed: the first waiting request begins one, and all that have arrived by then
// share it (natural batching, no timer).
func (r *Redis) flush() {
	batch := make([]*ask, 0, pipelined)
	for {
		select {
		case <-r.ctx.Done():
			return
		case first := <-r.asks:
			batch = r.gather(append(batch[:0], first))
			r.send(batch)
			clear(batch)
		}
	}
}

// gather adds the waiting requests to a batch.
func (r *Redis) gather(batch []*ask) []*ask {
	for len(batch) < pipelined {
		select {
		case a := <-r.asks:
			batch = append(batch, a)
		default:
			return batch
		}
	}
	return batch
}

// send sends a batch to Redis and completes its requests.
func (r *Redis) send(batch []*ask) {
	calls := grouping(batch)
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.patience)
	defer cancel()
	began := time.Now()
	r.exec(ctx, calls)
	var fault error
	late := false
	for _, c := range calls {
		reason := LocalReason("")
		switch err := c.decide(); {
		case err == nil:
		case redis.HasErrorPrefix(err, "WRONGTYPE"): // it concerns one key, and not Redis
			reason = LocalKey
			r.tellKey(c.key, err)
		default:
			reason, fault = LocalFailed, err
		}
		for _, a := range c.asks {
			late = late || a.waiting.Load() == endedLate
			a.failed = reason
			close(a.done)
		}
	}
	if r.ctx.Err() != nil {
		return // closing is no fault of Redis
	}
	if fault == nil && late {
		fault = errLate
	}
	r.observer.Pipelined(len(batch), time.Since(began), fault != nil)
	if r.breaker.report(fault != nil) {
		r.giveUp(fault)
	}
}

// grouping makes one call of the script of all requests of an organization under one limit, in the order of their arrival. It
// skips requests that no longer wait, because they were counted in this process or their clients are gone.
func grouping(batch []*ask) []*scriptCall {
	type window struct {
		orgID string
		limit int64
	}
	calls := make([]*scriptCall, 0, len(batch))
	found := make(map[window]*scriptCall, len(batch))
	for _, a := range batch {
		if a.waiting.Load() != waits {
			continue
		}
		w := window{a.orgID, a.limit}
		c := found[w]
		if c == nil {
			c = &scriptCall{key: windowKey(a.orgID), limit: a.limit}
			found[w] = c
			calls = append(calls, c)
		}
		c.asks = append(c.asks, a)
	}
	return calls
}

// exec sends the calls in one pipeline, and repeats calls in a second pipeline if their server lacked the script. Errors
// are in the calls.
func (r *Redis) exec(ctx context.Context, calls []*scriptCall) {
	r.pipeline(ctx, calls, redis.Pipeliner.EvalSha, windowDigest)
	// Redis has lost the script after a restart or SCRIPT FLUSH.
	known := func(c *scriptCall) bool { return !redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") }
	if unknown := slices.DeleteFunc(slices.Clone(calls), known); len(unknown) > 0 {
		r.pipeline(ctx, unknown, redis.Pipeliner.Eval, windowSource) // which Redis then keeps
	}
}

func (r *Redis) pipeline(
	ctx context.Context, calls []*scriptCall, run func(redis.Pipeliner, context.Context, string, []string, ...any) *redis.Cmd, script string,
) {
	pipe := r.client.Pipeline()
	for _, c := range calls {
		c.cmd = run(pipe, ctx, script, []string{c.key}, c.limit, len(c.asks), r.window.Milliseconds())
	}
	_, err := pipe.Exec(ctx)
	for _, c := range calls {
		// When Redis refuses the handshake of a new connection, the client reports it by Exec only.
		if err != nil && c.cmd.Err() == nil && c.cmd.Val() == nil {
			c.cmd.SetErr(err)
		}
	}
}
