package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// APIKey is a key of an organization. The raw key is stored nowhere.
type APIKey struct {
	ID, OrgID string
	Name      string // unique among the organization's keys that are not revoked; "" is no name
	Env       Env
	Scopes    []string `db:"words"` // words without spaces
	Hash      [32]byte // SHA-256 of the raw key
	Hint      string   // what may be shown of the raw key
	CreatedAt int64    // epoch milliseconds; 0 when it is written: the transaction's clock
	ExpiresAt sql.NullInt64
	RevokedAt sql.NullInt64
	Models    KeyModels
	// RequestsPerMinute bounds the requests of the key in a minute, and MaxConcurrent its running calls on a server. NULL means no bound.
	RequestsPerMinute, MaxConcurrent sql.NullInt64

	CreatedBy string // the actor that made the key
	// CreatedByName is the user's e-mail address, or the name or hint of the key that made the key; it is only read. Empty means unknown.
	CreatedByName string `db:"-"`
}

var apiKeys = newTable("api_keys k", func(k *APIKey) []field {
	return []field{{`COALESCE((SELECT users.email FROM users WHERE users.id = k.created_by AND users.org_id = k.org_id),
			(SELECT CASE WHEN maker.name = '' THEN maker.hint ELSE maker.name END FROM api_keys maker
				WHERE maker.id = k.created_by AND maker.org_id = k.org_id), '')`, computed{&k.CreatedByName}}}
})

// ErrOutlives is returned for a key that would be valid longer than the key that makes it.
var ErrOutlives = errors.New("a key can't make a key that is valid longer than itself")

// APIKeys reads and writes API keys.
type APIKeys struct{ db *DB }

// Create adds a key. If actor is a key, the new key expires no later: a key without an expiry gets the actor's, and Create returns
// [ErrOutlives] for a later expiry or if the actor is revoked. It returns [ErrConflict] if the name is in use, [ErrLimit] if the
// organization has [MaxAPIKeys], and [ErrNotFound] for an unknown organization.
func (k APIKeys) Create(ctx context.Context, actor string, key APIKey) error {
	return k.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := checkRoom(ctx, tx, key.OrgID, MaxAPIKeys, `SELECT count(*) FROM api_keys WHERE org_id = $1 AND revoked_at IS NULL`)
		if err != nil {
			return err
		}
		expiresAt, err := expiryWithin(ctx, tx, key.ExpiresAt, `api_keys WHERE id = $1 AND org_id = $2`, actor, key.OrgID)
		if err != nil {
			return err
		}
		key.CreatedAt, key.CreatedBy, key.ExpiresAt = orNow(tx, key.CreatedAt), actor, expiresAt
		apiKeys.queueInsert(tx, &key)
		audit(tx, actor, "api_key.create", key.ID, key.OrgID, string(key.Env)+": "+strings.Join(key.Scopes, " "))
		return nil
	})
}

// expiryWithin returns the expiry of a new key by the rules of [APIKeys.Create]. maker selects the key that makes it, which may not exist.
func expiryWithin(ctx context.Context, tx Tx, expiresAt sql.NullInt64, maker string, arguments ...any) (sql.NullInt64, error) {
	var end, revoked sql.NullInt64
	err := tx.Query(ctx, func(row Row) error { return row.Scan(&end, &revoked) },
		`SELECT expires_at, revoked_at FROM `+maker+tx.LockRows(), arguments...)
	switch {
	case err != nil:
		return sql.NullInt64{}, err
	case revoked.Valid, end.Valid && expiresAt.Valid && expiresAt.Int64 > end.Int64:
		return sql.NullInt64{}, ErrOutlives
	case !expiresAt.Valid:
		return end, nil
	}
	return expiresAt, nil
}

// All reads an organization's keys, revoked ones too, oldest first.
func (k APIKeys) All(ctx context.Context, orgID string) ([]APIKey, error) {
	return ReadRows(ctx, k.db, "list API keys", apiKeys.scan, apiKeys.selected+` WHERE org_id = $1 ORDER BY created_at, id`, orgID)
}

