package tests

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestLostSettle guarantees docs/billing.md#what-each-ending-costs when the settle did commit and only PostgreSQL's confirmation
// was lost: the call is reported as failed nevertheless. Without a key its charge is given back; with one the same
// request is replayed for that charge.
func TestLostSettle(t *testing.T) {
	t.Parallel()
	o := startOutage(t)
	for _, stream := range []bool{false, true} {
		for _, key := range []string{"", "again"} {
			gate := newGate(t)
			c := o.pendingCall(t, stream, key, gate)
			o.loseCommit(t, "calls", gate.open, func() { c.requireFailed(t) })
			require.EqualValues(t, usualCharge, c.calls(t)[0].Charged, "it did commit")
			c.requirePaidOnce(t, o)
			require.Len(t, c.script.Calls(), 1)
		}
	}
}

// TestLostHold guarantees that a hold whose commit was never confirmed by PostgreSQL leads to no call of the provider, and is
// given back at once: the same request works when the network does, under the same key, too.
func TestLostHold(t *testing.T) {
	t.Parallel()
	o := startOutage(t)
	for _, key := range []string{"", "again"} {
		c := o.operator().customer(t, pendingFunds)
		s := o.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
		var headers []string
		if key != "" {
			headers = []string{"Idempotency-Key", key}
		}
		ask := func() (answer, error) { return o.bounded.as(c).tryChat(prompt(modelStd, s.Mark, false), headers...) }
		answers := make(chan answer, 1)
		begin := func() {
			go func() {
				a, err := ask()
				failOn(t, err)
				answers <- a
			}()
		}
		table := "holds"
		if key != "" {
			table = "running_keys" // the row of the key holds
		}
		o.loseCommit(t, table, begin, func() { requireError(t, <-answers, "internal_error") })
		require.Empty(t, s.Calls(), "called without knowing of the hold")
		o.await("the hold to be given back", patience, func() bool { return c.wallet(t).HeldMicros == 0 })
		require.Equal(t, 1, c.voids(t))
		a, err := ask()
		require.NoError(t, err)
		requireCompletion(t, a, modelStd)
		require.EqualValues(t, pendingFunds-usualCharge, c.wallet(t).BalanceMicros)
	}
}

// TestLostDelivery guarantees that a platform whose delivery was stored, and PostgreSQL's word of it lost, is asked to
// come again, and that what comes again is one message.
func TestLostDelivery(t *testing.T) {
	t.Parallel()
	o := startOutage(t)
	hello := o.lines[social.Messenger].from(1).says("hello")
	answers := make(chan answer, 1)
	deliver := func() {
		go func() {
			a, err := o.bounded.tryDeliver(hello)
			failOn(t, err)
			answers <- a
		}()
	}
	o.loseCommit(t, "messages", deliver, func() {
		a := <-answers
		requireError(t, a, "internal_error")
		require.NotEmpty(t, a.Header.Get("Retry-After"))
	})
	require.Equal(t, []string{"hello"}, o.received(t, social.Messenger), "it did commit")
	requireQueued(t, o.deliver(t, hello), 1)
	require.Equal(t, []string{"hello"}, o.received(t, social.Messenger))
}

// loseCommit lets PostgreSQL do the commit of a transaction that wrote to a table, and loses its answer. begin leads to
// that transaction; f runs while the network is bad.
func (o *outage) loseCommit(t *testing.T, table string, begin, f func()) {
	t.Helper()
	const gate = 20261121
	own := connect(t, o.location)
	run := func(statement string) {
		_, err := own.ExecContext(context.Background(), statement)
		require.NoError(t, err)
	}
	count := func(query string) (n int) {
		require.NoError(t, own.QueryRowContext(context.Background(), query).Scan(&n))
		return n
	}
	const waiting = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	// A deferred trigger runs inside COMMIT, and waits there for the gate.
	run(fmt.Sprintf(`CREATE OR REPLACE FUNCTION wait_in_commit() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN NULL; END $$`, gate))
	run(`CREATE CONSTRAINT TRIGGER wait_in_commit AFTER INSERT ON ` + table + `
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_in_commit()`)
	run(fmt.Sprintf(`SELECT pg_advisory_lock(%d)`, gate))
	rows := count(`SELECT count(*) FROM ` + table)
	begin()
	o.await("a commit to be under way", patience, func() bool { return count(waiting) > 0 })
	o.link.during((*link).reset, func() {
		run(fmt.Sprintf(`SELECT pg_advisory_unlock(%d)`, gate))
		o.await("it to be done", patience, func() bool { return count(`SELECT count(*) FROM `+table) > rows })
		f()
	})
	run(`DROP TRIGGER wait_in_commit ON ` + table)
	o.requireReady(http.StatusOK)
}
