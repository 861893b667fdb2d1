package tests

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const (
	// lostCalls is how many calls lose the commit of their hold, and lostTogether how many of them at a time.
	lostCalls, lostTogether = 200, 20
	// mostWaves bounds the tries to lose so many: a call that is refused before its hold loses nothing.
	mostWaves = 60
)

// TestLostCommitsLeaveNothingRunning guarantees that calls whose holds and keys have commits that PostgreSQL did, or never
// heard of, and that no answer confirmed, end soon after it is back, long before they would expire: nothing is held, no key is
// taken, no call counts as running, and a resend under the same key runs.
func TestLostCommitsLeaveNothingRunning(t *testing.T) {
	t.Parallel()
	var wire *storetest.Wire
	o := prepareOutage(t, func(d *deployment) {
		wire = storetest.StartWire(t, d.location)
		settings, err := pgx.ParseConfig(wire.Location.DSN)
		require.NoError(t, err)
		address := net.JoinHostPort(settings.Host, strconv.Itoa(int(settings.Port)))
		d.env = append(slices.Clone(d.env), d.storeBehind(t, address))
		d.Longest, d.HoldTTL = "10m", "10m"
	})
	c := o.operator().customer(t, outageFunds)
	c.ownKey(t, "acme", "sk-of-the-customer-0123456789")
	s := o.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	as := o.bounded.as(c)
	goodDay := o.goroutines(t)

	asks := []keyedCall{ // one of each kind
		{model: modelStd}, {model: modelStd, key: "hold"}, {model: modelStd, key: "own", byok: true}, {model: modelFree, key: "free"},
	}
	ask := func(wave, i int) keyedCall {
		call := asks[i%len(asks)]
		if call.body = prompt(call.model, s.Mark, false); call.key != "" {
			call.key = fmt.Sprintf("%s-%d-%d", call.key, wave, i)
		}
		return call
	}
	send := func(call *keyedCall) (answer, error) {
		if call.key == "" {
			return as.tryChat(call.body)
		}
		return as.tryChat(call.body, call.headers()...)
	}
	late := func() int { return int(o.metric(t, "svc_settle_late_total")) }
	waves := 0
	for before := late(); late() < before+lostCalls; waves++ {
		require.Less(t, waves, mostWaves, "%d of %d calls lost their commit", late()-before, lostCalls)
		wire.LoseCommits(waves%2 == 0)
		answers := make([]answer, lostTogether)
		together(lostTogether, func(i int) {
			var err error
			call := ask(waves, i)
			answers[i], err = send(&call)
			failOn(t, err)
		})
		for _, a := range answers {
			requireError(t, a, "internal_error")
		}
	}
	require.Empty(t, s.Calls(), "the provider was called without knowing of the hold")

	wire.CutAnswers()
	o.requireReady(503)
	wire.Mend()
	back := time.Now()
	o.await("no call to run", 2*patience, func() bool { return o.metric(t, "svc_calls_running") == 0 })
	t.Logf("%d waves, %d commits lost; nothing ran %s after the store was back", waves, wire.Lost(), time.Since(back).Round(time.Millisecond))
	require.Zero(t, c.openHolds(t))
	c.awaitNothingHeld(t)
	require.NotContains(t, o.log.String(), sweptCredits, "holds were left to expire")
	require.Positive(t, c.voids(t))
	var taken int
	require.NoError(t, c.db.Reader().QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM running_keys WHERE org_id = $1)
		+ (SELECT count(*) FROM idempotency_keys WHERE org_id = $1)`, c.OrgID).Scan(&taken))
	require.Zero(t, taken, "keys are taken by calls that failed")
	o.requireReady(200)
	o.requireFewGoroutines(t, goodDay)

	for i := range lostTogether {
		call := ask(waves-1, i)
		a, err := send(&call)
		require.NoError(t, err)
		requireCompletion(t, a, call.model)
		require.Empty(t, a.Header.Get(replayHeader))
	}
	require.Len(t, s.Calls(), lostTogether)
}
