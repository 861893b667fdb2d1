package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// hotReader keeps a few connections open, each with its statements prepared, which costs a fraction of the way through database/sql. Every look-up
// returns the newest committed state: it reads, unless the [generations] prove that nothing was committed since the last read.
type hotReader struct {
	routes *driver.RouteReader

	generations  *generations
	keys         lookups[[32]byte, driver.KeyRecord]
	models       lookups[string, map[string]bool]
	providerKeys lookups[driver.ProviderKeyID, []byte]
	routesByID   lookups[string, *driver.Route]
	routesByKey  lookups[driver.RouteKey, *driver.Route]

	clock  func() time.Time
	idle   chan *preparedConn // cap = all of them
	closed chan struct{}
}

func openHotReader(ctx context.Context, path string, clock func() time.Time, shared *generations) (*hotReader, error) {
	// A lookup computes and seldom waits for the disk, so more connections than processors only cost memory.
	conns := min(max(runtime.GOMAXPROCS(0), 2), 16)
	r := &hotReader{generations: shared, clock: clock, idle: make(chan *preparedConn, conns), closed: make(chan struct{})}
	r.keys.of, r.models.of, r.providerKeys.of = identityPart, identityPart, identityPart
	r.routesByID.of, r.routesByKey.of = routePart, routePart
	r.routes = driver.NewRouteReader(r.fetchRoutesByID, r.fetchRoutes, 0)
	for range cap(r.idle) {
		conn, err := dial(ctx, path, readerPragmas)
		if err != nil {
			return nil, errors.Join(err, r.closeIdle(len(r.idle)))
		}
		r.idle <- conn
	}
	return r, nil
}

// Key implements [driver.HotReader].
func (r *hotReader) Key(ctx context.Context, hash [32]byte) (driver.KeyRecord, bool, error) {
	record, found, err := r.keys.get(r, hash, func() (driver.KeyRecord, bool, error) { return r.readKey(ctx, hash) })
	record.NowMS = r.clock().UnixMilli() // a key that isn't read again may still expire
	return record, found, err
}

func (r *hotReader) readKey(ctx context.Context, hash [32]byte) (record driver.KeyRecord, found bool, err error) {
	err = r.read(ctx, func(row driver.Row) error {
		found = true
		return driver.ScanKey(row, &record)
	}, "SELECT "+driver.KeyColumns+driver.KeyTables+"= $1", hash[:])
	return record, found, err
}

// Models implements [driver.HotReader].
func (r *hotReader) Models(ctx context.Context, orgID string) (map[string]bool, error) {
	exceptions, _, err := r.models.get(r, orgID, func() (map[string]bool, bool, error) {
		exceptions := map[string]bool{}
		err := r.read(ctx, func(row driver.Row) error {
			var model string
			var enabled bool
			err := row.Scan(&model, &enabled)
			exceptions[model] = enabled
			return err
		}, "SELECT model, enabled FROM org_models WHERE org_id = $1", orgID)
		return exceptions, true, err
	})
	return maps.Clone(exceptions), err // its caller may keep and change it
}

// ProviderKey implements [driver.HotReader].
func (r *hotReader) ProviderKey(ctx context.Context, id driver.ProviderKeyID) (sealed []byte, found bool, err error) {
	sealed, found, err = r.providerKeys.get(r, id, func() (sealed []byte, found bool, err error) {
		err = r.read(ctx, func(row driver.Row) error {
			found = true
			return row.Scan(&sealed)
		}, "SELECT sealed FROM provider_keys WHERE org_id = $1 AND provider = $2", id.OrgID, id.Provider)
		return sealed, found, err
	})
	return bytes.Clone(sealed), found, err
}

// Route implements [driver.HotReader].
func (r *hotReader) Route(ctx context.Context, channelID string) (*driver.Route, bool, error) {
	return r.routesByID.get(r, channelID, func() (*driver.Route, bool, error) { return r.routes.Route(ctx, channelID) })
}

// Routes implements [driver.HotReader].
func (r *hotReader) Routes(ctx context.Context, keys []driver.RouteKey, found map[driver.RouteKey]*driver.Route) error {
	if len(keys) != 1 {
		return r.routes.Routes(ctx, keys, found)
	}
	route, ok, err := r.routesByKey.get(r, keys[0], func() (*driver.Route, bool, error) {
		read := map[driver.RouteKey]*driver.Route{}
		err := r.routes.Routes(ctx, keys, read)
		route, ok := read[keys[0]]
		return route, ok, err
	})
	if ok {
		found[keys[0]] = route
	}
	return err
}

