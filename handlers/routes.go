package handlers

import (
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/identity"
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

// Routes lists the addresses whose handlers are written by hand, in the order of spec §4. The endpoint groups are in
// [API.Routes].
func Routes() []Route {
	return []Route{
		{Method: http.MethodGet, Path: "/v1/models", Scope: identity.ModelsRead, Summary: "List the models that are enabled for the organization"},
		{Method: http.MethodGet, Path: "/v1/models/{id}", Scope: identity.ModelsRead, Summary: "Get one model"},
		{Method: http.MethodPost, Path: "/v1/chat/completions", Scope: identity.ChatWrite, Summary: "Ask a model"},
		{Method: http.MethodPost, Path: "/webhooks/bot/{channelId}", Summary: "Updates of the bot platform, one address per channel"},
		{Method: http.MethodGet, Path: "/webhooks/social", Summary: "Subscription handshake of the social platform"},
		{Method: http.MethodPost, Path: "/webhooks/social", Summary: "Events of the social platform"},
		{Method: http.MethodPost, Path: "/webhooks/localchat", Summary: "Events of the local chat platform"},
		{Method: http.MethodPost, Path: "/webhooks/market-a", Summary: "Events of marketplace A"},
		{Method: http.MethodPost, Path: "/webhooks/market-b", Summary: "Events of marketplace B"},
	}
}
