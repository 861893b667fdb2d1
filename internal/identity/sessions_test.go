package identity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// clock is a database's clock that the test moves.
type clock struct{ now atomic.Int64 }

func (c *clock) pass(d time.Duration) { c.now.Add(int64(d)) }

// clocked returns a fixture on a SQLite database whose clock stands still at the beginning of a minute.
func clocked(t *testing.T) (*fixture, *clock) {
	t.Helper()
	c := new(clock)
	c.now.Store(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixNano())
	db := storetest.OpenAt(t, storetest.Location(t, store.SQLite), store.Options{
		Clock: func() time.Time { return time.Unix(0, c.now.Load()) },
	})
	return newFixture(t, db, "Acme"), c
}

func TestSession(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o := t.Context(), newFixture(t, db, "Acme")
		id, _ := o.join("lan@example.com", identity.Owner)
		first, principal, err := o.sessions.Begin(ctx, " LAN@example.com", password, "", identity.Client{Address: "192.0.2.1"})
		require.NoError(t, err)
		require.Equal(t, id, principal.UserID)
		require.Empty(t, principal.KeyID)
		second, _, err := o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{Address: "192.0.2.1"})
		require.NoError(t, err)
		require.NotEqual(t, first, second)
		require.Len(t, first, 43)

		another := identity.NewCheapSessions(db) // of another node
		seen, err := another.Authenticate(ctx, first)
		require.NoError(t, err)
		require.Equal(t, principal, seen)
		require.NoError(t, db.Organizations.SetSuspended(ctx, "test", o.orgID, true, ""))
		seen, err = another.Authenticate(ctx, first)
		require.NoError(t, err)
		require.True(t, seen.Suspended)

		require.NoError(t, o.sessions.End(ctx, first))
		require.NoError(t, o.sessions.End(ctx, first), "twice is no fault")
		_, err = another.Authenticate(ctx, first)
		require.ErrorIs(t, err, identity.ErrNoSession)
		_, err = another.Authenticate(ctx, second)
		require.NoError(t, err)
		for _, token := range []string{"", "x", strings.Repeat("a", 43), second + "=", strings.ToUpper(second), second[:42]} {
			o.signedOut(token)
			require.NoError(t, o.sessions.End(ctx, token))
		}
	})
}

// Only hashes of tokens and passwords are stored.
func TestNoSecretOfASessionIsStored(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		o := newFixture(t, db, "Acme")
		id, session := o.join("lan@example.com", identity.Owner)
		link, err := o.users.NewLink(t.Context(), identity.Authority{Actor: "cli:root", Role: identity.Owner, Operator: true}, o.orgID, id)
		require.NoError(t, err)
		for _, table := range []string{"users", "sessions", "user_links", "login_windows", "audit_log"} {
			rows, err := db.Reader().QueryContext(t.Context(), "SELECT * FROM "+table) //nolint:unqueryvet // every column, also a new one
			require.NoError(t, err)
			defer rows.Close()
			columns, err := rows.Columns()
			require.NoError(t, err)
			for rows.Next() {
				values := make([]any, len(columns))
				for i := range values {
					values[i] = new(any)
				}
				require.NoError(t, rows.Scan(values...))
				text := ""
				for _, value := range values {
					text += fmt.Sprintf("%s|", *value.(*any))
				}
				for _, secret := range []string{session, link.Token, password} {
					require.NotContains(t, text, secret[:len(secret)/3], table)
				}
			}
			require.NoError(t, rows.Err())
		}
	})
}

