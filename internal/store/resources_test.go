package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func at(milliseconds int64) sql.NullInt64 { return sql.NullInt64{Int64: milliseconds, Valid: true} }

func createOrganization(t *testing.T, db *store.DB, id string) {
	t.Helper()
	require.NoError(t, db.Organizations.Create(t.Context(), "cli", store.Organization{ID: id, Name: "name of " + id, Plan: "free"}))
}

// actions are the audit log's actions and targets, oldest first.
func actions(t *testing.T, db *store.DB) (seen []string) {
	t.Helper()
	entries, err := db.AuditLog.List(t.Context(), "", store.Page{Limit: 100})
	require.NoError(t, err)
	for _, entry := range entries {
		require.NotZero(t, entry.At)
		seen = append([]string{entry.Actor + " " + entry.Action + " " + entry.Target}, seen...)
	}
	return seen
}

func TestOrganizations(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		none, err := db.Organizations.All(ctx)
		require.NoError(t, err)
		require.Empty(t, none)
		one := store.Organization{ID: "org_1", Name: "Công ty Ổ Bánh Mì", Plan: "free", CreatedAt: 1, WaitingMinutes: 15, FirstPlan: "free", TimeZone: "UTC"}
		require.NoError(t, db.Organizations.Create(ctx, "cli", one))
		require.NoError(t, db.Organizations.Create(ctx, "cli", store.Organization{ID: "org_2", Name: "two", Plan: "pro"}))
		require.ErrorIs(t, db.Organizations.Create(ctx, "cli", store.Organization{ID: "org_3", Name: one.Name}), store.ErrConflict)
		require.ErrorIs(t, db.Organizations.Create(ctx, "cli", store.Organization{ID: "org_1", Name: "other"}), store.ErrConflict)

		all, err := db.Organizations.All(ctx)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, one, all[0])
		require.Greater(t, all[1].CreatedAt, int64(1_700_000_000_000))

		require.NoError(t, db.Organizations.SetSuspended(ctx, "cli", "org_1", true, ""))
		first, err := db.Organizations.ByID(ctx, "org_1")
		require.NoError(t, err)
		require.True(t, first.SuspendedAt.Valid)
		require.NoError(t, db.Organizations.SetSuspended(ctx, "cli", "org_1", true, ""))
		again, err := db.Organizations.ByID(ctx, "org_1")
		require.NoError(t, err)
		require.Equal(t, first, again)
		require.NoError(t, db.Organizations.SetSuspended(ctx, "cli", "org_1", false, ""))
		require.NoError(t, db.Organizations.SetPlan(ctx, "cli", "org_1", "pro"))
		require.NoError(t, db.Organizations.SetTimeZone(ctx, "cli", "org_1", "Asia/Seoul"))
		one.Plan, one.TimeZone = "pro", "Asia/Seoul"
		now, err := db.Organizations.ByID(ctx, "org_1")
		require.NoError(t, err)
		require.Equal(t, one, now)

		_, err = db.Organizations.ByID(ctx, "org_none")
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, db.Organizations.SetSuspended(ctx, "cli", "org_none", true, ""), store.ErrNotFound)
		require.ErrorIs(t, db.Organizations.SetPlan(ctx, "cli", "org_none", "pro"), store.ErrNotFound)
		require.ErrorIs(t, db.Organizations.SetTimeZone(ctx, "cli", "org_none", "UTC"), store.ErrNotFound)
		require.Equal(t, []string{
			"cli organization.create org_1", "cli organization.create org_2", "cli organization.suspend org_1",
			"cli organization.suspend org_1", "cli organization.resume org_1", "cli organization.set_plan org_1",
			"cli organization.set_time_zone org_1",
		}, actions(t, db), "what failed is not in the audit log")
	})
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		key := store.APIKey{
			ID: "key_1", OrgID: "org_1", Name: "shop", Env: store.Live, Scopes: []string{"chat:write", "models:read"},
			Hash: [32]byte{1}, Hint: "ck_live_…abc", CreatedAt: 5, ExpiresAt: at(9),
		}
		require.NoError(t, db.APIKeys.Create(ctx, "cli", key))
		unnamed := store.APIKey{ID: "key_2", OrgID: "org_1", Env: store.Test, Hash: [32]byte{2}}
		require.NoError(t, db.APIKeys.Create(ctx, "cli", unnamed))
		unnamed.ID, unnamed.Hash = "key_3", [32]byte{3}
		require.NoError(t, db.APIKeys.Create(ctx, "cli", unnamed))

		sameHash := store.APIKey{ID: "key_4", OrgID: "org_2", Env: store.Live, Hash: [32]byte{1}}
		require.ErrorIs(t, db.APIKeys.Create(ctx, "cli", sameHash), store.ErrConflict)
		sameName := store.APIKey{ID: "key_4", OrgID: "org_1", Name: "shop", Env: store.Test, Hash: [32]byte{4}}
		require.ErrorIs(t, db.APIKeys.Create(ctx, "cli", sameName), store.ErrConflict)
		require.ErrorIs(t, db.APIKeys.Create(ctx, "cli", store.APIKey{ID: "key_4", OrgID: "org_none", Env: store.Live, Hash: [32]byte{4}}), store.ErrNotFound)

		keys, err := db.APIKeys.All(ctx, "org_1")
		require.NoError(t, err)
		require.Len(t, keys, 3)
		key.CreatedBy = "cli"
		require.Equal(t, key, keys[0])
		org, err := db.OwnerOf(ctx, store.OwnedAPIKeys, "key_1")
		require.NoError(t, err)
		require.Equal(t, "org_1", org)
		_, err = db.OwnerOf(ctx, store.OwnedAPIKeys, "key_none")
		require.ErrorIs(t, err, store.ErrNotFound)

		for _, models := range [][]string{{"a/b", "c/d"}, {}, nil} { // from the next request on, for both ways to read a key
			change := func(k *store.APIKey) error {
				k.Models = store.NewKeyModels(models)
				k.MaxConcurrent = at(4)
				k.RequestsPerMinute = at(3)
				return nil
			}
			require.NoError(t, db.APIKeys.Update(ctx, "cli", "org_1", "key_1", change))
			records := map[bool]store.KeyRecord{}
			records[false], _, err = db.APIKeys.ByHash(ctx, key.Hash)
			require.NoError(t, err)
			if windows := db.Windows(); windows != nil {
				records[true], _, err = windows.Key(ctx, key.Hash, &store.KeyTerms{Plans: []string{"free"}, PerMinute: []int64{9}})
				require.NoError(t, err)
			}
			for _, record := range records {
				require.Equal(t, models, record.Models.List())
				require.Equal(t, []int64{3, 4}, []int64{record.RequestsPerMinute, record.MaxConcurrent})
				require.Equal(t, models == nil || len(models) == 2, record.Models.Allow("c/d"))
				require.Equal(t, models == nil, record.Models.Allow("c"))
			}
		}
		require.ErrorIs(t, db.APIKeys.Update(ctx, "cli", "org_2", "key_1", nil), store.ErrNotFound, "another organization's key")
		require.ErrorIs(t, db.APIKeys.Revoke(ctx, "cli", "org_2", "key_1"), store.ErrNotFound, "another organization's key")
		require.ErrorIs(t, db.APIKeys.Revoke(ctx, "cli", "org_1", "key_none"), store.ErrNotFound)
		require.NoError(t, db.APIKeys.Revoke(ctx, "cli", "org_1", "key_1"))
		require.NoError(t, db.APIKeys.Revoke(ctx, "cli", "org_1", "key_1"))
		require.ErrorIs(t, db.APIKeys.Update(ctx, "cli", "org_1", "key_1", nil), store.ErrRevoked)
		require.NoError(t, db.APIKeys.Create(ctx, "cli", sameName), "a revoked key's name is free again")
		require.Equal(t, []string{
			"cli organization.create org_1", "cli organization.create org_2", "cli api_key.create key_1",
			"cli api_key.create key_2", "cli api_key.create key_3",
			"cli api_key.update key_1", "cli api_key.update key_1", "cli api_key.update key_1", "cli api_key.revoke key_1", "cli api_key.create key_4",
		}, actions(t, db))
	})
}

