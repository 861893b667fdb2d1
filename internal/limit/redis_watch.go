package limit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

const (
	// firstPause and longestPause bound the time between two looks for Redis' return; each pause has jitter, and doubles while
	// Redis stays down or fails again soon.
	firstPause   = 500 * time.Millisecond
	longestPause = 4 * time.Second
	// calm is how long Redis must have answered before the next pause is firstPause again.
	calm = time.Minute
	// connecting bounds a look: it may need a new connection, its handshake and, in a cluster, the map of the slots.
	connecting = time.Second
	// keyTelling is the shortest time between two log lines about keys that hold no window.
	keyTelling = time.Minute
)

var errLate = errors.New("limit: Redis answered too late")

// probeOrg is no organization's id: those look different.
const probeOrg = "probe"

// watch looks for Redis at the start, and for its return each time the breaker has opened.
func (r *Redis) watch() {
	if err := r.look(); err != nil && r.ctx.Err() == nil && r.breaker.trip() {
		r.giveUp(err)
	}
	var pause time.Duration
	var back time.Time
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.opened:
		}
		gone := time.Now()
		pause = min(2*pause, longestPause)
		if gone.Sub(back) > calm {
			pause = firstPause
		}
		for repeat.Pause(r.ctx, pause/2+repeat.Jitter(pause/2)) == nil {
			if r.look() == nil {
				back = time.Now()
				r.breaker.close()
				r.log.Info("Redis answers again: rate limits are counted there", "after", back.Sub(gone).Round(time.Millisecond))
				break
			}
			pause = min(2*pause, longestPause)
		}
	}
}

// giveUp is called when a failure opened the breaker.
func (r *Redis) giveUp(fault error) {
	r.log.Error("Redis doesn't answer: rate limits are counted in this process until it does", "error", fault, "nodes", r.nodes)
	select {
	case r.opened <- struct{}{}:
	default:
	}
}

// look takes a window as requests do, so that a Redis that answers but can't be written to doesn't pass: first with the time
// that a new connection takes, then as quickly as requests need it.
func (r *Redis) look() error {
	ctx, cancel := context.WithTimeout(r.ctx, connecting)
	defer cancel()
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		// Organizations are spread over all masters.
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return master.Ping(ctx).Err() })
		if err != nil {
			return fmt.Errorf("asking each master of the cluster: %w", err)
		}
	}
	if err := r.probe(ctx); err != nil {
		return err
	}
	quick, cancel := context.WithTimeout(ctx, r.patience/2)
	defer cancel()
	return r.probe(quick)
}

func (r *Redis) probe(ctx context.Context) error {
	c := &scriptCall{key: windowKey(probeOrg), limit: 1 << 50, asks: make([]*ask, 1)}
	r.exec(ctx, []*scriptCall{c})
	if err := c.cmd.Err(); err != nil {
		return fmt.Errorf("counting in Redis: %w", err)
	}
	return nil
}

// tellKey logs a key that holds no window, at most once a minute.
func (r *Redis) tellKey(key string, fault error) {
	now, told := r.clock().Unix(), r.keyTold.Load()
	if now-told < int64(keyTelling/time.Second) || !r.keyTold.CompareAndSwap(told, now) {
		return
	}
	r.log.Error("a key in Redis holds no rate-limit window; delete it", "key", key, "error", fault)
}
