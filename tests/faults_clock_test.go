package tests

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// clockNode is what a node does that depends on the time: it holds, leases, signs in, reads keys and counts.
type clockNode struct {
	db       *store.DB
	book     *billing.Book
	queue    *inbox.Queue
	sessions *identity.Sessions
	keys     *identity.Authenticator
	windows  *limit.Windows
}

func openClockNode(t *testing.T, location store.Location) *clockNode {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // t.Context ends before the node is closed
	db, err := store.Open(ctx, location, store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close(ctx)) })
	ring, err := vault.ParseRing("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	require.NoError(t, err)
	return &clockNode{
		db: db, book: billing.NewBook(db), queue: inbox.New(db, ring), sessions: identity.NewSessions(db, ring, nil),
		keys: identity.NewAuthenticator(db.APIKeys), windows: limit.NewStore(db.Windows()),
	}
}

// clockTest is an organization with credits, a channel and two keys, of which one has expired by PostgreSQL's clock.
type clockTest struct {
	*clockNode
	wallet         billing.WalletID
	route          store.Route
	link           identity.Link
	valid, expired string
}

func newClockTest(t *testing.T, here *clockNode) *clockTest {
	t.Helper()
	ctx := t.Context()
	organization, err := identity.CreateOrganization(ctx, here.db, actor, "Two clocks", planDefault, "")
	require.NoError(t, err)
	c := &clockTest{clockNode: here, wallet: billing.WalletID{OrgID: organization.ID, Env: store.Live}}
	_, err = here.book.Credit(ctx, actor, c.wallet, 1_000_000, "r")
	require.NoError(t, err)
	require.NoError(t, here.db.Channels.Create(ctx, actor, store.Channel{
		ID: "chn_1", OrgID: organization.ID, Type: "bot", Name: "bot", State: store.ChannelActive,
	}, 0))
	c.route = store.Route{ChannelID: "chn_1", OrgID: organization.ID, Type: "bot", State: store.ChannelActive}
	_, c.link, err = identity.NewUsers(here.db).Invite(ctx, identity.Authority{Actor: actor, Role: identity.Owner}, organization.ID, "lan@example.com", identity.Owner)
	require.NoError(t, err)
	now, err := here.db.Now(ctx)
	require.NoError(t, err)
	for raw, age := range map[*string]time.Duration{&c.valid: time.Hour, &c.expired: -time.Hour} {
		ends := time.UnixMilli(now).Add(age)
		key, err := identity.CreateAPIKey(ctx, here.db, actor, identity.KeyRequest{OrgID: organization.ID, ExpiresAt: &ends})
		require.NoError(t, err)
		*raw = key.Raw
	}
	return c
}

// hold holds 1,000 micros for a call.
func (c *clockTest) hold(t *testing.T, by *clockNode, call string, life time.Duration) {
	t.Helper()
	_, err := by.book.Hold(t.Context(), billing.Hold{CallID: call, Wallet: c.wallet, AmountMicros: 1000, ExpiresIn: life})
	require.NoError(t, err)
}

// lease stores a message of a customer and leases what is due.
func (c *clockTest) lease(t *testing.T, by *clockNode, customer string, life time.Duration) {
	t.Helper()
	item := inbox.Item{Kind: platforms.Text, CustomerRef: customer, Address: customer, MessageID: customer, Text: "hello"}
	require.NoError(t, by.queue.Enqueue(t.Context(), []inbox.Arrival{{Route: c.route, Items: []inbox.Item{item}}}))
	c.requireDue(t, by, life, customer)
}

// requireDue leases everything that is due for a node, which must be the conversations of these customers.
func (c *clockTest) requireDue(t *testing.T, by *clockNode, life time.Duration, customers ...string) {
	t.Helper()
	leases, err := by.queue.Lease(t.Context(), inbox.Places{Free: 10}, life)
	require.NoError(t, err)
	due := []string{}
	for _, lease := range leases {
		due = append(due, lease.CustomerRef)
	}
	require.ElementsMatch(t, customers, due)
}

// requireSwept requires that a sweep of a node finds so many holds expired.
func (c *clockTest) requireSwept(t *testing.T, by *clockNode, holds int) {
	t.Helper()
	lost, err := by.book.Sweep(t.Context())
	require.NoError(t, err)
	require.Len(t, lost.Calls, holds)
}

