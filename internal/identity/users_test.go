package identity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const password = "correct horse battery"

// fixture is an organization with its people.
type fixture struct {
	t        *testing.T
	db       *store.DB
	users    *identity.Users
	sessions *identity.Sessions
	orgID    string
}

func newFixture(t *testing.T, db *store.DB, name string) *fixture {
	t.Helper()
	return &fixture{
		t: t, db: db, users: identity.NewUsers(db), sessions: identity.NewCheapSessions(db), orgID: newOrganization(t, db, name).ID,
	}
}

func as(role identity.Role) identity.Authority { return identity.Authority{Actor: "test", Role: role} }

func (o *fixture) invite(email string, role identity.Role) (id string, link identity.Link) {
	o.t.Helper()
	user, link, err := o.users.Invite(o.t.Context(), as(identity.Owner), o.orgID, email, role)
	require.NoError(o.t, err)
	return user.ID, link
}

// join invites a user and uses the link.
func (o *fixture) join(email string, role identity.Role) (id, session string) {
	o.t.Helper()
	id, link := o.invite(email, role)
	session, principal, err := o.sessions.BeginWithLink(o.t.Context(), link.Token, password, identity.Client{})
	require.NoError(o.t, err)
	require.Equal(o.t, id, principal.UserID)
	return id, session
}

func (o *fixture) signedOut(session string) {
	o.t.Helper()
	_, err := o.sessions.Authenticate(o.t.Context(), session)
	require.ErrorIs(o.t, err, identity.ErrNoSession)
}

func (o *fixture) role(id string) identity.Role {
	o.t.Helper()
	user, err := o.db.Users.ByID(o.t.Context(), o.orgID, id)
	require.NoError(o.t, err)
	return identity.Role(user.Role)
}

func TestInvite(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o, other := t.Context(), newFixture(t, db, "Acme"), newFixture(t, db, "Other")
		user, link, err := o.users.Invite(ctx, as(identity.Administrator), o.orgID, " Lan@Example.com ", identity.Member)
		require.NoError(t, err)
		require.Regexp(t, `^usr_`, user.ID)
		require.Equal(t, "lan@example.com", user.Email)
		require.False(t, user.Active)
		require.NotZero(t, user.CreatedAt)
		require.Len(t, link.Token, 43)
		require.Equal(t, 7*24*time.Hour, link.Lifetime)

		_, _, err = o.users.Invite(ctx, as(identity.Owner), o.orgID, "LAN@example.com", identity.Member)
		require.ErrorIs(t, err, store.ErrConflict, "case doesn't make another address")
		_, theirs, err := o.users.Invite(ctx, as(identity.Owner), other.orgID, "LAN@example.com", identity.Member)
		require.NoError(t, err, "an invitation doesn't keep an address from other organizations")
		_, _, err = o.users.Invite(ctx, as(identity.Owner), "org_nobody", "new@example.com", identity.Member)
		require.ErrorIs(t, err, store.ErrNotFound)
		var field *identity.FieldError
		_, _, err = o.users.Invite(ctx, as(identity.Owner), o.orgID, "lan", identity.Member)
		require.ErrorAs(t, err, &field)
		_, _, err = o.users.Invite(ctx, as(identity.Owner), o.orgID, "new@example.com", "boss")
		require.ErrorAs(t, err, &field)

		_, _, err = o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{})
		require.ErrorIs(t, err, identity.ErrWrongPassword, "without a password nobody signs in")
		_, principal, err := o.sessions.BeginWithLink(ctx, link.Token, password, identity.Client{})
		require.NoError(t, err)
		require.Equal(t, user.ID, principal.UserID)
		require.Equal(t, identity.Member, principal.Role)
		require.Equal(t, o.orgID, principal.OrgID)
		require.Equal(t, store.Live, principal.Env)
		require.True(t, principal.Scopes.Has(identity.AgentsWrite))
		require.False(t, principal.Scopes.Has(identity.ChannelsWrite))

		_, principal, err = o.sessions.BeginWithLink(ctx, theirs.Token, "a password of their own", identity.Client{})
		require.NoError(t, err, "nor does a user")
		require.Equal(t, other.orgID, principal.OrgID)
		named, err := db.Users.ByEmail(ctx, other.orgID, "lan@example.com")
		require.NoError(t, err)
		require.Equal(t, principal.UserID, named.ID)
		require.Equal(t, "lan@example.com", named.Email)
		_, _, err = o.users.Invite(ctx, as(identity.Owner), other.orgID, "lan@example.com", identity.Member)
		require.ErrorIs(t, err, store.ErrConflict, "an organization has one user with an address")

		listed, err := db.Users.List(ctx, o.orgID, store.Page{})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.True(t, listed[0].Active)
		_, _, err = o.users.Invite(ctx, as(identity.Owner), o.orgID, "lan@example.com", identity.Member)
		require.ErrorIs(t, err, store.ErrConflict)
		again, _, err := o.users.Invite(ctx, as(identity.Owner), newFixture(t, db, "Third").orgID, "lan@example.com", identity.Member)
		require.NoError(t, err, "it isn't told that there is a user")
		require.False(t, again.Active)
	})
}