func TestProviderKeys(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		_, found, err := db.ProviderKeys.Sealed(ctx, "org_1", "openai")
		require.NoError(t, err)
		require.False(t, found)
		key := store.ProviderKey{OrgID: "org_1", Provider: "openai", Sealed: []byte{0, 1, 2}, Hint: "…xyz", UpdatedAt: 7}
		require.NoError(t, db.ProviderKeys.Put(ctx, "cli", key))
		key.Sealed, key.UpdatedAt = []byte{3}, 8
		require.NoError(t, db.ProviderKeys.Put(ctx, "cli", key))
		sealed, found, err := db.ProviderKeys.Sealed(ctx, "org_1", "openai")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, []byte{3}, sealed)
		keys, err := db.ProviderKeys.List(ctx, "org_1")
		require.NoError(t, err)
		require.Equal(t, []store.ProviderKey{key}, keys)
		require.ErrorIs(t, db.ProviderKeys.Put(ctx, "cli", store.ProviderKey{OrgID: "org_none", Provider: "openai", Sealed: []byte{1}}), store.ErrNotFound)

		replaced, err := db.ProviderKeys.Reseal(ctx, "org_1", "openai", []byte{9}, []byte{4})
		require.NoError(t, err)
		require.False(t, replaced, "it was changed meanwhile")
		replaced, err = db.ProviderKeys.Reseal(ctx, "org_1", "openai", []byte{3}, []byte{4})
		require.NoError(t, err)
		require.True(t, replaced)

		require.NoError(t, db.ProviderKeys.Delete(ctx, "cli", "org_1", "openai"))
		require.ErrorIs(t, db.ProviderKeys.Delete(ctx, "cli", "org_1", "openai"), store.ErrNotFound)
	})
}

