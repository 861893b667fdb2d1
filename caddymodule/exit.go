package caddymodule

import (
	"context"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// exitPoll is how often a background wait looks whether the process exits: Caddy tells by a flag only, since its
// "stopping" event also comes with every reload.
const exitPoll = 100 * time.Millisecond

// exiting reports whether the whole process is about to end, as opposed to a reload.
func exiting() bool { return caddy.Exiting() }

// untilExit returns a context that ends when the process exits.
func untilExit() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(exitPoll)
		defer tick.Stop()
		for !exiting() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	})
	return ctx, func() {
		cancel()
		watch.Wait()
	}
}
