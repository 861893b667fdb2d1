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

// Rekey seals every provider key, the credentials of every channel, the secrets of every event endpoint, every second factor and the store's key of
// ids again that aren't sealed under the ring's first key; after it older keys may be removed from master_key. Values that don't open stay as they
// are and are reported together in the error, except keys of ids that were lost and replaced. Rekey may be interrupted and repeated, and
// runs beside a working server. It writes an entry to the audit log for each of the five sorts of which it changed something.
func Rekey(ctx context.Context, db *store.DB, ring *vault.Ring, actor string) (Rekeyed, error) {
	keys := rekeying{ring: ring}
	err := db.ProviderKeys.Each(ctx, func(k store.ProviderKey) error {
		name := fmt.Sprintf("provider key of organization %q for %q", k.OrgID, k.Provider)
		return keys.renew(name, k.Sealed, vault.ProviderKey(k.OrgID, k.Provider), func(fresh []byte) (bool, error) {
			return db.ProviderKeys.Reseal(ctx, k.OrgID, k.Provider, k.Sealed, fresh)
		})
	})
	keysErr := keys.finish(ctx, db, store.AuditEntry{Actor: actor, Action: "provider_key.rekey", Target: "provider_keys"}, err)

	channels := rekeying{ring: ring}
	err = db.ChannelCredentials.Each(ctx, func(c store.Channel) error {
		name := fmt.Sprintf("credentials of channel %s of organization %s", c.ID, c.OrgID)
		return channels.renew(name, c.Credentials, vault.ChannelCredentials(c.OrgID, c.ID), func(fresh []byte) (bool, error) {
			return db.ChannelCredentials.Reseal(ctx, c.OrgID, c.ID, c.Credentials, fresh)
		})
	})
	channelsErr := channels.finish(ctx, db, store.AuditEntry{Actor: actor, Action: "channel.rekey", Target: "channels"}, err)

	endpoints := rekeying{ring: ring}
	err = db.EventEndpoints.Each(ctx, func(e store.EventEndpoint) error {
		name := fmt.Sprintf("secret of event endpoint %s of organization %s", e.ID, e.OrgID)
		aad := vault.EventSecret(e.OrgID, e.ID)
		return endpoints.renew(name, e.Secret, aad, func(fresh []byte) (bool, error) {
			var old []byte // none if it doesn't open, because it signs for a day only
			if plain, err := ring.Open(e.OldSecret, aad); err == nil {
				old = ring.Seal(plain, aad)
			}
			return db.EventEndpoints.Reseal(ctx, &e, fresh, old)
		})
	})
	endpointsErr := endpoints.finish(ctx, db, store.AuditEntry{Actor: actor, Action: "event_endpoint.rekey", Target: "event_endpoints"}, err)

	factors := rekeying{ring: ring}
	err = db.SecondFactors.Each(ctx, func(f store.SecondFactor) error {
		return factors.renew("second factor of "+f.PersonID, f.Secret, vault.SecondFactor(f.OrgID, f.PersonID), func(fresh []byte) (bool, error) {
			return db.SecondFactors.Reseal(ctx, f.OrgID, f.PersonID, f.Secret, fresh)
		})
	})
	factorsErr := factors.finish(ctx, db, store.AuditEntry{Actor: actor, Action: "second_factor.rekey", Target: "second_factors"}, err)

	ids := rekeying{ring: ring}
	stored, err := db.IDKeys.All(ctx)
	for i := 0; i < len(stored) && err == nil; i++ {
		key := stored[i]
		if _, lost := ring.Open(key.Sealed, vault.StoredIDKey(key.Number)); lost != nil && i < len(stored)-1 {
			continue // the next one was made in its place
		}
		err = ids.renew(fmt.Sprintf("key %d of ids", key.Number), key.Sealed, vault.StoredIDKey(key.Number), func(fresh []byte) (bool, error) {
			return db.IDKeys.Reseal(ctx, key.Number, key.Sealed, fresh)
		})
	}
	idsErr := ids.finish(ctx, db, store.AuditEntry{Actor: actor, Action: "id_key.rekey", Target: "id_keys"}, err)

	all := Rekeyed{}
	for _, one := range []Rekeyed{keys.Rekeyed, channels.Rekeyed, endpoints.Rekeyed, factors.Rekeyed, ids.Rekeyed} {
		all.Renewed += one.Renewed
		all.Current += one.Current
		all.Unopened += one.Unopened
		all.Overtaken += one.Overtaken
	}
	return all, errors.Join(keysErr, channelsErr, endpointsErr, factorsErr, idsErr)
}

// rekeying is the work of [Rekey] on one sort of values.
type rekeying struct {
	Rekeyed

	ring     *vault.Ring
	unopened []error
}

// renew seals a value again, if it opens and isn't current; replace writes it to the store, unless the value has changed.
func (r *rekeying) renew(name string, sealed []byte, aad vault.AAD, replace func(fresh []byte) (bool, error)) error {
	plain, err := r.ring.Open(sealed, aad)
	switch {
	case err != nil:
		r.Unopened++
		r.unopened = append(r.unopened, fmt.Errorf("%s: %w", name, err))
		return nil
	case r.ring.Current(sealed):
		r.Current++
		return nil
	}
	replaced, err := replace(r.ring.Seal(plain, aad))
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

// finish writes the entry to the audit log and returns all errors; err has ended the work.
func (r *rekeying) finish(ctx context.Context, db *store.DB, entry store.AuditEntry, err error) error {
	if err != nil {
		err = fmt.Errorf("sealing %s anew: %w", entry.Target, err)
	}
	if r.Renewed > 0 {
		entry.Detail = fmt.Sprintf("%d sealed anew, %d can't be opened", r.Renewed, r.Unopened)
		err = errors.Join(err, db.AuditLog.Add(ctx, entry))
	}
	return errors.Join(append(r.unopened, err)...)
}
