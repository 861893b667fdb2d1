package billing

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

// DefaultSweepInterval is the interval between sweeps unless the operator configures another.
const DefaultSweepInterval = 15 * time.Second

// Lost is what a sweep released of calls that were never settled: their processes were killed, or couldn't settle. A vendor may have
// worked for them.
type Lost struct {
	// Calls are the ids of those with a hold of their own. Of the others only the process that was killed knew the ids.
	Calls []string
	// Micros is what was reserved for the Calls, and what tranches without a process had left. A sum of several wallets that doesn't fit is
	// the largest number.
	Micros int64
}

func (l *Lost) add(micros int64) {
	sum, err := addMicros(l.Micros, micros)
	if err != nil {
		sum = math.MaxInt64
	}
	l.Micros = sum
}

// Sweep releases every hold and every Idempotency-Key whose time is over by the database's clock, every tranche whose lease is over, and
// forgets finished keys after their [KeyLife]. Any number of processes may sweep at once.
func (b *Book) Sweep(ctx context.Context) (lost Lost, err error) {
	for {
		op := &sweepOp{}
		if err := b.db.Do(ctx, Ledger, op); err != nil {
			return lost, fmt.Errorf("sweep holds: %w", err)
		}
		lost.Calls = append(lost.Calls, op.lost.Calls...)
		lost.add(op.lost.Micros)
		if !op.more || op.done == 0 {
			return lost, nil
		}
	}
}

// loggedCalls is how many ids of lost calls a line of the log has at most.
const loggedCalls = 20

// sweepTimeout bounds one sweep: a database that hangs is asked again later.
const sweepTimeout = 30 * time.Second

// StartSweeper sweeps the book at once and about every interval (0 or less: [DefaultSweepInterval]), until the task is stopped.
func (b *Book) StartSweeper(interval time.Duration, logger *slog.Logger) *repeat.Task {
	if interval <= 0 {
		interval = DefaultSweepInterval
	}
	return repeat.Start(interval, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, sweepTimeout)
		defer cancel()
		lost, err := b.Sweep(bounded)
		if lost.Micros > 0 {
			logger.WarnContext(ctx, "released credits of calls that were never settled; compare with the providers' invoices",
				"micros", lost.Micros, "calls", len(lost.Calls), "some", lost.Calls[:min(len(lost.Calls), loggedCalls)])
		}
		if err != nil && ctx.Err() == nil {
			logger.ErrorContext(ctx, "sweep of holds failed", "error", err)
		}
	})
}
