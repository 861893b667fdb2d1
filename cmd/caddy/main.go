// Command caddy is the Caddy of the releases: Caddy's own modules and this plugin. A Caddy with further plugins is built with
// xcaddy.
package main

import (
	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // Caddy's own modules

	"github.com/caddy-svc/caddy-svc/caddymodule"
	_ "github.com/caddy-svc/caddy-svc/caddymodule/command" // the plugin with its commands
)

func main() {
	caddy.CustomVersion = "caddy-svc " + caddymodule.Version() + ", Caddy" // what `caddy version` prints before Caddy's own
	caddycmd.Main()
}
