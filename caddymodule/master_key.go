package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// ErrOtherMasterKey is the error of a master key with which none of the newest sealed values of the store was sealed.
var ErrOtherMasterKey = errors.New("none of its keys sealed what this store holds")

// CheckMasterKey fails with [ErrOtherMasterKey] when the store has sealed values and none of the newest was sealed with a key
// of the ring. One that was is enough: after a rotation, and after a key was lost, older values stay sealed with keys that
// are gone. It reads some dozen rows.
func CheckMasterKey(ctx context.Context, db *store.DB, ring *vault.Ring) error {
	values, err := db.SealedSample(ctx)
	if err != nil {
		return fmt.Errorf("looking for what the master key sealed: %w", err)
	}
	if len(values) == 0 || slices.ContainsFunc(values, ring.Names) {
		return nil
	}
	return fmt.Errorf("%w: it is another master key, or an older key is missing in it", ErrOtherMasterKey)
}

// requireMasterKey is [CheckMasterKey] for Start; its error says what to do. If the store can't be read it only logs a
// warning, because a reload must not depend on that.
func (a *App) requireMasterKey(ctx context.Context, db *store.DB) error {
	err := CheckMasterKey(ctx, db, a.settings.ring)
	switch {
	case errors.Is(err, ErrOtherMasterKey):
		return fmt.Errorf("svc.master_key (%s): %w (%s)\n"+
			"Give the master key with which this store was used, behind the new one if there is a new one. If it is lost for good, "+
			"docs/operating.md says under \"A lost master key\" how to go on with another", a.MasterKey, err, a.settings.location.Redacted())
	case err != nil:
		a.log.Warn("the master key was not checked against the store", slog.Any("error", err))
	}
	return nil
}
