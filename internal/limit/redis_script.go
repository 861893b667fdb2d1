package limit

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// windowSource says itself what its KEYS, ARGV and return values are.
//
//go:embed redis_window.lua
var windowSource string

// windowDigest names the script where Redis has it already.
var windowDigest = redis.NewScript(windowSource).Hash()

var errReply = errors.New("limit: the window script answered out of form")

// windowKey is the key of an organization's window. What is in the braces alone decides its slot in a cluster.
func windowKey(orgID string) string { return "rl:{" + orgID + "}:window" }

// scriptCall is one call of the script: the requests of one organization under one limit that share a pipeline.
type scriptCall struct {
	key   string
	limit int64
	asks  []*ask
	cmd   *redis.Cmd
}

// queueByDigest adds the call to a pipeline, in the short form.
func (c *scriptCall) queueByDigest(ctx context.Context, pipe redis.Pipeliner, length time.Duration) {
	c.cmd = pipe.EvalSha(ctx, windowDigest, []string{c.key}, c.limit, len(c.asks), length.Milliseconds())
}

// queueBySource adds the call to a pipeline with the script itself, which Redis then keeps.
func (c *scriptCall) queueBySource(ctx context.Context, pipe redis.Pipeliner, length time.Duration) {
	c.cmd = pipe.Eval(ctx, windowSource, []string{c.key}, c.limit, len(c.asks), length.Milliseconds())
}

// knownScript is false if Redis has lost the script, as after a restart or SCRIPT FLUSH.
func (c *scriptCall) knownScript() bool { return !redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") }

// wrongKey reports whether the error is about one key, and not about Redis.
func wrongKey(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// decide gives the requests of the call their decisions, in the order they came in.
func (c *scriptCall) decide() error {
	reply, err := c.cmd.Int64Slice()
	if err != nil {
		return err //nolint:wrapcheck // the log line around it says what was being done
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
