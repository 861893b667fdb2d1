package limit

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Windows counts in the store, for processes that share it. A request costs its share of a transaction; a refused one costs
// nothing until the window ends, because this process remembers the refusal. It is safe for concurrent use.
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

// Take implements [Limiter]. The window is that of the database's clock.
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

// Limiter counts the requests of organizations in windows of one minute: [Memory], [Windows] or [Redis].
type Limiter interface {
	// Take counts one request of the organization under the limit of requests per window, if it is admitted; a limit of 0 or
	// less is none. An error is a fault of the counter or the end of ctx, after which the request may have been counted.
	Take(ctx context.Context, orgID string, limit int64) (Decision, error)
}

// Returner is a [Limiter] to which a permit can be returned, for a request that was admitted and then refused because of the
// service's own load. [Memory] and [Windows] implement it; Redis isn't asked again for a request that has failed.
type Returner interface {
	// Return uncounts the request that decision admitted, unless its window is over. It doesn't wait, and may fail silently:
	// then the request stays counted.
	Return(orgID string, decision Decision)
}

var (
	_ Returner = (*Memory)(nil)
	_ Returner = (*Windows)(nil)

	_ Limiter = (*Memory)(nil)
	_ Limiter = (*Windows)(nil)
	_ Limiter = (*Redis)(nil)
)
