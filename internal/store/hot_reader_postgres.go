package store

import (
	"context"
	"errors"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresHotReader shares queries: all who ask while one runs are answered by the next.
type postgresHotReader struct {
	*routeReader

	pool   *pgxpool.Pool
	keys   *coalescer[[32]byte, KeyRecord]
	byOrgs *coalescer[string, map[string]bool]
}

func newPostgresHotReader(pool *pgxpool.Pool) *postgresHotReader {
	r := &postgresHotReader{pool: pool}
	r.keys = &coalescer[[32]byte, KeyRecord]{fetch: r.fetchKeys, patience: lookupPatience}
	r.byOrgs = &coalescer[string, map[string]bool]{fetch: r.fetchModels, patience: lookupPatience}
	r.routeReader = newRouteReader(r.fetchRoutesByID, r.fetchRoutes, lookupPatience)
	return r
}

func (r *postgresHotReader) key(ctx context.Context, hash [32]byte) (KeyRecord, bool, error) {
	return r.keys.get(ctx, hash)
}

func (r *postgresHotReader) models(ctx context.Context, orgID string) (map[string]bool, error) {
	// The answer is shared by all who asked: each gets its own copy, because it may keep and change it.
	shared, _, err := r.byOrgs.get(ctx, orgID)
	if err != nil {
		return nil, err
	}
	exceptions := make(map[string]bool, len(shared))
	maps.Copy(exceptions, shared)
	return exceptions, nil
}

func (r *postgresHotReader) close() error {
	r.keys.close()
	r.byOrgs.close()
	r.routeReader.close()
	return nil
}

func (r *postgresHotReader) fetchKeys(hashes [][32]byte) (map[[32]byte]KeyRecord, error) {
	list := make([][]byte, len(hashes))
	for i := range hashes {
		list[i] = hashes[i][:]
	}
	found := make(map[[32]byte]KeyRecord, len(hashes))
	err := r.query("SELECT "+keyColumns+", "+postgresClock+keyTables+"= ANY($1)", func(row Row) error {
		var record KeyRecord
		err := scanKey(row, &record, &record.NowMS)
		found[record.Hash] = record
		return err
	}, list)
	return found, err
}

func (r *postgresHotReader) fetchModels(orgIDs []string) (map[string]map[string]bool, error) {
	found := make(map[string]map[string]bool, len(orgIDs))
	err := r.query("SELECT org_id, model, enabled FROM org_models WHERE org_id = ANY($1)", func(row Row) error {
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

// query runs a lookup, and once more on another connection when the first one turns out to be dead: a lookup changes
// nothing, and a server that restarted leaves dead connections in the pool.
func (r *postgresHotReader) query(text string, each func(Row) error, arguments ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	err := r.queryOnce(ctx, text, each, arguments)
	if err != nil && ctx.Err() == nil && isDisconnected(err) {
		err = r.queryOnce(ctx, text, each, arguments)
	}
	return err
}

func (r *postgresHotReader) queryOnce(ctx context.Context, text string, each func(Row) error, arguments []any) error {
	rows, err := r.pool.Query(ctx, text, arguments...)
	if err != nil {
		return sqlError("look up", err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, each(row) })
	if err != nil {
		return sqlError("look up", err)
	}
	return nil
}

// isDisconnected reports an error that ended the connection, not only the statement.
func isDisconnected(err error) bool {
	var refused *pgconn.PgError
	return !errors.As(err, &refused) || refused.SeverityUnlocalized != "ERROR"
}
