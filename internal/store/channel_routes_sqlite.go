package store

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
)

// The keys of a lookup are a JSON array, so that any number of them has one prepared text. CROSS JOIN makes SQLite look up
// one after the other.
const (
	routesByIDs  = "SELECT " + routeColumns + ` FROM json_each($1) wanted CROSS JOIN` + routeTables + `WHERE c.id = wanted.value`
	routesByKeys = "SELECT " + routeColumns + ` FROM json_each($1) wanted CROSS JOIN` + routeTables + `
	WHERE c.type = wanted.value ->> 0 AND c.external_id = wanted.value ->> 1 AND c.external_id <> ''`
)

func (r *sqliteHotReader) fetchRoutesByID(channelIDs []string) (map[string]Route, error) {
	found := make(map[string]Route, len(channelIDs))
	return found, r.eachRoute(routesByIDs, channelIDs, func(route Route) { found[route.ChannelID] = route })
}

func (r *sqliteHotReader) fetchRoutes(keys []RouteKey) (map[RouteKey]Route, error) {
	wanted := make([][2]string, len(keys))
	for i, key := range keys {
		wanted[i] = [2]string{key.Type, key.ExternalID}
	}
	found := make(map[RouteKey]Route, len(keys))
	return found, r.eachRoute(routesByKeys, wanted, func(route Route) { found[route.key()] = route })
}

func (r *sqliteHotReader) eachRoute(text string, wanted any, each func(Route)) error {
	list, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("look up: list the keys: %w", err)
	}
	argument := []driver.NamedValue{{Ordinal: 1, Value: string(list)}}
	return r.use(context.Background(), func(conn *sqliteConn) error {
		return conn.query(text, argument, func(row Row) error {
			route, err := scanRoute(row)
			each(route)
			return err
		})
	})
}
