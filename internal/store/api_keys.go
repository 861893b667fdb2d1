package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// APIKey is a key of an organization. The raw key is stored nowhere.
type APIKey struct {
	ID, OrgID string
	Name      string // unique among the organization's keys that are not revoked; "" is no name
	Env       Env
	Scopes    []string // words without spaces
	Hash      [32]byte // SHA-256 of the raw key
	Hint      string   // what may be shown of the raw key
	CreatedAt int64    // epoch milliseconds; 0 when it is written: the transaction's clock
	ExpiresAt sql.NullInt64
	RevokedAt sql.NullInt64
	// CreatedBy is the actor that made the key, and CreatedByName the user's e-mail address, or the key's name or hint. They
	// are only read. "" when it isn't known.
	CreatedBy, CreatedByName string
}

var apiKeys = newTable("api_keys k", func(k *APIKey) []field {
	return []field{
		{"id", &k.ID},
		{"org_id", &k.OrgID},
		{"env", &k.Env},
		{"name", &k.Name},
		{"scopes", separated(&k.Scopes, " ")},
		{"hash", digest(&k.Hash)},
		{"hint", &k.Hint},
		{"created_at", &k.CreatedAt},
		{"expires_at", &k.ExpiresAt},
		{"revoked_at", &k.RevokedAt},
		{"created_by", &k.CreatedBy},
		{`COALESCE((SELECT users.email FROM users WHERE users.id = k.created_by AND users.org_id = k.org_id),
			(SELECT CASE WHEN maker.name = '' THEN maker.hint ELSE maker.name END FROM api_keys maker
				WHERE maker.id = k.created_by AND maker.org_id = k.org_id), '')`, computed{&k.CreatedByName}},
	}
})

// ErrOutlives is returned for a key that would be valid longer than the key that makes it.
var ErrOutlives = errors.New("a key can't make a key that is valid longer than itself")

// APIKeys reads and writes API keys.
type APIKeys struct{ db *DB }

// Create adds a key, made by actor. When that is a key, the new one expires no later than it: one that asks for no
// end gets the same, one that asks for a later end is [ErrOutlives], as everything is when the key is revoked meanwhile. It
// returns [ErrConflict] when its name is taken, [ErrLimit] when the organization has [MaxAPIKeys], and [ErrNotFound] for an unknown
// organization.
func (k APIKeys) Create(ctx context.Context, actor string, key APIKey) error {
	return k.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := checkRoom(ctx, tx, key.OrgID, MaxAPIKeys, `SELECT count(*) FROM api_keys WHERE org_id = $1 AND revoked_at IS NULL`)
		if err != nil {
			return err
		}
		expiresAt, err := expiryWithin(ctx, tx, actor, key)
		if err != nil {
			return err
		}
		key.CreatedAt, key.CreatedBy, key.ExpiresAt = orNow(tx, key.CreatedAt), actor, expiresAt
		apiKeys.queueInsert(tx, &key)
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "api_key.create", Target: key.ID, OrgID: key.OrgID,
			Detail: string(key.Env) + ": " + strings.Join(key.Scopes, " "),
		})
		return nil
	})
}

// expiryWithin returns when a new key expires that actor makes, by the rules of [APIKeys.Create].
func expiryWithin(ctx context.Context, tx Tx, actor string, key APIKey) (sql.NullInt64, error) {
	if !strings.HasPrefix(actor, "key_") {
		return key.ExpiresAt, nil
	}
	var end, revoked sql.NullInt64
	err := tx.Query(ctx, func(row Row) error { return row.Scan(&end, &revoked) },
		`SELECT expires_at, revoked_at FROM api_keys WHERE id = $1 AND org_id = $2`+tx.LockRows(), actor, key.OrgID)
	switch {
	case err != nil:
		return sql.NullInt64{}, err
	case revoked.Valid, end.Valid && key.ExpiresAt.Valid && key.ExpiresAt.Int64 > end.Int64:
		return sql.NullInt64{}, ErrOutlives
	case end.Valid && !key.ExpiresAt.Valid:
		return end, nil
	default:
		return key.ExpiresAt, nil
	}
}

// All reads an organization's keys, revoked ones too, oldest first.
func (k APIKeys) All(ctx context.Context, orgID string) ([]APIKey, error) {
	return ReadRows(ctx, k.db, "list API keys", apiKeys.scan, apiKeys.selected+` WHERE org_id = $1 ORDER BY created_at, id`, orgID)
}

// List reads a page of an organization's keys, revoked ones too, oldest first.
func (k APIKeys) List(ctx context.Context, orgID string, page Page) ([]APIKey, error) {
	return readPage(ctx, k.db, "list API keys", apiKeys.scan, apiKeys.selected+` WHERE org_id = $1`, "id", page, orgID)
}

// ByID reads an organization's key, also a revoked one, or [ErrNotFound].
func (k APIKeys) ByID(ctx context.Context, orgID, id string) (APIKey, error) {
	return ReadRow(ctx, k.db, "read an API key", apiKeys.scan, apiKeys.selected+` WHERE id = $1 AND org_id = $2`, id, orgID)
}

// Revoke revokes an organization's key, which holds at the next request, or [ErrNotFound]. Revoking it again
// changes nothing and is no error.
func (k APIKeys) Revoke(ctx context.Context, actor, orgID, keyID string) error {
	return k.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		revoked, err := Changed(ctx, tx, `UPDATE api_keys SET revoked_at = $3
			WHERE id = $1 AND org_id = $2 AND revoked_at IS NULL RETURNING id`, keyID, orgID, tx.Now())
		if err != nil {
			return err
		}
		if !revoked {
			return change(ctx, tx, `SELECT id FROM api_keys WHERE id = $1 AND org_id = $2`, keyID, orgID)
		}
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "api_key.revoke", Target: keyID, OrgID: orgID})
		return nil
	})
}

// ByHash reads the API key with this SHA-256 hash, and false when there is none. On SQLite it reads
// only what may have changed since it was read last; on PostgreSQL one query serves all callers that asked before it began.
func (k APIKeys) ByHash(ctx context.Context, hash [32]byte) (KeyRecord, bool, error) {
	return k.db.hot.Key(ctx, hash)
}
