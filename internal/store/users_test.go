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
	require.NoError(t, db.Users.Invite(t.Context(), "test", user, link))
	return link
}

func joinUser(t *testing.T, db *store.DB, orgID, id, role string) store.NewSession {
	t.Helper()
	link := inviteUser(t, db, orgID, id, role)
	session := store.NewSession{Hash: [32]byte{2, id[len(id)-1]}, Lifetime: 60_000}
	require.NoError(t, db.UserLinks.Use(t.Context(), link.Hash, "hash", "", session))
	return session
}

func anyUser(store.User) error { return nil }

// A link that has expired sets no password, whatever was read of it before.
func TestUseExpiredLink(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		link := inviteUser(t, db, "org_1", "usr_1", "owner")
		write(t, db, `UPDATE invitations SET expires_at = 1`)
		session := store.NewSession{Hash: [32]byte{9}, Lifetime: 60_000}
		require.ErrorIs(t, db.UserLinks.Use(t.Context(), link.Hash, "hash", "", session), store.ErrNotFound)
		user, err := db.Users.ByID(t.Context(), "org_1", "usr_1")
		require.NoError(t, err)
		require.False(t, user.Active)
		_, found, err := db.Sessions.ByHash(t.Context(), session.Hash)
		require.NoError(t, err)
		require.False(t, found)
	})
}

// An invitation that has expired is shown for a while, gives way to another one of its address, and is deleted in the end.
func TestExpiredInvitations(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		shown := func() (ids []string) {
			users, err := db.Users.List(t.Context(), "org_1", store.Page{})
			require.NoError(t, err)
			for _, user := range users {
				ids = append(ids, user.ID)
			}
			return ids
		}
		for i, id := range []string{"usr_1", "usr_2", "usr_3"} {
			inviteUser(t, db, "org_1", id, "member")
			write(t, db, `UPDATE invitations SET expires_at = $1 WHERE id = $2`, nowOf(t, db)-int64(i)*20*86_400_000, id)
		}
		require.Equal(t, []string{"usr_1", "usr_2", "usr_3"}, shown())
		again := store.User{ID: "usr_4", OrgID: "org_1", Email: "usr_1@example.com", Role: "member"}
		link := store.UserLink{Hash: [32]byte{4}, Lifetime: 60_000}
		require.NoError(t, db.Users.Invite(t.Context(), "test", again, link))
		require.Equal(t, []string{"usr_2", "usr_4"}, shown(), "40 days are long ago, 20 are not")
		again.ID = "usr_5"
		require.ErrorIs(t, db.Users.Invite(t.Context(), "test", again, link), store.ErrConflict)
	})
}

func nowOf(t *testing.T, db *store.DB) int64 {
	t.Helper()
	now, err := db.Now(t.Context())
	require.NoError(t, err)
	return now
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
		remove := func() error { return one.Users.Delete(ctx, "test", "org_1", "usr_1", anyUser) }
		lower := func() error { return two.Users.SetRole(ctx, "test", "org_1", "usr_2", "member", anyUser) }
		for _, change := range []func() error{remove, lower} {
			go func() { errs <- storetest.Insist(change) }()
		}
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