// Sessions end: idle 12 hours, absolute 7 days; by the database's clock.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	o, c := clocked(t)
	_, idle := o.join("lan@example.com", identity.Owner)
	c.pass(12*time.Hour - time.Second)
	_, err := o.sessions.Authenticate(t.Context(), idle)
	require.NoError(t, err)
	c.pass(12*time.Hour - time.Second) // it was used in between
	_, err = o.sessions.Authenticate(t.Context(), idle)
	require.NoError(t, err)
	c.pass(12 * time.Hour)
	o.signedOut(idle)

	token, _, err := o.sessions.Begin(t.Context(), "lan@example.com", password, "", identity.Client{})
	require.NoError(t, err)
	for range 14 {
		_, err = o.sessions.Authenticate(t.Context(), token)
		require.NoError(t, err)
		c.pass(12*time.Hour - time.Millisecond)
	}
	_, err = o.sessions.Authenticate(t.Context(), token)
	require.NoError(t, err)
	c.pass(14 * time.Millisecond)
	o.signedOut(token)
}

// A user's list has the sessions that can still be used, the newest first; ending all of them ends no other user's.
func TestListSessions(t *testing.T) {
	t.Parallel()
	o, c := clocked(t)
	ctx := t.Context()
	id, first := o.join("lan@example.com", identity.Owner)
	lan := identity.Principal{OrgID: o.orgID, UserID: id}
	_, others := o.join("mai@example.com", identity.Owner)
	c.pass(time.Hour)
	second, _, err := o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{Agent: "Browser"})
	require.NoError(t, err)
	listed := func(token string, sessions, current int) []store.LiveSession {
		t.Helper()
		list, is, err := o.sessions.List(ctx, lan, token)
		require.NoError(t, err)
		require.Len(t, list, sessions)
		require.Equal(t, current, is)
		return list
	}
	require.Equal(t, "Browser", listed(first, 2, 1)[0].Client)
	listed(others, 2, -1)
	c.pass(11 * time.Hour)
	listed(second, 1, 0) // the first was not used for 12 hours
	for range 14 {
		_, err = o.sessions.Authenticate(ctx, second)
		require.NoError(t, err)
		c.pass(11 * time.Hour)
	}
	_, err = o.sessions.Authenticate(ctx, second)
	require.NoError(t, err)
	listed(second, 1, 0)
	c.pass(3 * time.Hour)
	listed(second, 0, -1) // it was used lately, and its seven days are over

	session, _, err := o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{})
	require.NoError(t, err)
	others, _, err = o.sessions.Begin(ctx, "mai@example.com", password, "", identity.Client{})
	require.NoError(t, err)
	require.NoError(t, o.sessions.EndAll(ctx, lan))
	o.signedOut(session)
	_, err = o.sessions.Authenticate(ctx, others)
	require.NoError(t, err)
	log, err := o.db.AuditLog.List(ctx, "", store.Page{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, []string{id, "session.end_all", id}, []string{log[0].Actor, log[0].Action, log[0].Target})
}

func TestLinksExpire(t *testing.T) {
	t.Parallel()
	o, c := clocked(t)
	id, invite := o.invite("lan@example.com", identity.Owner)
	c.pass(identity.InviteLifetime)
	_, _, err := o.sessions.BeginWithLink(t.Context(), invite.Token, password, identity.Client{})
	require.ErrorIs(t, err, identity.ErrLinkUsed)
	link, err := o.users.NewLink(t.Context(), as(identity.Owner), o.orgID, id)
	require.NoError(t, err)
	c.pass(identity.InviteLifetime - time.Millisecond)
	_, _, err = o.sessions.BeginWithLink(t.Context(), link.Token, password, identity.Client{})
	require.NoError(t, err)
}

// A change of role ends the user's sessions and link; a removed user has none.
func TestSessionsOfChangedUsers(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o := t.Context(), newFixture(t, db, "Acme")
		_, owners := o.join("first@example.com", identity.Owner)
		id, session := o.join("lan@example.com", identity.Member)
		earlier, err := o.users.NewLink(ctx, as(identity.Administrator), o.orgID, id)
		require.NoError(t, err)
		require.NoError(t, o.users.SetRole(ctx, as(identity.Owner), o.orgID, id, identity.Administrator))
		o.signedOut(session)
		_, _, err = o.sessions.BeginWithLink(ctx, earlier.Token, password, identity.Client{})
		require.ErrorIs(t, err, identity.ErrLinkUsed, "who made a link for a member doesn't sign in as more")
		session, principal, err := o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{})
		require.NoError(t, err)
		require.Equal(t, identity.Administrator, principal.Role)
		require.NoError(t, o.users.Remove(ctx, as(identity.Owner), o.orgID, id))
		o.signedOut(session)
		_, _, err = o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{})
		require.ErrorIs(t, err, identity.ErrWrongPassword)
		_, err = o.sessions.Authenticate(ctx, owners)
		require.NoError(t, err, "others stay signed in")
	})
}

