package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// windows counts requests in rate_windows. Each statement is a transaction of its own, so a row is locked for as long as one
// statement and its commit take. All statements lock rows in the order of their names.
type windows struct {
	reader *hotReader
	keys   *driver.Coalescer[keyAsk, driver.KeyRecord]
	names  *driver.Coalescer[nameAsk, driver.Permit]
	back   *driver.Coalescer[returnedPermit, struct{}]

	returns sync.Mutex
	// returning is closed when the permits that were returned last are available again. It is nil until the first return.
	returning <-chan struct{}

	latest  atomic.Int64 // the latest window that a request was counted in
	sweeps  sync.WaitGroup
	closing atomic.Bool
}

// keyAsk is a key to be read, and the terms to count its request by.
type keyAsk struct {
	hash  [32]byte
	terms *driver.KeyTerms
}

// nameAsk is a name to be counted under a limit.
type nameAsk struct {
	name  string
	limit int64
}

// returnedPermit is a permit of a window, to be uncounted.
type returnedPermit struct {
	name   string
	window int64
}

// Take implements [driver.Windows].
func (w *windows) Take(ctx context.Context, name string, limit int64) (driver.Permit, error) {
	if !driver.IsText(name) {
		return driver.Permit{}, driver.ErrText
	}
	permit, rank, _, err := w.names.GetRanked(ctx, nameAsk{name, limit})
	permit.Before += rank
	return permit, err
}

// Key implements [driver.Windows].
func (w *windows) Key(ctx context.Context, hash [32]byte, terms *driver.KeyTerms) (driver.KeyRecord, bool, error) {
	record, rank, found, err := w.keys.GetRanked(ctx, keyAsk{hash, terms})
	record.Permit.Before += rank
	return record, found, err
}

// Return implements [driver.Windows].
func (w *windows) Return(name string, window int64) error {
	w.returns.Lock()
	defer w.returns.Unlock()
	done, err := w.back.Add(returnedPermit{name, window})
	if err == nil {
		w.returning = done
	}
	return err
}

// awaitReturns waits for the permits that were returned, so that the next request of this process finds them.
func (w *windows) awaitReturns() {
	w.returns.Lock()
	last := w.returning
	w.returns.Unlock()
	if last != nil {
		<-last
	}
}

// Close waits for the statements that run, also for returned permits.
func (w *windows) Close() {
	w.keys.Close()
	w.names.Close()
	w.back.Close()
	w.closing.Store(true)
	w.sweeps.Wait()
}

