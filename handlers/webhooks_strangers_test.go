package handlers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// A delivery that was seen on its way is good at the address that it was made for and at no other: neither at another
// platform's nor at that of another bot.
func TestWebhookDeliveriesElsewhere(t *testing.T) {
	t.Parallel()
	for _, seen := range everyPlatform() {
		for _, other := range everyPlatform() {
			if seen.name == other.name && seen.name != "bot" {
				continue // it has one address
			}
			g := newGate(t)
			path := strings.Replace(other.path, "chn_bot1", "chn_bot2", 1)
			for _, header := range []string{seen.header, other.header} {
				refusedWith(t, CodeUnauthenticated, other.serve(g), delivery(path, header, seen.sign(seen.text), seen.text))
			}
			require.Zero(t, g.enqueues)
		}
	}
}

// Deliveries for channels that don't exist write nothing, however many come and however well they are signed.
func TestWebhookWritesNothingForStrangers(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{inbox.Kind}, func(t *testing.T, db *store.DB) {
		g := newGate(t)
		g.Webhooks = NewWebhooks(g.config, db, inbox.New(db, testRing(t)), testRing(t), nil, nil)
		before := rowsOf(t, db)
		require.Greater(t, len(before), 20)
		for i := range 100 {
			for _, p := range everyPlatform() {
				p.path = strings.Replace(p.path, "chn_bot1", fmt.Sprintf("chn_%026d", i), 1)
				acknowledged(t, p.serve(g), p.signed(p.text), 0)
			}
		}
		require.Equal(t, before, rowsOf(t, db))
	})
}

// rowsOf is how many rows each table of a store has.
func rowsOf(t *testing.T, db *store.DB) map[string]int {
	t.Helper()
	tables := `SELECT name FROM sqlite_master WHERE type = 'table'`
	if db.Engine() == store.Postgres {
		tables = `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`
	}
	rows, err := db.Reader().QueryContext(t.Context(), tables)
	require.NoError(t, err)
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		counts[name] = 0
	}
	require.NoError(t, rows.Err())
	for name := range counts {
		var n int
		require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM `+name).Scan(&n))
		counts[name] = n
	}
	return counts
}
