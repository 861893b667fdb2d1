package inbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
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

const selectStandingByCode = `SELECT code, count(*) FROM turns WHERE ` + standing + ` GROUP BY code`

// StandingByCode counts the turns that stand, of all organizations, by code; every code of [codes.All] is there.
func (q *Queue) StandingByCode(ctx context.Context) (map[string]int64, error) {
	byCode := make(map[string]int64, len(codes.All))
	for code := range codes.All {
		byCode[code] = 0
	}
	_, err := store.ReadRows(ctx, q.db, "count what stands", func(row store.Row) (struct{}, error) {
		var code string
		var turns int64
		err := row.Scan(&code, &turns)
		byCode[code] = turns
		return struct{}{}, err
	}, selectStandingByCode)
	return byCode, err
}

// Lag is how long the conversation of an organization has been due that waits longest for a worker.
type Lag struct {
	OrgID string
	Due   time.Duration
}

// selectLags visits each organization with work once: a few look-ups in the index conversations_ready, however much waits.
const selectLags = `WITH RECURSIVE walk (org_id) AS (
		SELECT (SELECT org_id FROM conversations WHERE run_at IS NOT NULL ORDER BY org_id LIMIT 1)
	UNION ALL
		SELECT (SELECT c.org_id FROM conversations c WHERE c.run_at IS NOT NULL AND c.org_id > walk.org_id ORDER BY c.org_id LIMIT 1)
		FROM walk WHERE org_id IS NOT NULL
	)
	SELECT org_id, due_at FROM (SELECT org_id, (SELECT c.run_at FROM conversations c WHERE c.org_id = walk.org_id
			AND c.lease_until BETWEEN 0 AND 0 AND c.run_at IS NOT NULL ORDER BY c.lease_until, c.run_at LIMIT 1) AS due_at
		FROM walk WHERE org_id IS NOT NULL) AS oldest
	WHERE due_at <= $1 ORDER BY due_at, org_id LIMIT CAST($2 AS BIGINT)`

// Lags returns the organizations that wait longest for a worker, at most limit, the longest first. Conversations whose worker died
// don't count until another has them.
func (q *Queue) Lags(ctx context.Context, limit int) ([]Lag, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, q.db, "read who waits longest", func(row store.Row) (lag Lag, err error) {
		var dueAt int64
		err = row.Scan(&lag.OrgID, &dueAt)
		lag.Due = time.Duration(max(0, now-dueAt)) * time.Millisecond
		return lag, err
	}, selectLags, now, limit)
}