const (
	windowMS = 60_000
	// clockRow is the statement's clock, read once, and the window of that time.
	clockRow = `moment AS (SELECT ms, ms - ms % 60000 AS start FROM (SELECT ` + ClockSQL + ` AS ms) AS clock)`
	// countAsked counts in the windows what asked has for each name, as far as the limit admits it. Statements never wait for each
	// other in a circle, because each has three phases:
	//
	//   - taken locks the rows that are there, in the order of their names, so that count_before is exact;
	//   - begun inserts the others in that order, and skips a row that another process has just inserted: its name is
	//     asked for again. The sort by an expression that no index and no subquery is sorted by comes after the last row of taken;
	//   - raised changes the rows that taken locked, and waits for none.
	//
	// The sum keeps the planner from the index of windows, in which all names of a minute are one value.
	countAsked = `taken AS (
	SELECT a.org_id, a.start, r.count AS count_before,
		COALESCE(r.count, 0) + greatest(0, least(a.asks, a.per_minute - COALESCE(r.count, 0))) AS count_after
	FROM (SELECT org_id, start, asks, per_minute FROM asked ORDER BY org_id COLLATE "C") a
	LEFT JOIN LATERAL (SELECT count FROM rate_windows WHERE org_id = a.org_id AND window_start + 0 = a.start FOR UPDATE) r ON true),
begun AS (
	INSERT INTO rate_windows (org_id, window_start, count)
	SELECT org_id, start, count_after FROM taken WHERE count_before IS NULL ORDER BY (org_id || '') COLLATE "C"
	ON CONFLICT (org_id, window_start) DO NOTHING RETURNING org_id),
raised AS (
	INSERT INTO rate_windows (org_id, window_start, count)
	SELECT org_id, start, count_after FROM taken WHERE count_after > count_before AND (SELECT count(*) FROM begun) >= 0
	ON CONFLICT (org_id, window_start) DO UPDATE SET count = excluded.count)`
	// decided is false for a name that another process has begun to count.
	decided = `(t.count_before IS NOT NULL OR EXISTS (SELECT 1 FROM begun b WHERE b.org_id = t.org_id))`
	// takeByNames has names, how often each is asked for, their limits, and their number.
	takeByNames = `WITH ` + clockRow + `,
asked AS (SELECT w.org_id, start, w.asks, w.per_minute
	FROM moment, (SELECT org_id, asks, per_minute
		FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u (org_id, asks, per_minute) LIMIT $4) w),
` + countAsked + `
SELECT t.org_id, ms, t.start, COALESCE(t.count_before, 0), ` + decided + ` FROM moment, taken t`
	// takeByKeys has hashes, their number, the scopes, the plans with their limits, and how often each hash is asked for.
	takeByKeys = `WITH ` + clockRow + `,
found AS (SELECT ` + driver.KeyColumns + ` AS has_models, ms, start, w.asks, CASE WHEN k.revoked_at IS NULL
		AND COALESCE(k.expires_at > ms, true) AND o.suspended_at IS NULL AND string_to_array(k.scopes, ' ') @> COALESCE($3::text[], '{}')
		THEN COALESCE(k.requests_per_minute, ($5::bigint[])[COALESCE(array_position($4::text[], o.plan), 1)]) END AS per_minute,
		CASE WHEN k.requests_per_minute IS NULL THEN k.org_id ELSE k.id END AS name
	FROM moment, (SELECT hash, asks FROM unnest($1::bytea[], $6::bigint[]) AS u (hash, asks) LIMIT $2) w` + keyByHash + `),
asked AS (SELECT name AS org_id, start, sum(asks)::bigint AS asks, max(per_minute) AS per_minute
	FROM found WHERE per_minute > 0 GROUP BY name, start),
` + countAsked + `
SELECT f.hash, f.id, f.org_id, f.env, f.scopes, f.expires_at, f.revoked_at, f.models, f.requests_per_minute,
	f.max_concurrent, f.plan, f.suspended_at, f.budget_version, f.has_models, f.ms,
	t.start, COALESCE(t.count_before, 0), t.start IS NULL OR ` + decided + `
FROM found f LEFT JOIN taken t ON t.org_id = f.name AND f.per_minute > 0`
	// giveBack has names, windows, and the number of permits of each to give back. It has the phases of countAsked.
	giveBack = `WITH held AS (SELECT b.org_id, b.start, greatest(0, r.count - b.permits) AS count
	FROM (SELECT org_id, start, permits FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u (org_id, start, permits)
		ORDER BY org_id COLLATE "C", start) b
	CROSS JOIN LATERAL (SELECT count FROM rate_windows WHERE org_id = b.org_id AND window_start + 0 = b.start FOR UPDATE) r)
INSERT INTO rate_windows (org_id, window_start, count) SELECT org_id, start, count FROM held ORDER BY (org_id || '') COLLATE "C"
	ON CONFLICT (org_id, window_start) DO UPDATE SET count = excluded.count`
	// forgetWindows skips the rows that another process deletes.
	forgetWindows = `DELETE FROM rate_windows WHERE ctid = ANY(ARRAY(SELECT ctid FROM rate_windows WHERE window_start < $1
	LIMIT 10000 FOR UPDATE SKIP LOCKED)) RETURNING 1`
)

// takeTries is the number of tries for a name while other processes insert its row. The second try finds the row, unless a minute has
// begun.
const takeTries = 4

var errWindowsContested = fmt.Errorf("%w: other processes began the same windows", driver.ErrBusy)

func (w *windows) takeByKeys(asks map[keyAsk]int64) (map[keyAsk]driver.KeyRecord, error) {
	w.awaitReturns()
	found := make(map[keyAsk]driver.KeyRecord, len(asks))
	for range takeTries {
		byTerms := map[*driver.KeyTerms]map[[32]byte]int64{}
		for ask, n := range asks {
			if byTerms[ask.terms] == nil {
				byTerms[ask.terms] = map[[32]byte]int64{}
			}
			byTerms[ask.terms][ask.hash] = n
		}
		asks = map[keyAsk]int64{}
		for terms, hashes := range byTerms {
			again, err := w.takeUnder(terms, hashes, found)
			if err != nil {
				return nil, err
			}
			for hash, n := range again {
				asks[keyAsk{hash, terms}] = n
			}
		}
		if len(asks) == 0 {
			return found, nil
		}
	}
	return nil, errWindowsContested
}

