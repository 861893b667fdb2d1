package identity_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestOrganizations(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, organizations := t.Context(), db.Organizations

		made, err := identity.CreateOrganization(ctx, db, "cli:ann", "  Cà phê Hà Nội ", "free", "")
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(made.ID, "org_"))
		require.Equal(t, "Cà phê Hà Nội", made.Name)
		require.Positive(t, made.CreatedAt)

		_, err = identity.CreateOrganization(ctx, db, "cli:ann", "Cà phê Hà Nội", "free", "")
		require.ErrorIs(t, err, store.ErrConflict)
		_, err = identity.CreateOrganization(ctx, db, "cli:ann", " ", "free", "")
		require.EqualError(t, err, "name: is empty")

		require.NoError(t, organizations.SetSuspended(ctx, "cli:ann", made.ID, true, ""))
		require.NoError(t, organizations.SetSuspended(ctx, "cli:ann", made.ID, true, ""), "twice is no fault")
		read, err := organizations.ByID(ctx, made.ID)
		require.NoError(t, err)
		require.True(t, read.SuspendedAt.Valid)
		require.NoError(t, organizations.SetSuspended(ctx, "cli:ann", made.ID, false, ""))
		require.NoError(t, organizations.SetSuspended(ctx, "cli:ann", made.ID, false, ""))
		require.NoError(t, organizations.SetPlan(ctx, "cli:ann", made.ID, "pro"))
		for range 2 {
			require.NoError(t, organizations.SetModel(ctx, "cli:ann", made.ID, "openai/a", false))
		}

		made.Plan = "pro"
		listed, err := organizations.All(ctx)
		require.NoError(t, err)
		require.Equal(t, []store.Organization{made}, listed)
		models, err := db.Organizations.Models(ctx, made.ID)
		require.NoError(t, err)
		require.Equal(t, map[string]bool{"openai/a": false}, models)

		const nobody = "org_nobody"
		_, err = organizations.ByID(ctx, nobody)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, organizations.SetSuspended(ctx, "cli:ann", nobody, true, ""), store.ErrNotFound)
		require.ErrorIs(t, organizations.SetPlan(ctx, "cli:ann", nobody, "pro"), store.ErrNotFound)
		require.ErrorIs(t, organizations.SetModel(ctx, "cli:ann", nobody, "openai/a", true), store.ErrNotFound)

		log, err := db.AuditLog.List(ctx, "", store.Page{Limit: 100})
		require.NoError(t, err)
		require.NotEmpty(t, log)
		for _, entry := range log {
			require.Equal(t, "cli:ann", entry.Actor)
			require.Equal(t, made.ID, entry.OrgID, "what was refused is not in the log")
		}
	})
}
