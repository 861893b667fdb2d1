package gateway_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestUnknownHoldIsDecided: a call fails without its vendor when the commit of its hold, or claim, is not confirmed. When
// the store is back it ends at once, whether that commit was done or not: nothing is held, and a resend under the same
// key runs.
func TestUnknownHoldIsDecided(t *testing.T) {
	t.Parallel()
	free := func(m *gateway.Model, _ *gateway.ProviderEntry) { m.Price = billing.Price{} }
	for _, done := range []bool{false, true} {
		name := map[bool]string{false: "not done", true: "done"}[done]
		for _, tc := range []struct {
			name   string
			change func(*gateway.Model, *gateway.ProviderEntry)
			ask    []func(*gateway.Request)
		}{
			{name: "a hold"},
			{name: "a hold with a key", ask: []func(*gateway.Request){keyed}},
			{name: "a key alone", change: free, ask: []func(*gateway.Request){keyed}},
		} {
			t.Run(tc.name+", "+name, func(t *testing.T) {
				t.Parallel()
				wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
				db := storetest.OpenAt(t, wire.Location, store.Options{Kinds: []store.Kind{billing.Ledger}})
				s := &script{steps: answered()}
				var changes []func(*gateway.Model, *gateway.ProviderEntry)
				if tc.change != nil {
					changes = append(changes, tc.change)
				}
				f := setupAt(t, db, s, changes...)

				wire.LoseCommits(done)
				_, err := f.Call(t.Context(), request(tc.ask...), nil)
				failed := requireFailure(t, err, gateway.OutcomeInternalError)
				require.ErrorIs(t, failed.Cause, store.ErrCommitUnknown)
				require.Empty(t, s.seen(), "the vendor was called without knowing of the hold")
				wire.Mend()
				require.Zero(t, f.spent(t), "it waits for the call to end")
				require.Zero(t, countRows(t, db, `SELECT count(*) FROM holds`))
				require.Equal(t, 1, countRows(t, db, `SELECT count(*) FROM calls WHERE outcome = 'internal_error' AND charged_micros = 0`))
				require.Zero(t, countRows(t, db, `SELECT (SELECT count(*) FROM running_keys) + (SELECT count(*) FROM idempotency_keys)`))

				result, err := f.Call(t.Context(), request(tc.ask...), nil)
				require.NoError(t, err)
				require.False(t, result.Replayed)
				require.Len(t, s.seen(), 1)
				f.spent(t) // the books are in order
			})
		}
	}
}

func countRows(t *testing.T, db *store.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), query).Scan(&n))
	return n
}
