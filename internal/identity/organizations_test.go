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
		ctx, organizations := t.Context(), identity.NewOrganizations(db)

		made, err := organizations.Create(ctx, "cli:ann", "  Cà phê Hà Nội ", "free")
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(made.ID, "org_"))
		require.Equal(t, "Cà phê Hà Nội", made.Name)
		require.Positive(t, made.CreatedAt)

		_, err = organizations.Create(ctx, "cli:ann", "Cà phê Hà Nội", "free")
		require.ErrorIs(t, err, store.ErrConflict)
		_, err = organizations.Create(ctx, "cli:ann", " ", "free")
		require.EqualError(t, err, "name: is empty")

		require.NoError(t, organizations.Suspend(ctx, "cli:ann", made.ID))
		require.NoError(t, organizations.Suspend(ctx, "cli:ann", made.ID), "twice is no fault")
		read, err := organizations.ByID(ctx, made.ID)
		require.NoError(t, err)
		require.True(t, read.SuspendedAt.Valid)
		require.NoError(t, organizations.Resume(ctx, "cli:ann", made.ID))
		require.NoError(t, organizations.Resume(ctx, "cli:ann", made.ID))
		require.NoError(t, organizations.SetPlan(ctx, "cli:ann", made.ID, "pro"))
		require.EqualError(t, organizations.SetPlan(ctx, "cli:ann", made.ID, ""), "plan: is empty")
		for range 2 {
			require.NoError(t, organizations.SetModel(ctx, "cli:ann", made.ID, "openai/a", false))
		}

		made.Plan = "pro"
		listed, err := organizations.List(ctx)
		require.NoError(t, err)
		require.Equal(t, []store.Organization{made}, listed)
		models, err := db.Organizations.Models(ctx, made.ID)
		require.NoError(t, err)
		require.Equal(t, map[string]bool{"openai/a": false}, models)

		const nobody = "org_nobody"
		_, err = organizations.ByID(ctx, nobody)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, organizations.Suspend(ctx, "cli:ann", nobody), store.ErrNotFound)
		require.ErrorIs(t, organizations.SetPlan(ctx, "cli:ann", nobody, "pro"), store.ErrNotFound)
		require.ErrorIs(t, organizations.SetModel(ctx, "cli:ann", nobody, "openai/a", true), store.ErrNotFound)

		log, err := db.AuditLog.Newest(ctx, 100)
		require.NoError(t, err)
		require.NotEmpty(t, log)
		for _, entry := range log {
			require.Equal(t, "cli:ann", entry.Actor)
			require.Equal(t, made.ID, entry.OrgID, "what was refused is not in the log")
		}
	})
}
