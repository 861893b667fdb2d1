package inbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Depth is the amount of open work, for metrics and health.
type Depth struct {
	Due       int64 // conversations that wait for a worker
	Leased    int64 // conversations that are leased
	Dead      int64 // turns that failed too often
	Attention int64 // turns that need attention
	// OldestDue is how long the longest waiting conversation has been due.
	OldestDue time.Duration
}

// standing repeats the condition of the index of such turns: SQLite uses an index only for the same words.
const standing = `state IN ('needs_attention', 'dead')`

const selectDepth = `SELECT
	(SELECT count(*) FROM conversations WHERE run_at <= $1 AND lease_until < $1),
	(SELECT count(*) FROM conversations WHERE run_at IS NOT NULL AND lease_until >= $1),
	(SELECT count(*) FROM turns WHERE ` + standing + ` AND state = 'dead'),
	(SELECT count(*) FROM turns WHERE ` + standing + ` AND state = 'needs_attention'),
	(SELECT min(run_at) FROM conversations WHERE run_at <= $1 AND lease_until < $1)`

// Depth reads the queue's depth. It reads conversations with work and turns that stand still, not the others.
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
