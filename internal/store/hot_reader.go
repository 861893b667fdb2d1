package store

import (
	"context"
	"database/sql"
)

// hotReader answers what every request asks: its key and its organization's models, or the channels of a delivery.
// Nothing is cached, so a revocation, a suspension or a disabled model holds at the very next request on every node
// (design §7). The texts of routes are valid for PostgreSQL.
type hotReader interface {
	key(ctx context.Context, hash [32]byte) (KeyRecord, bool, error)
	models(ctx context.Context, orgID string) (map[string]bool, error)
	route(ctx context.Context, channelID string) (Route, bool, error)
	// routes adds to found what it finds of up to maxRouteKeys keys.
	routes(ctx context.Context, keys []RouteKey, found map[RouteKey]Route) error
	// close waits for the lookups that run, and refuses later ones with ErrClosed.
	close() error
}

// KeyRecord is an API key with what its organization decides about a request.
type KeyRecord struct {
	KeyID, OrgID string
	Hash         [32]byte // of the raw key, to be compared in constant time (notes/reliability.md S1)
	Env          Env
	Scopes       string        // space separated
	ExpiresAt    sql.NullInt64 // epoch milliseconds, as the others
	RevokedAt    sql.NullInt64
	Plan         string
	SuspendedAt  sql.NullInt64
	NowMS        int64 // the database's clock when the key was read
	// HasOrgModels tells whether org_models holds anything about the organization; if not, [Organizations.Models] is empty
	// and need not be asked.
	HasOrgModels bool
}

// ByHash reads the API key with this SHA-256 hash, and false when there is none. On SQLite it is one prepared
// statement; on PostgreSQL one query serves all who asked before it began.
func (k APIKeys) ByHash(ctx context.Context, hash [32]byte) (KeyRecord, bool, error) {
	return k.db.hot.key(ctx, hash)
}

// Models reads the organization's exceptions: the models it has switched on or off. A model without an entry is
// enabled (design §6). It costs what [APIKeys.ByHash] costs.
func (o Organizations) Models(ctx context.Context, orgID string) (map[string]bool, error) {
	return o.db.hot.models(ctx, orgID)
}

// The columns of a key lookup, and the tables they come from.
const (
	keyColumns = `k.hash, k.id, k.org_id, k.env, k.scopes, k.expires_at, k.revoked_at, o.plan, o.suspended_at,
	EXISTS (SELECT 1 FROM org_models m WHERE m.org_id = k.org_id)`
	keyTables = ` FROM api_keys k JOIN organizations o ON o.id = k.org_id WHERE k.hash `
)

// scanKey reads keyColumns, then what else the row has.
func scanKey(row Row, record *KeyRecord, more ...any) error {
	var hash []byte
	var env string
	columns := append([]any{
		&hash, &record.KeyID, &record.OrgID, &env, &record.Scopes, &record.ExpiresAt, &record.RevokedAt,
		&record.Plan, &record.SuspendedAt, &record.HasOrgModels,
	}, more...)
	if err := row.Scan(columns...); err != nil {
		return err
	}
	copy(record.Hash[:], hash)
	record.Env = Env(env)
	return nil
}