// TestNodesWithDifferentClocks guarantees that two nodes agree about the time, whatever their machines' clocks show: holds,
// leases, sessions, keys and windows are as old for either of them as they are by PostgreSQL's clock. One node runs in a bubble
// of package synctest, whose clock shows the year 2000, or the year 2099.
func TestNodesWithDifferentClocks(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"behind": 0, "ahead": 100 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			location := storetest.Migrated(t, store.Postgres)
			c := newClockTest(t, openClockNode(t, location))
			here := c.clockNode
			onTheOther := func(f func(t *testing.T, there *clockNode)) {
				synctest.Test(t, func(t *testing.T) {
					<-time.After(ahead) // moves the clock of the bubble
					there := openClockNode(t, location)
					now, err := there.db.Now(t.Context())
					require.NoError(t, err)
					require.Greater(t, time.Since(time.UnixMilli(now)).Abs(), 20*365*24*time.Hour, "the clocks agree")
					f(t, there)
				})
			}

			var session string
			onTheOther(func(t *testing.T, there *clockNode) {
				c.hold(t, there, "call_there", time.Hour)
				c.lease(t, there, "ann", time.Hour)
				var err error
				session, _, err = there.sessions.BeginWithLink(t.Context(), c.link.Token, "a password of the other node", identity.Client{})
				require.NoError(t, err)
				_, err = there.keys.Authenticate(t.Context(), c.valid)
				require.NoError(t, err)
				_, err = there.keys.Authenticate(t.Context(), c.expired)
				require.ErrorIs(t, err, identity.ErrInvalidKey)
			})
			c.requireSwept(t, here, 0)
			c.requireDue(t, here, time.Hour)
			_, err := here.sessions.Authenticate(t.Context(), session)
			require.NoError(t, err)

			// What has come to its end by PostgreSQL's clock is at its end for the other node.
			c.hold(t, here, "call_here", time.Millisecond)
			c.lease(t, here, "bob", time.Millisecond)
			require.NoError(t, here.db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
				tx.Queue(1, `UPDATE sessions SET seen_at = seen_at - $1`, identity.SessionIdle.Milliseconds())
				return nil
			}))
			began, err := here.db.Now(t.Context())
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				now, err := here.db.Now(t.Context())
				return err == nil && now > began+1
			}, patience, time.Millisecond)
			onTheOther(func(t *testing.T, there *clockNode) {
				c.requireSwept(t, there, 1)
				c.requireDue(t, there, time.Hour, "bob")
				_, err := there.sessions.Authenticate(t.Context(), session)
				require.ErrorIs(t, err, identity.ErrNoSession)
			})
			c.requireSameWindow(t, onTheOther)

			settled, err := here.book.Settle(t.Context(), billing.Settlement{
				Call: billing.Call{
					ID: "call_there", Wallet: c.wallet, Model: modelStd, UsageSource: billing.UsageProvider, Outcome: "completed",
					Usage: billing.Usage{CompletionTokens: 400},
				},
				Price: billing.Price{Output: 1_000_000}, ReservedMicros: 1000,
			})
			require.NoError(t, err)
			require.EqualValues(t, 400, settled.ChargedMicros, "the hold of the other node is open")
			report, err := billing.Check(t.Context(), here.db)
			require.NoError(t, err)
			require.True(t, report.OK(), "%+v", report.Findings)
		})
	}
}

// requireSameWindow requires that both nodes count in one window of the rate limit, unless a minute ends in between, each time.
func (c *clockTest) requireSameWindow(t *testing.T, onTheOther func(func(*testing.T, *clockNode))) {
	t.Helper()
	for try := range 3 {
		organization := fmt.Sprintf("org_window_%d", try)
		first, err := c.windows.Take(t.Context(), organization, 1)
		require.NoError(t, err)
		require.True(t, first.Allowed)
		var second limit.Decision
		onTheOther(func(t *testing.T, there *clockNode) {
			second, err = there.windows.Take(t.Context(), organization, 1)
			require.NoError(t, err)
		})
		if !second.Allowed {
			return
		}
	}
	t.Fatal("the nodes count in windows of their own")
}
