// Command caddy is the Caddy of the releases: Caddy's own modules and this plugin. A Caddy with further plugins is built with
// xcaddy.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // Caddy's own modules

	_ "github.com/caddy-svc/caddy-svc/caddymodule/command" // the plugin with its commands
)

func main() { caddycmd.Main() }
