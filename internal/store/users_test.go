package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func inviteUser(t *testing.T, db *store.DB, orgID, id, role string) store.UserLink {
	t.Helper()
	link := store.UserLink{Hash: [32]byte{1, id[len(id)-1]}, Purpose: "invite", Lifetime: 60_000}
	user := store.User{ID: id, OrgID: orgID, Email: id + "@example.com", Role: role}
	require.NoError(t, db.CreateUser(t.Context(), "test", user, link))
	return link
}

func joinUser(t *testing.T, db *store.DB, orgID, id, role string) store.NewSession {
	t.Helper()
	link := inviteUser(t, db, orgID, id, role)
	session := store.NewSession{Hash: [32]byte{2, id[len(id)-1]}, Lifetime: 60_000}
	require.NoError(t, db.UseLink(t.Context(), link.Hash, "hash", session))
	return session
}

func anyUser(store.User) error { return nil }

// A link that has expired sets no password, whatever was read of it before.
func TestUseExpiredLink(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		link := inviteUser(t, db, "org_1", "usr_1", "owner")
		write(t, db, `UPDATE user_links SET expires_at = 1`)
		session := store.NewSession{Hash: [32]byte{9}, Lifetime: 60_000}
		require.ErrorIs(t, db.UseLink(t.Context(), link.Hash, "hash", session), store.ErrNotFound)
		user, err := db.UserByID(t.Context(), "org_1", "usr_1")
		require.NoError(t, err)
		require.False(t, user.Active)
		_, found, err := db.SessionByHash(t.Context(), session.Hash)
		require.NoError(t, err)
		require.False(t, found)
	})
}

// Two nodes that remove the two last owners at the same moment leave one.
func TestLastOwnerOnTwoNodes(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	one, two := storetest.OpenAt(t, location, store.Options{}), storetest.OpenAt(t, location, store.Options{})
	createOrganization(t, one, "org_1")
	for range 20 {
		joinUser(t, one, "org_1", "usr_1", "owner")
		joinUser(t, one, "org_1", "usr_2", "owner")
		ctx, errs := context.WithoutCancel(t.Context()), make(chan error, 2)
		go func() { errs <- one.DeleteUser(ctx, "test", "org_1", "usr_1", anyUser) }()
		go func() { errs <- two.SetUserRole(ctx, "test", "org_1", "usr_2", "member", anyUser) }()
		first, second := <-errs, <-errs
		require.NotEqual(t, first == nil, second == nil, "%v; %v", first, second)
		for _, err := range []error{first, second} {
			if err != nil {
				require.ErrorIs(t, err, store.ErrLastOwner)
			}
		}
		for _, table := range []string{"sessions", "user_links", "users"} {
			write(t, one, "DELETE FROM "+table)
		}
	}
}
