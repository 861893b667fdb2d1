package identity_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// The scopes are models:read, chat:write, and read and write of eight groups.
func TestAllScopesAreThoseOfTheDesign(t *testing.T) {
	t.Parallel()
	want := []string{"models:read", "chat:write"}
	for group := range strings.FieldsSeq("api_keys provider_keys agents knowledge_bases channels conversations wallet event_endpoints") {
		want = append(want, group+":read", group+":write")
	}
	var got []string
	for _, scope := range identity.AllScopes() {
		require.True(t, scope.Known())
		got = append(got, string(scope))
	}
	require.ElementsMatch(t, want, got)
}

func TestScopesHoldExactlyWhatWasGiven(t *testing.T) {
	t.Parallel()
	for _, given := range identity.AllScopes() {
		set := identity.ScopesOf(given, "no:such")
		for _, asked := range identity.AllScopes() {
			require.Equal(t, asked == given, set.Has(asked), "%s in {%s}", asked, given)
		}
		require.False(t, set.Has("no:such"))
		require.False(t, identity.Scopes(0).Has(given))
	}
}

func TestParseScopes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given []string
		want  []identity.Scope
	}{
		"nothing is the default":      {nil, []identity.Scope{identity.ModelsRead, identity.ChatWrite}},
		"empty names are the default": {[]string{"", " "}, []identity.Scope{identity.ModelsRead, identity.ChatWrite}},
		"trimmed, repeated":           {[]string{" wallet:read", "wallet:read ", "chat:write"}, []identity.Scope{identity.WalletRead, identity.ChatWrite}},
	} {
		got, err := identity.ParseScopes(c.given)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}

	_, err := identity.ParseScopes([]string{"chat:write", "chat:read", "Wallet:read"})
	var field *identity.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "scopes", field.Field)
	require.ErrorContains(t, err, `unknown scope "chat:read", "Wallet:read"; known are models:read, chat:write, api_keys:read`)
}
