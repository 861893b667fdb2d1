// Package guest makes a messaging platform, a vendor of models and a provider of payments available to a custom Caddy:
//
//	xcaddy build --with github.com/caddy-svc/caddy-svc --with example.org/guest
package guest

import (
	"github.com/caddyserver/caddy/v2"

	"example.org/guest/pager"
	"example.org/guest/parrot"
	"example.org/guest/till"
)

func init() {
	caddy.RegisterModule(Pager{})
	caddy.RegisterModule(Parrot{})
	caddy.RegisterModule(Till{})
}

// Pager is `platform pager { … }`.
type Pager struct{ pager.Driver }

// CaddyModule returns the Caddy module information.
func (Pager) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.platforms.pager", New: func() caddy.Module { return Pager{} }}
}

// Parrot is `protocol parrot { … }`.
type Parrot struct{ parrot.Driver }

// CaddyModule returns the Caddy module information.
func (Parrot) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.providers.parrot", New: func() caddy.Module { return Parrot{} }}
}

// Till is `payments till { … }`.
type Till struct{ till.Driver }

// CaddyModule returns the Caddy module information.
func (Till) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.payments.till", New: func() caddy.Module { return Till{} }}
}
