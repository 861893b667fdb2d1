// Package builtin lists the adapters that are part of every build. Guests are added by Caddy modules instead.
package builtin

import (
	"github.com/caddy-svc/caddy-svc/payments"
	"github.com/caddy-svc/caddy-svc/payments/payos"
	"github.com/caddy-svc/caddy-svc/payments/sepay"
	"github.com/caddy-svc/caddy-svc/payments/stripe"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/anthropic"
	"github.com/caddy-svc/caddy-svc/providers/echo"
	"github.com/caddy-svc/caddy-svc/providers/gemini"
	"github.com/caddy-svc/caddy-svc/providers/openai"
)

// Platforms are the built-in messaging platforms, in the order of lists and forms.
func Platforms() []platforms.Driver {
	return []platforms.Driver{bot.Driver{}, social.Driver{}, localchat.Driver{}, marketa.Driver{}, marketb.Driver{}}
}

// Providers are the built-in vendors' protocols, in the order of messages.
func Providers() []providers.Driver {
	return []providers.Driver{openai.Driver{}, anthropic.Driver{}, gemini.Driver{}, echo.Driver{}}
}

// Payments are the built-in providers of payments, in the order of messages.
func Payments() []payments.Driver {
	return []payments.Driver{sepay.Driver{}, payos.Driver{}, stripe.Driver{}}
}
