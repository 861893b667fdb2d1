package handlers

import "github.com/caddy-svc/caddy-svc/internal/identity"

// Role is what a person of an organization may do.
type Role = identity.Role

// The roles, each with all rights of those before it.
const (
	RoleMember        = identity.Member
	RoleAdministrator = identity.Administrator
	RoleOwner         = identity.Owner
)

// ModelsPath is the path of the models, and of the one model below it.
const ModelsPath = "/v1/models"

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
