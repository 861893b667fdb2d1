package billing

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// clockedNode is a node whose machine's clock is ahead of that of the test.
type clockedNode struct {
	*Book

	ahead   time.Duration
	granted atomic.Int64 // calls that were held from the tranche
}

// openClockedNodes opens a database for two nodes whose clocks are a minute apart. set sets the clock of the database.
func openClockedNodes(t *testing.T, engine store.Engine) (nodes []*clockedNode, set func(ahead time.Duration)) {
	t.Helper()
	location := storetest.Migrated(t, engine)
	var skew atomic.Int64 // of SQLite's clock
	set = func(ahead time.Duration) { skew.Store(int64(ahead)) }
	if engine == store.Postgres {
		set = storetest.PostgresClock(t, location)
	}
	for _, ahead := range []time.Duration{0, time.Minute} {
		now := func() time.Time { return time.Now().Add(ahead) }
		db, err := store.Open(t.Context(), location, store.Options{
			Kinds: []store.Kind{Ledger}, Clock: func() time.Time { return now().Add(time.Duration(skew.Load())) },
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close(context.WithoutCancel(t.Context()))) })
		node := &clockedNode{Book: NewBook(db), ahead: ahead}
		node.tranches = newTranches(db, slog.New(slog.DiscardHandler))
		node.tranches.now = now
		nodes = append(nodes, node)
	}
	return nodes, set
}

// callID returns the id of a call by the node's clock.
func (n *clockedNode) callID() string {
	const clock = len("call_") + 10 // characters that are made of the time
	return store.FirstID("call", time.Now().Add(n.ahead).UnixMilli())[:clock] + store.NewID("call")[clock:]
}

// call makes calls one after the other while the test goes on, refunds some of them, and returns the charges that are left.
func (n *clockedNode) call(t *testing.T, goesOn func(calls int64) bool) (charged int64) {
	t.Helper()
	for i := int64(0); goesOn(i); i++ {
		id, cost := n.callID(), 50+i%50
		err := storetest.Insist(func() error { return refusal(n.Hold(t.Context(), holdOf(id, 100))) })
		if errors.Is(err, ErrCreditsInTranches) {
			continue
		}
		if err != nil {
			t.Error(err)
			return charged
		}
		if isGranted(n.Book, id) {
			n.granted.Add(1)
		}
		var settled Settled
		err = storetest.Insist(func() (err error) {
			settled, err = n.Settle(t.Context(), chargeOf(id, 100, cost))
			return err
		})
		if err != nil || settled != (Settled{ChargedMicros: cost}) {
			t.Errorf("a call of %d settled as %v: %v", cost, settled, err)
		}
		charged += settled.ChargedMicros
		if i%10 == 0 {
			entry, err := n.Refund(t.Context(), "test", id, "")
			if err != nil {
				t.Error(err)
			}
			charged -= entry.AmountMicros
		}
	}
	return charged
}

