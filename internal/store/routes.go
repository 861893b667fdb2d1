package store

import (
	"context"
	"slices"
	"sync"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// Routes looks channels up for deliveries. A change holds for the next delivery.
type Routes struct{ db *DB }

// ByID reads the route of a channel of any type and state, and false when there is none. A
// change holds for the next delivery. One query serves all callers that asked before it began, and they share the credentials.
func (r Routes) ByID(ctx context.Context, channelID string) (Route, bool, error) {
	if !driver.IsText(channelID) {
		return Route{}, false, nil
	}
	route, found, err := r.db.hot.Route(ctx, channelID)
	if err != nil {
		return Route{}, false, err
	}
	if r.remember() {
		r.db.routes.learnID(channelID, route)
	}
	if !found {
		return Route{}, false, nil
	}
	return *route, true, nil
}

// ByKeys reads the routes of some keys. Keys without a channel are left out. The keys may repeat; a key without an external id has no
// route. Up to 1,000 keys cost one query. Callers share the routes and must not change them.
func (r Routes) ByKeys(ctx context.Context, keys []RouteKey) (map[RouteKey]*Route, error) {
	found := make(map[RouteKey]*Route, min(len(keys), driver.MaxRouteKeys))
	wanted := make([]RouteKey, 0, len(keys))
	for _, key := range keys {
		if key.Lookable() {
			wanted = append(wanted, key)
		}
	}
	for some := range slices.Chunk(wanted, driver.MaxRouteKeys) {
		if err := r.db.hot.Routes(ctx, some, found); err != nil {
			return nil, err
		}
	}
	if r.remember() {
		r.db.routes.learnKeys(wanted, found)
	}
	return found, nil
}

// remember reports whether reading a route costs so much that routes are remembered. SQLite's hot reader reads nothing unless something
// was committed since it read the same.
func (r Routes) remember() bool { return r.db.Engine() == Postgres }

// RememberedByID returns the route of a channel from this process's last read, marked [Route.Remembered], and false if none is remembered.
// It reads nothing. A write that uses a remembered route must check it: see [QueueRoutes].
func (r Routes) RememberedByID(channelID string) (Route, bool) {
	m := &r.db.routes
	m.mu.RLock()
	defer m.mu.RUnlock()
	if route := m.byID[channelID]; route != nil {
		return *route, true
	}
	return Route{}, false
}

// RememberedByKeys is [Routes.RememberedByID] for keys. It returns nil unless it has the routes of all of them.
func (r Routes) RememberedByKeys(keys []RouteKey) map[RouteKey]*Route {
	m := &r.db.routes
	m.mu.RLock()
	defer m.mu.RUnlock()
	found := make(map[RouteKey]*Route, len(keys))
	for _, key := range keys {
		route := m.byKey[key]
		if route == nil {
			return nil
		}
		found[key] = route
	}
	return found
}

// routeSizes are the lengths of the list in selectRoutes.
var routeSizes = ListSizes{256, 32, 4, 1}

var selectRoutes = routeSizes.Statement(`SELECT `+driver.RouteColumns+` FROM`+driver.RouteTables+`WHERE c.id IN {list}`, 1, 0)

// QueueRoutes queues the reading of the routes of channels into found, by the channels' ids. Channels that don't exist are left out.
func QueueRoutes(tx Tx, channelIDs []string, found map[string]*Route) {
	for size, piece := range Padded(routeSizes, channelIDs) {
		tx.QueueQuery(func(row Row) error {
			route, err := driver.ScanRoute(row)
			found[route.ChannelID] = route
			return err
		}, selectRoutes[size], Arguments(piece)...)
	}
}

// maxRemembered bounds the routes that a process remembers, in bytes with rememberedBytes for each. A memory that is full begins anew.
const maxRemembered = 8 << 20

// rememberedBytes is the approximate size of a remembered route without its texts.
const rememberedBytes = 400

// routeMemory has the routes of channels that this process has read, without pending ones. They may have changed since, so each is marked
// [Route.Remembered]. The zero value is empty.
type routeMemory struct {
	mu    sync.RWMutex
	byID  map[string]*Route
	byKey map[RouteKey]*Route
	bytes int
}

// learnID remembers the route of a channel id. A nil route means that the channel has none.
func (m *routeMemory) learnID(channelID string, route *Route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(m.byID[channelID])
	m.add(route)
}

// learnKeys remembers the routes of keys.
func (m *routeMemory) learnKeys(keys []RouteKey, found map[RouteKey]*Route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		m.forget(m.byKey[key])
		m.add(found[key])
	}
}

// add needs the mutex.
func (m *routeMemory) add(route *Route) {
	if route == nil || route.State == ChannelPending {
		return
	}
	m.forget(m.byID[route.ChannelID])
	if size := sizeOf(route); m.byID == nil || m.bytes+size > maxRemembered {
		m.byID, m.byKey, m.bytes = map[string]*Route{}, map[RouteKey]*Route{}, 0
	}
	kept := *route
	kept.Remembered = true
	m.bytes += sizeOf(&kept)
	m.byID[kept.ChannelID] = &kept
	if key := kept.Key(); key.Lookable() {
		m.byKey[key] = &kept
	}
}

// forget needs the mutex.
func (m *routeMemory) forget(route *Route) {
	if route == nil {
		return
	}
	m.bytes -= sizeOf(route)
	delete(m.byID, route.ChannelID)
	delete(m.byKey, route.Key())
}

func sizeOf(route *Route) int {
	return rememberedBytes + len(route.ChannelID) + len(route.OrgID) + len(route.ExternalID) + len(route.Credentials)
}
