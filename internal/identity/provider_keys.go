package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// MaxProviderKeyBytes bounds a provider key; the longest known vendors' keys have some 200 bytes, tokens a few
// thousand.
const MaxProviderKeyBytes = 8 << 10

// ProviderKeys stores the organizations' own provider keys (BYOK), each sealed for its row.
type ProviderKeys struct {
	db   *store.DB
	ring *vault.Ring
}

// NewProviderKeys works on db with the keys of ring.
func NewProviderKeys(db *store.DB, ring *vault.Ring) *ProviderKeys {
	return &ProviderKeys{db: db, ring: ring}
}

// Put stores or replaces an organization's key for a provider; the caller has checked that the provider is configured. White
// space around the key, such as a file's last newline, is dropped. It returns a [FieldError] that doesn't contain the key,
// [store.ErrNotFound] for an unknown organization, or the store's error.
func (p *ProviderKeys) Put(ctx context.Context, actor, orgID, provider, key string) error {
	key = strings.TrimSpace(key)
	if err := checkProviderKey(key); err != nil {
		return err
	}
	row := store.ProviderKey{
		OrgID:    orgID,
		Provider: provider,
		Sealed:   p.ring.Seal([]byte(key), vault.ProviderKey(orgID, provider)),
		Hint:     providerKeyHint(key),
	}
	if err := p.db.ProviderKeys.Put(ctx, actor, row); err != nil {
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

// ProviderKey returns an organization's key for a provider; found is false when it has none. Errors are the store's, or
// [vault.ErrUnknownKey] and [vault.ErrCorrupt] when the stored value doesn't open.
func (p *ProviderKeys) ProviderKey(ctx context.Context, orgID, provider string) (key string, found bool, err error) {
	sealed, found, err := p.db.ProviderKeys.Sealed(ctx, orgID, provider)
	if err != nil {
		return "", false, fmt.Errorf("reading a provider key: %w", err)
	}
	if !found {
		return "", false, nil
	}
	plain, err := p.ring.Open(sealed, vault.ProviderKey(orgID, provider))
	if err != nil {
		return "", false, fmt.Errorf("provider key of organization %q for %q: %w", orgID, provider, err)
	}
	return string(plain), true, nil
}

// Delete removes an organization's key for a provider; [store.ErrNotFound] when there is none.
func (p *ProviderKeys) Delete(ctx context.Context, actor, orgID, provider string) error {
	if err := p.db.ProviderKeys.Delete(ctx, actor, orgID, provider); err != nil {
		return fmt.Errorf("provider key of organization %q for %q: %w", clip(orgID), clip(provider), err)
	}
	return nil
}

// Rekeyed counts the results of [ProviderKeys.Rekey].
type Rekeyed struct {
	Renewed   int `json:"renewed"`   // sealed under the first key by this run
	Current   int `json:"current"`   // already sealed under the first key
	Unopened  int `json:"unopened"`  // unchanged, because they don't open; the error names them
	Overtaken int `json:"overtaken"` // replaced by another writer meanwhile; run again to be sure
}

// Rekey seals every value again that isn't sealed under the ring's first key; after it older keys may be removed from
// master_key. Values that don't open stay as they are and are reported together in the error. Rekey may be interrupted and
// repeated, and runs beside a working server. It writes one entry to the audit log when it changed something.
func (p *ProviderKeys) Rekey(ctx context.Context, actor string) (Rekeyed, error) {
	var done Rekeyed
	var unopened []error
	err := p.db.ProviderKeys.Each(ctx, func(row store.ProviderKey) error {
		place := vault.ProviderKey(row.OrgID, row.Provider)
		plain, err := p.ring.Open(row.Sealed, place)
		switch {
		case err != nil:
			done.Unopened++
			unopened = append(unopened, fmt.Errorf("provider key of organization %q for %q: %w", row.OrgID, row.Provider, err))
			return nil
		case p.ring.Current(row.Sealed):
			done.Current++
			return nil
		}
		replaced, err := p.db.ProviderKeys.Reseal(ctx, row.OrgID, row.Provider, row.Sealed, p.ring.Seal(plain, place))
		switch {
		case err != nil:
			return err
		case replaced:
			done.Renewed++
		default:
			done.Overtaken++
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("sealing provider keys anew: %w", err)
	}
	if done.Renewed > 0 {
		err = errors.Join(err, p.auditRekey(ctx, actor, done))
	}
	return done, errors.Join(append(unopened, err)...)
}

func (p *ProviderKeys) auditRekey(ctx context.Context, actor string, done Rekeyed) error {
	err := p.db.AuditLog.Add(ctx, store.AuditEntry{
		Actor: actor, Action: "provider_key.rekey", Target: "provider_keys",
		Detail: fmt.Sprintf("%d sealed anew, %d can't be opened", done.Renewed, done.Unopened),
	})
	if err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	return nil
}
