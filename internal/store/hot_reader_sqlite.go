package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"runtime"
	"time"
)

// sqliteHotReader keeps a few connections open, each with its statements prepared, which costs a fraction of
// the way through database/sql (notes/performance.md §4). Every lookup is a read of its own and sees what was committed last.
type sqliteHotReader struct {
	*routeReader

	clock  func() time.Time
	idle   chan *sqliteConn // cap = all of them
	closed chan struct{}
}

// A lookup computes and seldom waits for the disk, so more connections than processors only cost memory.
func hotConns() int { return min(max(runtime.GOMAXPROCS(0), 2), 16) }

func openSQLiteHotReader(ctx context.Context, path string, clock func() time.Time) (*sqliteHotReader, error) {
	r := &sqliteHotReader{clock: clock, idle: make(chan *sqliteConn, hotConns()), closed: make(chan struct{})}
	r.routeReader = newRouteReader(r.fetchRoutesByID, r.fetchRoutes, 0)
	for range cap(r.idle) {
		conn, err := dialSQLite(ctx, path, sqliteReaderPragmas)
		if err != nil {
			return nil, errors.Join(err, r.closeIdle(len(r.idle)))
		}
		r.idle <- conn
	}
	return r, nil
}

func (r *sqliteHotReader) key(ctx context.Context, hash [32]byte) (record KeyRecord, found bool, err error) {
	argument := []driver.NamedValue{{Ordinal: 1, Value: hash[:]}}
	err = r.use(ctx, func(conn *sqliteConn) error {
		return conn.query("SELECT "+keyColumns+keyTables+"= $1", argument, func(row Row) error {
			found = true
			return scanKey(row, &record)
		})
	})
	if err != nil {
		return KeyRecord{}, false, err
	}
	record.NowMS = r.clock().UnixMilli()
	return record, found, nil
}

func (r *sqliteHotReader) models(ctx context.Context, orgID string) (map[string]bool, error) {
	argument := []driver.NamedValue{{Ordinal: 1, Value: orgID}}
	exceptions := map[string]bool{}
	err := r.use(ctx, func(conn *sqliteConn) error {
		return conn.query("SELECT model, enabled FROM org_models WHERE org_id = $1", argument, func(row Row) error {
			var model string
			var enabled bool
			if err := row.Scan(&model, &enabled); err != nil {
				return err
			}
			exceptions[model] = enabled
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return exceptions, nil
}

// use lends one of the connections.
func (r *sqliteHotReader) use(ctx context.Context, run func(*sqliteConn) error) error {
	select {
	case <-r.closed:
		return ErrClosed
	default:
	}
	select {
	case conn := <-r.idle:
		defer func() { r.idle <- conn }()
		return run(conn)
	case <-r.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *sqliteHotReader) close() error {
	r.routeReader.close()
	close(r.closed)
	return r.closeIdle(cap(r.idle))
}

// closeIdle closes n connections, and waits for those that are lent.
func (r *sqliteHotReader) closeIdle(n int) error {
	var failed error
	for range n {
		failed = errors.Join(failed, (<-r.idle).close())
	}
	return failed
}
