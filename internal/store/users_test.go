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

// A person that a process of an older version keeps as a user without a password counts as invited: the list shows the person, the
// link works and ends, and another organization's invitation of the address takes nothing from it.
func TestInvitationsOfOlderProcesses(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		old := func(id string, hash byte, days int64) store.UserLink {
			link := store.UserLink{Hash: [32]byte{hash}}
			write(t, db, `INSERT INTO users (id, org_id, email, role, password, created_at, updated_at)
				VALUES ($1, 'org_1', $1 || '@example.com', 'owner', '', $2, $2)`, id, nowOf(t, db)-days*86_400_000)
			write(t, db, `INSERT INTO user_links (hash, user_id, org_id, purpose, created_at, expires_at)
				VALUES ($1, $2, 'org_1', 'invite', 1, 4000000000000)`, link.Hash[:], id)
			return link
		}
		session := func(n byte) store.NewSession { return store.NewSession{Hash: [32]byte{9, n}, Lifetime: 60_000} }
		first, second := old("usr_a", 1, 0), old("usr_b", 2, 0)
		old("usr_c", 3, 7)
		listed, err := db.Users.List(t.Context(), "org_1", store.Page{})
		require.NoError(t, err)
		require.Len(t, listed, 3)
		require.False(t, listed[0].Active)
		require.Equal(t, listed[0].CreatedAt+7*86_400_000, listed[0].ExpiresAt)
		require.NoError(t, db.UserLinks.Use(t.Context(), first.Hash, "hash", "", session(1)))
		joined, err := db.Users.ByID(t.Context(), "org_1", "usr_a")
		require.NoError(t, err)
		require.Zero(t, joined.ResetAt, "the first password is no reset")

		invite := func(orgID, id, email string, hash byte) error {
			return db.Users.Invite(t.Context(), "test", store.User{ID: id, OrgID: orgID, Email: email, Role: "member"},
				store.UserLink{Hash: [32]byte{hash}, Lifetime: 60_000})
		}
		require.ErrorIs(t, invite("org_1", "usr_d", "usr_b@example.com", 4), store.ErrConflict)
		require.NoError(t, invite("org_1", "usr_e", "usr_c@example.com", 5), "it has expired")
		require.NoError(t, invite("org_2", "usr_f", "usr_b@example.com", 6))
		require.NoError(t, db.UserLinks.Use(t.Context(), [32]byte{6}, "hash", "", session(2)))
		shown, err := db.Users.ByID(t.Context(), "org_1", "usr_b")
		require.NoError(t, err, "it isn't told that the address has a user now")
		require.False(t, shown.Active)
		require.ErrorIs(t, db.UserLinks.Use(t.Context(), second.Hash, "other hash", "", session(3)), store.ErrSalt)
		require.NoError(t, db.UserLinks.Use(t.Context(), second.Hash, "other hash", "hash", session(3)))
		records, err := db.Logins.ByEmail(t.Context(), "usr_b@example.com")
		require.NoError(t, err)
		require.Equal(t, []string{"usr_b other hash", "usr_f hash"}, []string{records[0].UserID + " " + records[0].Password, records[1].UserID + " " + records[1].Password})
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
