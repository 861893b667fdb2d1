package limit

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

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

// queueByDigest adds the call to a pipeline by the script's digest.
func (c *scriptCall) queueByDigest(ctx context.Context, pipe redis.Pipeliner, length time.Duration) {
	c.cmd = pipe.EvalSha(ctx, windowDigest, []string{c.key}, c.limit, len(c.asks), length.Milliseconds())
}

// queueBySource adds the call to a pipeline with the script's source, which Redis then keeps.
func (c *scriptCall) queueBySource(ctx context.Context, pipe redis.Pipeliner, length time.Duration) {
	c.cmd = pipe.Eval(ctx, windowSource, []string{c.key}, c.limit, len(c.asks), length.Milliseconds())
}

// knownScript returns false if Redis has lost the script, as after a restart or SCRIPT FLUSH.
func (c *scriptCall) knownScript() bool { return !redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") }

// wrongKey reports whether the error concerns one key, and not Redis.
func wrongKey(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

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
