package store

import (
	"context"
	"strings"
	"time"
)

// processForgotten is the time without a sign of life after which a process counts as ended: four signs are missing.
const processForgotten = time.Minute

// ProcessInterval is the time between two signs of life of a process.
const ProcessInterval = processForgotten / 4

// Process is a server or worker that uses the store.
type Process struct {
	// ID is unique among all processes that ever were.
	ID string
	// Name tells the operator which process it is.
	Name string
	// KeyIDs are the ids of the keys in its master_key, the first key's first.
	KeyIDs []string
}

// Processes are the servers and workers that use the store. Commands aren't among them.
type Processes struct{ db *DB }

// Announce stores a process as living, and forgets others that have shown no sign of life for a minute. A process calls it every
// [ProcessInterval], and when it gets other keys.
func (p Processes) Announce(ctx context.Context, process Process) error {
	return p.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		tx.Queue(1, `INSERT INTO processes (id, name, key_ids, seen_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, key_ids = excluded.key_ids, seen_at = excluded.seen_at`,
			process.ID, process.Name, strings.Join(process.KeyIDs, " "), tx.Now())
		from, to := livingAt(tx.Now())
		tx.Queue(AnyRows, `DELETE FROM processes WHERE seen_at NOT BETWEEN $1 AND $2`, from, to)
		return nil
	})
}

// End forgets a process, which has ended.
func (p Processes) End(ctx context.Context, id string) error {
	return p.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		tx.Queue(AnyRows, `DELETE FROM processes WHERE id = $1`, id)
		return nil
	})
}

// Living reads the processes that have shown a sign of life within the last minute, by name.
func (p Processes) Living(ctx context.Context) ([]Process, error) {
	now, err := p.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	from, to := livingAt(now)
	return ReadRows(ctx, p.db, "read the processes", func(row Row) (process Process, err error) {
		var ids string
		err = row.Scan(&process.ID, &process.Name, &ids)
		process.KeyIDs = strings.Fields(ids)
		return process, err
	}, `SELECT id, name, key_ids FROM processes WHERE seen_at BETWEEN $1 AND $2 ORDER BY name, id`, from, to)
}

// livingAt returns between which times a living process was seen. A time ahead is of a clock that was set back since.
func livingAt(now int64) (from, to int64) {
	const forgotten = int64(processForgotten / time.Millisecond)
	return now - forgotten, now + forgotten
}