// TestClocksDontOrderTheStatement: two nodes whose clocks are a minute apart make calls at once from one wallet, on a database whose clock
// is set forward and back by an hour meanwhile. The statement is ordered by number: each balance follows from the one before, times don't
// fall, and pages of any part of it are in that order. The doctor is silent, also while the clock is set, and also about recent rows.
func TestClocksDontOrderTheStatement(t *testing.T) {
	t.Parallel()
	calls, leastSteps := int64(25), int64(4)
	if os.Getenv("SVC_SOAK") != "" {
		calls, leastSteps = 1000, 100
	}
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			nodes, set := openClockedNodes(t, engine)
			db := nodes[0].db
			makeOrganization(t, db, acme.OrgID)
			const credits = 1_000_000_000
			topUp(t, nodes[0].Book, credits)

			var charged, steps atomic.Int64
			goesOn := func(made int64) bool { return !t.Failed() && (made < calls || steps.Load() < leastSteps) }
			var callers, others sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			others.Go(func() { stepClock(ctx, t, nodes, set, &steps) })
			for _, node := range nodes {
				for range 8 {
					callers.Go(func() { charged.Add(node.call(t, goesOn)) })
				}
			}
			callers.Wait()
			cancel()
			others.Wait()
			set(0)
			for _, node := range nodes {
				require.Positive(t, node.granted.Load())
				node.tranches.Allow(false)
				require.NoError(t, node.tranches.do(t.Context(), node.tranches.due(node.tranches.now())))
			}
			sweep(t, nodes[0].Book)

			balance := credits - charged.Load()
			requireWallet(t, nodes[0].Book, balance, 0)
			seq := requireStatement(t, db, acme, balance)
			require.Greater(t, seq, 8*calls)
			requireOrder(t, nodes[1].Book, seq, balance)
			for _, recent := range []time.Duration{0, time.Millisecond, time.Second, time.Minute, time.Hour, 2 * time.Hour, 24 * time.Hour} {
				for _, rows := range []int{7, 0} {
					report, err := Checker{Recent: recent, pageRows: rows}.Check(t.Context(), db)
					require.NoError(t, err)
					require.True(t, report.OK(), "the last %s:\n%s", recent, report)
				}
			}
		})
	}
}

// stepClock sets the clock of the database forward and back by an hour, checks the books after each step, and sweeps.
func stepClock(ctx context.Context, t *testing.T, nodes []*clockedNode, set func(time.Duration), steps *atomic.Int64) {
	t.Helper()
	for ; ctx.Err() == nil; steps.Add(1) {
		set([]time.Duration{30 * time.Minute, -30 * time.Minute}[steps.Load()%2])
		recent := time.Duration(1+steps.Load()%90) * time.Minute
		report, err := Checker{Recent: recent}.Check(context.WithoutCancel(ctx), nodes[0].db)
		if err != nil {
			t.Error(err)
			return
		}
		// What has not been swept since the step may be late.
		if broken := brokenInvariants(report); len(broken) > 0 && !slices.Equal(broken, []string{"L6"}) {
			t.Errorf("%s", report)
		}
		if _, err := nodes[1].Sweep(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, store.ErrBusy) {
			t.Error(err)
		}
		for _, node := range nodes {
			node.tranches.tend(context.WithoutCancel(ctx))
		}
	}
}

// requireOrder requires that the whole statement and each part of it, in pages of any size, is in the order of the numbers, and that times
// don't fall.
func requireOrder(t *testing.T, book *Book, last, balance int64) {
	t.Helper()
	var whole []Entry
	for _, rows := range []int{7, MaxHistoryRows} {
		whole = historyOf(t, rows, func(s Stretch) ([]Entry, error) { return book.Entries(t.Context(), acme, s) }, Entry.Place)
		require.Len(t, whole, int(last))
		left, newer := balance, int64(0)
		for i, entry := range whole {
			require.Equal(t, [2]int64{last - int64(i), left}, [2]int64{entry.Seq, entry.BalanceMicros})
			if i > 0 {
				require.LessOrEqual(t, entry.At, newer, "the time of number %d", entry.Seq)
			}
			left, newer = left-entry.AmountMicros, entry.At
		}
		require.Zero(t, left)
	}
	first, newest := whole[len(whole)-1].At, whole[0].At
	require.Greater(t, newest-first, 29*time.Minute.Milliseconds(), "the database's clock was set")
	var parts []Entry
	const count = 5
	for i := count - 1; i >= 0; i-- { // newest first
		part := Stretch{From: first + (newest-first)*int64(i)/count, Until: first + (newest-first)*int64(i+1)/count}
		if i == count-1 {
			part.Until = 0
		}
		parts = append(parts, historyOf(t, 50, func(s Stretch) ([]Entry, error) {
			s.From, s.Until = part.From, part.Until
			return book.Entries(t.Context(), acme, s)
		}, Entry.Place)...)
	}
	require.True(t, slices.Equal(whole, parts), "parts by time are the whole")
}
