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

// ProviderKeys keeps the organizations' own provider keys (BYOK), sealed for their rows (design §6 "at rest").
type ProviderKeys struct {
	db   *store.DB
	ring *vault.Ring
}

// NewProviderKeys works on db with the keys of ring.
func NewProviderKeys(db *store.DB, ring *vault.Ring) *ProviderKeys {
	return &ProviderKeys{db: db, ring: ring}
}

// Put stores or replaces an organization's key for a provider of the configuration, which the caller has checked.
// White space around the key (a file's last newline) is dropped. It returns a [FieldError] that doesn't show the
// key, [store.ErrNotFound] for an unknown organization, or the store's error.
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

// checkProviderKey lets pass what can stand in an Authorization header.
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

// providerKeyHint shows the end of a long key and nothing of a short one, of which four characters would be much.
func providerKeyHint(key string) string {
	const shown, shortest = 4, 20
	if len(key) < shortest {
		return "…"
	}
	return "…" + key[len(key)-shown:]
}

// ProviderKey opens an organization's key for a provider; found is false when it has none. It returns the store's
// error, or the vault's ([vault.ErrUnknownKey], [vault.ErrCorrupt]) when the stored value doesn't open: a fault of
// ours, not the caller's.
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

// Rekeyed counts what [ProviderKeys.Rekey] did.
type Rekeyed struct {
	Renewed   int `json:"renewed"`   // sealed anew under the first key
	Current   int `json:"current"`   // were already
	Unopened  int `json:"unopened"`  // left as they are: they don't open, see the returned error
	Overtaken int `json:"overtaken"` // changed by somebody else meanwhile, under a key of theirs; run again to be sure
}

// Rekey seals every stored value anew that isn't sealed under the ring's first key; after it older keys may be taken
// out of master_key. Rows that don't open are left alone and reported together in the error, the others are done
// all the same. It can be repeated and interrupted at any point, runs beside a working server, and leaves one entry
// in the audit log when it changed something.
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
