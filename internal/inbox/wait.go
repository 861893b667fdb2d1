package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// minWakeInterval is the shortest time between two returns of Wait for due work: a worker that may not take the work, because
// the organization has its share, doesn't spin.
const minWakeInterval = 20 * time.Millisecond

// Wait returns nil when work may be due: at once when some is, when a conversation becomes due, or after idle. The transaction that made the
// conversation due wakes it on PostgreSQL, and on SQLite within a tenth of a second. A lease that ran out is noticed after idle at the
// latest. It returns the cause of ctx's end, or a wrapped error of the store, after which the caller should wait a little and call it
// again.
func (q *Queue) Wait(ctx context.Context, idle time.Duration) error {
	if err := q.pauseSinceWake(ctx); err != nil {
		return err
	}
	ctxIdle, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	switch err := q.listen(ctxIdle); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && ctxIdle.Err() == nil:
		return fmt.Errorf("wait for work: %w", err)
	}
	q.mu.Lock()
	q.awoke = time.Now()
	q.mu.Unlock()
	return nil
}

// Committed returns [store.DB.Committed] of the queue's database.
func (q *Queue) Committed() <-chan struct{} { return q.db.Committed() }

// pauseSinceWake waits until minWakeInterval has passed since the last return for due work.
func (q *Queue) pauseSinceWake(ctx context.Context) error {
	q.mu.Lock()
	left := minWakeInterval - time.Since(q.awoke)
	q.mu.Unlock()
	return repeat.Pause(ctx, left)
}

func (q *Queue) listen(ctx context.Context) error {
	return q.db.Listen(ctx, wakeChannel, func(wait func(context.Context, time.Duration) (bool, error)) error {
		for {
			next, err := q.next(ctx) // after the subscription, so that nothing falls in between
			if err != nil || next == 0 {
				return err
			}
			if heard, err := wait(ctx, next); err != nil || !heard {
				return err
			}
		}
	})
}

// farAway is longer than any wait.
const farAway = time.Hour

// nextDue reads the time at which the next conversation is due. {but} leaves some out.
const nextDue = `SELECT CASE WHEN EXISTS (SELECT 1 FROM conversations WHERE run_at <= $1 AND lease_until < $1{but}) THEN $1
	ELSE (SELECT min(run_at) FROM conversations WHERE run_at > $1{but}) END`

// next returns how long it takes until a conversation is due; 0 when one is now.
func (q *Queue) next(ctx context.Context) (time.Duration, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, err
	}
	but, args := q.skip([]any{now})
	due, err := store.ReadRow(ctx, q.db, "look for work", store.ScanValue[sql.NullInt64], strings.ReplaceAll(nextDue, "{but}", but), args...)
	if err != nil {
		return 0, err
	}
	if !due.Valid {
		return farAway, nil
	}
	return max(0, time.Duration(due.Int64-now)*time.Millisecond), nil
}