// An organization that opens its own invitation of a stranger's address doesn't keep the stranger from an account elsewhere, nor gets
// into it: each signs in with the own password, and neither learns of the other. A sign-in computes one hash for both.
func TestAnAddressIsNobodysAlone(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, squatter, owner := t.Context(), newFixture(t, db, "Squatter"), newFixture(t, db, "Shop")
		begin := func(password, organization string) (identity.Principal, error) {
			_, principal, err := owner.sessions.Begin(ctx, "lan@example.com", password, organization, identity.Client{})
			return principal, err
		}
		accept := func(o *fixture, password string) identity.Principal {
			t.Helper()
			_, link, err := o.users.Invite(ctx, as(identity.Owner), o.orgID, "lan@example.com", identity.Member)
			require.NoError(t, err)
			_, principal, err := o.sessions.BeginWithLink(ctx, link.Token, password, identity.Client{})
			require.NoError(t, err)
			return principal
		}
		squatted := accept(squatter, "the squatter's password")
		lan := accept(owner, password)
		require.Equal(t, owner.orgID, lan.OrgID)
		for password, want := range map[string]identity.Principal{"the squatter's password": squatted, password: lan} {
			for _, organization := range []string{"", want.OrgID} {
				principal, err := begin(password, organization)
				require.NoError(t, err)
				require.Equal(t, []string{want.OrgID, want.UserID}, []string{principal.OrgID, principal.UserID})
			}
		}
		for _, wrong := range [][2]string{{"the squatter's password", owner.orgID}, {password, "Squatter"}, {password, "org_x"}, {"another password", ""}} {
			_, err := begin(wrong[0], wrong[1])
			require.ErrorIs(t, err, identity.ErrWrongPassword)
		}

		// A reset and a change keep the salt.
		link, err := owner.users.NewLink(ctx, as(identity.Owner), owner.orgID, lan.UserID)
		require.NoError(t, err)
		_, _, err = owner.sessions.BeginWithLink(ctx, link.Token, password, identity.Client{})
		require.NoError(t, err)
		token, _, err := squatter.sessions.Begin(ctx, "lan@example.com", "the squatter's password", "", identity.Client{})
		require.NoError(t, err)
		require.NoError(t, squatter.sessions.ChangePassword(ctx, token, "the squatter's password", password))
		requireOneSalt(t, db, 2)

		// Both have the same password now.
		_, err = begin(password, "")
		several, ok := errors.AsType[*identity.SeveralOrganizationsError](err)
		require.True(t, ok, err)
		require.ElementsMatch(t, []string{squatter.orgID, owner.orgID}, []string{several.Users[0].OrgID, several.Users[1].OrgID})
		for organization, want := range map[string]string{"Shop": owner.orgID, owner.orgID: owner.orgID, "Squatter": squatter.orgID} {
			principal, err := begin(password, organization)
			require.NoError(t, err)
			require.Equal(t, want, principal.OrgID)
		}

		// The one who leaves takes nothing along.
		require.NoError(t, squatter.users.Remove(ctx, as(identity.Owner), squatter.orgID, squatted.UserID))
		principal, err := begin(password, "")
		require.NoError(t, err)
		require.Equal(t, lan.UserID, principal.UserID)
	})
}

// Invitations of one address that are used at the same moment get one salt, on any number of nodes.
func TestOneSaltOfAnAddress(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			const organizations = 4
			start, errs := make(chan struct{}), make(chan error)
			var dbs []*store.DB
			for i := range organizations {
				dbs = append(dbs, storetest.OpenAt(t, location, store.Options{}))
				o := newFixture(t, dbs[i], fmt.Sprint("Shop ", i))
				_, link, err := o.users.Invite(t.Context(), as(identity.Owner), o.orgID, "lan@example.com", identity.Owner)
				require.NoError(t, err)
				go func() {
					<-start
					_, _, err := o.sessions.BeginWithLink(context.WithoutCancel(t.Context()), link.Token, fmt.Sprint("the password number ", i), identity.Client{})
					errs <- err
				}()
			}
			close(start)
			for range organizations {
				require.NoError(t, <-errs)
			}
			requireOneSalt(t, dbs[0], organizations)
		})
	}
}

