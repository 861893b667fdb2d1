package identity_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

func ring(t *testing.T, fills ...byte) *vault.Ring {
	t.Helper()
	var keys []string
	for _, fill := range fills {
		keys = append(keys, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, vault.KeyBytes)))
	}
	made, err := vault.ParseRing(strings.Join(keys, " "))
	require.NoError(t, err)
	return made
}

// openKey opens an organization's stored key for a provider.
func openKey(ctx context.Context, db *store.DB, ring *vault.Ring, orgID, provider string) (key string, found bool, err error) {
	sealed, found, err := db.ProviderKeys.Sealed(ctx, orgID, provider)
	if err != nil || !found {
		return "", false, err
	}
	plain, err := ring.Open(sealed, vault.ProviderKey(orgID, provider))
	return string(plain), true, err
}

const vendorKey = "sk-proj-0123456789abcdefWXYZ"

func TestProviderKeyRoundTrip(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, keys, organization := t.Context(), ring(t, 1), newOrganization(t, db, "Acme")

		_, found, err := openKey(ctx, db, keys, organization.ID, "openai")
		require.NoError(t, err)
		require.False(t, found)

		require.NoError(t, identity.PutProviderKey(ctx, db, keys, "test", organization.ID, "openai", "sk-an-older-one-1234"))
		require.NoError(t, identity.PutProviderKey(ctx, db, keys, "test", organization.ID, "openai", " "+vendorKey+"\r\n"))
		key, found, err := openKey(ctx, db, keys, organization.ID, "openai")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, vendorKey, key)

		rows, err := db.ProviderKeys.List(ctx, organization.ID)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, "…WXYZ", rows[0].Hint)
		sealed, _, err := db.ProviderKeys.Sealed(ctx, organization.ID, "openai")
		require.NoError(t, err)
		require.NotContains(t, string(sealed), "sk-proj")
		log, err := db.AuditLog.List(ctx, "", store.Page{Limit: 100})
		require.NoError(t, err)
		for _, entry := range log {
			require.NotContains(t, entry.Detail+entry.Target, "sk-")
		}

		require.NoError(t, db.ProviderKeys.Delete(ctx, "test", organization.ID, "openai"))
		require.ErrorIs(t, db.ProviderKeys.Delete(ctx, "test", organization.ID, "openai"), store.ErrNotFound)
		_, found, err = openKey(ctx, db, keys, organization.ID, "openai")
		require.NoError(t, err)
		require.False(t, found)
		require.ErrorIs(t, identity.PutProviderKey(ctx, db, keys, "test", "org_nobody", "openai", vendorKey), store.ErrNotFound)
	})
}

func TestProviderKeyRefusesWhatNoHeaderCarries(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                "key: is empty",
		" \n\t":                           "key: is empty",
		"sk-secret\nsk-second":            "key: may hold visible ASCII characters only",
		"sk secret":                       "key: may hold visible ASCII characters only",
		"sk-sécret":                       "key: may hold visible ASCII characters only",
		"sk-secret\x00":                   "key: may hold visible ASCII characters only",
		"sk-" + strings.Repeat("x", 8190): "key: has 8193 bytes, at most 8192",
	} {
		err := identity.PutProviderKey(t.Context(), nil, ring(t, 1), "test", "org_1", "openai", given)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "sk-")
	}
}

// Two rows that were swapped in the database don't open.
func TestSwappedProviderKeysDoNotOpen(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, keys := t.Context(), ring(t, 1)
		ours, theirs := newOrganization(t, db, "Acme"), newOrganization(t, db, "Other")
		require.NoError(t, identity.PutProviderKey(ctx, db, keys, "test", ours.ID, "openai", "sk-ours"))
		require.NoError(t, identity.PutProviderKey(ctx, db, keys, "test", theirs.ID, "openai", "sk-theirs"))
		swap(t, db, ours.ID, theirs.ID)
		for _, id := range []string{ours.ID, theirs.ID} {
			_, _, err := openKey(ctx, db, keys, id, "openai")
			require.ErrorIs(t, err, vault.ErrCorrupt)
		}
		done, err := identity.Rekey(ctx, db, keys, "test")
		require.ErrorIs(t, err, vault.ErrCorrupt)
		require.Equal(t, identity.Rekeyed{Unopened: 2}, done)
	})
}

func swap(t *testing.T, db *store.DB, a, b string) {
	t.Helper()
	sealed := func(id string) []byte {
		value, found, err := db.ProviderKeys.Sealed(t.Context(), id, "openai")
		require.NoError(t, err)
		require.True(t, found)
		return value
	}
	ofA, ofB := sealed(a), sealed(b)
	require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		const update = `UPDATE provider_keys SET sealed = $1 WHERE org_id = $2`
		tx.Queue(1, update, ofA, b)
		tx.Queue(1, update, ofB, a)
		return nil
	}))
}

func TestRekey(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, organization := t.Context(), newOrganization(t, db, "Acme")
		old, both, fresh := ring(t, 1), ring(t, 2, 1), ring(t, 2)
		for _, provider := range []string{"openai", "local"} {
			require.NoError(t, identity.PutProviderKey(ctx, db, old, "test", organization.ID, provider, "sk-"+provider))
		}
		require.NoError(t, identity.PutProviderKey(ctx, db, both, "test", organization.ID, "third", "sk-third"))

		idSecret := vault.NewIDKey()
		require.NoError(t, db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			for _, key := range []store.IDKey{
				{Number: 0, Sealed: ring(t, 9).Seal(vault.NewIDKey(), vault.StoredIDKey(0))}, // of a lost master key
				{Number: 1, Sealed: old.Seal(idSecret, vault.StoredIDKey(1))},
			} {
				if added, err := db.IDKeys.Add(ctx, tx, key); err != nil || !added {
					return fmt.Errorf("%v: %w", added, err)
				}
			}
			return nil
		}))

		done, err := identity.Rekey(ctx, db, fresh, "test")
		require.ErrorIs(t, err, vault.ErrUnknownKey, "the old key was taken out too early")
		require.ErrorContains(t, err, "key 1 of ids")
		require.ErrorContains(t, err, `provider key of organization "`+organization.ID+`" for "openai"`)
		require.Equal(t, identity.Rekeyed{Current: 1, Unopened: 3}, done)

		done, err = identity.Rekey(ctx, db, both, "test")
		require.NoError(t, err)
		require.Equal(t, identity.Rekeyed{Renewed: 3, Current: 1}, done)
		done, err = identity.Rekey(ctx, db, both, "test")
		require.NoError(t, err)
		require.Equal(t, identity.Rekeyed{Current: 4}, done, "can be repeated")
		stored, err := db.IDKeys.All(ctx)
		require.NoError(t, err)
		require.Len(t, stored, 2)
		require.NotEmpty(t, stored[0].Sealed, "it opens again when its master key is put back")
		secret, err := fresh.Open(stored[1].Sealed, vault.StoredIDKey(1))
		require.NoError(t, err)
		require.Equal(t, idSecret, secret, "what it sealed stays")

		for _, provider := range []string{"openai", "local", "third"} {
			key, found, err := openKey(ctx, db, fresh, organization.ID, provider)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, "sk-"+provider, key)
			_, _, err = openKey(ctx, db, old, organization.ID, provider)
			require.ErrorIs(t, err, vault.ErrUnknownKey)
		}
	})
}
