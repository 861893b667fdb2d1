package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// What every request changes in place stays on its page and touches no index (PostgreSQL's HOT updates), so that no
// vacuum is needed for it: wallets, windows, and a conversation that gets one more message. Keys, turns and parts that
// end leave the partial index of what is open, which no HOT update can; the schema has them vacuumed early, and holds, whose rows end.
func TestUpdatesStayOnTheirPage(t *testing.T) {
	t.Parallel()
	const rounds, organizations = 60, 5
	location := storetest.Location(t, store.Postgres)
	db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}})
	ring, err := vault.ParseRing("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	require.NoError(t, err)
	n := node{db: db, book: billing.NewBook(db), windows: limit.NewStore(db.Windows()), queue: inbox.New(db, ring)}
	for i := range organizations {
		org, channel := fmt.Sprint("org_", i), fmt.Sprint("chn_", i)
		createOrganization(t, db, org)
		createChannel(t, db, store.Channel{ID: channel, OrgID: org, Type: "photo_dm", ExternalID: channel})
		_, err := n.book.Credit(t.Context(), "cli", billing.WalletID{OrgID: org, Env: store.Live}, 1_000_000, "r")
		require.NoError(t, err)
	}
	for round := range rounds {
		for i := range organizations {
			n.serve(t, fmt.Sprint("org_", i), fmt.Sprint("chn_", i), fmt.Sprintf("%d-%d", round, i))
		}
	}
	require.NoError(t, db.Close(t.Context())) // a session tells its figures when it ends
	conn, err := pgx.Connect(t.Context(), location.DSN)
	require.NoError(t, err)
	defer conn.Close(context.Background()) // it only read
	require.Eventually(t, func() bool {
		var sessions int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&sessions)
		return err == nil && sessions == 0
	}, time.Minute, 10*time.Millisecond)
	for _, table := range []string{"wallets", "rate_windows", "conversations"} {
		var updates, hot int
		require.NoError(t, conn.QueryRow(t.Context(),
			`SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = $1`, table).Scan(&updates, &hot))
		require.Greater(t, updates, rounds/2*organizations, table) // a new minute begins new windows
		// Nearly all are. While the server analyzes the table old rows stay on their page, and some updates find it full.
		require.Greater(t, 4*hot, 3*updates, "%s: %d of %d updates were HOT", table, hot, updates)
	}
}

// serve is a call that is paid and a text that arrives.
func (n *node) serve(t *testing.T, org, channel, id string) {
	t.Helper()
	ctx := t.Context()
	wallet := billing.WalletID{OrgID: org, Env: store.Live}
	_, err := n.windows.Take(ctx, org, 1_000_000)
	require.NoError(t, err)
	_, err = n.book.Hold(ctx, billing.Hold{CallID: id, Wallet: wallet, AmountMicros: 5, ExpiresIn: time.Hour})
	require.NoError(t, err)
	_, err = n.book.Settle(ctx, costing(id, wallet, 3, 5))
	require.NoError(t, err)
	require.NoError(t, n.queue.Enqueue(ctx, []inbox.Arrival{{
		Route: store.Route{ChannelID: channel, OrgID: org, Type: "photo_dm"},
		Items: []inbox.Item{{Kind: platforms.Text, CustomerRef: "c", MessageID: id, Text: "hello"}},
	}}))
}
