package caddymodule

import (
	"context"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

func init() { redis.SetLogger(redisLog{}) }

// redisLog takes the lines of the Redis client, which would else go to standard error in a form of their own, into Caddy's
// log. They repeat for each connection what the limiter says once, so they show only when somebody looks for them.
type redisLog struct{}

// Printf implements the client's logger.
func (redisLog) Printf(_ context.Context, format string, v ...any) {
	if line := caddy.Log().Named(appName+".redis").Check(zap.DebugLevel, "from the Redis client"); line != nil {
		line.Write(zap.String("line", fmt.Sprintf(format, v...)))
	}
}
