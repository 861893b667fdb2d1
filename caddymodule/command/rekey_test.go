package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// TestRekeyWaitsForAllProcesses guarantees that rekey changes nothing as long as a living server or worker lacks the first key,
// names each of these, and no other process.
func TestRekeyWaitsForAllProcesses(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			c := newCommandLine(t)
			location, err := store.ParseLocation(store.SQLite, c.path("svc.db"))
			require.NoError(t, err)
			if engine == store.Postgres {
				c = onPostgres(t)
				location = c.postgres
			}
			org := c.newOrg("Acme")
			require.NoError(t, c.run(vendorKey, "provider-key", "set", "--org", org, "--provider", "openai").err)
			db := storetest.OpenAt(t, location, store.Options{})
			announce := func(name, masterKey string) {
				t.Helper()
				ring, err := vault.ParseRing(masterKey)
				require.NoError(t, err)
				require.NoError(t, db.Processes.Announce(t.Context(), store.Process{ID: name, Name: name, KeyIDs: ring.KeyIDs()}))
			}
			announce("server, process 1", masterKey(1))
			announce("server, process 2", masterKey(2)+masterKey(1))
			announce("worker, process 3", masterKey(1))
			c.write("master.key", masterKey(2)+masterKey(1))
			refused := c.run("", "rekey")
			require.ErrorContains(t, refused.err, "run without the first key of master_key")
			require.ErrorContains(t, refused.err, "\n  server, process 1\n  worker, process 3\n")
			require.NotContains(t, refused.err.Error(), "process 2")
			require.ErrorContains(t, refused.err, "caddy reload --force")

			announce("server, process 1", masterKey(1)+masterKey(2))
			require.ErrorContains(t, c.run("", "rekey").err, ":\n  worker, process 3\nHave each")
			require.NoError(t, db.Processes.End(t.Context(), "worker, process 3"))
			require.Equal(t, one, c.json("rekey")["renewed"])
		})
	}
}
