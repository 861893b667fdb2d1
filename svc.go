// Package svc is the module's root. It exists for xcaddy, which needs a package here to build a Caddy with the plugin:
// importing it registers the app, the directives and the commands of package caddymodule, and nothing else.
package svc

import (
	// Registers everything with Caddy.
	_ "github.com/caddy-svc/caddy-svc/caddymodule"
)
