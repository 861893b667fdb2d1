package caddymodule

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// TestStartWithAnotherMasterKey guarantees that a configuration starts only with a master key that the store was used with: an
// empty store takes any; afterwards one that sealed nothing is refused, while a new one in front of the old one, either alone
// after some values were sealed anew, and a lost one, once something was entered again, are taken.
func TestStartWithAnotherMasterKey(t *testing.T) {
	path := filepath.Join(storeFolder(t), "svc.db")
	const otherKey = "//////////////////////////////////////////8="
	start := func(masterKey string, used func(db *store.DB, ring *vault.Ring)) error {
		t.Helper()
		text := regexp.MustCompile(`master_key .*`).ReplaceAllLiteralString(sqliteCaddyfile(t, path, ""), "master_key "+string(secretFile(t, masterKey)))
		run := provision(t, text)
		err := run.app.Start()
		if err == nil && used != nil {
			used(run.app.runtime.shared.db, run.app.settings.ring)
		}
		require.NoError(t, run.app.Cleanup())
		return err
	}
	put := func(orgID string) func(db *store.DB, ring *vault.Ring) {
		return func(db *store.DB, ring *vault.Ring) {
			require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: orgID, Name: orgID, Plan: "free"}))
			require.NoError(t, identity.PutProviderKey(t.Context(), db, ring, "test", orgID, "openai", "sk-0123456789abcdefghij"))
		}
	}
	require.NoError(t, start(otherKey, nil), "the store is empty")
	require.NoError(t, start(testMasterKey, put("org_1")))

	err := start(otherKey, nil)
	require.ErrorIs(t, err, conditions.ErrOtherMasterKey)
	require.ErrorContains(t, err, "svc.master_key ({file.")
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "Give the master key with which this store was used")
	require.NotContains(t, err.Error(), otherKey[:8])

	require.NoError(t, start(otherKey+" "+testMasterKey, put("org_2")), "a rotation has begun")
	require.NoError(t, start(testMasterKey, nil))
	require.NoError(t, start(otherKey, nil), "the other one is lost, and something was entered again")
}

// TestRotationReachesRunningRequests guarantees that a reload gives the new master key to requests of the configuration before, too,
// and announces it; a reload that fails takes it back.
func TestRotationReachesRunningRequests(t *testing.T) {
	path := filepath.Join(storeFolder(t), "svc.db")
	const newKey = "//////////////////////////////////////////8="
	begin := func(masterKey string) *instance {
		t.Helper()
		run := provision(t, regexp.MustCompile(`master_key .*`).
			ReplaceAllLiteralString(sqliteCaddyfile(t, path, ""), "master_key "+string(secretFile(t, masterKey))))
		require.NoError(t, run.app.Start())
		return run
	}
	old := begin(testMasterKey)
	shared := old.app.runtime.shared
	requireKeys := func(masterKey string) {
		t.Helper()
		ring, err := vault.ParseRing(masterKey)
		require.NoError(t, err)
		require.Equal(t, ring.KeyIDs(), shared.ring.KeyIDs())
		living, err := shared.db.Processes.Living(t.Context())
		require.NoError(t, err)
		require.Len(t, living, 1)
		require.Equal(t, ring.KeyIDs(), living[0].KeyIDs)
		require.Regexp(t, `^server, process \d+ on .`, living[0].Name)
	}
	requireKeys(testMasterKey)
	failed := begin(newKey + " " + testMasterKey)
	requireKeys(newKey + " " + testMasterKey)
	require.NoError(t, failed.app.Cleanup())
	requireKeys(testMasterKey)
	next := begin(newKey + " " + testMasterKey)
	require.NoError(t, old.app.Cleanup())
	requireKeys(newKey + " " + testMasterKey)
	require.NoError(t, next.app.Cleanup())
}