// List reads a page of an organization's keys, revoked ones too, oldest first.
func (k APIKeys) List(ctx context.Context, orgID string, page Page) ([]APIKey, error) {
	return readPage(ctx, k.db, "list API keys", apiKeys.scan, apiKeys.selected+` WHERE org_id = $1`, "id", page, orgID)
}

// ByID reads an organization's key, also a revoked one. It returns [ErrNotFound] if there is none.
func (k APIKeys) ByID(ctx context.Context, orgID, id string) (APIKey, error) {
	return ReadRow(ctx, k.db, "read an API key", apiKeys.scan, apiKeys.selected+` WHERE id = $1 AND org_id = $2`, id, orgID)
}

// NewKeyModels returns the models with some ids; nil means all models.
func NewKeyModels(ids []string) KeyModels { return driver.NewKeyModels(ids) }

// ErrRevoked is returned for a change of a revoked key.
var ErrRevoked = errors.New("the key is revoked")

// Update changes an organization's key from the next request on. edit changes the key as the transaction has read it. It may run more than once and
// must not wait; Update returns its error. Update returns [ErrNotFound] if there is no such key, and [ErrRevoked] for a revoked one.
func (k APIKeys) Update(ctx context.Context, actor, orgID, id string, edit func(*APIKey) error) error {
	return k.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		key, err := apiKeys.lock(ctx, tx, orgID, id)
		if err != nil {
			return err
		}
		if key.RevokedAt.Valid {
			return ErrRevoked
		}
		if err := edit(&key); err != nil {
			return err
		}
		apiKeys.queueUpdate(tx, &key, orgID, id)
		audit(tx, actor, "api_key.update", id, orgID, key.bounds())
		return nil
	})
}

// bounds describes the bounds of a key.
func (k *APIKey) bounds() string {
	models := "all"
	if k.Models.Valid {
		models = strings.Join(k.Models.List(), " ")
	}
	return fmt.Sprintf("models: %s; requests a minute: %d, running calls: %d (0: no bound)", models, k.RequestsPerMinute.Int64, k.MaxConcurrent.Int64)
}

// Revoke revokes an organization's key from the next request on. It returns [ErrNotFound] if there is none. It changes nothing for a
// revoked key.
func (k APIKeys) Revoke(ctx context.Context, actor, orgID, keyID string) error {
	return revoke(ctx, k.db, AuditEntry{Actor: actor, Action: "api_key.revoke", Target: keyID, OrgID: orgID},
		"api_keys", "id = $1 AND org_id = $2", keyID, orgID)
}

// revoke revokes the key that a condition selects.
func revoke(ctx context.Context, db *DB, entry AuditEntry, table, condition string, arguments ...any) error {
	return db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		revoked, err := Changed(ctx, tx, fmt.Sprintf(`UPDATE %s SET revoked_at = $%d WHERE %s AND revoked_at IS NULL RETURNING id`,
			table, len(arguments)+1, condition), append(arguments, tx.Now())...)
		if err == nil && !revoked {
			return change(ctx, tx, `SELECT id FROM `+table+` WHERE `+condition, arguments...)
		}
		if err == nil {
			QueueAudit(tx, entry)
		}
		return err
	})
}

// ByHash reads the API key with this SHA-256 hash, and false when there is none. On SQLite it reads
// only what may have changed since it was read last; on PostgreSQL one query serves all callers that asked before it began.
func (k APIKeys) ByHash(ctx context.Context, hash [32]byte) (KeyRecord, bool, error) {
	return k.db.hot.Key(ctx, hash)
}

// ProviderKey is an organization's own key at a provider (BYOK), sealed by its owner.
type ProviderKey struct {
	OrgID, Provider string
	Sealed          []byte
	Hint            string // what may be shown of the key
	UpdatedAt       int64  // epoch milliseconds; 0 when it is written: the transaction's clock
}

var (
	providerKeys   = newTable[ProviderKey]("provider_keys", nil)
	putProviderKey = providerKeys.upserts("org_id", "provider")
)

// ProviderKeys reads and writes the keys that organizations have at providers.
type ProviderKeys struct{ db *DB }