// requireOneSalt requires that the users with the address lan@example.com share their salt.
func requireOneSalt(t *testing.T, db *store.DB, users int) {
	t.Helper()
	records, err := db.Logins.ByEmail(t.Context(), "lan@example.com")
	require.NoError(t, err)
	require.Len(t, records, users)
	for _, record := range records {
		require.Equal(t, strings.Split(records[0].Password, "$")[4], strings.Split(record.Password, "$")[4])
	}
}

// A link works once, and only the newest one of a user.
func TestLinks(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o := t.Context(), newFixture(t, db, "Acme")
		id, first := o.invite("lan@example.com", identity.Member)
		second, err := o.users.NewLink(ctx, as(identity.Administrator), o.orgID, id)
		require.NoError(t, err)
		require.Equal(t, identity.InviteLifetime, second.Lifetime, "she has no password to reset yet")
		_, _, err = o.sessions.BeginWithLink(ctx, first.Token, password, identity.Client{})
		require.ErrorIs(t, err, identity.ErrLinkUsed)
		var field *identity.FieldError
		for _, refused := range []string{"short", "password1234"} {
			_, _, err = o.sessions.BeginWithLink(ctx, second.Token, refused, identity.Client{})
			require.ErrorAs(t, err, &field, "and the link is still good after %q", refused)
		}
		session, _, err := o.sessions.BeginWithLink(ctx, second.Token, password, identity.Client{})
		require.NoError(t, err)
		for _, token := range []string{second.Token, "", "x", session} {
			_, _, err = o.sessions.BeginWithLink(ctx, token, password, identity.Client{})
			require.ErrorIs(t, err, identity.ErrLinkUsed)
		}

		reset, err := o.users.NewLink(ctx, as(identity.Administrator), o.orgID, id)
		require.NoError(t, err)
		require.Equal(t, identity.ResetLifetime, reset.Lifetime)
		_, err = o.sessions.Authenticate(ctx, session)
		require.NoError(t, err, "until the link is used all stays as it is")
		third, _, err := o.sessions.BeginWithLink(ctx, reset.Token, "another password", identity.Client{})
		require.NoError(t, err)
		o.signedOut(session)
		_, err = o.sessions.Authenticate(ctx, third)
		require.NoError(t, err)
		_, _, err = o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{})
		require.ErrorIs(t, err, identity.ErrWrongPassword)
		unused, err := o.users.NewLink(ctx, as(identity.Administrator), o.orgID, id)
		require.NoError(t, err)
		require.NoError(t, o.sessions.ChangePassword(ctx, third, "another password", password))
		_, _, err = o.sessions.BeginWithLink(ctx, unused.Token, password, identity.Client{})
		require.ErrorIs(t, err, identity.ErrLinkUsed, "it was for the password before")
		_, err = o.users.NewLink(ctx, as(identity.Owner), o.orgID, "usr_nobody")
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = o.users.NewLink(ctx, as(identity.Owner), newFixture(t, db, "Other").orgID, id)
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

// Of two uses of one link at the same moment one succeeds.
func TestOneLinkUsedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		o := newFixture(t, db, "Acme")
		_, link := o.invite("lan@example.com", identity.Member)
		errs := make(chan error)
		for range 4 {
			go func() {
				_, _, err := o.sessions.BeginWithLink(context.WithoutCancel(t.Context()), link.Token, password, identity.Client{})
				errs <- err
			}()
		}
		in := 0
		for range 4 {
			if err := <-errs; err == nil {
				in++
			} else {
				require.ErrorIs(t, err, identity.ErrLinkUsed)
			}
		}
		require.Equal(t, 1, in)
	})
}

