package inbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ForgetInterval is the pause between two sweeps of a [Forgetter], and the longest that one may take: retention counts days.
const ForgetInterval = time.Hour

// Forgetter runs [Forget] again and again. It owns one goroutine, from Start to Stop.
type Forgetter struct {
	db     *store.DB
	logger *slog.Logger

	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

// NewForgetter makes a forgetter for a database that was opened with [Kind] among its kinds. A nil logger discards.
func NewForgetter(db *store.DB, logger *slog.Logger) *Forgetter {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Forgetter{db: db, logger: logger}
}

// Start begins to sweep, at once and then after each pause. A forgetter that runs is left alone.
func (f *Forgetter) Start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.done = cancel, make(chan struct{})
	go f.run(ctx, f.done)
}

// Stop ends the forgetter and waits until its goroutine has ended, which finishes a transaction that runs. It may be called
// at any time, and again.
func (f *Forgetter) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel == nil {
		return
	}
	f.cancel()
	<-f.done
	f.cancel = nil
}

func (f *Forgetter) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	for {
		f.sweep(ctx)
		// Several processes on one database drift apart instead of meeting at every tick.
		pause := time.NewTimer(ForgetInterval - ForgetInterval/8 + rand.N(ForgetInterval/4)) //nolint:gosec // jitter is no secret
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

func (f *Forgetter) sweep(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, ForgetInterval)
	defer cancel()
	forgotten, err := Forget(bounded, f.db)
	if forgotten != (Forgotten{}) {
		f.logger.InfoContext(ctx, "deleted conversations that organizations don't keep any longer",
			"conversations", forgotten.Conversations, "messages", forgotten.Messages, "turns", forgotten.Turns)
	}
	if err != nil && ctx.Err() == nil {
		f.logger.ErrorContext(ctx, "deleting old conversations failed", "error", err)
	}
}
