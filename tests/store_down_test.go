package tests

import (
	"context"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestStoreThatCannotWrite guarantees docs/billing.md#what-each-ending-costs: while no write gets through, a finished stream ends
// with an error event instead of a charge, new calls get 500 before the provider is asked, reads go on; and when writes
// work again, what was held is given back, so that an answer that was reported as failed costs nothing. With tranches some
// calls would still be granted until the first write has failed.
func TestStoreThatCannotWrite(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		d.App += "tranches off\n"
		p := startProduct(t, d)
		c := p.operator().customer(t, 1_000_000)
		streams := holdStreams(t, p, up, c, 2)
		locked := connect(t, p.location)
		run := func(statement string) {
			_, err := locked.ExecContext(context.Background(), statement)
			require.NoError(t, err)
		}
		if p.location.Engine == store.Postgres {
			run("BEGIN")
			run("LOCK TABLE wallets IN EXCLUSIVE MODE")
		} else {
			run("BEGIN IMMEDIATE")
		}
		streams.gate.open()
		asked := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
		together(4, func(i int) {
			a, err := p.as(c).tryChat(prompt(modelStd, asked.Mark, i%2 == 0))
			if failOn(t, err) {
				expectStatus(t, a, http.StatusInternalServerError)
			}
		})
		require.Empty(t, asked.Calls())
		for _, live := range streams.live {
			a := live.rest()
			events := events(t, a.Body)
			require.Equal(t, "internal_error", parseError(t, []byte(events[len(events)-1])).Code)
			requireCut(t, a)
		}
		require.Equal(t, http.StatusOK, p.as(c).get(t, "/v1/models").Status)
		run("COMMIT")
		p.await("the holds to be given back", patience, func() bool { return p.operator().openHolds(t) == 0 })
		require.EqualValues(t, 1_000_000, c.wallet(t).BalanceMicros)
		requireCompletion(t, p.as(c).chat(t, prompt(modelStd, asked.Mark, false)), modelStd)
		require.EqualValues(t, 1_000_000-usualCharge, c.wallet(t).BalanceMicros)
		require.Contains(t, p.metrics(t), "svc_settle_late_total 2")
	})
}

// TestStoreIsGone guarantees that a store that can't be reached is 500, never 401, and readiness says so; when it
// is back, so is the service, without a restart.
func TestStoreIsGone(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.Postgres, up))
	c := p.operator().customer(t, 1_000_000)
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)

	settings, err := pgx.ParseConfig(p.location.DSN)
	require.NoError(t, err)
	name := settings.Database
	settings.Database = "template1" // it is on every server
	server, err := pgx.ConnectConfig(t.Context(), settings)
	require.NoError(t, err)
	defer server.Close(context.Background()) //nolint:errcheck // the statements' results count
	run := func(statement string) {
		_, err := server.Exec(context.Background(), statement)
		require.NoError(t, err)
	}
	p.closeOperatorStore(t) // the server would cut its connections too, and its pool trusts one that was used within the last second
	run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false")
	run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'")
	asked := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	for range 3 {
		requireError(t, p.as(c).get(t, "/v1/models"), "internal_error")
		requireError(t, p.as(c).chat(t, prompt(modelStd, asked.Mark, true)), "internal_error")
		requireError(t, p.withKey(unknownKey()).get(t, "/v1/models"), "internal_error")
	}
	require.Empty(t, asked.Calls())
	requireReady := func(status int) {
		p.await("readiness to follow", patience, func() bool {
			response, err := p.clear.Get(p.SideURL + "/ready") //nolint:noctx // it is local
			require.NoError(t, err)
			_ = response.Body.Close()
			return response.StatusCode == status
		})
	}
	requireReady(http.StatusServiceUnavailable)
	run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	requireReady(http.StatusOK)
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, asked.Mark, false)), modelStd)
}
