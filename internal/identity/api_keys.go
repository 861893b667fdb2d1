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

// APIKeys makes, lists and revokes the API keys of organizations. Its errors are those of [Organizations].
type APIKeys struct{ db *store.DB }

// NewAPIKeys works on db.
func NewAPIKeys(db *store.DB) *APIKeys { return &APIKeys{db: db} }

// Create makes a key; only its hash is stored. A key made by a key expires no later than its maker: a later expiry is
// [store.ErrOutlives].
func (k *APIKeys) Create(ctx context.Context, actor string, request KeyRequest) (IssuedKey, error) {
	key, err := request.key()
	if err != nil {
		return IssuedKey{}, err
	}
	var raw string
	raw, key.Hash, key.Hint = NewKey(key.Env)
	key.ID = store.NewID("key")
	key.CreatedAt = time.Now().UnixMilli()
	if err := k.db.APIKeys.Create(ctx, actor, key); err != nil {
		return IssuedKey{}, fmt.Errorf("creating an API key of organization %q: %w", clip(request.OrgID), err)
	}
	// The store bounds the expiry by the maker's.
	if key, err = k.db.APIKeys.ByID(ctx, key.OrgID, key.ID); err != nil {
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

// List returns an organization's keys, including revoked and expired ones; [store.ErrNotFound] for an unknown organization.
func (k *APIKeys) List(ctx context.Context, orgID string) ([]store.APIKey, error) {
	keys, err := k.db.APIKeys.All(ctx, orgID)
	if err != nil {
		return nil, fmt.Errorf("listing the API keys of organization %q: %w", clip(orgID), err)
	}
	if len(keys) > 0 {
		return keys, nil
	}
	if _, err := k.db.Organizations.ByID(ctx, orgID); err != nil {
		return nil, fmt.Errorf("organization %q: %w", clip(orgID), err)
	}
	return nil, nil
}

// Revoke ends a key of the organization for good, from the next request on. Revoking a key again changes nothing.
func (k *APIKeys) Revoke(ctx context.Context, actor, orgID, keyID string) error {
	if err := k.db.APIKeys.Revoke(ctx, actor, orgID, keyID); err != nil {
		return fmt.Errorf("API key %q: %w", clip(keyID), err)
	}
	return nil
}

// Organization returns the organization of a key, for the operator's command line, where keys are named without it.
func (k *APIKeys) Organization(ctx context.Context, keyID string) (string, error) {
	orgID, err := k.db.OwnerOf(ctx, store.OwnedAPIKeys, keyID)
	if err != nil {
		return "", fmt.Errorf("API key %q: %w", clip(keyID), err)
	}
	return orgID, nil
}
