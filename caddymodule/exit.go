package caddymodule

import (
	"context"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
)

// ending is set by a main of ours that is about to end its process; Caddy's own flag belongs to its own main.
var ending atomic.Bool

// exiting reports whether the whole process is about to end, as opposed to a reload: Caddy tells by a flag only, since
// its "stopping" event also comes with every reload.
func exiting() bool { return ending.Load() || caddy.Exiting() }

// drained ends when the process exits and http has waited for running requests, those of earlier configurations
// included, as long as it may. It is the process's, as its exit is.
var drained, drain = context.WithCancel(context.Background())

// beginExit says that the process ends when its apps have stopped.
func beginExit() { ending.Store(true) }

// endExit is called when all apps have stopped, also when the last configuration had none of ours, and waits for stores
// that close in the background.
func endExit() {
	drain()
	retired.Wait()
}

// Caddy's main calls this when all apps have stopped.
func init() { caddy.OnExit(func(context.Context) { endExit() }) }
