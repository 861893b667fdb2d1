package identity

import (
	"fmt"
	"slices"
)

// Role is the role of a user in an organization, with its rights (docs/contract.md#roles). An API key has scopes instead.
type Role string

// The roles, each with all rights of those before it.
const (
	Member        Role = "member"
	Administrator Role = "administrator"
	Owner         Role = "owner"
)

// Roles returns all roles, the one with the fewest rights first.
func Roles() []Role { return []Role{Member, Administrator, Owner} }

// ParseRole parses a role's name. It returns a [FieldError] that names the roles for another text.
func ParseRole(name string) (Role, error) {
	if role := Role(name); slices.Contains(Roles(), role) {
		return role, nil
	}
	return "", &FieldError{"role", fmt.Sprintf("%q is not a role; known are member, administrator, owner", clip(name))}
}

// Has reports whether r has the rights of least. The empty role has none and is had by none.
func (r Role) Has(least Role) bool { return least.rank() > 0 && r.rank() >= least.rank() }

func (r Role) rank() int { return slices.Index(Roles(), r) + 1 }

// scopes returns the scopes that a user with the role may give to a key.
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

// Authority identifies who changes users or keys, and with which rights.
type Authority struct {
	// Actor is the id in the audit log.
	Actor string
	Role  Role
	// Operator is set for the command line, which has the rights of an owner and may also reset the passwords of owners.
	Operator bool
}
