package store

import (
	"context"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// Routes looks channels up for deliveries. Nothing is cached: a change holds for the next delivery.
type Routes struct{ db *DB }

// ByID reads the route of a channel of any type and state, and false when there is none. Nothing is cached: a
// change holds for the next delivery. One query serves all callers that asked before it began.
func (r Routes) ByID(ctx context.Context, channelID string) (Route, bool, error) {
	if !driver.IsText(channelID) {
		return Route{}, false, nil
	}
	return r.db.hot.Route(ctx, channelID)
}

// ByKeys reads the routes of some keys, and leaves out those that no channel has. The keys may repeat; one without an
// external id has no route. Up to 1,000 keys cost what ByID costs, and a little for each.
func (r Routes) ByKeys(ctx context.Context, keys []RouteKey) (map[RouteKey]Route, error) {
	found := make(map[RouteKey]Route, min(len(keys), driver.MaxRouteKeys))
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
	return found, nil
}
