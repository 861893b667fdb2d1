package billing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

// DefaultSweepInterval is the interval between sweeps unless the operator configures another.
const DefaultSweepInterval = 15 * time.Second

// Sweep releases every hold whose time is over by the database's clock, with its claim, and returns how many: holds of
// processes that were killed, or couldn't settle. It also ends tranches whose lease is over, and removes claims without a hold
// whose lease is over, and finished claims after their [KeyLife]. Any number of processes may sweep at once.
func (b *Book) Sweep(ctx context.Context) (expired int, err error) {
	for {
		op := &sweepOp{}
		if err := b.db.Do(ctx, Ledger, op); err != nil {
			return expired, fmt.Errorf("sweep holds: %w", err)
		}
		expired += op.expired
		if !op.more || op.expired+op.removed+op.lapsed == 0 {
			return expired, nil
		}
	}
}

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
		expired, err := b.Sweep(bounded)
		if expired > 0 {
			logger.WarnContext(ctx, "released holds of calls that were never settled", "holds", expired)
		}
		if err != nil && ctx.Err() == nil {
			logger.ErrorContext(ctx, "sweep of holds failed", "error", err)
		}
	})
}
