package billing

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// DefaultSweepInterval is the interval between sweeps unless the operator configures another.
const DefaultSweepInterval = 15 * time.Second

// Sweep releases every hold whose time is over by the database's clock, with its claim, and returns how many: holds of
// processes that were killed, or couldn't settle. It also removes claims without a hold whose lease is over, and finished
// claims after their [KeyLife]. Any number of processes may sweep at once.
func (b *Book) Sweep(ctx context.Context) (expired int, err error) {
	for {
		op := &sweepOp{}
		if err := b.db.Do(ctx, Ledger, op); err != nil {
			return expired, fmt.Errorf("sweep holds: %w", err)
		}
		expired += op.expired
		if !op.more || op.expired+op.removed == 0 {
			return expired, nil
		}
	}
}

// Sweeper sweeps a book at intervals. It owns one goroutine, from Start to Stop.
type Sweeper struct {
	book     *Book
	interval time.Duration
	logger   *slog.Logger

	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

// NewSweeper makes a sweeper that waits about interval between sweeps (0 or less: [DefaultSweepInterval]). A nil
// logger discards.
func NewSweeper(book *Book, interval time.Duration, logger *slog.Logger) *Sweeper {
	if interval <= 0 {
		interval = DefaultSweepInterval
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Sweeper{book: book, interval: interval, logger: logger}
}

// Start begins to sweep, at once and then after each interval. On a running sweeper it does nothing.
func (s *Sweeper) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go s.run(ctx, s.done)
}

// Stop ends the sweeper and waits until its goroutine has ended. It may be called at any time, and again.
func (s *Sweeper) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel == nil {
		return
	}
	s.cancel()
	<-s.done
	s.cancel = nil
}

func (s *Sweeper) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	for {
		s.sweep(ctx)
		// Sweepers of several processes drift apart instead of meeting at every tick.
		pause := time.NewTimer(s.interval - s.interval/8 + rand.N(s.interval/4+1)) //nolint:gosec // jitter is no secret
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// sweepTimeout bounds one sweep: a database that hangs is asked again later.
const sweepTimeout = 30 * time.Second

func (s *Sweeper) sweep(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	expired, err := s.book.Sweep(bounded)
	if expired > 0 {
		s.logger.WarnContext(ctx, "released holds of calls that were never settled", "holds", expired)
	}
	if err != nil && ctx.Err() == nil {
		s.logger.ErrorContext(ctx, "sweep of holds failed", "error", err)
	}
}
