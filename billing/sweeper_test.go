package billing

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestSweepTakesEverything: more holds than one operation expires, several sweeps at once, each hold expired once.
func TestSweepTakesEverything(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		const late, open = 4*sweepLimit + 44, 5 // more than four sweeps of one operation each
		topUp(t, book, late+open)
		var holds []store.Op
		for i := range late + open {
			holds = append(holds, &holdOp{Hold: holdOf(fmt.Sprintf("call_%d", i), 1)})
		}
		applyTogether(t, db, holds...)
		execute(t, db, `UPDATE holds SET expires_at = 1 WHERE id NOT IN ('call_0', 'call_1', 'call_2', 'call_3', 'call_4')`)

		var mu sync.Mutex
		var total int
		var micros int64
		var sweeps sync.WaitGroup
		for range 4 {
			sweeps.Go(func() {
				lost, err := book.Sweep(t.Context())
				mu.Lock()
				defer mu.Unlock()
				total += len(lost.Calls)
				micros += lost.Micros
				if err != nil {
					t.Errorf("sweep: %v", err)
				}
			})
		}
		sweeps.Wait()
		require.Equal(t, late, total)
		require.EqualValues(t, late, micros)
		left, err := book.OpenHolds(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(open), left)
		requireWallet(t, book, late+open, open)
	})
}

// TestSweepOfManyClaims: more claims of a sort than one operation removes.
func TestSweepOfManyClaims(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		const claims = sweepLimit + 20
		topUp(t, book, claims)
		live := holdOf("call_live", 0)
		live.Claim = claimOf("live", "content")
		require.NoError(t, refusal(book.Hold(t.Context(), live)))
		for _, sort := range []string{"with a hold", "own key", "finished"} {
			var ops, ends []store.Op
			for i := range claims {
				hold := &holdOp{Hold: holdOf(fmt.Sprintf("call_%s_%d", sort, i), 0)}
				hold.Claim = claimOf(hold.CallID, "content")
				if sort == "with a hold" {
					hold.AmountMicros = 1
				}
				ops = append(ops, hold)
				if sort == "finished" {
					call := Call{ID: hold.CallID, Wallet: acme, BYOK: true, UsageSource: UsageProvider}
					ends = append(ends, settleOpOf(Settlement{Call: call, Claim: hold.Claim, Keep: true, Response: []byte("sealed")}))
				}
			}
			applyTogether(t, db, append(ops, ends...)...)
			execute(t, db, `UPDATE running_keys SET expires_at = 1 WHERE call_id <> 'call_live'`)
			execute(t, db, `UPDATE idempotency_keys SET until = 1`)
			require.Equal(t, 1+claims,
				count(t, db, `SELECT (SELECT count(*) FROM running_keys) + (SELECT count(*) FROM idempotency_keys)`), sort)

			require.Equal(t, sort == "with a hold", len(sweep(t, book)) == claims, sort)
			keyed{t, db, book, acme}.requireClaims("call_live in progress")
			keyed{t, db, book, acme}.requireKept(0)
		}
		requireWallet(t, book, claims, 0)
	})
}

// lineWaiter is a log that signals each line.
type lineWaiter struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan struct{}
}

func (w *lineWaiter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.lines <- struct{}{}:
	default:
	}
	return w.text.Write(line)
}

func TestSweeper(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		log := &lineWaiter{lines: make(chan struct{}, 1)}
		for round := range 2 {
			id := fmt.Sprintf("call_%d", round)
			require.NoError(t, refusal(book.Hold(t.Context(), holdOf(id, 60))))
			sweeper := book.StartSweeper(time.Millisecond, slog.New(slog.NewTextHandler(log, nil)))
			lapse(t, db, id)
			<-log.lines
			sweeper.Stop()
			sweeper.Stop()
			requireWallet(t, book, 100, 0)
		}
		require.Contains(t, log.text.String(), "micros=60 calls=1 some=[call_0]")
		require.NotContains(t, log.text.String(), "level=ERROR")
	})
}