// A hash of a former cost is renewed at the next sign-in, and the password stays valid.
func TestPasswordsAreHashedAnew(t *testing.T) {
	t.Parallel()
	o, _ := clocked(t)
	o.join("lan@example.com", identity.Owner)
	stored := func() string {
		records, err := o.db.Logins.ByEmail(t.Context(), "lan@example.com")
		require.NoError(t, err)
		return records[0].Password
	}
	cheap := stored()
	require.Contains(t, cheap, "$m=8,t=1,p=1$")
	today := identity.NewSessions(o.db, nil, nil)
	for range 2 {
		_, _, err := today.Begin(t.Context(), "lan@example.com", password, "", identity.Client{})
		require.NoError(t, err)
		require.Contains(t, stored(), "$m=19456,t=2,p=1$")
	}
}

// An unknown user, a user without a password and a wrong password get the same error.
func TestWrongPasswordsAreAllAlike(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		o := newFixture(t, db, "Acme")
		o.join("lan@example.com", identity.Owner)
		o.invite("invited@example.com", identity.Member)
		for _, c := range [][2]string{
			{"lan@example.com", "another password"},
			{"nobody@example.com", password},
			{"invited@example.com", password},
			{"invited@example.com", ""},
			{"lan@example.com", ""},
			{"lan@example.com", strings.Repeat("x", 300)},
			{"", password},
			{"lan", password},
			{"lan\x00@example.com", password},
		} {
			_, _, err := o.sessions.Begin(t.Context(), c[0], c[1], "", identity.Client{})
			require.Equal(t, identity.ErrWrongPassword, err)
		}
	})
}

func (o *fixture) fail(email, address string) error {
	_, _, err := o.sessions.Begin(o.t.Context(), email, "a wrong password", "", identity.Client{Address: address})
	return err
}

// Failures are counted per minute, for each user at each address, for each user, and for each address.
func TestThrottle(t *testing.T) {
	t.Parallel()
	o, c := clocked(t)
	o.join("lan@example.com", identity.Owner)
	c.pass(time.Second)
	refused := func(err error) {
		t.Helper()
		var throttled *identity.ThrottledError
		require.ErrorAs(t, err, &throttled)
		require.Equal(t, 59*time.Second, throttled.RetryAfter)
	}
	for range 5 {
		require.ErrorIs(t, o.fail("lan@example.com", "192.0.2.1"), identity.ErrWrongPassword)
	}
	for range 20 { // and however often it is tried, nobody else is kept out by this address
		refused(o.fail("LAN@example.com", "192.0.2.1"))
	}
	_, _, err := o.sessions.Begin(t.Context(), "lan@example.com", password, "", identity.Client{Address: "192.0.2.1"})
	refused(err)
	for range 6 { // from elsewhere she gets in, and good logins don't count
		_, _, err = o.sessions.Begin(t.Context(), "lan@example.com", password, "", identity.Client{Address: "192.0.2.2"})
		require.NoError(t, err)
	}
	// 26 of the 30 of the address are used up by attempts on one user, those that were refused too; the rest by four others.
	for i := range 4 {
		require.ErrorIs(t, o.fail(fmt.Sprintf("user%d@example.com", i), "192.0.2.1"), identity.ErrWrongPassword)
	}
	refused(o.fail("yet-another@example.com", "192.0.2.1"))
	// Sixty failures of one user from everywhere.
	for i := range 55 {
		require.ErrorIs(t, o.fail("lan@example.com", fmt.Sprintf("198.51.100.%d", i/5)), identity.ErrWrongPassword)
	}
	refused(o.fail("lan@example.com", "192.0.2.99"))
	refused(o.fail("lan@example.com", ""))
	c.pass(59 * time.Second)
	_, _, err = o.sessions.Begin(t.Context(), "lan@example.com", password, "", identity.Client{Address: "192.0.2.1"})
	require.NoError(t, err, "the next window")
}

