// Command stock is Caddy with its own modules and nothing of ours, the base of the bench's ratios.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // Caddy's own modules
)

func main() { caddycmd.Main() }
