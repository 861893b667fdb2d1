// Package svc is the module's root. It exists for xcaddy, which needs a package here to build a Caddy with the plugin:
// importing it registers the app and the directives of package caddymodule and the commands of package command.
package svc

import (
	// These register themselves with Caddy.
	_ "github.com/caddy-svc/caddy-svc/caddymodule"
	_ "github.com/caddy-svc/caddy-svc/caddymodule/command"
)
