package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestRetention(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		for _, id := range []string{"org_1", "org_2", "org_3"} {
			createOrganization(t, db, id)
		}
		retentions := func(page store.Page) []store.Retention {
			all, err := db.Organizations.Retentions(ctx, page)
			require.NoError(t, err)
			return all
		}
		require.Empty(t, retentions(store.Page{}), "everything is kept until somebody says otherwise")
		require.NoError(t, db.Organizations.SetRetention(ctx, "usr_1", "org_1", store.MinRetentionDays))
		require.NoError(t, db.Organizations.SetRetention(ctx, "usr_1", "org_3", store.MaxRetentionDays))
		require.NoError(t, db.Organizations.SetRetention(ctx, "usr_1", "org_3", store.MaxRetentionDays))
		require.Equal(t, []store.Retention{{"org_1", 7}, {"org_3", 3650}}, retentions(store.Page{}))
		require.Equal(t, []store.Retention{{"org_3", 3650}}, retentions(store.Page{After: "org_1", Limit: 1}))
		organization, err := db.Organizations.ByID(ctx, "org_3")
		require.NoError(t, err)
		require.EqualValues(t, 3650, organization.RetentionDays)
		log, err := db.AuditLog.List(ctx, "org_3", store.Page{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, "organization.set_retention 3650 days", log[0].Action+" "+log[0].Detail)

		for _, days := range []int64{-1, 1, 6, 3651} {
			require.ErrorIs(t, db.Organizations.SetRetention(ctx, "usr_1", "org_1", days), store.ErrRetention)
		}
		require.ErrorIs(t, db.Organizations.SetRetention(ctx, "usr_1", "org_9", 30), store.ErrNotFound)
		require.NoError(t, db.Organizations.SetRetention(ctx, "usr_1", "org_1", 0))
		require.Len(t, retentions(store.Page{}), 1)
	})
}
