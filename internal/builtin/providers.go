package builtin

import (
	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/echo"
	"github.com/caddy-svc/caddy-svc/providers/openai"
)

// Providers are the built-in vendors' protocols, in the order of messages.
func Providers() []providers.Driver { return []providers.Driver{openai.Driver{}, echo.Driver{}} }
