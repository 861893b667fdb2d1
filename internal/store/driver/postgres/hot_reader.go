package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

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
	windows      *windows
}

func newHotReader(pool *pgxpool.Pool) *hotReader {
	r := &hotReader{pool: pool}
	r.keys = &driver.Coalescer[[32]byte, driver.KeyRecord]{Fetch: r.fetchKeys, Patience: lookupPatience}
	r.byOrgs = &driver.Coalescer[string, map[string]bool]{Fetch: r.fetchModels, Patience: lookupPatience}
	r.providerKeys = &driver.Coalescer[driver.ProviderKeyID, []byte]{Fetch: r.fetchProviderKeys, Patience: lookupPatience}
	r.RouteReader = driver.NewRouteReader(r.fetchRoutesByID, r.fetchRoutes, lookupPatience)
	w := &windows{reader: r}
	w.keys = &driver.Coalescer[keyAsk, driver.KeyRecord]{Fetch: w.takeByKeys, Patience: lookupPatience}
	w.names = &driver.Coalescer[nameAsk, driver.Permit]{Fetch: w.takeByNames, Patience: lookupPatience}
	w.back = &driver.Coalescer[returnedPermit, struct{}]{Fetch: w.giveBack}
	r.windows = w
	return r
}

func (r *hotReader) Windows() driver.Windows { return r.windows }

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
	r.windows.Close()
	return nil
}

func (r *hotReader) fetchKeys(hashes map[[32]byte]int64) (map[[32]byte]driver.KeyRecord, error) {
	list := make([][]byte, 0, len(hashes))
	for hash := range hashes {
		list = append(list, hash[:])
	}
	return fetch(r, selectKeys, func(row driver.Row) (hash [32]byte, record driver.KeyRecord, err error) {
		err = driver.ScanKey(row, &record, &record.NowMS)
		return record.Hash, record, err
	}, list, len(list))
}

const (
	// selectKeys has hashes and their number. The limit of w, here as in the other look-ups, makes the server expect few keys. Expecting
	// ten, it would reject the plan for all arguments as too expensive and plan each execution anew, which costs three times as much as the
	// look-up.
	selectKeys = "SELECT " + driver.KeyColumns + ", " + ClockSQL + " FROM (SELECT hash FROM unnest($1::bytea[]) AS u (hash) LIMIT $2) w" + keyByHash
	// keyByHash reads the key of each hash of w. The inner limits make the plan start from an index, however few rows the tables
	// had when it was made.
	keyByHash = `
	CROSS JOIN LATERAL (SELECT hash, id, org_id, env, scopes, expires_at, revoked_at, models, requests_per_minute, max_concurrent
		FROM api_keys WHERE api_keys.hash = w.hash LIMIT 1) k
	CROSS JOIN LATERAL (SELECT plan, suspended_at, budget_version FROM organizations WHERE organizations.id = k.org_id LIMIT 1) o`
)

func (r *hotReader) fetchModels(orgIDs map[string]int64) (map[string]map[string]bool, error) {
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
	}, slices.Collect(maps.Keys(orgIDs)))
	return found, err
}

func (r *hotReader) fetchProviderKeys(ids map[driver.ProviderKeyID]int64) (map[driver.ProviderKeyID][]byte, error) {
	orgIDs, providers := make([]string, 0, len(ids)), make([]string, 0, len(ids))
	for id := range ids {
		orgIDs, providers = append(orgIDs, id.OrgID), append(providers, id.Provider)
	}
	return fetch(r, `SELECT k.org_id, k.provider, k.sealed FROM (SELECT org_id, provider FROM unnest($1::text[], $2::text[]) AS u (org_id, provider)
		LIMIT $3) w JOIN provider_keys k ON k.org_id = w.org_id AND k.provider = w.provider`,
		func(row driver.Row) (id driver.ProviderKeyID, sealed []byte, err error) {
			err = row.Scan(&id.OrgID, &id.Provider, &sealed)
			return id, sealed, err
		}, orgIDs, providers, len(ids))
}

// fetch returns the rows of a query by the keys that scan returns with them.
func fetch[K comparable, V any](r *hotReader, text string, scan func(driver.Row) (K, V, error), arguments ...any) (map[K]V, error) {
	found := map[K]V{}
	err := r.query(text, func(row driver.Row) error {
		key, value, err := scan(row)
		found[key] = value
		return err
	}, arguments...)
	return found, err
}

// query runs a look-up, and gives its rows to each. It changes nothing, so it may run twice, and each may get a row twice.
func (r *hotReader) query(text string, each func(driver.Row) error, arguments ...any) error {
	_, err := queryRows(r, lookupTime, isDisconnected, text, func(row driver.Row) (struct{}, error) { return struct{}{}, each(row) }, arguments...)
	return err
}

// queryRows runs a statement within a time, and returns what scan makes of its rows. It runs the statement once more, most often on
// another connection, if again allows it after the first error: a server that restarted leaves dead connections in the pool.
func queryRows[T any](
	r *hotReader, within time.Duration, again func(error) bool, text string, scan func(driver.Row) (T, error), arguments ...any,
) (found []T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for range 2 {
		var rows pgx.Rows
		if rows, err = r.pool.Query(ctx, text, arguments...); err == nil {
			found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (T, error) { return scan(row) })
		}
		if err == nil || ctx.Err() != nil || !again(err) {
			break
		}
	}
	return found, driver.WrapError("look up", err)
}

// isDisconnected reports an error that ended the connection, not only the statement.
func isDisconnected(err error) bool {
	var refused *pgconn.PgError
	return !errors.As(err, &refused) || refused.SeverityUnlocalized != "ERROR"
}

func (r *hotReader) fetchRoutesByID(channelIDs map[string]int64) (map[string]*driver.Route, error) {
	return fetch(r, "SELECT "+driver.RouteColumns+" FROM (SELECT id FROM unnest($1::text[]) AS u (id) LIMIT $2) w JOIN"+driver.RouteTables+
		"ON c.id = w.id", func(row driver.Row) (string, *driver.Route, error) {
		route, err := driver.ScanRoute(row)
		return route.ChannelID, route, err
	}, slices.Collect(maps.Keys(channelIDs)), len(channelIDs))
}

func (r *hotReader) fetchRoutes(keys map[driver.RouteKey]int64) (map[driver.RouteKey]*driver.Route, error) {
	types, externalIDs := make([]string, 0, len(keys)), make([]string, 0, len(keys))
	for key := range keys {
		types, externalIDs = append(types, key.Type), append(externalIDs, key.ExternalID)
	}
	// The last condition lets the planner use the partial index on external ids.
	return fetch(r, "SELECT "+driver.RouteColumns+` FROM (SELECT type, external_id FROM unnest($1::text[], $2::text[]) AS u (type, external_id)
		LIMIT $3) w JOIN`+driver.RouteTables+`ON c.type = w.type AND c.external_id = w.external_id AND c.external_id <> ''`,
		func(row driver.Row) (driver.RouteKey, *driver.Route, error) {
			route, err := driver.ScanRoute(row)
			return route.Key(), route, err
		}, types, externalIDs, len(keys))
}