// isClosed reports whether look-ups are refused, including look-ups of remembered results.
func (r *hotReader) isClosed() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

// read runs a query on one of the connections and calls each for every row until each returns an error.
func (r *hotReader) read(ctx context.Context, each func(driver.Row) error, text string, arguments ...any) error {
	if r.isClosed() {
		return driver.ErrClosed
	}
	select {
	case conn := <-r.idle:
		defer func() { r.idle <- conn }()
		return conn.query(each, text, arguments...)
	case <-r.closed:
		return driver.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Windows implements [driver.HotReader].
func (r *hotReader) Windows() driver.Windows { return nil }

// Close implements [driver.HotReader].
func (r *hotReader) Close() error {
	r.routes.Close()
	close(r.closed)
	return r.closeIdle(cap(r.idle))
}

// closeIdle closes n connections, and waits for lent ones.
func (r *hotReader) closeIdle(n int) error {
	var failed error
	for range n {
		failed = errors.Join(failed, (<-r.idle).Close())
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

func (r *hotReader) fetchRoutesByID(channelIDs map[string]int64) (map[string]*driver.Route, error) {
	found := make(map[string]*driver.Route, len(channelIDs))
	return found, r.eachRoute(routesByIDs, slices.Collect(maps.Keys(channelIDs)), func(route *driver.Route) { found[route.ChannelID] = route })
}

func (r *hotReader) fetchRoutes(keys map[driver.RouteKey]int64) (map[driver.RouteKey]*driver.Route, error) {
	wanted := make([][2]string, 0, len(keys))
	for key := range keys {
		wanted = append(wanted, [2]string{key.Type, key.ExternalID})
	}
	found := make(map[driver.RouteKey]*driver.Route, len(keys))
	return found, r.eachRoute(routesByKeys, wanted, func(route *driver.Route) { found[route.Key()] = route })
}

func (r *hotReader) eachRoute(text string, wanted any, each func(*driver.Route)) error {
	list, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("look up: list the keys: %w", err)
	}
	return r.read(context.Background(), func(row driver.Row) error {
		route, err := driver.ScanRoute(row)
		each(route)
		return err
	}, text, string(list))
}

const (
	// maxRemembered bounds the results that a look-up remembers of each second.
	maxRemembered = 1 << 14
	// rememberedFor bounds the time until a change is seen that another program than ours makes in the file.
	rememberedFor = time.Second
)

// lookups remembers the results of one kind of look-up. A result is valid until its generation changes, and no longer than rememberedFor.
type lookups[K comparable, V any] struct {
	of part

	mu             sync.RWMutex
	recent, before map[K]result[V] // before were recent until the second ended, so that memory follows what is in use
	since          time.Time       // when recent was begun
}

type result[V any] struct {
	value      V
	generation uint64
	readAt     time.Time
}

// get returns the value of a key if nothing can have changed since it was read, and otherwise the result of read. A missing key isn't remembered,
// because requests with unknown keys could fill the memory.
func (l *lookups[K, V]) get(r *hotReader, key K, read func() (V, bool, error)) (value V, found bool, err error) {
	if r.isClosed() {
		return value, false, driver.ErrClosed
	}
	// Loaded before the snapshot of the read: a change that is committed in between has made the number another one.
	generation, settled := r.generations.settled(l.of)
	if settled {
		if value, found = l.recall(generation, key); found {
			return value, true, nil
		}
	}
	readAt := time.Now()
	value, found, err = read()
	if settled && found && err == nil {
		l.remember(r.generations, key, result[V]{value, generation, readAt})
	}
	return value, found, err
}

func (l *lookups[K, V]) recall(generation uint64, key K) (value V, found bool) {
	l.mu.RLock()
	known, found := l.recent[key]
	if !found {
		known, found = l.before[key]
	}
	l.mu.RUnlock()
	if !found || known.generation != generation || time.Since(known.readAt) > rememberedFor {
		return value, false
	}
	return known.value, true
}

func (l *lookups[K, V]) remember(g *generations, key K, found result[V]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recent == nil || len(l.recent) >= maxRemembered || found.readAt.Sub(l.since) > rememberedFor {
		g.look()
		l.before, l.recent, l.since = l.recent, map[K]result[V]{}, found.readAt
	}
	l.recent[key] = found
}
