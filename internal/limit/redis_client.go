package limit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/bits"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// RedisServer is one Redis server, or the sentinels that know its master, or a cluster.
type RedisServer struct {
	// Addresses are host:port, or the path of a unix socket: of one server, or of any of the sentinels, or of any of the
	// cluster's nodes.
	Addresses []string
	// Master is the server's name at the sentinels. If it is set, Addresses are addresses of sentinels.
	Master string
	// Cluster means that Addresses are addresses of a cluster.
	Cluster bool
	// Username is empty for Redis' default user.
	Username string
	// Password is empty for none.
	Password string
	// SentinelPassword is the password of the sentinels.
	SentinelPassword string
	// Database is the number of the database; a cluster has only 0.
	Database int
	// TLS may be nil, for plain connections.
	TLS *tls.Config
}

// ErrRedisURL reports a malformed address. Its text never contains a part of the address.
var ErrRedisURL = errors.New("no address of a Redis")

// RedisURLForms describes in messages what [ParseRedisURL] accepts.
const RedisURLForms = "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], the same with rediss:// for TLS, or unix://[USER:PASSWORD@]/PATH[?db=DATABASE]"

// ParseRedisURL parses the address of one server. The default port is 6379. Parameters other than db are refused: deadlines and
// pools are the limiter's own, and certificates are always verified. The error wraps [ErrRedisURL].
func ParseRedisURL(text string) (RedisServer, error) {
	u, err := url.Parse(text)
	if err != nil {
		return RedisServer{}, redisURLError("it can't be read; a reserved character in the password must be percent-encoded")
	}
	switch u.Scheme {
	case "redis", "rediss":
		if u.Hostname() == "" {
			return RedisServer{}, redisURLError("the host is missing")
		}
	case "unix":
		if u.Host != "" || u.Path == "" {
			return RedisServer{}, redisURLError("the path of a unix socket must be absolute, with three slashes before it")
		}
	default:
		return RedisServer{}, redisURLError("the scheme is unknown")
	}
	for name := range u.Query() {
		if name != "db" {
			return RedisServer{}, redisURLError("it takes no parameter but db")
		}
	}
	read, err := redis.ParseURL(text)
	switch {
	case err != nil: // its text may contain a part of the address
		return RedisServer{}, redisURLError("the database must be a number")
	case read.DB < 0:
		return RedisServer{}, redisURLError("the database must not be negative")
	}
	return RedisServer{
		Addresses: []string{read.Addr}, Username: read.Username, Password: read.Password, Database: read.DB, TLS: read.TLSConfig,
	}, nil
}

func redisURLError(what string) error {
	return fmt.Errorf("%w: %s; allowed: %s", ErrRedisURL, what, RedisURLForms)
}

const (
	// transfer bounds a write and a read on a connection; a pipeline's own deadline is earlier.
	transfer = time.Second
	// retryPause and longestRetryPause are the bounds of the jittered pause before the only retry.
	retryPause        = 4 * time.Millisecond
	longestRetryPause = 16 * time.Millisecond
	// connections is how many each server gets: one for each running pipeline, one for looks, and one to spare while a broken
	// one is replaced.
	connections = flushers + 2
	// idleConnection is how long an unused connection is kept: shorter than firewalls usually remember one.
	idleConnection = 4 * time.Minute
)

// NewRedisClient returns a client for [NewRedis] that connects on first use. Every call ends with its context's deadline and is tried once
// more after a failure. Besides calls the client sends only the handshake: no library names, no maintenance notifications.
func NewRedisClient(s RedisServer) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: s.Addresses, MasterName: s.Master, IsClusterMode: s.Cluster, DB: s.Database,
		Username: s.Username, Password: s.Password, SentinelPassword: s.SentinelPassword, TLSConfig: s.TLS,

		Protocol:                 2, // the newer one would only add pushes
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},

		ContextTimeoutEnabled: true,
		DialTimeout:           connecting,
		DialerRetries:         1,
		ReadTimeout:           transfer,
		WriteTimeout:          transfer,
		MaxRetries:            1,
		MinRetryBackoff:       retryPause,
		MaxRetryBackoff:       longestRetryPause,

		PoolSize:         connections,
		PipelinePoolSize: -1, // only pipelines are used
		PoolTimeout:      connecting,
		ConnMaxIdleTime:  idleConnection,
	})
}

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

// look counts in a window as requests do, so that a Redis which is read-only doesn't pass: first with the time for a new connection, and
// again as quickly as requests need it.
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
	return store.Wrap("counting in Redis", c.cmd.Err())
}

// tellKey logs a key that holds no window, no more than once a minute.
func (r *Redis) tellKey(key string, fault error) {
	now, told := r.clock().Unix(), r.keyTold.Load()
	if now-told < int64(keyTelling/time.Second) || !r.keyTold.CompareAndSwap(told, now) {
		return
	}
	r.log.Error("a key in Redis holds no rate-limit window; delete it", "key", key, "error", fault)
}

const (
	// The breaker judges by the last remembered pipelines, of which tooMany may not fail. It judges by a ratio so that a
	// single slow pipeline, which a fork or a full log of Redis causes, doesn't open it. Under load ten pipelines pass
	// quickly, and without load few requests wait.
	remembered = 10
	tooMany    = remembered / 2
	// onTrial is the history of a breaker that has just closed: one more failure opens it again.
	onTrial = 1<<(tooMany-1) - 1
)

// breaker keeps requests away from a failing Redis. It opens when half of the last pipelines failed, and closes when a look succeeds. The
// zero value is closed. It is safe for concurrent use.
type breaker struct {
	open atomic.Bool
	mu   sync.Mutex
	// outcomes has one bit for each of the last pipelines, the latest lowest: 1 if it failed.
	outcomes uint16
}

// report records the outcome of a pipeline and reports whether that opened the breaker.
func (b *breaker) report(failed bool) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() {
		return false // of a pipeline that began before
	}
	b.outcomes = b.outcomes << 1 & (1<<remembered - 1)
	if failed {
		b.outcomes |= 1
	}
	if bits.OnesCount16(b.outcomes) < tooMany {
		return false
	}
	b.open.Store(true)
	return true
}

// trip opens the breaker, and reports whether it was closed.
func (b *breaker) trip() (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open.Swap(true)
}

// close lets requests through again, on trial.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes = onTrial
	b.open.Store(false)
}
