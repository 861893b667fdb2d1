package limit

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Windows counts in the store, for processes that share it. A request costs its share of a transaction; one that is
// refused costs nothing until the window ends, for this process remembers the refusal. It is safe for concurrent use.
type Windows struct {
	db      *store.DB
	clock   func() time.Time
	refused *refusals
}

// NewStore returns a counter in db, which must have been opened with [Counter] among its kinds.
func NewStore(db *store.DB) *Windows { return newWindows(db, time.Now) }

func newWindows(db *store.DB, clock func() time.Time) *Windows {
	return &Windows{db: db, clock: clock, refused: newRefusals()}
}

// Take asks to admit one request of the organization; a limit of 0 or less is none. The window is that of the database's
// clock. An error is a fault of the store, or the end of ctx; then nothing is known, but the request may have been counted.
func (w *Windows) Take(ctx context.Context, orgID string, limit int64) (Decision, error) {
	if limit <= 0 {
		return unlimited(), nil
	}
	asked := w.clock()
	if d, ok := w.refused.remembered(orgID, limit, asked); ok {
		return d, nil
	}
	op := &take{orgID: orgID, limit: limit}
	if err := w.db.Do(ctx, Counter, op); err != nil {
		return Decision{}, fmt.Errorf("counting a request: %w", err)
	}
	w.refused.remember(orgID, op.decision, asked)
	return op.decision, nil
}

// Return implements [Returner]. It goes with the next transaction.
func (w *Windows) Return(orgID string, decision Decision) {
	if decision.window != 0 {
		w.refused.forgive(orgID)
		w.db.SubmitLazily(Counter, &take{orgID: orgID, back: decision.window})
	}
}