// Failed logins of strangers never keep a person out on a known device, whose own failures have a bound of their own.
func TestKnownDevice(t *testing.T) {
	t.Parallel()
	o, _ := clocked(t)
	ctx := t.Context()
	id, _ := o.join("lan@example.com", identity.Owner)
	o.join("mai@example.com", identity.Owner)
	lan := identity.Principal{OrgID: o.orgID, UserID: id}
	device, err := o.sessions.Device(ctx, lan)
	require.NoError(t, err)
	other, err := o.sessions.Device(ctx, lan)
	require.NoError(t, err)
	require.NotEqual(t, device, other)
	for i := range 60 {
		require.ErrorIs(t, o.fail("lan@example.com", fmt.Sprintf("198.51.100.%d", i/5)), identity.ErrWrongPassword)
	}
	try := func(email, password, device string) error {
		_, _, err := o.sessions.Begin(ctx, email, password, "", identity.Client{Address: "198.51.100.1", Device: device})
		return err
	}
	var throttled *identity.ThrottledError
	require.ErrorAs(t, try("lan@example.com", password, ""), &throttled)
	release := o.sessions.Occupy()
	require.NoError(t, try("lan@example.com", password, device), "whatever strangers do, and though they have all their turns")
	release()
	for range 10 {
		require.ErrorIs(t, try("lan@example.com", "a wrong password", device), identity.ErrWrongPassword)
	}
	require.ErrorAs(t, try("lan@example.com", password, device), &throttled, "the device's own failures")
	require.NoError(t, try("lan@example.com", password, other), "and of no other device")
	for _, forged := range []string{
		device[:len(device)-1], device + "x", strings.Repeat("x", 22) + other[22:], other[:22] + device[22:], strings.Repeat("x", len(device)), "." + other,
	} {
		require.ErrorAs(t, try("lan@example.com", password, forged), &throttled, forged)
	}
	for range 5 { // another user's device is a stranger's
		require.ErrorIs(t, try("mai@example.com", "a wrong password", other), identity.ErrWrongPassword)
	}
	require.ErrorAs(t, try("mai@example.com", password, other), &throttled)

	operator := identity.Authority{Actor: "cli:root", Role: identity.Owner, Operator: true}
	link, err := o.users.NewLink(ctx, operator, o.orgID, id)
	require.NoError(t, err)
	_, _, err = o.sessions.BeginWithLink(ctx, link.Token, "another password", identity.Client{})
	require.NoError(t, err)
	require.ErrorAs(t, try("lan@example.com", "another password", other), &throttled, "a new password forgets the devices")
}

// A one-time link, a session and a known device each give a turn to hash a password that strangers can't take.
func TestKeptTurns(t *testing.T) {
	t.Parallel()
	o, _ := clocked(t)
	ctx := t.Context()
	_, link := o.invite("lan@example.com", identity.Owner)
	defer o.sessions.Occupy()()
	session, lan, err := o.sessions.BeginWithLink(ctx, link.Token, password, identity.Client{})
	require.NoError(t, err)
	require.NoError(t, o.sessions.ChangePassword(ctx, session, password, "another password"))

	device, err := o.sessions.Device(ctx, lan)
	require.NoError(t, err)
	today := identity.NewSessions(o.db, nil, nil) // hashes anew what was cheap
	defer today.Occupy()()
	_, _, err = today.Begin(ctx, "lan@example.com", "another password", "", identity.Client{Device: device})
	require.NoError(t, err)
	_, _, err = today.Begin(ctx, "lan@example.com", "another password", "", identity.Client{})
	require.ErrorIs(t, err, identity.ErrBusy)
}

