package store

import (
	"context"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// ProviderKey is an organization's own key at a provider (BYOK), sealed by its owner: the store never sees it.
type ProviderKey struct {
	OrgID, Provider string
	Sealed          []byte
	Hint            string // what may be shown of the key
	UpdatedAt       int64  // epoch milliseconds; 0 when it is written: the transaction's clock
}

var (
	providerKeys = newTable("provider_keys", func(k *ProviderKey) []field {
		return []field{
			{"org_id", &k.OrgID},
			{"provider", &k.Provider},
			{"sealed", &k.Sealed},
			{"hint", &k.Hint},
			{"updated_at", &k.UpdatedAt},
		}
	})
	putProviderKey = providerKeys.upserts("org_id", "provider")
)

// ProviderKeys reads and writes the keys that organizations have at providers.
type ProviderKeys struct{ db *DB }

// Put sets or replaces a key, with [ErrNotFound] for an unknown organization.
func (k ProviderKeys) Put(ctx context.Context, actor string, key ProviderKey) error {
	return k.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		key.UpdatedAt = orNow(tx, key.UpdatedAt)
		tx.Queue(1, putProviderKey, providerKeys.values(&key)...)
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "provider_key.put", Target: key.Provider, OrgID: key.OrgID})
		return nil
	})
}

// Sealed reads the sealed key of an organization at a provider, and false when it has none.
func (k ProviderKeys) Sealed(ctx context.Context, orgID, provider string) (sealed []byte, found bool, err error) {
	return k.db.hot.ProviderKey(ctx, driver.ProviderKeyID{OrgID: orgID, Provider: provider})
}

// Delete removes a key, or [ErrNotFound].
func (k ProviderKeys) Delete(ctx context.Context, actor, orgID, provider string) error {
	return k.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if err := change(ctx, tx, `DELETE FROM provider_keys WHERE org_id = $1 AND provider = $2 RETURNING provider`, orgID, provider); err != nil {
			return err
		}
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "provider_key.delete", Target: provider, OrgID: orgID})
		return nil
	})
}

// List reads an organization's keys, still sealed, by provider.
func (k ProviderKeys) List(ctx context.Context, orgID string) ([]ProviderKey, error) {
	return ReadRows(ctx, k.db, "list provider keys", providerKeys.scan, providerKeys.selected+` WHERE org_id = $1 ORDER BY provider`, orgID)
}

// sealedPage is how many keys Each reads at a time, so that no read stays open while the callback works.
const sealedPage = 100

// Each hands every provider key of every organization to each, in the order of their primary key. A key that is
// written meanwhile may be seen before or after the change. The first error of each ends it.
func (k ProviderKeys) Each(ctx context.Context, each func(ProviderKey) error) error {
	var orgID, provider string
	for {
		page, err := ReadRows(ctx, k.db, "list provider keys", providerKeys.scan,
			providerKeys.selected+` WHERE (org_id, provider) > ($1, $2) ORDER BY org_id, provider LIMIT $3`, orgID, provider, sealedPage)
		if err != nil {
			return err
		}
		for _, key := range page {
			if err := each(key); err != nil {
				return err
			}
			orgID, provider = key.OrgID, key.Provider
		}
		if len(page) < sealedPage {
			return nil
		}
	}
}

// Reseal swaps the sealed bytes of a key for the same secret under another master key, and reports false when
// the key was changed or deleted meanwhile. It leaves updated_at alone and writes no audit entry: nothing the
// organization can see has changed.
func (k ProviderKeys) Reseal(ctx context.Context, orgID, provider string, was, sealed []byte) (replaced bool, err error) {
	return execChanged(ctx, k.db, `UPDATE provider_keys SET sealed = $4
		WHERE org_id = $1 AND provider = $2 AND sealed = $3 RETURNING provider`, orgID, provider, was, sealed)
}
