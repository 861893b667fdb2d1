package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// A process is among the living with the keys that it announced last until it ends, or shows no sign of life for a minute.
func TestProcesses(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		server := store.Process{ID: "a", Name: "server", KeyIDs: []string{"01"}}
		worker := store.Process{ID: "b", Name: "worker", KeyIDs: []string{"01", "02"}}
		require.NoError(t, db.Processes.Announce(ctx, worker))
		require.NoError(t, db.Processes.Announce(ctx, server))
		server.KeyIDs = []string{"02", "01"}
		require.NoError(t, db.Processes.Announce(ctx, server))
		requireLiving(t, db, server, worker)

		shift := func(by int64) { write(t, db, `UPDATE processes SET seen_at = seen_at + $1 WHERE id = 'b'`, by) }
		shift(-50_000)
		requireLiving(t, db, server, worker)
		shift(-10_000)
		requireLiving(t, db, server)
		shift(60_000 + 3_600_000) // the clock was set back by an hour since
		requireLiving(t, db, server)
		require.NoError(t, db.Processes.Announce(ctx, server))
		require.Equal(t, 1, countRows(t, db, "processes"), "the other is forgotten")

		require.NoError(t, db.Processes.End(ctx, server.ID))
		require.NoError(t, db.Processes.End(ctx, server.ID))
		requireLiving(t, db)
	})
}

func requireLiving(t *testing.T, db *store.DB, want ...store.Process) {
	t.Helper()
	living, err := db.Processes.Living(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, living)
}
