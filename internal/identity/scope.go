package identity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Scope is one right of an API key (docs/contract.md#scopes).
type Scope string

// All scopes.
const (
	ModelsRead          Scope = "models:read"
	ChatWrite           Scope = "chat:write"
	APIKeysRead         Scope = "api_keys:read"
	APIKeysWrite        Scope = "api_keys:write"
	ProviderKeysRead    Scope = "provider_keys:read"
	ProviderKeysWrite   Scope = "provider_keys:write"
	AgentsRead          Scope = "agents:read"
	AgentsWrite         Scope = "agents:write"
	KnowledgeBasesRead  Scope = "knowledge_bases:read"
	KnowledgeBasesWrite Scope = "knowledge_bases:write"
	ChannelsRead        Scope = "channels:read"
	ChannelsWrite       Scope = "channels:write"
	ConversationsRead   Scope = "conversations:read"
	ConversationsWrite  Scope = "conversations:write"
	WalletRead          Scope = "wallet:read"
	WalletWrite         Scope = "wallet:write"
	EventEndpointsRead  Scope = "event_endpoints:read"
	EventEndpointsWrite Scope = "event_endpoints:write"
)

// allScopes has every scope at its position in a [Scopes].
var allScopes = []Scope{
	ModelsRead, ChatWrite,
	APIKeysRead, APIKeysWrite, ProviderKeysRead, ProviderKeysWrite, AgentsRead, AgentsWrite,
	KnowledgeBasesRead, KnowledgeBasesWrite, ChannelsRead, ChannelsWrite,
	ConversationsRead, ConversationsWrite, WalletRead, WalletWrite, EventEndpointsRead, EventEndpointsWrite,
}

// bit returns the scope's position in a [Scopes], -1 for an unknown scope.
func (s Scope) bit() int { return slices.Index(allScopes, s) }

// Known reports whether s is a scope of this version.
func (s Scope) Known() bool { return s.bit() >= 0 }

// AllScopes returns every scope, the two of /v1 first.
func AllScopes() []Scope { return slices.Clone(allScopes) }

// DefaultScopes returns the scopes of a new key without named scopes, for /v1.
func DefaultScopes() []Scope { return []Scope{ModelsRead, ChatWrite} }

// ParseScopes trims scope names, drops empty and repeated names, and returns [DefaultScopes] if there are no names. For
// unknown names it returns a [FieldError] that lists the known names.
func ParseScopes(names []string) ([]Scope, error) {
	scopes, unknown := parseNames(allScopes, names)
	if len(unknown) > 0 {
		return nil, &FieldError{"scopes", fmt.Sprintf("unknown scope %s; known are %s",
			strings.Join(unknown, ", "), JoinScopes(AllScopes(), ", "))}
	}
	if len(scopes) == 0 {
		return DefaultScopes(), nil
	}
	return scopes, nil
}

// parseNames returns the distinct known ones of names, and the unknown ones in quotes.
func parseNames[S ~string](all []S, names []string) (known []S, unknown []string) {
	for _, text := range names {
		name := S(strings.TrimSpace(text))
		switch {
		case name == "" || slices.Contains(known, name):
		case !slices.Contains(all, name):
			unknown = append(unknown, fmt.Sprintf("%q", clip(string(name))))
		default:
			known = append(known, name)
		}
	}
	return known, unknown
}

// JoinScopes joins scopes with separator.
func JoinScopes[S ~string](scopes []S, separator string) string {
	return strings.Join(store.Column(scopes, func(scope S) string { return string(scope) }), separator)
}

// Scopes is a set of known scopes; the zero value holds none.
type Scopes uint32

// ScopesOf returns a set without unknown scopes.
func ScopesOf(scopes ...Scope) Scopes { return Scopes(setOf(allScopes, scopes...)) }

// setOf returns a bit for each of the names, by its place in the list of all names. Unknown names have none.
func setOf[S comparable](all []S, names ...S) (set uint32) {
	for _, name := range names {
		if bit := slices.Index(all, name); bit >= 0 {
			set |= 1 << bit
		}
	}
	return set
}

// storedScopes parses the store's form, names with spaces between. Unknown names, written by a newer node, give no right.
func storedScopes(text string) (set Scopes) {
	for text != "" {
		var name string
		name, text, _ = strings.Cut(text, " ")
		set |= ScopesOf(Scope(name))
	}
	return set
}

// Has reports whether scope is in the set; an unknown scope is in none.
func (set Scopes) Has(scope Scope) bool {
	bit := scope.bit()
	return bit >= 0 && set&(1<<bit) != 0
}

// Role is the role of a user in an organization, with its rights (docs/contract.md#roles). An API key has scopes instead.
type Role string

// The roles, each with all rights of those before it.
const (
	Member        Role = "member"
	Administrator Role = "administrator"
	Owner         Role = "owner"
)

// Roles returns all roles in ascending order of their rights.
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
		return ScopesOf(ModelsRead, ChatWrite, AgentsRead, AgentsWrite, KnowledgeBasesRead, KnowledgeBasesWrite,
			ConversationsRead, ConversationsWrite, ChannelsRead, WalletRead)
	case Administrator, Owner:
		return ScopesOf(AllScopes()...)
	}
	return 0
}

// Authority identifies who changes users or keys, and with which rights.
type Authority struct {
	// Actor is the id in the audit log.
	Actor string
	Role  Role
	// Operator is set for the command line, which has the rights of an owner and may also reset the passwords of owners.
	Operator bool
}