// Every key is seen once, over several pages, while the callback writes.
func TestEachSealed(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		const each = 130
		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			for i := range 2 * each {
				tx.Queue(1, `INSERT INTO provider_keys (org_id, provider, sealed, hint, updated_at) VALUES ($1, $2, $3, '', 1)`,
					fmt.Sprintf("org_%d", 1+i%2), fmt.Sprintf("p%03d", i), []byte{byte(i)})
			}
			return nil
		}))
		seen := map[string]bool{}
		require.NoError(t, db.ProviderKeys.Each(t.Context(), func(key store.ProviderKey) error {
			seen[key.OrgID+key.Provider] = true
			_, err := db.ProviderKeys.Reseal(t.Context(), key.OrgID, key.Provider, key.Sealed, append(key.Sealed, 1))
			return err
		}))
		require.Len(t, seen, 2*each)
		enough := errors.New("enough")
		require.ErrorIs(t, db.ProviderKeys.Each(t.Context(), func(store.ProviderKey) error { return enough }), enough)
	})
}

func TestOrgModels(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		models, err := db.Organizations.Models(ctx, "org_1")
		require.NoError(t, err)
		require.Empty(t, models)
		for _, enabled := range []bool{true, false, false} {
			require.NoError(t, db.Organizations.SetModel(ctx, "cli", "org_1", "a/b", enabled))
			require.NoError(t, db.Organizations.SetModel(ctx, "cli", "org_1", "a/c", true))
			models, err = db.Organizations.Models(ctx, "org_1")
			require.NoError(t, err)
			require.Equal(t, map[string]bool{"a/b": enabled, "a/c": true}, models)
		}
		require.ErrorIs(t, db.Organizations.SetModel(ctx, "cli", "org_none", "a/b", true), store.ErrNotFound)
	})
}

func TestAuditLog(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		for i := range 3 {
			require.NoError(t, db.AuditLog.Add(ctx, store.AuditEntry{At: 5, Actor: "usr_1", Action: "a.b", Target: fmt.Sprint(i), OrgID: "org_1", Detail: "d"}))
		}
		entries, err := db.AuditLog.List(ctx, "", store.Page{Limit: 2})
		require.NoError(t, err)
		require.Equal(t, []store.AuditEntry{
			{ID: entries[0].ID, At: 5, Actor: "usr_1", Action: "a.b", Target: "2", OrgID: "org_1", Detail: "d"},
			{ID: entries[1].ID, At: 5, Actor: "usr_1", Action: "a.b", Target: "1", OrgID: "org_1", Detail: "d"},
		}, entries)
		require.NoError(t, db.AuditLog.Add(ctx, store.AuditEntry{Actor: "usr_2", Action: "a.b", Target: "x", OrgID: "org_2"}))
		ours, err := db.AuditLog.List(ctx, "org_1", store.Page{Limit: 2})
		require.NoError(t, err)
		require.Equal(t, entries, ours)
		rest, err := db.AuditLog.List(ctx, "org_1", store.Page{After: ours[1].ID})
		require.NoError(t, err)
		require.Len(t, rest, 1)
		require.Equal(t, "0", rest[0].Target)
		all, err := db.AuditLog.List(ctx, "", store.Page{After: ours[0].ID})
		require.NoError(t, err)
		require.Equal(t, append(ours[1:], rest...), all)
	})
}

