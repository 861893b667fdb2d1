package identity

import (
	"context"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// MaxProviderKeyBytes bounds a provider key; the longest known vendors' keys have some 200 bytes, tokens a few
// thousand.
const MaxProviderKeyBytes = 8 << 10

// PutProviderKey stores or replaces an organization's own key for a provider (BYOK), sealed for its row; the caller has checked
// that the provider is configured. White space around the key, such as a file's last newline, is dropped. It returns a
// [FieldError] that doesn't contain the key, [store.ErrNotFound] for an unknown organization, or the store's error.
func PutProviderKey(ctx context.Context, db *store.DB, ring *vault.Ring, actor, orgID, provider, key string) error {
	key = strings.TrimSpace(key)
	if err := checkProviderKey(key); err != nil {
		return err
	}
	row := store.ProviderKey{
		OrgID:    orgID,
		Provider: provider,
		Sealed:   ring.Seal([]byte(key), vault.ProviderKey(orgID, provider)),
		Hint:     providerKeyHint(key),
	}
	if err := db.ProviderKeys.Put(ctx, actor, row); err != nil {
		return fmt.Errorf("storing the key of organization %q for %q: %w", clip(orgID), clip(provider), err)
	}
	return nil
}

// checkProviderKey requires a text that can stand in an Authorization header.
func checkProviderKey(key string) error {
	switch {
	case key == "":
		return &FieldError{"key", "is empty"}
	case len(key) > MaxProviderKeyBytes:
		return &FieldError{"key", fmt.Sprintf("has %d bytes, at most %d are allowed", len(key), MaxProviderKeyBytes)}
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return &FieldError{"key", "may hold visible ASCII characters only: one key, without spaces or line breaks"}
		}
	}
	return nil
}

// providerKeyHint returns the end of a long key; four characters of a short one would reveal too much.
func providerKeyHint(key string) string {
	const shown, shortest = 4, 20
	if len(key) < shortest {
		return "…"
	}
	return "…" + key[len(key)-shown:]
}
