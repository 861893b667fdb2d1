package store

import (
	"bytes"
	"context"
	"slices"
	"time"
)

// RouteKey is how a platform names the channel of a delivery.
type RouteKey struct{ Type, ExternalID string }

// lookable reports whether a channel may have the key: one without an external id has none, and PostgreSQL can't even
// be asked for a text that it can't keep.
func (k RouteKey) lookable() bool {
	return k.ExternalID != "" && isText(k.Type) && isText(k.ExternalID)
}

// Route is what a webhook needs to know about a channel.
type Route struct {
	ChannelID, OrgID, Type, ExternalID, State string

	Credentials []byte // sealed; nil is none
	// Of the channel's agent, in milliseconds, see [Agent]; 0 without one.
	DebounceMS, DebounceMaxMS, PauseMS int64
}

// maxRouteKeys bounds the keys of one query of [Routes.ByKeys], so that one delivery doesn't keep the others waiting.
const maxRouteKeys = 1000

// Routes looks channels up for deliveries. Nothing is cached: a change holds for the next delivery.
type Routes struct{ db *DB }

// ByID reads the route of a channel of any type and state, and false when there is none. Nothing is cached: a
// change holds for the next delivery. One query serves all who asked before it began.
func (r Routes) ByID(ctx context.Context, channelID string) (Route, bool, error) {
	if !isText(channelID) {
		return Route{}, false, nil
	}
	return r.db.hot.route(ctx, channelID)
}

// ByKeys reads the routes of some keys, and leaves out those that no channel has. The keys may repeat; one without an
// external id has no route. Up to 1,000 keys cost what ByID costs, and a little for each.
func (r Routes) ByKeys(ctx context.Context, keys []RouteKey) (map[RouteKey]Route, error) {
	found := make(map[RouteKey]Route, min(len(keys), maxRouteKeys))
	wanted := make([]RouteKey, 0, len(keys))
	for _, key := range keys {
		if key.lookable() {
			wanted = append(wanted, key)
		}
	}
	for some := range slices.Chunk(wanted, maxRouteKeys) {
		if err := r.db.hot.routes(ctx, some, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// routeReader shares lookups of routes: all who ask while one runs are answered by the next. On SQLite, too, where it
// saves each delivery of a crowd a read transaction of its own.
type routeReader struct {
	byIDs  coalescer[string, Route]
	byKeys coalescer[RouteKey, Route]
}

func newRouteReader(
	byIDs func(channelIDs []string) (map[string]Route, error), byKeys func(keys []RouteKey) (map[RouteKey]Route, error),
	patience time.Duration,
) *routeReader {
	return &routeReader{
		byIDs:  coalescer[string, Route]{fetch: byIDs, patience: patience},
		byKeys: coalescer[RouteKey, Route]{fetch: byKeys, patience: patience},
	}
}

func (r *routeReader) route(ctx context.Context, channelID string) (Route, bool, error) {
	route, found, err := r.byIDs.get(ctx, channelID)
	// The answer is shared by all who asked: each gets its own copy, because it may keep and change it.
	route.Credentials = bytes.Clone(route.Credentials)
	return route, found, err
}

func (r *routeReader) routes(ctx context.Context, keys []RouteKey, found map[RouteKey]Route) error {
	shared, err := r.byKeys.getAll(ctx, keys)
	for key, route := range shared {
		route.Credentials = bytes.Clone(route.Credentials)
		found[key] = route
	}
	return err
}

// close waits for the lookups that run, and refuses later ones.
func (r *routeReader) close() {
	r.byIDs.close()
	r.byKeys.close()
}

// The columns of a route lookup, and the tables they come from.
const (
	routeColumns = `c.id, c.org_id, c.type, c.external_id, c.state, c.credentials,
	COALESCE(a.debounce_ms, 0), COALESCE(a.debounce_max_ms, 0), COALESCE(a.pause_ms, 0)`
	routeTables = ` channels c LEFT JOIN agents a ON a.id = c.agent_id AND a.org_id = c.org_id `
)

func scanRoute(row Row) (route Route, err error) {
	err = row.Scan(&route.ChannelID, &route.OrgID, &route.Type, &route.ExternalID, &route.State, &route.Credentials,
		&route.DebounceMS, &route.DebounceMaxMS, &route.PauseMS)
	return route, err
}

func (r Route) key() RouteKey { return RouteKey{r.Type, r.ExternalID} }
