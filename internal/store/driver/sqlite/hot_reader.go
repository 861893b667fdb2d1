package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// hotReader keeps a few connections open, each with its statements prepared, which costs a fraction of
// the way through database/sql. Every lookup is a read of its own and sees what was committed last.
type hotReader struct {
	*driver.RouteReader

	clock  func() time.Time
	idle   chan *preparedConn // cap = all of them
	closed chan struct{}
}

// A lookup computes and seldom waits for the disk, so more connections than processors only cost memory.
func hotConns() int { return min(max(runtime.GOMAXPROCS(0), 2), 16) }

func openHotReader(ctx context.Context, path string, clock func() time.Time) (*hotReader, error) {
	r := &hotReader{clock: clock, idle: make(chan *preparedConn, hotConns()), closed: make(chan struct{})}
	r.RouteReader = driver.NewRouteReader(r.fetchRoutesByID, r.fetchRoutes, 0)
	for range cap(r.idle) {
		conn, err := dial(ctx, path, readerPragmas)
		if err != nil {
			return nil, errors.Join(err, r.closeIdle(len(r.idle)))
		}
		r.idle <- conn
	}
	return r, nil
}

func (r *hotReader) Key(ctx context.Context, hash [32]byte) (record driver.KeyRecord, found bool, err error) {
	argument := []sqldriver.NamedValue{{Ordinal: 1, Value: hash[:]}}
	err = r.use(ctx, func(conn *preparedConn) error {
		return conn.query("SELECT "+driver.KeyColumns+driver.KeyTables+"= $1", argument, func(row driver.Row) error {
			found = true
			return driver.ScanKey(row, &record)
		})
	})
	if err != nil {
		return driver.KeyRecord{}, false, err
	}
	record.NowMS = r.clock().UnixMilli()
	return record, found, nil
}

func (r *hotReader) Models(ctx context.Context, orgID string) (map[string]bool, error) {
	argument := []sqldriver.NamedValue{{Ordinal: 1, Value: orgID}}
	exceptions := map[string]bool{}
	err := r.use(ctx, func(conn *preparedConn) error {
		return conn.query("SELECT model, enabled FROM org_models WHERE org_id = $1", argument, func(row driver.Row) error {
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
func (r *hotReader) use(ctx context.Context, run func(*preparedConn) error) error {
	select {
	case <-r.closed:
		return driver.ErrClosed
	default:
	}
	select {
	case conn := <-r.idle:
		defer func() { r.idle <- conn }()
		return run(conn)
	case <-r.closed:
		return driver.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *hotReader) Close() error {
	r.RouteReader.Close()
	close(r.closed)
	return r.closeIdle(cap(r.idle))
}

// closeIdle closes n connections, and waits for those that are lent.
func (r *hotReader) closeIdle(n int) error {
	var failed error
	for range n {
		failed = errors.Join(failed, (<-r.idle).close())
	}
	return failed
}

// The keys of a lookup are a JSON array, so that any number of them has one prepared text. CROSS JOIN makes SQLite look up
// one after the other.
const (
	routesByIDs  = "SELECT " + driver.RouteColumns + ` FROM json_each($1) wanted CROSS JOIN` + driver.RouteTables + `WHERE c.id = wanted.value`
	routesByKeys = "SELECT " + driver.RouteColumns + ` FROM json_each($1) wanted CROSS JOIN` + driver.RouteTables + `
	WHERE c.type = wanted.value ->> 0 AND c.external_id = wanted.value ->> 1 AND c.external_id <> ''`
)

func (r *hotReader) fetchRoutesByID(channelIDs []string) (map[string]driver.Route, error) {
	found := make(map[string]driver.Route, len(channelIDs))
	return found, r.eachRoute(routesByIDs, channelIDs, func(route driver.Route) { found[route.ChannelID] = route })
}

func (r *hotReader) fetchRoutes(keys []driver.RouteKey) (map[driver.RouteKey]driver.Route, error) {
	wanted := make([][2]string, len(keys))
	for i, key := range keys {
		wanted[i] = [2]string{key.Type, key.ExternalID}
	}
	found := make(map[driver.RouteKey]driver.Route, len(keys))
	return found, r.eachRoute(routesByKeys, wanted, func(route driver.Route) { found[route.Key()] = route })
}

func (r *hotReader) eachRoute(text string, wanted any, each func(driver.Route)) error {
	list, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("look up: list the keys: %w", err)
	}
	argument := []sqldriver.NamedValue{{Ordinal: 1, Value: string(list)}}
	return r.use(context.Background(), func(conn *preparedConn) error {
		return conn.query(text, argument, func(row driver.Row) error {
			route, err := driver.ScanRoute(row)
			each(route)
			return err
		})
	})
}
