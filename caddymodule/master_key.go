package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// errOtherMasterKey says that none of the newest sealed values of a store was sealed with a key of master_key.
var errOtherMasterKey = errors.New("none of its keys sealed what this store holds")

// checkMasterKey fails with [errOtherMasterKey] when the store has sealed values and none of the newest was sealed with a key
// of the ring. One that was is enough: after a rotation, and after a key was lost, older values stay sealed with keys that
// are gone. It reads some dozen rows.
func checkMasterKey(ctx context.Context, db *store.DB, ring *vault.Ring) error {
	values, err := db.SealedSample(ctx)
	if err != nil {
		return fmt.Errorf("looking for what the master key sealed: %w", err)
	}
	if len(values) == 0 || slices.ContainsFunc(values, ring.Names) {
		return nil
	}
	return fmt.Errorf("%w: it is another master key, or an older key is missing in it", errOtherMasterKey)
}

// requireMasterKey is [checkMasterKey] for a start; its error says how to go on. A store that can't be read is no reason to
// refuse: a reload must not depend on it.
func (a *App) requireMasterKey(ctx context.Context, db *store.DB) error {
	err := checkMasterKey(ctx, db, a.settings.ring)
	switch {
	case errors.Is(err, errOtherMasterKey):
		return fmt.Errorf("svc.master_key (%s): %w (%s)\n"+
			"Give the master key with which this store was used, behind the new one if there is a new one. If it is lost for good, "+
			"docs/operating.md says under \"A lost master key\" how to go on with another", a.MasterKey, err, a.settings.location.Redacted())
	case err != nil:
		a.log.Warn("the master key was not checked against the store", slog.Any("error", err))
	}
	return nil
}

// examineMasterKey checks, for the doctor's report, that the master key opens every provider key and the credentials of every
// channel, which `caddy svc rekey` seals anew, and that checkMasterKey accepts it.
func examineMasterKey(ctx context.Context, db *store.DB, ring *vault.Ring) (billing.Examined, error) {
	const most = 20 // findings, as of the books
	examined := billing.Examined{
		ID: "KEY", Text: "master_key opens every provider key and the credentials of every channel",
		Advice: "put the missing key back into master_key, or see docs/operating.md \"A lost master key\"",
	}
	note := func(subject string, sealed []byte, place vault.Where) {
		_, err := ring.Open(sealed, place)
		if err != nil && len(examined.Findings) == most {
			examined.More = true
		} else if err != nil {
			examined.Findings = append(examined.Findings, billing.Finding{Subject: subject, Detail: err.Error()})
		}
	}
	err := checkMasterKey(ctx, db, ring)
	if errors.Is(err, errOtherMasterKey) {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: "master_key", Detail: err.Error()})
		err = nil
	}
	if err == nil {
		err = db.ProviderKeys.Each(ctx, func(key store.ProviderKey) error {
			note(key.OrgID+":"+key.Provider, key.Sealed, vault.ProviderKey(key.OrgID, key.Provider))
			return nil
		})
	}
	if err == nil {
		err = db.ChannelCredentials.Each(ctx, func(c store.Channel) error {
			note(c.ID, c.Credentials, vault.ChannelCredentials(c.OrgID, c.ID))
			return nil
		})
	}
	if err != nil {
		return examined, fmt.Errorf("checking the master key: %w", err)
	}
	return examined, nil
}
