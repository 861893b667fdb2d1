package identity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Each role has all rights of those before it; an unknown role has none.
func TestRolesAreInOrder(t *testing.T) {
	t.Parallel()
	order := []identity.Role{identity.Member, identity.Administrator, identity.Owner}
	require.Equal(t, order, identity.Roles())
	for i, role := range order {
		for j, least := range order {
			require.Equal(t, i >= j, role.Has(least), "%s has %s", role, least)
		}
		for _, none := range []identity.Role{"", "Owner", "admin"} {
			require.False(t, role.Has(none))
			require.False(t, none.Has(role))
			require.False(t, none.Has(none))
		}
		parsed, err := identity.ParseRole(string(role))
		require.NoError(t, err)
		require.Equal(t, role, parsed)
	}
	_, err := identity.ParseRole("Owner")
	require.EqualError(t, err, `role: "Owner" is not a role; known are member, administrator, owner`)
}

// A key is judged by its scopes alone, a user by the role alone.
func TestPrincipalCan(t *testing.T) {
	t.Parallel()
	key := identity.Principal{KeyID: "key_1", Scopes: identity.ScopesOf(identity.AgentsRead)}
	require.True(t, key.Can(identity.AgentsRead, identity.Owner))
	require.False(t, key.Can(identity.AgentsWrite, identity.Member))
	require.False(t, key.Can("", identity.Member), "a route that takes no keys")
	require.False(t, key.Can("", ""))
	require.Equal(t, "key_1", key.Actor())

	user := identity.Principal{UserID: "usr_1", Role: identity.Administrator, Scopes: identity.ScopesOf(identity.ChatWrite)}
	require.True(t, user.Can(identity.ChannelsWrite, identity.Administrator))
	require.True(t, user.Can("", identity.Member))
	require.False(t, user.Can(identity.AgentsRead, identity.Owner))
	require.False(t, user.Can(identity.ChatWrite, ""), "/v1 takes no sessions")
	require.Equal(t, "usr_1", user.Actor())
	require.Equal(t, identity.Authority{Actor: "usr_1", Role: identity.Administrator}, user.Authority())
}
