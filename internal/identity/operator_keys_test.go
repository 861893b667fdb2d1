package identity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestOperatorScopes(t *testing.T) {
	t.Parallel()
	all := identity.AllOperatorScopes()
	require.Len(t, all, 28)
	for i, scope := range all {
		require.True(t, scope.Known())
		one := identity.OperatorScopesOf(scope, "wallet:steal")
		for j, other := range all {
			require.Equal(t, i == j, one.Has(other), "%s has %s", scope, other)
		}
		require.True(t, identity.CommandLineScopes.Has(scope))
	}
	every := identity.OperatorScopesOf(all...)
	for _, unknown := range []identity.OperatorScope{"", "wallet", "wallet:", "chat:write", "wallet:write:x"} {
		require.False(t, unknown.Known())
		require.False(t, every.Has(unknown), unknown)
		require.True(t, identity.CommandLineScopes.Has(unknown))
	}
}

// TestOperatorKeys: an operator key is valid where operators are, an API key where organizations are, and neither the other way round.
func TestOperatorKeys(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		now := time.Now()
		ctx, keys, cli := t.Context(), identity.NewOperatorKeys(db), identity.CommandLine("cli:lan")
		made, raw, err := keys.Create(ctx, cli, identity.OperatorKeyRequest{Name: " sign-up ", Scopes: []string{"operator_keys:write", "wallet:read", "wallet:read", ""}})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(raw, "ck_operator_"))
		principal, err := keys.Authenticate(ctx, raw)
		require.NoError(t, err)
		require.Equal(t, "operator-key:sign-up", principal.Actor())
		require.Equal(t, identity.OperatorScopesOf("operator_keys:write", "wallet:read"), principal.OperatorScopes)
		require.False(t, principal.Scopes.Has(identity.ConversationsRead), "no operator key gives a right to texts of customers")
		require.False(t, principal.Authority().Operator)
		listed, err := db.OperatorKeys.List(ctx, store.Page{})
		require.NoError(t, err)
		require.NotContains(t, fmt.Sprintf("%+v", listed), raw)
		require.Positive(t, listed[0].UsedAt.Int64)

		_, err = identity.NewAuthenticator(db.APIKeys).Authenticate(ctx, raw)
		require.ErrorIs(t, err, identity.ErrInvalidKey)
		tenant, err := identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{OrgID: newOrganization(t, db, "Acme").ID})
		require.NoError(t, err)
		for _, wrong := range []string{
			tenant.Raw, "ck_operator_" + tenant.Raw[len("ck_live_"):], raw[:len(raw)-1], raw + "x", strings.ToUpper(raw), "ck_operator_", "",
		} {
			_, err = keys.Authenticate(ctx, wrong)
			require.ErrorIs(t, err, identity.ErrInvalidKey, wrong)
		}

		field := func(request identity.OperatorKeyRequest, by identity.Principal) string {
			_, _, err := keys.Create(ctx, by, request)
			var refused *identity.FieldError
			require.ErrorAs(t, err, &refused)
			return refused.Error()
		}
		require.Contains(t, field(identity.OperatorKeyRequest{Name: "x", Scopes: []string{"wallet:read", "wallet:write"}}, principal), "wallet:write, which you lack")
		require.Contains(t, field(identity.OperatorKeyRequest{Name: "x", Scopes: []string{"chat:write"}}, cli), `unknown scope "chat:write"`)
		require.Contains(t, field(identity.OperatorKeyRequest{Name: "x"}, cli), "scopes: is empty")
		require.Contains(t, field(identity.OperatorKeyRequest{Scopes: []string{"wallet:read"}}, cli), "name: is empty")
		_, _, err = keys.Create(ctx, cli, identity.OperatorKeyRequest{Name: "sign-up", Scopes: []string{"wallet:read"}})
		require.ErrorIs(t, err, store.ErrConflict)

		soon, later := now.Add(time.Hour), now.Add(2*time.Hour)
		ends, short, err := keys.Create(ctx, cli, identity.OperatorKeyRequest{Name: "short", Scopes: []string{"operator_keys:write"}, ExpiresAt: &soon})
		require.NoError(t, err)
		maker, err := keys.Authenticate(ctx, short)
		require.NoError(t, err)
		_, _, err = keys.Create(ctx, maker, identity.OperatorKeyRequest{Name: "longer", Scopes: []string{"operator_keys:write"}, ExpiresAt: &later})
		require.ErrorIs(t, err, store.ErrOutlives)
		child, _, err := keys.Create(ctx, maker, identity.OperatorKeyRequest{Name: "child", Scopes: []string{"operator_keys:write"}})
		require.NoError(t, err)
		require.Equal(t, ends.ExpiresAt, child.ExpiresAt)
		require.Equal(t, "operator-key:short", child.CreatedBy)
		require.NoError(t, db.OperatorKeys.Revoke(ctx, "cli:lan", ends.ID))
		_, _, err = keys.Create(ctx, maker, identity.OperatorKeyRequest{Name: "late", Scopes: []string{"operator_keys:write"}})
		require.ErrorIs(t, err, store.ErrOutlives, "revoked since it was authenticated")

		past := now.Add(-time.Second)
		_, expired, err := keys.Create(ctx, cli, identity.OperatorKeyRequest{Name: "old", Scopes: []string{"wallet:read"}, ExpiresAt: &past})
		require.NoError(t, err)
		_, err = keys.Authenticate(ctx, expired)
		require.ErrorIs(t, err, identity.ErrInvalidKey)
		for range 2 {
			require.NoError(t, db.OperatorKeys.Revoke(ctx, "cli:lan", made.ID))
		}
		_, err = keys.Authenticate(ctx, raw)
		require.ErrorIs(t, err, identity.ErrRevokedKey)
		require.ErrorIs(t, db.OperatorKeys.Revoke(ctx, "cli:lan", "opk_none"), store.ErrNotFound)
		entries, err := db.AuditLog.List(ctx, "", store.Page{Limit: 100})
		require.NoError(t, err)
		var actions []string
		for _, entry := range entries {
			actions = append(actions, entry.Action)
			require.NotContains(t, entry.Detail, raw)
		}
		require.Equal(t, 2, strings.Count(strings.Join(actions, " "), "operator_key.revoke"))
	})
}