// Failed logins are in the audit log of the person's organization, few of many.
func TestFailedLoginsAreAudited(t *testing.T) {
	t.Parallel()
	o, c := clocked(t)
	id, _ := o.join("lan@example.com", identity.Owner)
	for i := range 12 {
		require.ErrorIs(t, o.fail("lan@example.com", fmt.Sprintf("198.51.100.%d", i)), identity.ErrWrongPassword)
		require.ErrorIs(t, o.fail("nobody@example.com", fmt.Sprintf("198.51.100.%d", i)), identity.ErrWrongPassword)
		c.pass(2 * time.Minute)
	}
	log, err := o.db.AuditLog.List(t.Context(), "", store.Page{Limit: 100})
	require.NoError(t, err)
	failed := map[string]int{}
	for _, entry := range log {
		if entry.Action == "session.fail" {
			require.Equal(t, []string{o.orgID, id, "login"}, []string{entry.OrgID, entry.Target, entry.Actor})
			failed[strings.Join(strings.Fields(entry.Detail)[:4], " ")]++
			require.Contains(t, entry.Detail, "from 198.51.100.")
		}
	}
	require.Contains(t, failed, "failed login number 1")
	require.LessOrEqual(t, len(log), 6, "not one for each")
}

// A login that is refused because too many passwords are being checked is no failed one: no attempt is used up.
func TestBusyIsNoFailure(t *testing.T) {
	t.Parallel()
	o, _ := clocked(t)
	o.join("lan@example.com", identity.Owner)
	release := o.sessions.Occupy()
	for range 70 { // more than any bound
		require.ErrorIs(t, o.fail("lan@example.com", "192.0.2.1"), identity.ErrBusy)
	}
	release()
	_, _, err := o.sessions.Begin(t.Context(), "lan@example.com", password, "", identity.Client{Address: "192.0.2.1"})
	require.NoError(t, err)
}

// Attempts at the same moment, over three nodes, don't pass the bound together.
func TestThrottleOnSeveralNodes(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	var nodes [3]*identity.Sessions
	for i := range nodes {
		nodes[i] = identity.NewCheapSessions(storetest.OpenAt(t, location, store.Options{}))
	}
	const attempts = 200
	errs := make(chan error, attempts)
	for i := range attempts {
		go func() {
			errs <- storetest.Insist(func() error {
				_, _, err := nodes[i%len(nodes)].Begin(context.WithoutCancel(t.Context()), "lan@example.com", "a wrong password", "", identity.Client{})
				return err
			})
		}()
	}
	tried := 0
	for range attempts {
		if err := <-errs; errors.Is(err, identity.ErrWrongPassword) {
			tried++
		} else {
			var throttled *identity.ThrottledError
			require.ErrorAs(t, err, &throttled)
		}
	}
	require.LessOrEqual(t, tried, 120, "sixty, or twice sixty when a minute begins meanwhile")
	require.GreaterOrEqual(t, tried, 60)
}

func TestSessionsWithoutTheStore(t *testing.T) {
	t.Parallel()
	o, _ := clocked(t)
	_, session := o.join("lan@example.com", identity.Owner)
	require.NoError(t, o.db.Close(t.Context()))
	_, err := o.sessions.Authenticate(t.Context(), session)
	require.ErrorIs(t, err, store.ErrClosed)
	_, _, err = o.sessions.Begin(t.Context(), "lan@example.com", password, "", identity.Client{})
	require.ErrorIs(t, err, store.ErrClosed)
	_, _, err = o.sessions.BeginWithLink(t.Context(), session, password, identity.Client{})
	require.ErrorIs(t, err, store.ErrClosed)
	require.ErrorIs(t, o.sessions.End(t.Context(), session), store.ErrClosed)
}
