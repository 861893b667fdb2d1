package tests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestBrowserAccount guarantees that people look after their own account, with the keyboard, too: they see where they are
// signed in, change the password, which ends their other sessions, and sign out everywhere. When a person of a higher role has
// reset the password, they see at the next sign-in which one. All of it is accessible.
func TestBrowserAccount(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	owner, p := b.person(t, "owner"), b.person(t, "member")
	elsewhere := &person{tab: openTab(t, c.BaseURL), Email: p.Email, Password: p.Password}
	elsewhere.open("/dashboard/login")
	elsewhere.signIn()

	p.follow(`.who a[href="/dashboard/account"]`)
	p.requireAccessible()
	p.picture("the account")
	require.Equal(t, 2, p.count("#sessions tbody tr"))
	require.Equal(t, 1, p.count("#sessions strong"), "one of them is this one")

	p.fill("#account-password-currentPassword", "not the password")
	p.fill("#account-password-password", "tea is served at five")
	p.submitBad("form#account-password")
	p.requireFieldError("account-password-currentPassword")
	p.requireAccessible()
	require.Empty(t, p.value("#account-password-password"), "passwords are not kept")
	p.open("/dashboard/account")
	p.tabTo("account-password-currentPassword")
	p.keys(p.Password)
	p.Password = "tea is served at five"
	p.tabTo("account-password-password")
	p.keys(p.Password)
	p.enter()
	require.Equal(t, "/dashboard/account", p.path())
	require.Contains(t, p.text("#notice"), "Your password was changed")
	require.Equal(t, 1, p.count("#sessions tbody tr"))
	p.requireAccessible()
	elsewhere.open("/dashboard")
	require.Equal(t, "/dashboard/login", elsewhere.path(), "the other session has ended")
	elsewhere.Password = p.Password
	elsewhere.signIn()

	p.open("/dashboard/account")
	p.submit("form#account-leave")
	require.Equal(t, "/dashboard/login", p.path())
	p.requireAccessible()
	elsewhere.open("/dashboard/account")
	require.Equal(t, "/dashboard/login", elsewhere.path())
	p.signIn()
	require.False(t, p.has("#password-reset"))

	owner.open("/dashboard/members/" + p.userID(b))
	require.Equal(t, p.Email, owner.text("h1"))
	owner.submit("form#member-link")
	link := owner.text("#new-link")
	owner.requireAccessible()
	p.Password = "coffee is served at six"
	p.welcome(link)
	require.Contains(t, p.text("#password-reset"), owner.Email)
	p.requireAccessible()
	p.picture("a password that was reset")
}

// TestBrowserEndedThings guarantees that the pages of an expired invitation and of a channel that lost its account say so and
// are accessible, and that the list of keys names their makers.
func TestBrowserEndedThings(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	p := b.person(t, "owner")
	l := b.line(t, social.Messenger)
	db := connect(t, c.location)

	p.open("/dashboard/members")
	p.fill("#member-invite-email", "mai@example.com")
	p.submit("form#member-invite")
	for _, statement := range []string{
		`UPDATE invitations SET expires_at = created_at + 1, created_at = created_at - 700000000`,
		`UPDATE channels SET state = 'pending', lost_external_id = external_id, external_id = ''`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	p.open("/dashboard/members")
	p.awaitText("#members", "The invitation has expired")
	p.requireAccessible()
	p.open("/dashboard/channels/" + l.ID)
	require.Contains(t, p.text("#channel-lost"), "another organization")
	p.requireAccessible()
	p.picture("a lost channel")

	p.open("/dashboard/keys")
	p.fill("#key-create-name", "Shop backend")
	p.submit("form#key-create")
	p.open("/dashboard/keys")
	p.awaitText("#keys", p.Email)
	p.requireAccessible()
}

// userID is the person's id.
func (p *person) userID(b *business) string {
	p.t.Helper()
	user, err := b.db.Users.ByEmail(p.t.Context(), b.OrgID, p.Email)
	require.NoError(p.t, err)
	return user.ID
}