// An administrator manages members, an owner also owners.
func TestWhoMayChangeWhom(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o := t.Context(), newFixture(t, db, "Acme")
		o.invite("first@example.com", identity.Owner)
		for _, c := range []struct {
			by, target identity.Role
			want       error
		}{
			{identity.Member, identity.Member, identity.ErrAdministratorsOnly},
			{"", identity.Member, identity.ErrAdministratorsOnly},
			{identity.Administrator, identity.Member, nil},
			{identity.Administrator, identity.Administrator, nil},
			{identity.Administrator, identity.Owner, identity.ErrOwnersOnly},
			{identity.Owner, identity.Owner, nil},
		} {
			id, _ := o.invite("x@example.com", c.target)
			_, _, err := o.users.Invite(ctx, as(c.by), o.orgID, "y@example.com", c.target)
			require.ErrorIs(t, err, c.want)
			_, err = o.users.NewLink(ctx, as(c.by), o.orgID, id)
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, o.users.SetRole(ctx, as(c.by), o.orgID, id, identity.Member), c.want)
			if c.want != nil {
				require.Equal(t, c.target, o.role(id))
			}
			require.ErrorIs(t, o.users.Remove(ctx, as(c.by), o.orgID, id), c.want)
			if c.want != nil {
				require.NoError(t, o.users.Remove(ctx, as(identity.Owner), o.orgID, id))
				continue
			}
			invited, err := db.Users.ByEmail(ctx, o.orgID, "y@example.com")
			require.NoError(t, err)
			require.NoError(t, o.users.Remove(ctx, as(identity.Owner), o.orgID, invited.ID))
		}
		id, _ := o.invite("x@example.com", identity.Member)
		require.ErrorIs(t, o.users.SetRole(ctx, as(identity.Administrator), o.orgID, id, identity.Owner), identity.ErrOwnersOnly, "nobody makes themselves an owner")
		require.ErrorIs(t, o.users.SetRole(ctx, as(identity.Owner), o.orgID, "usr_nobody", identity.Owner), store.ErrNotFound)
		require.ErrorIs(t, o.users.Remove(ctx, as(identity.Owner), newFixture(t, db, "Other").orgID, id), store.ErrNotFound)
		require.Equal(t, identity.Member, o.role(id))
	})
}

func TestLastOwner(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o := t.Context(), newFixture(t, db, "Acme")
		first, _ := o.join("first@example.com", identity.Owner)
		pending, _ := o.invite("pending@example.com", identity.Owner)
		o.join("admin@example.com", identity.Administrator)
		require.ErrorIs(t, o.users.Remove(ctx, as(identity.Owner), o.orgID, first), store.ErrLastOwner, "who was only invited can't sign in")
		require.ErrorIs(t, o.users.SetRole(ctx, as(identity.Owner), o.orgID, first, identity.Administrator), store.ErrLastOwner)
		require.NoError(t, o.users.SetRole(ctx, as(identity.Owner), o.orgID, first, identity.Owner))
		require.NoError(t, o.users.Remove(ctx, as(identity.Owner), o.orgID, pending))

		second, _ := o.join("second@example.com", identity.Owner)
		errs := make(chan error)
		for _, id := range []string{first, second} { // both go at once: one stays
			go func() { errs <- o.users.Remove(context.WithoutCancel(ctx), as(identity.Owner), o.orgID, id) }()
		}
		err := errors.Join(<-errs, <-errs)
		require.ErrorIs(t, err, store.ErrLastOwner)
		users, err := db.Users.List(ctx, o.orgID, store.Page{})
		require.NoError(t, err)
		require.Len(t, users, 2)
	})
}

// Every change of users is in the audit log with its actor, and without secrets.
func TestUsersAreAudited(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o := t.Context(), newFixture(t, db, "Acme")
		o.join("first@example.com", identity.Owner)
		id, session := o.join("lan@example.com", identity.Member)
		require.NoError(t, o.sessions.End(ctx, session))
		require.NoError(t, o.users.SetRole(ctx, as(identity.Owner), o.orgID, id, identity.Administrator))
		require.NoError(t, o.users.SetRole(ctx, as(identity.Owner), o.orgID, id, identity.Administrator), "no change, no entry")
		link, err := o.users.NewLink(ctx, as(identity.Owner), o.orgID, id)
		require.NoError(t, err)
		_, _, err = o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{})
		require.NoError(t, err)
		require.NoError(t, o.users.Remove(ctx, as(identity.Owner), o.orgID, id))

		log, err := db.AuditLog.List(ctx, o.orgID, store.Page{})
		require.NoError(t, err)
		var entries []string
		for _, entry := range log {
			require.Equal(t, o.orgID, entry.OrgID)
			require.NotContains(t, entry.Detail, link.Token)
			if entry.Target == id {
				entries = append(entries, entry.Actor+" "+entry.Action+" "+entry.Detail)
			}
		}
		require.Equal(t, []string{
			"test user.remove administrator: lan@example.com", id + " session.begin ", "test user.link reset: lan@example.com",
			"test user.set_role member to administrator: lan@example.com", id + " session.end ",
			id + " user.set_password invite", "test user.invite member: lan@example.com",
		}, entries)
	})
}
