package store

func (r *postgresHotReader) fetchRoutesByID(channelIDs []string) (map[string]Route, error) {
	found := make(map[string]Route, len(channelIDs))
	err := r.query("SELECT "+routeColumns+" FROM"+routeTables+"WHERE c.id = ANY($1)", func(row Row) error {
		route, err := scanRoute(row)
		found[route.ChannelID] = route
		return err
	}, channelIDs)
	return found, err
}

func (r *postgresHotReader) fetchRoutes(keys []RouteKey) (map[RouteKey]Route, error) {
	types, externalIDs := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		types[i], externalIDs[i] = key.Type, key.ExternalID
	}
	found := make(map[RouteKey]Route, len(keys))
	// The last condition lets the planner use the partial index on external ids.
	err := r.query("SELECT "+routeColumns+" FROM"+routeTables+`WHERE (c.type, c.external_id) IN
		(SELECT type, external_id FROM unnest($1::text[], $2::text[]) AS wanted (type, external_id)) AND c.external_id <> ''`,
		func(row Row) error {
			route, err := scanRoute(row)
			found[route.key()] = route
			return err
		}, types, externalIDs)
	return found, err
}
