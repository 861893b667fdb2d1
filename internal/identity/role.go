package identity

import (
	"fmt"
	"slices"
)

// Role is what a person of an organization may do (design §6 "roles"). An API key has none: its scopes are its rights.
type Role string

// The roles, each with all rights of those before it. A member works with agents, knowledge bases and conversations and
// reads channels and the wallet; an administrator also has channels, API keys, provider keys and members; an owner also
// has owners.
const (
	Member        Role = "member"
	Administrator Role = "administrator"
	Owner         Role = "owner"
)

// Roles lists all roles, the one with the fewest rights first.
func Roles() []Role { return []Role{Member, Administrator, Owner} }

// ParseRole reads a role's name; else a [FieldError] that names what is allowed.
func ParseRole(name string) (Role, error) {
	if role := Role(name); slices.Contains(Roles(), role) {
		return role, nil
	}
	return "", &FieldError{"role", fmt.Sprintf("%q is not a role; known are member, administrator, owner", clip(name))}
}

// Has reports whether r has the rights of least. Only the three roles have rights, and nobody has those of "".
func (r Role) Has(least Role) bool { return least.rank() > 0 && r.rank() >= least.rank() }

func (r Role) rank() int { return slices.Index(Roles(), r) + 1 }

// scopes are the scopes that an API key with the role's rights would have: what its holder may give to a key.
func (r Role) scopes() Scopes {
	switch r {
	case Member:
		return ScopesOf(
			ModelsRead, ChatWrite, AgentsRead, AgentsWrite, KnowledgeBasesRead, KnowledgeBasesWrite,
			ConversationsRead, ConversationsWrite, ChannelsRead, WalletRead,
		)
	case Administrator, Owner:
		return ScopesOf(AllScopes()...)
	default:
		return 0
	}
}

// Authority is who changes users or keys, and with which rights. The operator's command line has those of an owner.
type Authority struct {
	// Actor stands in the audit log.
	Actor string
	Role  Role
	// Operator is set for the command line, which may also reset the passwords of owners.
	Operator bool
}
