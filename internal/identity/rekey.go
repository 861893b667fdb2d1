package identity

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Rekeyed counts the results of [Rekey].
type Rekeyed struct {
	Renewed   int `json:"renewed"`   // sealed under the first key by this run
	Current   int `json:"current"`   // already sealed under the first key
	Unopened  int `json:"unopened"`  // unchanged, because they don't open; the error names them
	Overtaken int `json:"overtaken"` // replaced by another writer meanwhile; run again to be sure
}

// SealedValue is a value of the store that is sealed under the master key.
type SealedValue struct {
	// Subject identifies the value in the doctor's findings, and name in the errors of [Rekey].
	Subject, name string

	Sealed []byte
	Place  vault.AAD
	// replace stores a value in place of Sealed, and reports false if Sealed has changed.
	replace func(fresh []byte) (bool, error)
}

// sealedTables are the tables of sealed values that a master key must open, in the order of [Rekey]. Each calls visit with every value of its table.
var sealedTables = []struct {
	table, action string // the audit log's words
	each          func(ctx context.Context, db *store.DB, ring *vault.Ring, visit func(SealedValue) error) error
}{
	{"provider_keys", "provider_key.rekey", func(ctx context.Context, db *store.DB, _ *vault.Ring, visit func(SealedValue) error) error {
		return db.ProviderKeys.Each(ctx, func(k store.ProviderKey) error {
			name := fmt.Sprintf("provider key of organization %q for %q", k.OrgID, k.Provider)
			reseal := func(fresh []byte) (bool, error) {
				return db.ProviderKeys.Reseal(ctx, k.OrgID, k.Provider, k.Sealed, fresh)
			}
			return visit(SealedValue{k.OrgID + ":" + k.Provider, name, k.Sealed, vault.ProviderKey(k.OrgID, k.Provider), reseal})
		})
	}},
	{"channels", "channel.rekey", func(ctx context.Context, db *store.DB, _ *vault.Ring, visit func(SealedValue) error) error {
		return db.ChannelCredentials.Each(ctx, func(c store.Channel) error {
			name := fmt.Sprintf("credentials of channel %s of organization %s", c.ID, c.OrgID)
			return visit(SealedValue{c.ID, name, c.Credentials, vault.ChannelCredentials(c.OrgID, c.ID), func(fresh []byte) (bool, error) {
				return db.ChannelCredentials.Reseal(ctx, c.OrgID, c.ID, c.Credentials, fresh)
			}})
		})
	}},
	{"event_endpoints", "event_endpoint.rekey", func(ctx context.Context, db *store.DB, ring *vault.Ring, visit func(SealedValue) error) error {
		return db.EventEndpoints.Each(ctx, func(e store.EventEndpoint) error {
			name, place := fmt.Sprintf("secret of event endpoint %s of organization %s", e.ID, e.OrgID), vault.EventSecret(e.OrgID, e.ID)
			return visit(SealedValue{e.ID, name, e.Secret, place, func(fresh []byte) (bool, error) {
				var old []byte // none if it doesn't open, because it signs for a day only
				if plain, err := ring.Open(e.OldSecret, place); err == nil {
					old = ring.Seal(plain, place)
				}
				return db.EventEndpoints.Reseal(ctx, &e, fresh, old)
			}})
		})
	}},
	{"second_factors", "second_factor.rekey", func(ctx context.Context, db *store.DB, _ *vault.Ring, visit func(SealedValue) error) error {
		return db.SecondFactors.Each(ctx, func(f store.SecondFactor) error {
			place := vault.SecondFactor(f.OrgID, f.PersonID)
			return visit(SealedValue{f.PersonID, "second factor of " + f.PersonID, f.Secret, place, func(fresh []byte) (bool, error) {
				return db.SecondFactors.Reseal(ctx, f.OrgID, f.PersonID, f.Secret, fresh)
			}})
		})
	}},
	{"id_keys", "id_key.rekey", func(ctx context.Context, db *store.DB, ring *vault.Ring, visit func(SealedValue) error) error {
		keys, err := db.IDKeys.All(ctx)
		for i := 0; i < len(keys) && err == nil; i++ {
			key, place := keys[i], vault.StoredIDKey(keys[i].Number)
			if _, lost := ring.Open(key.Sealed, place); lost != nil && i < len(keys)-1 {
				continue // the next one was made in its place
			}
			err = visit(SealedValue{
				fmt.Sprintf("id_keys:%d", key.Number), fmt.Sprintf("key %d of ids", key.Number), key.Sealed, place,
				func(fresh []byte) (bool, error) { return db.IDKeys.Reseal(ctx, key.Number, key.Sealed, fresh) },
			})
		}
		return err
	}},
}

// EachSealed calls visit with every value that the master key must open. Keys of ids that were lost and replaced are left out. The first error
// of visit ends it.
func EachSealed(ctx context.Context, db *store.DB, ring *vault.Ring, visit func(SealedValue) error) error {
	for _, kind := range sealedTables {
		if err := kind.each(ctx, db, ring, visit); err != nil {
			return err
		}
	}
	return nil
}

// Rekey seals every provider key, the credentials of every channel, the secrets of every event endpoint, every second factor and the store's key of
// ids again that aren't sealed under the ring's first key; after it older keys may be removed from master_key. Values that don't open stay as they
// are and are reported together in the error, except keys of ids that were lost and replaced. Rekey may be interrupted and repeated, and
// runs beside a working server. It writes an entry to the audit log for each of the five sorts of which it changed something.
func Rekey(ctx context.Context, db *store.DB, ring *vault.Ring, actor string) (all Rekeyed, err error) {
	for _, kind := range sealedTables {
		one := rekeying{ring: ring}
		failed := kind.each(ctx, db, ring, one.renew)
		err = errors.Join(err, errors.Join(one.unopened...), store.Wrap("sealing "+kind.table+" anew", failed))
		if one.Renewed > 0 {
			detail := fmt.Sprintf("%d sealed anew, %d can't be opened", one.Renewed, one.Unopened)
			err = errors.Join(err, db.AuditLog.Add(ctx, store.AuditEntry{Actor: actor, Action: kind.action, Target: kind.table, Detail: detail}))
		}
		all.Renewed += one.Renewed
		all.Current += one.Current
		all.Unopened += one.Unopened
		all.Overtaken += one.Overtaken
	}
	return all, err
}

// rekeying is the work of [Rekey] on one sort of values.
type rekeying struct {
	Rekeyed

	ring     *vault.Ring
	unopened []error
}

// renew seals a value again, if it opens and isn't current.
func (r *rekeying) renew(value SealedValue) error {
	plain, err := r.ring.Open(value.Sealed, value.Place)
	switch {
	case err != nil:
		r.Unopened++
		r.unopened = append(r.unopened, fmt.Errorf("%s: %w", value.name, err))
		return nil
	case r.ring.Current(value.Sealed):
		r.Current++
		return nil
	}
	replaced, err := value.replace(r.ring.Seal(plain, value.Place))
	switch {
	case err != nil:
		return err
	case replaced:
		r.Renewed++
	default:
		r.Overtaken++
	}
	return nil
}