// TestSlowReads: a read that the store has no time for is refused as a write is, so that the client learns when to come back.
func TestSlowReads(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, engine)
			over, cancel := context.WithTimeout(t.Context(), 0)
			defer cancel()
			_, err := db.Widgets.ByID(over, "chn_none")
			require.ErrorIs(t, err, store.ErrBusy)
			left, leave := context.WithCancel(t.Context())
			leave()
			_, err = db.Widgets.ByID(left, "chn_none")
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, store.ErrBusy)
		})
	}
}

// A key lookup returns all that a request needs, and shows a change as soon as any process has written it.
func TestKeyByHash(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			location := storetest.Location(t, engine)
			db := storetest.OpenAt(t, location, store.Options{})
			other := storetest.OpenAt(t, location, store.Options{}) // as another process
			_, found, err := db.APIKeys.ByHash(ctx, [32]byte{1})
			require.NoError(t, err)
			require.False(t, found)

			createOrganization(t, other, "org_1")
			require.NoError(t, other.APIKeys.Create(ctx, "cli", store.APIKey{
				ID: "key_1", OrgID: "org_1", Env: store.Test, Scopes: []string{"chat:write", "models:read"}, Hash: [32]byte{1}, ExpiresAt: at(9),
			}))
			record, found, err := db.APIKeys.ByHash(ctx, [32]byte{1})
			require.NoError(t, err)
			require.True(t, found)
			require.Greater(t, record.NowMS, int64(1_700_000_000_000))
			now := record.NowMS
			record.NowMS = 0
			require.Equal(t, store.KeyRecord{
				KeyID: "key_1", OrgID: "org_1", Hash: [32]byte{1}, Env: store.Test, Scopes: "chat:write models:read", Plan: "free", ExpiresAt: at(9),
			}, record)

			require.NoError(t, other.Organizations.SetPlan(ctx, "cli", "org_1", "pro"))
			require.NoError(t, other.Organizations.SetSuspended(ctx, "cli", "org_1", true, ""))
			require.NoError(t, other.APIKeys.Revoke(ctx, "cli", "org_1", "key_1"))
			require.NoError(t, other.Organizations.SetModel(ctx, "cli", "org_1", "a/b", false))
			record, found, err = db.APIKeys.ByHash(ctx, [32]byte{1})
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, "pro", record.Plan)
			require.True(t, record.HasOrgModels)
			require.GreaterOrEqual(t, record.SuspendedAt.Int64, now)
			require.GreaterOrEqual(t, record.RevokedAt.Int64, now)
		})
	}
}

// Many lookups at once each get their own answer.
func TestKeyByHashAtOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		for i := range byte(10) {
			require.NoError(t, db.APIKeys.Create(t.Context(), "cli", store.APIKey{
				ID: fmt.Sprint("key_", i), OrgID: "org_1", Env: store.Live, Hash: [32]byte{i},
			}))
		}
		errs := make(chan error)
		for worker := range byte(32) {
			go func() {
				for i := range byte(50) {
					hash := [32]byte{(worker + i) % 12} // 10 and 11 don't exist
					record, found, err := db.APIKeys.ByHash(context.Background(), hash)
					if err == nil && (found != (hash[0] < 10) || found && record.KeyID != fmt.Sprint("key_", hash[0])) {
						err = fmt.Errorf("hash %d answered %t %s", hash[0], found, record.KeyID)
					}
					if err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
		}
		for range 32 {
			require.NoError(t, <-errs)
		}
	})
}
