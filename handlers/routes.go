package handlers

import (
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// Role is what a person of an organization may do.
type Role = identity.Role

// The roles, each with all rights of those before it.
const (
	RoleMember        = identity.Member
	RoleAdministrator = identity.Administrator
	RoleOwner         = identity.Owner
)

// Route is one address of the service and who may use it.
type Route struct {
	Method string
	// Path has the names of its variable segments in braces, as in /agents/{id}.
	Path string
	// Scope is what an API key needs; empty where keys are not taken: /members, /audit-log and /session are for users, and
	// /webhooks check a signature.
	Scope identity.Scope
	// Role is what a login session needs at least; empty where sessions are not taken (/v1, /webhooks).
	Role Role
	// Public routes take neither: who asks isn't known yet.
	Public bool
	// Summary is one line for the interface description.
	Summary string
}

// Routes lists the addresses whose handlers are written by hand. The endpoint groups are in [API.Routes], the
// webhooks in [WebhookRoutes].
func Routes() []Route {
	return []Route{
		{Method: http.MethodGet, Path: "/v1/models", Scope: identity.ModelsRead, Summary: "List the models that are enabled for the organization"},
		{Method: http.MethodGet, Path: "/v1/models/{id}", Scope: identity.ModelsRead, Summary: "Get one model"},
		{Method: http.MethodPost, Path: "/v1/chat/completions", Scope: identity.ChatWrite, Summary: "Ask a model"},
	}
}

// WebhookRoutes lists the webhooks of all platforms.
func WebhookRoutes(catalog *messaging.Catalog) []Route {
	var routes []Route
	for _, p := range catalog.Platforms() {
		path, summary := messaging.WebhookPath(p), p.Deliveries
		if p.ChannelWebhooks {
			path, summary = path+"{channelId}", summary+", one address per channel"
		}
		if p.Handshake != nil {
			routes = append(routes, Route{Method: http.MethodGet, Path: path, Summary: p.Handshake.Summary})
		}
		routes = append(routes, Route{Method: http.MethodPost, Path: path, Summary: summary})
	}
	return routes
}
