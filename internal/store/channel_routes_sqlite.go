package store

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
)

func (r *sqliteHotReader) route(ctx context.Context, channelID string) (route Route, found bool, err error) {
	argument := []driver.NamedValue{{Ordinal: 1, Value: channelID}}
	err = r.use(ctx, func(conn *sqliteConn) error {
		return conn.query("SELECT "+routeColumns+routeTables+"WHERE c.id = $1", argument, func(row Row) error {
			found = true
			route, err = scanRoute(row)
			return err
		})
	})
	return route, found && err == nil, err
}

// routesByKeys takes the keys as a JSON array of [type, external id], so that any number of them has one prepared text.
// CROSS JOIN makes SQLite look up one key after the other.
const routesByKeys = "SELECT " + routeColumns + ` FROM json_each($1) wanted CROSS JOIN channels c
	LEFT JOIN agents a ON a.id = c.agent_id AND a.org_id = c.org_id
	WHERE c.type = wanted.value ->> 0 AND c.external_id = wanted.value ->> 1 AND c.external_id <> ''`

func (r *sqliteHotReader) routes(ctx context.Context, keys []RouteKey, found map[RouteKey]Route) error {
	wanted := make([][2]string, len(keys))
	for i, key := range keys {
		wanted[i] = [2]string{key.Type, key.ExternalID}
	}
	list, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("look up: list the keys: %w", err)
	}
	argument := []driver.NamedValue{{Ordinal: 1, Value: string(list)}}
	return r.use(ctx, func(conn *sqliteConn) error {
		return conn.query(routesByKeys, argument, func(row Row) error {
			route, err := scanRoute(row)
			found[route.key()] = route
			return err
		})
	})
}
