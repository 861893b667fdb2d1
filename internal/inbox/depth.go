package inbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Depth is how much there is to do, for metrics and health.
type Depth struct {
	Due       int64 // conversations that wait for a worker
	Leased    int64 // conversations that a worker has
	Dead      int64 // turns that failed too often
	Attention int64 // turns that wait for somebody to do something
	// OldestDue is for how long the conversation that has waited longest has been due.
	OldestDue time.Duration
}

// standing is spelled as in the index of turns that stand still: SQLite takes an index only for the same words.
const standing = `state IN ('needs_attention', 'dead')`

const selectDepth = `SELECT
	(SELECT count(*) FROM conversations WHERE run_at <= $1 AND lease_until < $1),
	(SELECT count(*) FROM conversations WHERE run_at IS NOT NULL AND lease_until >= $1),
	(SELECT count(*) FROM turns WHERE ` + standing + ` AND state = 'dead'),
	(SELECT count(*) FROM turns WHERE ` + standing + ` AND state = 'needs_attention'),
	(SELECT min(run_at) FROM conversations WHERE run_at <= $1 AND lease_until < $1)`

// Depth reads the queue's depth. It looks at conversations with work and at turns that stand still, not at the others.
func (q *Queue) Depth(ctx context.Context) (Depth, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return Depth{}, err
	}
	return store.ReadRow(ctx, q.db, "read the queue's depth", func(row store.Row) (depth Depth, err error) {
		var oldest sql.NullInt64
		err = row.Scan(&depth.Due, &depth.Leased, &depth.Dead, &depth.Attention, &oldest)
		if oldest.Valid {
			depth.OldestDue = time.Duration(max(0, now-oldest.Int64)) * time.Millisecond
		}
		return depth, err
	}, selectDepth, now)
}
