package store_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestWidgetSettings(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		settings := store.WidgetSettings{
			Origins: []string{"https://shop.vn", "https://*.example.com"}, DailySpendMicros: sql.NullInt64{Int64: 0, Valid: true}, RequestsPerMinute: 7,
		}
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", Type: "widget", Widget: &settings})
		createChannel(t, db, store.Channel{ID: "chn_2", OrgID: "org_1", Type: "bot"})
		widget, err := db.Widgets.ByID(ctx, "chn_1")
		require.NoError(t, err)
		require.Equal(t, store.Widget{ChannelID: "chn_1", OrgID: "org_1", Settings: settings}, widget)
		for _, id := range []string{"chn_2", "chn_none", "", "\x00", "\xff"} {
			_, err := db.Widgets.ByID(ctx, id)
			require.ErrorIs(t, err, store.ErrNotFound, "%q", id)
		}

		changed := store.WidgetSettings{Origins: []string{}, RequestsPerMinute: 8}
		require.ErrorIs(t, db.Channels.Update(ctx, "cli", "org_2", "chn_1", store.ChannelChange{Widget: &changed}), store.ErrNotFound)
		require.NoError(t, db.Channels.Update(ctx, "cli", "org_1", "chn_1", store.ChannelChange{Widget: &changed}))
		channels, err := db.Channels.List(ctx, "org_1", store.Page{})
		require.NoError(t, err)
		require.Equal(t, []*store.WidgetSettings{&changed, nil}, []*store.WidgetSettings{channels[0].Widget, channels[1].Widget})
		log, err := db.AuditLog.List(ctx, "org_1", store.Page{})
		require.NoError(t, err)
		require.Contains(t, []string{log[0].Detail, log[len(log)-1].Detail}, "widget")

		require.NoError(t, db.Channels.Delete(ctx, "cli", "org_1", "chn_1"))
		_, err = db.Widgets.ByID(ctx, "chn_1")
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

// TestChannelSpendIsBounded: the sum is given up before the server's own bound, whichever transaction holds the lock for long.
func TestChannelSpendIsBounded(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	db := storetest.OpenAt(t, location, store.Options{})
	other, err := pgx.Connect(t.Context(), location.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close(context.WithoutCancel(t.Context()))) }()
	_, err = other.Exec(t.Context(), `BEGIN; LOCK TABLE turns IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	_, err = db.Widgets.Spend(t.Context(), "org_1", "chn_1", time.UnixMilli(0))
	require.ErrorContains(t, err, "longer than 2 s")
	_, err = other.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	_, err = db.Widgets.Spend(t.Context(), "org_1", "chn_1", time.UnixMilli(0))
	require.NoError(t, err)
}

// TestChannelSpend: only what the turns of this channel, begun in time, were charged. A turn has one call that can be: its last.
func TestChannelSpend(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		turn := func(id, channel string, at int64, call string) {
			write(t, db, `INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, code, attempts, created_at, updated_at, call_id, widget_id)
				VALUES ($1, 'org_1', $2, $1, 'agt_1', 'answered', '', 0, $3, $3, $4, $2)`, id, channel, at, call)
		}
		seq := 0
		call := func(id, request, key string, micros int64) {
			seq++
			write(t, db, `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens,
				completion_tokens, cached_tokens, usage_source, ended_at, duration_ms, reserved_micros, charged_micros, shortfall_micros,
				wallet_seq, balance_micros)
				VALUES ($1, $2, 'org_1', 'live', $3, 'm', 'p', FALSE, TRUE, 'completed', 1, 1, 0, 'provider', 1, 1, $4, $4, 0, $5, 1)`,
				id, request, key, micros, seq)
		}
		day := func(channel string, since int64) store.ChannelDay {
			day, err := db.Widgets.Spend(ctx, "org_1", channel, time.UnixMilli(since))
			require.NoError(t, err)
			return day
		}
		spend := func(channel string, since int64) int64 { return day(channel, since).SpentMicros }
		require.Zero(t, spend("chn_1", 0))
		turn("trn_1", "chn_1", 1000, "call_1")
		turn("trn_2", "chn_1", 2000, "call_2")
		turn("trn_3", "chn_2", 2000, "call_3")
		call("call_1", "trn_1", "", 1)
		call("call_2", "trn_2", "", 100)
		call("call_3", "trn_3", "", 1000)
		call("call_4", "trn_2", "key_1", 10_000) // a client's request id, by its own word
		require.EqualValues(t, 101, spend("chn_1", 1000))
		require.EqualValues(t, 100, spend("chn_1", 1001))
		require.EqualValues(t, 1000, spend("chn_2", 0))
		write(t, db, `UPDATE turns SET state = 'awaiting' WHERE id = 'trn_2'`)
		turn("trn_4", "chn_1", 2000, "call_5")
		write(t, db, `UPDATE turns SET state = 'awaiting' WHERE id = 'trn_4'`)
		require.Equal(t, store.ChannelDay{SpentMicros: 101, LargestMicros: 100, Asking: 2, Calls: 2}, day("chn_1", 1000), "one call runs")
		theirs, err := db.Widgets.Spend(context.WithoutCancel(ctx), "org_2", "chn_1", time.UnixMilli(0))
		require.NoError(t, err)
		require.Zero(t, theirs)
	})
}

// TestWalletSince: what a day began with, whatever was done since; a wallet of today began with its first entry.
func TestWalletSince(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		balances := func(org string, since int64) [2]int64 {
			now, then, err := db.Widgets.WalletSince(t.Context(), org, time.UnixMilli(since))
			require.NoError(t, err)
			return [2]int64{now, then}
		}
		require.Equal(t, [2]int64{0, 0}, balances("org_1", 1000))
		seq := map[string]int{}
		entry := func(env string, at, balance int64) {
			seq[env]++
			write(t, db, `INSERT INTO ledger_tx (id, org_id, env, wallet_seq, kind, account, ref, reason, amount_micros, balance_micros, created_at, audit_id)
				VALUES ($1, 'org_1', $2, $3, 'topup', 'sys:cash', $1, '', 1, $4, $5, '')`, store.NewID("txn"), env, seq[env], balance, at)
		}
		entry("live", 1000, 50)
		entry("live", 2000, 40)
		entry("live", 3000, 30)
		entry("test", 1500, 7)
		write(t, db, `INSERT INTO wallets (org_id, env, balance_micros, held_micros) VALUES ('org_1', 'live', 30, 5)`)
		require.Equal(t, [2]int64{30, 50}, balances("org_1", 1000), "the first entry")
		require.Equal(t, [2]int64{30, 50}, balances("org_1", 1999))
		require.Equal(t, [2]int64{30, 40}, balances("org_1", 2001))
		require.Equal(t, [2]int64{30, 30}, balances("org_1", 9000))
		require.Equal(t, [2]int64{0, 0}, balances("org_2", 1000))
		for number, id := range []string{"call_b", "call_a"} { // charges of one moment, the later one with the smaller id
			write(t, db, `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens,
				completion_tokens, cached_tokens, usage_source, ended_at, duration_ms, reserved_micros, charged_micros, shortfall_micros,
				wallet_seq, balance_micros)
				VALUES ($1, 'r', 'org_1', 'live', 'k', 'm', 'p', FALSE, TRUE, 'completed', 1, 1, 0, 'provider', 4000, 1, 5, 5, 0, $2, $3)`,
				id, 4+number, 25-5*number)
		}
		require.Equal(t, [2]int64{30, 30}, balances("org_1", 4000))
		require.Equal(t, [2]int64{30, 20}, balances("org_1", 4001))
	})
}
