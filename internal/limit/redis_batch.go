package limit

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

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

// send sends a batch to Redis and answers its requests.
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
		case wrongKey(err):
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

// grouping makes one call of the script of all requests of an organization, in the order of their arrival. Requests whose wait
// has ended are left out: they were counted in this process, or their clients are gone.
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

// exec sends the calls in one pipeline, and those whose server lacked the script in a second one. Errors are in the calls.
func (r *Redis) exec(ctx context.Context, calls []*scriptCall) {
	r.pipeline(ctx, calls, (*scriptCall).queueByDigest)
	if unknown := slices.DeleteFunc(slices.Clone(calls), (*scriptCall).knownScript); len(unknown) > 0 {
		r.pipeline(ctx, unknown, (*scriptCall).queueBySource)
	}
}

func (r *Redis) pipeline(ctx context.Context, calls []*scriptCall, queue func(*scriptCall, context.Context, redis.Pipeliner, time.Duration)) {
	pipe := r.client.Pipeline()
	for _, c := range calls {
		queue(c, ctx, pipe, r.window)
	}
	_, err := pipe.Exec(ctx)
	for _, c := range calls {
		// When Redis refuses the handshake of a new connection, the client reports it by Exec only.
		if err != nil && c.cmd.Err() == nil && c.cmd.Val() == nil {
			c.cmd.SetErr(err)
		}
	}
}
