package knowledge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Bounds of a process's ingestions; each open one keeps its chunks in memory.
const (
	maxIngestions       = 16
	maxIngestionsPerOrg = 4
)

// Bounds of the uploads that wait to be parsed. Their content is in memory, 256 MiB at most.
const (
	maxWaiting       = 64
	maxWaitingPerOrg = maxWaiting / 2
)

// readerBounds bounds the uploads that are parsed, or wait for that, at a time.
func readerBounds(places int) dispatch.Bounds {
	return dispatch.Bounds{Places: places, Each: 1, Line: maxWaitingPerOrg, Lines: maxWaiting}
}

// searchBounds are those of [Library.SearchInTurn].
var searchBounds = dispatch.Bounds{Places: 8, Each: 2, Line: 16, Lines: 256}

// maxRest bounds the pause between two batches.
const maxRest = 50 * time.Millisecond

// The reasons for which a library accepts no document.
var (
	// ErrBusy: too many documents are being ingested, or searches run, in the process or for the organization. Nothing was stored. Try
	// again a few seconds later.
	ErrBusy = errors.New("knowledge: too much runs at a time")
	// ErrClosed: the library was closed. Nothing was stored.
	ErrClosed = errors.New("knowledge: closed")

	errClosing = errors.New("the service is stopping")
)

// Library stores and searches the documents of all organizations of a database. It is safe for concurrent use. A process has
// one for each database, because it spaces the writes.
type Library struct {
	db     *store.DB
	logger *slog.Logger
	now    func() time.Time

	// slot is held while a batch is written and for the pause after it.
	slot chan struct{}
	// readers have a place while an upload is parsed, which takes a second for the largest, and readTime at most.
	readers  *dispatch.Turns
	readTime time.Duration
	// searchers have a place while a request's search runs.
	searchers *dispatch.Turns
	// life ends with [Library.Close].
	life context.Context
	end  context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	open    int            // ingestions
	openOf  map[string]int // by organization
	running sync.WaitGroup
}

// New returns a library on a migrated database. logger gets failed ingestions, nil discards them. The caller must close the
// library before the database.
func New(db *store.DB, logger *slog.Logger) *Library {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	life, end := context.WithCancelCause(context.Background())
	return &Library{
		db: db, logger: logger, now: time.Now, life: life, end: end, openOf: make(map[string]int),
		slot:      make(chan struct{}, 1),
		readers:   dispatch.NewTurns(readerBounds(max(1, runtime.GOMAXPROCS(0)/2))),
		readTime:  maxReadTime,
		searchers: dispatch.NewTurns(searchBounds),
	}
}

// Close refuses new documents and interrupts running ingestions, which are marked as failed. It returns when that is done, or
// with the cause when ctx ends first.
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

// enter reserves room for an ingestion; leave gives it back.
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

// paced runs one write of a few milliseconds while no other runs, and then pauses for as long as it took, so that all other
// writes have at least half of the time.
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

// pause waits, until ctx ends or the library is closed at most.
func (l *Library) pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-l.life.Done():
	}
}
