package identity_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// answering is a store that answers every question alike.
type answering struct {
	record store.KeyRecord
	found  bool
	err    error
	asked  *int
}

func (a answering) ByHash(context.Context, [sha256.Size]byte) (store.KeyRecord, bool, error) {
	if a.asked != nil {
		*a.asked++
	}
	return a.record, a.found, a.err
}

func valid(ms int64) sql.NullInt64 { return sql.NullInt64{Int64: ms, Valid: true} }

// Each reason to refuse a key, row by row.
func TestAuthenticateTellsTheStatesOfAKey(t *testing.T) {
	t.Parallel()
	raw, hash, _ := identity.NewKey(store.Test)
	const now = 1_000_000
	record := store.KeyRecord{
		KeyID: "key_1", OrgID: "org_1", Hash: hash, Env: store.Test, Plan: "pro",
		Scopes: "chat:write wallet:read from:tomorrow", NowMS: now,
	}
	with := func(change func(*store.KeyRecord)) answering {
		changed := record
		change(&changed)
		return answering{record: changed, found: true}
	}
	broken := errors.New("disk on fire")
	for name, c := range map[string]struct {
		store answering
		want  error
	}{
		"good":                   {with(func(*store.KeyRecord) {}), nil},
		"expires later":          {with(func(r *store.KeyRecord) { r.ExpiresAt = valid(now + 1) }), nil},
		"suspended is let in":    {with(func(r *store.KeyRecord) { r.SuspendedAt = valid(1) }), nil},
		"unknown":                {answering{}, identity.ErrInvalidKey},
		"expires now":            {with(func(r *store.KeyRecord) { r.ExpiresAt = valid(now) }), identity.ErrInvalidKey},
		"expired":                {with(func(r *store.KeyRecord) { r.ExpiresAt = valid(1) }), identity.ErrInvalidKey},
		"expired before 1970":    {with(func(r *store.KeyRecord) { r.ExpiresAt = valid(-5) }), identity.ErrInvalidKey},
		"revoked":                {with(func(r *store.KeyRecord) { r.RevokedAt = valid(1) }), identity.ErrRevokedKey},
		"revoked and expired":    {with(func(r *store.KeyRecord) { r.RevokedAt, r.ExpiresAt = valid(1), valid(1) }), identity.ErrRevokedKey},
		"other hash":             {with(func(r *store.KeyRecord) { r.Hash[31] ^= 1 }), identity.ErrInvalidKey},
		"revoked, other hash":    {with(func(r *store.KeyRecord) { r.Hash[0] ^= 1; r.RevokedAt = valid(1) }), identity.ErrInvalidKey},
		"the store is our fault": {answering{err: broken}, broken},
	} {
		principal, err := identity.NewAuthenticator(c.store).Authenticate(t.Context(), raw)
		require.ErrorIs(t, err, c.want, name)
		if c.want != nil {
			require.Zero(t, principal, name)
			continue
		}
		require.Equal(t, "key_1", principal.KeyID, name)
		require.Equal(t, "org_1", principal.OrgID, name)
		require.Equal(t, store.Test, principal.Env, name)
		require.Equal(t, "pro", principal.Plan, name)
		require.Equal(t, c.store.record.SuspendedAt.Valid, principal.Suspended, name)
		require.True(t, principal.Can(identity.ChatWrite, ""), name)
		require.True(t, principal.Can(identity.WalletRead, ""), name)
		require.False(t, principal.Can(identity.ModelsRead, ""), name)
	}

	_, err := identity.NewAuthenticator(answering{err: broken}).Authenticate(t.Context(), raw)
	require.NotErrorIs(t, err, identity.ErrInvalidKey, "never the client's fault")
}

// A malformed key doesn't reach the store.
func TestMalformedKeysAreNotLookedUp(t *testing.T) {
	t.Parallel()
	asked := 0
	authenticator := identity.NewAuthenticator(answering{found: true, asked: &asked})
	for _, raw := range []string{"", "ck_live_", "dummy", "sk-proj-123"} {
		_, err := authenticator.Authenticate(t.Context(), raw)
		require.ErrorIs(t, err, identity.ErrInvalidKey)
	}
	require.Zero(t, asked)
}

// Keys are read on every request: what one process changes holds for the next request of another.
func TestChangesHoldAtTheNextRequestOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			here, there := open(t, location), open(t, location)
			organizations := here.Organizations
			authenticator := identity.NewAuthenticator(there.APIKeys)

			organization, err := identity.CreateOrganization(t.Context(), here, "test", "Acme", "free", "")
			require.NoError(t, err)
			for range 20 {
				key, err := identity.CreateAPIKey(t.Context(), here, "test", identity.KeyRequest{OrgID: organization.ID})
				require.NoError(t, err)
				principal, err := authenticator.Authenticate(t.Context(), key.Raw)
				require.NoError(t, err)
				require.Equal(t, key.ID, principal.KeyID)
				require.NoError(t, here.APIKeys.Revoke(t.Context(), "test", organization.ID, key.ID))
				_, err = authenticator.Authenticate(t.Context(), key.Raw)
				require.ErrorIs(t, err, identity.ErrRevokedKey)
			}

			key, err := identity.CreateAPIKey(t.Context(), here, "test", identity.KeyRequest{OrgID: organization.ID})
			require.NoError(t, err)
			for i, plan := range []string{"pro", "free", "pro"} {
				require.NoError(t, organizations.SetPlan(t.Context(), "test", organization.ID, plan))
				suspended := i%2 == 0
				if suspended {
					require.NoError(t, organizations.SetSuspended(t.Context(), "test", organization.ID, true, ""))
				} else {
					require.NoError(t, organizations.SetSuspended(t.Context(), "test", organization.ID, false, ""))
				}
				scope := identity.AllScopes()[i]
				require.NoError(t, here.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
					tx.Queue(1, `UPDATE api_keys SET scopes = $2 WHERE id = $1`, key.ID, scope)
					return nil
				}))
				principal, err := authenticator.Authenticate(t.Context(), key.Raw)
				require.NoError(t, err)
				require.Equal(t, plan, principal.Plan)
				require.Equal(t, suspended, principal.Suspended)
				require.Equal(t, identity.ScopesOf(scope), principal.Scopes)
			}
		})
	}
}

func open(t *testing.T, location store.Location) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), location, store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, db.Close(ctx))
	})
	require.NoError(t, db.Migrate(t.Context()))
	return db
}

func TestAStoreThatIsClosedIsNotAnInvalidKey(t *testing.T) {
	t.Parallel()
	raw, _, _ := identity.NewKey(store.Live)
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		require.NoError(t, db.Close(t.Context()))
		_, err := identity.NewAuthenticator(db.APIKeys).Authenticate(t.Context(), raw)
		require.Error(t, err)
		require.NotErrorIs(t, err, identity.ErrInvalidKey)
	})
}
