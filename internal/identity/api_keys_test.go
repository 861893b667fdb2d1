package identity_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func newOrganization(t *testing.T, db *store.DB, name string) store.Organization {
	t.Helper()
	organization, err := identity.CreateOrganization(t.Context(), db, "test", name, "free", "")
	require.NoError(t, err)
	return organization
}

// A key has its environment's prefix, is stored as a hash only, and gets default scopes and no expiry unless they are given.
func TestCreateKey(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, organization := t.Context(), newOrganization(t, db, "Acme")

		plain, err := identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{OrgID: organization.ID})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(plain.ID, "key_"))
		require.True(t, strings.HasPrefix(plain.Raw, "ck_live_"))
		require.Equal(t, sha256.Sum256([]byte(plain.Raw)), plain.Hash)
		require.Equal(t, []string{"models:read", "chat:write"}, plain.Scopes)
		require.False(t, plain.ExpiresAt.Valid)

		past := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
		full, err := identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{
			OrgID: organization.ID, Name: " shop ", Env: store.Test, Scopes: []string{"wallet:read"}, ExpiresAt: &past,
		})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(full.Raw, "ck_test_"))

		listed, err := db.APIKeys.All(ctx, organization.ID)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{plain.ID, full.ID}, []string{listed[0].ID, listed[1].ID})
		for _, row := range listed {
			require.NotContains(t, fmt.Sprintf("%+v", row), plain.Raw)
			if row.ID == full.ID {
				require.Equal(t, "shop", row.Name)
				require.Equal(t, store.Test, row.Env)
				require.Equal(t, past.UnixMilli(), row.ExpiresAt.Int64)
			}
		}
		_, err = identity.NewAuthenticator(db.APIKeys).Authenticate(ctx, full.Raw)
		require.ErrorIs(t, err, identity.ErrInvalidKey, "expired")
		principal, err := identity.NewAuthenticator(db.APIKeys).Authenticate(ctx, plain.Raw)
		require.NoError(t, err)
		require.Equal(t, identity.ScopesOf(identity.ModelsRead, identity.ChatWrite), principal.Scopes)

		// The zero time is a moment like any other, and long past.
		zero := time.Time{}
		old, err := identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{OrgID: organization.ID, ExpiresAt: &zero})
		require.NoError(t, err)
		_, err = identity.NewAuthenticator(db.APIKeys).Authenticate(ctx, old.Raw)
		require.ErrorIs(t, err, identity.ErrInvalidKey)
	})
}

func TestCreateKeyRefuses(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, organization := t.Context(), newOrganization(t, db, "Acme")
		for want, request := range map[string]identity.KeyRequest{
			"name: contains a control character":       {Name: "a\x1bb"},
			"name: has 101 characters, at most 100":    {Name: strings.Repeat("x", 101)},
			`env: "prod" is not live or test`:          {Env: "prod"},
			`scopes: unknown scope "all"; known are m`: {Scopes: []string{"all"}},
		} {
			request.OrgID = organization.ID
			_, err := identity.CreateAPIKey(ctx, db, "test", request)
			require.ErrorContains(t, err, want)
			var field *identity.FieldError
			require.ErrorAs(t, err, &field)
		}
		_, err := identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{OrgID: "org_nobody"})
		require.ErrorIs(t, err, store.ErrNotFound)

		first, err := identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{OrgID: organization.ID, Name: "shop"})
		require.NoError(t, err)
		_, err = identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{OrgID: organization.ID, Name: "shop"})
		require.ErrorIs(t, err, store.ErrConflict)
		require.NoError(t, db.APIKeys.Revoke(ctx, "test", organization.ID, first.ID))
		_, err = identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{OrgID: organization.ID, Name: "shop"})
		require.NoError(t, err, "a revoked key gives its name back")
	})
}

func TestRevokeKey(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		ours, theirs := newOrganization(t, db, "Acme"), newOrganization(t, db, "Other")
		key, err := identity.CreateAPIKey(ctx, db, "test", identity.KeyRequest{OrgID: ours.ID})
		require.NoError(t, err)

		require.ErrorIs(t, db.APIKeys.Revoke(ctx, "test", theirs.ID, key.ID), store.ErrNotFound, "of another organization")
		_, err = identity.NewAuthenticator(db.APIKeys).Authenticate(ctx, key.Raw)
		require.NoError(t, err, "no side effect")
		require.ErrorIs(t, db.APIKeys.Revoke(ctx, "test", ours.ID, "key_nothing"), store.ErrNotFound)

		owner, err := db.OwnerOf(ctx, store.OwnedAPIKeys, key.ID)
		require.NoError(t, err)
		require.Equal(t, ours.ID, owner)
		_, err = db.OwnerOf(ctx, store.OwnedAPIKeys, "key_nothing")
		require.ErrorIs(t, err, store.ErrNotFound)

		require.NoError(t, db.APIKeys.Revoke(ctx, "test", ours.ID, key.ID))
		listed, err := db.APIKeys.All(ctx, ours.ID)
		require.NoError(t, err)
		require.NoError(t, db.APIKeys.Revoke(ctx, "test", ours.ID, key.ID), "twice is no fault")
		again, err := db.APIKeys.All(ctx, ours.ID)
		require.NoError(t, err)
		require.Equal(t, listed, again, "and keeps the first time")

		empty, err := db.APIKeys.All(ctx, theirs.ID)
		require.NoError(t, err)
		require.Empty(t, empty)
	})
}
