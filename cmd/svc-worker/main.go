// Command svc-worker is the companion worker as a binary of its own: `caddy svc-worker` and nothing else.
package main

import (
	"os"

	// So that the server's Caddyfile can be read: Caddy's own directives.
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/caddy-svc/caddy-svc/caddymodule/command"
)

func main() { os.Exit(command.WorkerMain()) }
