package caddymodule

import (
	"context"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// windows has the limiters with state in this process, by the store whose organizations they count and, with Redis, by
// everything that decides where and how it counts. It is global because they outlive a reload.
var windows = caddy.NewUsagePool()

// memoryWindows is the limiter of a process whose store no other process serves.
type memoryWindows struct{ *limit.Memory }

// Destruct implements caddy.Destructor; memory needs no closing.
func (memoryWindows) Destruct() error { return nil }

// redisWindows is the limiter of several nodes, with its connections, its breaker and the local windows.
type redisWindows struct{ *limit.Redis }

func (w redisWindows) Destruct() error {
	return w.Close()
}

// redisKey is the key of a limiter in Redis: configurations with the same key share it.
type redisKey struct {
	location store.Location
	redis    redisDigest
}

// limiter returns the rate limiter: in Redis if it is configured, else in the store with PostgreSQL, which several nodes may
// share, and in memory with SQLite. A worker's process limits nothing and doesn't connect to Redis.
func (a *App) limiter(shared *sharedStore) (limit.Limiter, error) {
	location := a.settings.location
	switch {
	case a.settings.redis != nil && a.worker == nil:
		return a.redisLimiter(shared)
	case location.Engine == store.Postgres:
		return limit.NewStore(shared.db.Windows()), nil
	default:
		entry, err := joinWindows(a, location, func() memoryWindows { return memoryWindows{limit.NewMemory(time.Now)} })
		return entry.Memory, err
	}
}

// redisLimiter returns the limiter in Redis. It makes no connection, because a Redis that is down must not keep the server
// from starting.
func (a *App) redisLimiter(shared *sharedStore) (*limit.Redis, error) {
	configured := a.settings.redis
	key := redisKey{location: a.settings.location, redis: configured.digest}
	entry, err := joinWindows(a, key, func() redisWindows {
		return redisWindows{limit.NewRedis(limit.RedisOptions{
			Client: limit.NewRedisClient(configured.server), Nodes: configured.nodes,
			Observer: redisMetrics{}, Logger: shared.log,
		})}
	})
	return entry.Redis, err
}

// joinWindows returns the limiter of a key, and opens it if it isn't open. It is closed when the last app with it is
// cleaned up.
func joinWindows[W caddy.Destructor](a *App, key any, open func() W) (W, error) {
	value, _, err := windows.LoadOrNew(key, func() (caddy.Destructor, error) { return open(), nil })
	if err != nil {
		var none W
		return none, fmt.Errorf("opening the rate-limit windows: %w", err)
	}
	a.cleanup = append(a.cleanup, func() error {
		_, err := windows.Delete(key)
		return err
	})
	return value.(W), nil //nolint:forcetypeassert,errcheck // a key's type decides its limiter's
}

func init() { redis.SetLogger(redisLog{}) }

// redisLog writes the lines of the Redis client, which by default go to standard error, to Caddy's log. Their level is debug
// because they repeat for each connection what the limiter logs once.
type redisLog struct{}

// Printf implements the client's logger.
func (redisLog) Printf(_ context.Context, format string, v ...any) {
	if line := caddy.Log().Named(appName+".redis").Check(zap.DebugLevel, "from the Redis client"); line != nil {
		line.Write(zap.String("line", fmt.Sprintf(format, v...)))
	}
}
