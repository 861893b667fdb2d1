package caddymodule

import (
	"context"

	"github.com/caddyserver/caddy/v2"
)

// exiting reports whether the whole process is about to end, as opposed to a reload: Caddy tells by a flag only, since
// its "stopping" event also comes with every reload.
func exiting() bool { return caddy.Exiting() }

// drained ends when the process exits and http has waited for running requests, those of earlier configurations
// included, as long as it may. It is the process's, as its exit is.
var drained, drain = context.WithCancel(context.Background())

// Caddy calls this when all apps have stopped, also when the last configuration had none of ours.
func init() {
	caddy.OnExit(func(context.Context) {
		drain()
		retired.Wait()
	})
}