// Put sets or replaces a key. It returns [ErrNotFound] for an unknown organization.
func (k ProviderKeys) Put(ctx context.Context, actor string, key ProviderKey) error {
	return k.db.ExecQueued(ctx, func(tx Tx) {
		key.UpdatedAt = orNow(tx, key.UpdatedAt)
		tx.Queue(1, putProviderKey, providerKeys.values(&key)...)
		audit(tx, actor, "provider_key.put", key.Provider, key.OrgID, "")
	})
}

// Sealed reads the sealed key of an organization at a provider, and false when it has none.
func (k ProviderKeys) Sealed(ctx context.Context, orgID, provider string) (sealed []byte, found bool, err error) {
	return k.db.hot.ProviderKey(ctx, driver.ProviderKeyID{OrgID: orgID, Provider: provider})
}

// Delete removes a key. It returns [ErrNotFound] if there is none.
func (k ProviderKeys) Delete(ctx context.Context, actor, orgID, provider string) error {
	return execAudited(ctx, k.db, AuditEntry{Actor: actor, Action: "provider_key.delete", Target: provider, OrgID: orgID},
		`DELETE FROM provider_keys WHERE org_id = $1 AND provider = $2 RETURNING provider`, orgID, provider)
}

// List reads an organization's keys, still sealed, by provider.
func (k ProviderKeys) List(ctx context.Context, orgID string) ([]ProviderKey, error) {
	return ReadRows(ctx, k.db, "list provider keys", providerKeys.scan, providerKeys.selected+` WHERE org_id = $1 ORDER BY provider`, orgID)
}

// Each calls each with every provider key of every organization, in the order of their primary key. A key that is written during the call
// is read before or after the change. The first error of each ends it.
func (k ProviderKeys) Each(ctx context.Context, each func(ProviderKey) error) error {
	return eachRow(ctx, k.db, "list provider keys", providerKeys.scan,
		providerKeys.selected+` WHERE (org_id, provider) > ($1, $2) ORDER BY org_id, provider LIMIT $3`,
		func(key *ProviderKey) []any { return []any{key.OrgID, key.Provider} }, each)
}

// Reseal replaces the sealed bytes of a key with the same secret under another master key. It reports false if the key has changed or is
// gone. It keeps updated_at and writes no audit entry, because nothing has changed for the organization.
func (k ProviderKeys) Reseal(ctx context.Context, orgID, provider string, was, sealed []byte) (replaced bool, err error) {
	return execChanged(ctx, k.db, `UPDATE provider_keys SET sealed = $4
		WHERE org_id = $1 AND provider = $2 AND sealed = $3 RETURNING provider`, orgID, provider, was, sealed)
}

// IDKey is a key under which ids of customers and messages are sealed. It is itself sealed by its owner.
type IDKey struct {
	Number int64 // from 0 in a store
	Sealed []byte
}

// IDKeys reads and writes the keys of ids.
type IDKeys struct{ db *DB }

// All reads all keys, the oldest first. A store has one, or one more each time all before were lost.
func (k IDKeys) All(ctx context.Context) ([]IDKey, error) {
	return ReadRows(ctx, k.db, "read the keys of ids", ScanFields[IDKey](), `SELECT number, sealed FROM id_keys ORDER BY number`)
}

// Add stores a key in a transaction. It returns false if the store has another with its number, which may have been added by another
// process while Add waited for it.
func (k IDKeys) Add(ctx context.Context, tx Tx, key IDKey) (added bool, err error) {
	return Changed(ctx, tx, `INSERT INTO id_keys (number, sealed) VALUES ($1, $2) ON CONFLICT (number) DO NOTHING RETURNING number`,
		key.Number, key.Sealed)
}

// Reseal is [ProviderKeys.Reseal] for a key of ids.
func (k IDKeys) Reseal(ctx context.Context, number int64, was, sealed []byte) (replaced bool, err error) {
	return execChanged(ctx, k.db, `UPDATE id_keys SET sealed = $3 WHERE number = $1 AND sealed = $2 RETURNING number`, number, was, sealed)
}
