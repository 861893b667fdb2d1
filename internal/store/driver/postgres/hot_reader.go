package postgres

import (
	"context"
	"errors"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// hotReader shares queries: all lookups that are asked for while one runs go with the next.
type hotReader struct {
	*driver.RouteReader

	pool         *pgxpool.Pool
	keys         *driver.Coalescer[[32]byte, driver.KeyRecord]
	byOrgs       *driver.Coalescer[string, map[string]bool]
	providerKeys *driver.Coalescer[driver.ProviderKeyID, []byte]
}

func newHotReader(pool *pgxpool.Pool) *hotReader {
	r := &hotReader{pool: pool}
	r.keys = &driver.Coalescer[[32]byte, driver.KeyRecord]{Fetch: r.fetchKeys, Patience: lookupPatience}
	r.byOrgs = &driver.Coalescer[string, map[string]bool]{Fetch: r.fetchModels, Patience: lookupPatience}
	r.providerKeys = &driver.Coalescer[driver.ProviderKeyID, []byte]{Fetch: r.fetchProviderKeys, Patience: lookupPatience}
	r.RouteReader = driver.NewRouteReader(r.fetchRoutesByID, r.fetchRoutes, lookupPatience)
	return r
}

func (r *hotReader) Key(ctx context.Context, hash [32]byte) (driver.KeyRecord, bool, error) {
	return r.keys.Get(ctx, hash)
}

func (r *hotReader) Models(ctx context.Context, orgID string) (map[string]bool, error) {
	// The result is shared by all callers: each gets its own copy, because it may keep and change it.
	shared, _, err := r.byOrgs.Get(ctx, orgID)
	if err != nil {
		return nil, err
	}
	exceptions := make(map[string]bool, len(shared))
	maps.Copy(exceptions, shared)
	return exceptions, nil
}

func (r *hotReader) ProviderKey(ctx context.Context, id driver.ProviderKeyID) ([]byte, bool, error) {
	return r.providerKeys.Get(ctx, id)
}

func (r *hotReader) Close() error {
	r.keys.Close()
	r.byOrgs.Close()
	r.providerKeys.Close()
	r.RouteReader.Close()
	return nil
}

func (r *hotReader) fetchKeys(hashes [][32]byte) (map[[32]byte]driver.KeyRecord, error) {
	list := make([][]byte, len(hashes))
	for i := range hashes {
		list[i] = hashes[i][:]
	}
	found := make(map[[32]byte]driver.KeyRecord, len(hashes))
	err := r.query("SELECT "+driver.KeyColumns+", "+ClockSQL+driver.KeyTables+"= ANY($1)", func(row driver.Row) error {
		var record driver.KeyRecord
		err := driver.ScanKey(row, &record, &record.NowMS)
		found[record.Hash] = record
		return err
	}, list)
	return found, err
}

func (r *hotReader) fetchModels(orgIDs []string) (map[string]map[string]bool, error) {
	found := make(map[string]map[string]bool, len(orgIDs))
	err := r.query("SELECT org_id, model, enabled FROM org_models WHERE org_id = ANY($1)", func(row driver.Row) error {
		var orgID, model string
		var enabled bool
		if err := row.Scan(&orgID, &model, &enabled); err != nil {
			return err
		}
		if found[orgID] == nil {
			found[orgID] = map[string]bool{}
		}
		found[orgID][model] = enabled
		return nil
	}, orgIDs)
	return found, err
}

func (r *hotReader) fetchProviderKeys(ids []driver.ProviderKeyID) (map[driver.ProviderKeyID][]byte, error) {
	orgIDs, providers := make([]string, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		orgIDs[i], providers[i] = id.OrgID, id.Provider
	}
	found := make(map[driver.ProviderKeyID][]byte, len(ids))
	err := r.query(`SELECT org_id, provider, sealed FROM provider_keys WHERE (org_id, provider) IN
		(SELECT org_id, provider FROM unnest($1::text[], $2::text[]) AS wanted (org_id, provider))`, func(row driver.Row) error {
		var id driver.ProviderKeyID
		var sealed []byte
		err := row.Scan(&id.OrgID, &id.Provider, &sealed)
		found[id] = sealed
		return err
	}, orgIDs, providers)
	return found, err
}

// query runs a lookup, and once more on another connection when the first one turns out to be dead: a lookup changes
// nothing, and a server that restarted leaves dead connections in the pool.
func (r *hotReader) query(text string, each func(driver.Row) error, arguments ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	err := r.queryOnce(ctx, text, each, arguments)
	if err != nil && ctx.Err() == nil && isDisconnected(err) {
		err = r.queryOnce(ctx, text, each, arguments)
	}
	return err
}

func (r *hotReader) queryOnce(ctx context.Context, text string, each func(driver.Row) error, arguments []any) error {
	rows, err := r.pool.Query(ctx, text, arguments...)
	if err != nil {
		return driver.WrapError("look up", err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, each(row) })
	if err != nil {
		return driver.WrapError("look up", err)
	}
	return nil
}

// isDisconnected reports an error that ended the connection, not only the statement.
func isDisconnected(err error) bool {
	var refused *pgconn.PgError
	return !errors.As(err, &refused) || refused.SeverityUnlocalized != "ERROR"
}

func (r *hotReader) fetchRoutesByID(channelIDs []string) (map[string]driver.Route, error) {
	found := make(map[string]driver.Route, len(channelIDs))
	err := r.query("SELECT "+driver.RouteColumns+" FROM"+driver.RouteTables+"WHERE c.id = ANY($1)", func(row driver.Row) error {
		route, err := driver.ScanRoute(row)
		found[route.ChannelID] = route
		return err
	}, channelIDs)
	return found, err
}

func (r *hotReader) fetchRoutes(keys []driver.RouteKey) (map[driver.RouteKey]driver.Route, error) {
	types, externalIDs := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		types[i], externalIDs[i] = key.Type, key.ExternalID
	}
	found := make(map[driver.RouteKey]driver.Route, len(keys))
	// The last condition lets the planner use the partial index on external ids.
	err := r.query("SELECT "+driver.RouteColumns+" FROM"+driver.RouteTables+`WHERE (c.type, c.external_id) IN
		(SELECT type, external_id FROM unnest($1::text[], $2::text[]) AS wanted (type, external_id)) AND c.external_id <> ''`,
		func(row driver.Row) error {
			route, err := driver.ScanRoute(row)
			found[route.Key()] = route
			return err
		}, types, externalIDs)
	return found, err
}
