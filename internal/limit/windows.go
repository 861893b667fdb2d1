package limit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Windows counts in the store, for processes that share it. A request costs its share of a transaction; one that is
// refused costs nothing until the window ends, for this process remembers the refusal. It is safe for concurrent use.
type Windows struct {
	db    *store.DB
	clock func() time.Time

	mu sync.Mutex
	// refused holds the organizations that have used up their window.
	refused map[string]refusal
	// forget is when the last of them ends.
	forget time.Time
}

// refusal says that until then no request of an organization is admitted under a limit of at most limit.
type refusal struct {
	until time.Time
	limit int64
}

// NewStore returns a counter in db, which must have been opened with [Counter] among its kinds.
func NewStore(db *store.DB) *Windows { return newWindows(db, time.Now) }

func newWindows(db *store.DB, clock func() time.Time) *Windows {
	return &Windows{db: db, clock: clock, refused: make(map[string]refusal)}
}

// Take asks to admit one request of the organization; a limit of 0 or less is none. The window is that of the database's
// clock. An error is a fault of the store, or the end of ctx; then nothing is known, but the request may have been counted.
func (w *Windows) Take(ctx context.Context, orgID string, limit int64) (Decision, error) {
	if limit <= 0 {
		return unlimited(), nil
	}
	// Read before the transaction: a refusal is then forgotten a little early, never late.
	asked := w.clock()
	if d, ok := w.remembered(orgID, limit, asked); ok {
		return d, nil
	}
	op := &take{orgID: orgID, limit: limit}
	if err := w.db.Do(ctx, Counter, op); err != nil {
		return Decision{}, fmt.Errorf("counting a request: %w", err)
	}
	if !op.decision.Allowed {
		w.remember(orgID, refusal{until: asked.Add(op.decision.ResetIn), limit: limit}, asked)
	}
	return op.decision, nil
}

// remembered answers a request that an earlier refusal decides.
func (w *Windows) remembered(orgID string, limit int64, now time.Time) (Decision, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.refused[orgID]
	if !ok || !now.Before(r.until) || limit > r.limit {
		return Decision{}, false
	}
	return decide(limit, limit, r.until.Sub(now)), true
}

func (w *Windows) remember(orgID string, r refusal, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !now.Before(w.forget) {
		clear(w.refused)
	}
	if r.until.After(w.forget) {
		w.forget = r.until
	}
	w.refused[orgID] = r
}
