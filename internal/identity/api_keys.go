package identity

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// KeyRequest describes a new API key.
type KeyRequest struct {
	OrgID string
	// Name is optional; among an organization's keys that are not revoked it is unique.
	Name string
	// Env is live when empty.
	Env store.Env
	// Scopes are names of scopes; none means DefaultScopes.
	Scopes []string
	// ExpiresAt is nil for a key that never expires; it may lie in the past.
	ExpiresAt *time.Time
}

// IssuedKey is a new key with its raw text, which is stored nowhere and can't be shown again.
type IssuedKey struct {
	store.APIKey
	Raw string
}

// CreateAPIKey makes a key; only its hash is stored. A key made by a key expires no later than its maker: a later expiry is
// [store.ErrOutlives]. Other errors are, wrapped, a [FieldError] for a refused value, [store.ErrNotFound] for an unknown
// organization, [store.ErrConflict] for a name that is taken, or the store's.
func CreateAPIKey(ctx context.Context, db *store.DB, actor string, request KeyRequest) (IssuedKey, error) {
	key, err := request.key()
	if err != nil {
		return IssuedKey{}, err
	}
	var raw string
	raw, key.Hash, key.Hint = NewKey(key.Env)
	key.ID = store.NewID("key")
	key.CreatedAt = time.Now().UnixMilli()
	if err := db.APIKeys.Create(ctx, actor, key); err != nil {
		return IssuedKey{}, fmt.Errorf("creating an API key of organization %q: %w", clip(request.OrgID), err)
	}
	// The store bounds the expiry by the maker's.
	if key, err = db.APIKeys.ByID(ctx, key.OrgID, key.ID); err != nil {
		return IssuedKey{}, fmt.Errorf("reading the new API key: %w", err)
	}
	return IssuedKey{APIKey: key, Raw: raw}, nil
}

// key validates the request and returns the row without its hash.
func (r KeyRequest) key() (store.APIKey, error) {
	key := store.APIKey{OrgID: r.OrgID, Env: r.Env}
	if strings.TrimSpace(r.Name) != "" {
		name, err := CleanName("name", r.Name)
		if err != nil {
			return store.APIKey{}, err
		}
		key.Name = name
	}
	if key.Env == "" {
		key.Env = store.Live
	}
	if !key.Env.Valid() {
		return store.APIKey{}, &FieldError{"env", fmt.Sprintf("%q is not live or test", clip(string(r.Env)))}
	}
	scopes, err := ParseScopes(r.Scopes)
	if err != nil {
		return store.APIKey{}, err
	}
	for _, scope := range scopes {
		key.Scopes = append(key.Scopes, string(scope))
	}
	if r.ExpiresAt != nil {
		key.ExpiresAt = sql.NullInt64{Int64: r.ExpiresAt.UnixMilli(), Valid: true}
	}
	return key, nil
}
