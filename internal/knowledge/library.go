package knowledge

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Bounds of what a process ingests at a time; each open ingestion keeps its chunks in memory.
const (
	maxIngestions       = 16
	maxIngestionsPerOrg = 4
)

// maxRest bounds the pause between two batches.
const maxRest = 50 * time.Millisecond

// Why a library takes no document.
var (
	// ErrBusy: as many large documents are being ingested as may be at once, here or for the organization. Nothing
	// happened; it can be tried again a few seconds later.
	ErrBusy = errors.New("knowledge: too many documents are being ingested")
	// ErrClosed: the library was closed. Nothing happened.
	ErrClosed = errors.New("knowledge: closed")

	errClosing = errors.New("the service is stopping")
)

// Library is the knowledge of all organizations of a database. All methods may be called at the same time. A process has
// one for each database, since it is what spaces the writes out.
type Library struct {
	db     *store.DB
	logger *slog.Logger
	now    func() time.Time

	// slot is taken by who writes a batch, and kept for the pause after it; readers by who takes an upload apart, which
	// is a second of work for the largest.
	slot, readers chan struct{}
	// life ends with Close.
	life context.Context
	end  context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	open    int            // ingestions
	openOf  map[string]int // by organization
	running sync.WaitGroup
}

// New is a library on a migrated database. logger gets ingestions that failed, nil discards them. The caller must
// [Library.Close] it before the database.
func New(db *store.DB, logger *slog.Logger) *Library {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	life, end := context.WithCancelCause(context.Background())
	return &Library{
		db: db, logger: logger, now: time.Now, life: life, end: end, openOf: make(map[string]int),
		slot: make(chan struct{}, 1), readers: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
}

// Close refuses new documents and interrupts those that are being ingested; they are marked as failed. It returns when
// that is done, or with the cause when ctx ends first.
func (l *Library) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end(errClosing)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.running.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enter makes room for an ingestion, which leave gives back.
func (l *Library) enter(orgID string) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.open == maxIngestions || l.openOf[orgID] == maxIngestionsPerOrg:
		return nil, ErrBusy
	}
	l.open++
	l.openOf[orgID]++
	l.running.Add(1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if l.openOf[orgID]--; l.openOf[orgID] == 0 {
			delete(l.openOf, orgID)
		}
		l.running.Done()
	}, nil
}

// paced runs one write of a few milliseconds when nobody else's runs, and then rests as long as it took, so that
// whatever else is written has at least half of the time.
func (l *Library) paced(ctx context.Context, write func() error) error {
	select {
	case l.slot <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-l.slot }()
	start := time.Now()
	err := write()
	l.pause(ctx, min(time.Since(start), maxRest))
	return err
}

// pause waits, less when ctx ends or the library is closed.
func (l *Library) pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-l.life.Done():
	}
}