// takeUnder adds the keys to found, and returns the keys that weren't counted.
func (w *windows) takeUnder(
	terms *driver.KeyTerms, hashes map[[32]byte]int64, found map[keyAsk]driver.KeyRecord,
) (again map[[32]byte]int64, err error) {
	type countedKey struct {
		driver.KeyRecord
		start   sql.NullInt64
		decided bool
	}
	list, asks := make([][]byte, 0, len(hashes)), make([]int64, 0, len(hashes))
	for hash, n := range hashes {
		list, asks = append(list, hash[:]), append(asks, n)
	}
	rows, err := queryRows(w.reader, takeTime, mayCountTwice, takeByKeys, func(row driver.Row) (k countedKey, err error) {
		return k, driver.ScanKey(row, &k.KeyRecord, &k.NowMS, &k.start, &k.Permit.Before, &k.decided)
	}, list, len(list), terms.Scopes, terms.Plans, terms.PerMinute, asks)
	if err != nil {
		return nil, err
	}
	again = map[[32]byte]int64{}
	taken := map[string]int64{} // by the other keys of a window
	for _, row := range rows {
		record := row.KeyRecord
		if !row.decided {
			again[record.Hash] = hashes[record.Hash]
			continue
		}
		if row.start.Valid {
			record.Permit.Window, record.Permit.NowMS = row.start.Int64, record.NowMS
			name, _ := terms.Window(&record)
			record.Permit.Before += taken[name]
			taken[name] += hashes[record.Hash]
			w.sweep(record.Permit.Window)
		}
		found[keyAsk{record.Hash, terms}] = record
	}
	return again, nil
}

func (w *windows) takeByNames(asks map[nameAsk]int64) (map[nameAsk]driver.Permit, error) {
	type countedName struct {
		driver.Permit
		name    string
		decided bool
	}
	w.awaitReturns()
	found := make(map[nameAsk]driver.Permit, len(asks))
	// A name with several limits needs a statement for each.
	for tries := takeTries; len(found) < len(asks); {
		limits := map[string]int64{}
		var names []string
		var counts, perMinute []int64
		for ask, n := range asks {
			if _, done := found[ask]; done || limits[ask.name] != 0 {
				continue
			}
			limits[ask.name] = ask.limit
			names, counts, perMinute = append(names, ask.name), append(counts, n), append(perMinute, ask.limit)
		}
		rows, err := queryRows(w.reader, takeTime, mayCountTwice, takeByNames, func(row driver.Row) (n countedName, err error) {
			return n, row.Scan(&n.name, &n.NowMS, &n.Window, &n.Before, &n.decided)
		}, names, counts, perMinute, len(names))
		if err != nil {
			return nil, err
		}
		tries--
		for _, row := range rows {
			if row.decided {
				found[nameAsk{row.name, limits[row.name]}] = row.Permit
				w.sweep(row.Window)
				tries = takeTries
			}
		}
		if tries == 0 {
			return nil, errWindowsContested
		}
	}
	return found, nil
}

// mayCountTwice allows a second run of a counting statement on a broken connection, although the first may have counted: the worst case is
// a permit too many for a request.
func mayCountTwice(err error) bool { return isDisconnected(err) || driver.IsDeadlock(err) }

// giveBack runs once unless it is certain that nothing was given back: a permit that is returned twice would admit one request
// beyond the limit.
func (w *windows) giveBack(permits map[returnedPermit]int64) (map[returnedPermit]struct{}, error) {
	names, starts, counts := make([]string, 0, len(permits)), make([]int64, 0, len(permits)), make([]int64, 0, len(permits))
	for permit, n := range permits {
		names, starts, counts = append(names, permit.name), append(starts, permit.window), append(counts, n)
	}
	certain := func(err error) bool { return pgconn.SafeToRetry(err) || driver.IsDeadlock(err) }
	_, err := queryRows(w.reader, takeTime, certain, giveBack, func(driver.Row) (struct{}, error) { return struct{}{}, nil }, names, starts, counts)
	return nil, err
}

// sweep deletes windows that are over for more than a minute, once for each window that begins. The last one stays: a statement
// that began before the minute turned may still count in it.
func (w *windows) sweep(window int64) {
	latest := w.latest.Load()
	if window <= latest || !w.latest.CompareAndSwap(latest, window) {
		return
	}
	w.sweeps.Go(func() {
		for deleted := 1; deleted > 0 && !w.closing.Load(); {
			deleted = 0
			err := w.reader.query(forgetWindows, func(driver.Row) error { deleted++; return nil }, window-windowMS)
			if err != nil {
				return // the next minute's sweep deletes them
			}
		}
	})
}

// Interface guard.
