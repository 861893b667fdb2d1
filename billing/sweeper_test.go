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
		const late, open = sweepLimit + 44, 5
		topUp(t, book, late+open)
		var holds []store.Op
		for i := range late + open {
			holds = append(holds, &holdOp{Hold: holdOf(fmt.Sprintf("call_%d", i), 1)})
		}
		applyTogether(t, db, holds...)
		execute(t, db, `UPDATE holds SET expires_at = 1 WHERE id NOT IN ('call_0', 'call_1', 'call_2', 'call_3', 'call_4')`)

		var mu sync.Mutex
		var total int
		var sweeps sync.WaitGroup
		for range 4 {
			sweeps.Go(func() {
				expired, err := book.Sweep(t.Context())
				mu.Lock()
				defer mu.Unlock()
				total += expired
				if err != nil {
					t.Errorf("sweep: %v", err)
				}
			})
		}
		sweeps.Wait()
		require.Equal(t, late, total)
		left, err := book.OpenHolds(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(open), left)
		requireWallet(t, book, late+open, open)
	})
}

// lineWaiter is a log that tells of each line.
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
		sweeper := NewSweeper(book, time.Millisecond, slog.New(slog.NewTextHandler(log, nil)))
		sweeper.Stop() // one that doesn't run
		for round := range 2 {
			id := fmt.Sprintf("call_%d", round)
			require.NoError(t, book.Hold(t.Context(), holdOf(id, 60)))
			sweeper.Start()
			sweeper.Start()
			lapse(t, db, id)
			<-log.lines
			sweeper.Stop()
			sweeper.Stop()
			requireWallet(t, book, 100, 0)
		}
		require.Contains(t, log.text.String(), "holds=1")
		require.NotContains(t, log.text.String(), "level=ERROR")
	})
}
