package tests

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPostgresGone guarantees [outage.live] while PostgreSQL refuses connections, as a stopped server does.
func TestPostgresGone(t *testing.T) {
	t.Parallel()
	startOutage(t).live(t, (*link).gone)
}

// TestPostgresHangs guarantees [outage.live] while PostgreSQL accepts connections and statements and answers nothing:
// a statement may be executed, and its result never arrives.
func TestPostgresHangs(t *testing.T) {
	t.Parallel()
	startOutage(t).live(t, (*link).hang)
}

// TestPostgresResets guarantees [outage.live] while every connection is cut when PostgreSQL answers.
func TestPostgresResets(t *testing.T) {
	t.Parallel()
	startOutage(t).live(t, (*link).reset)
}

// TestPostgresPartition guarantees [outage.live] while packets vanish in both directions and connections stay open; those
// that were on their way arrive after the fault, also for callers that got an error long before.
func TestPostgresPartition(t *testing.T) {
	t.Parallel()
	startOutage(t).live(t, (*link).partition)
}

// TestPostgresSlow guarantees that a slow way to PostgreSQL makes answers slow, and nothing worse: every call and delivery
// is served, the service stays ready, and nothing piles up.
func TestPostgresSlow(t *testing.T) {
	t.Parallel()
	o := startOutage(t)
	o.gather(t)
	goodDay := o.goroutines(t)
	o.link.during(func(l *link) { l.slow(100 * time.Millisecond) }, func() {
		o.crowd.awaitWell(20)
		o.requireReady(http.StatusOK)
		o.requireNoPileUp(t, goodDay)
	})
	o.crowd.disperse()
	o.crowd.requireStored(t)
	for _, d := range o.crowd.deliveries {
		require.True(t, d.accepted, d.text)
	}
	require.Zero(t, o.requireBooks(t), "calls that failed")
}

// TestPostgresForgotten guarantees that connections which a firewall has forgotten (nothing comes through them any more,
// and neither side is notified) are replaced in time: every request is answered within its deadline, the service recovers without
// a restart while they still hang, and what was acknowledged is stored.
func TestPostgresForgotten(t *testing.T) {
	t.Parallel()
	f := &firewall{}
	o := prepareOutage(t, func(d *deployment) {
		f.guard(t, d.storeAddress(t))
		d.env = append(slices.Clone(d.env), d.storeBehind(t, f.address))
	})
	o.gather(t)
	goodDay := o.goroutines(t)
	pending, gate := o.pendingCalls(t)
	f.forget()
	gate.open()
	o.crowd.awaitWell(40)
	o.requireReady(http.StatusOK)
	for _, call := range pending {
		call.awaitEnd(t)
	}
	o.crowd.disperse()
	o.requireFewGoroutines(t, goodDay)
	o.crowd.requireStored(t)
	for _, call := range pending {
		call.requireRight(t, o)
	}
	o.requireBooks(t)
}
