package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// An operation whose COMMIT was never answered is asked again by its id, and has happened once: a payment, a hold, a hold
// with an Idempotency-Key, a settlement, a refund, a delivery.
func TestLostCommitsAreResolvedByID(t *testing.T) {
	t.Parallel()
	wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
	db := storetest.OpenAt(t, wire.Location, store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}})
	ring, err := vault.ParseRing("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	require.NoError(t, err)
	book, queue := billing.NewBook(db), inbox.New(db, ring)
	createOrganization(t, db, "org_1")
	createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", Type: "photo_dm", ExternalID: "x"})
	wallet := billing.WalletID{OrgID: "org_1", Env: store.Live}
	claim := &billing.Claim{KeyHash: [32]byte{1}, Fingerprint: [32]byte{1}}
	hold := func(id string, claim *billing.Claim) error {
		replay, err := book.Hold(t.Context(), billing.Hold{CallID: id, Wallet: wallet, AmountMicros: 10, ExpiresIn: time.Hour, Claim: claim})
		require.Nil(t, replay)
		return err
	}
	settle := func(id string, claim *billing.Claim) error {
		settlement := costing(id, wallet, 4, 10)
		settlement.Claim, settlement.Keep = claim, claim != nil
		settled, err := book.Settle(t.Context(), settlement)
		if err == nil {
			require.Equal(t, billing.Settled{ChargedMicros: 4}, settled)
		}
		return err
	}
	steps := []struct {
		name          string
		do            func() error
		balance, held int64
	}{
		{"payment", func() error { _, err := book.Credit(t.Context(), "cli", wallet, 100, "ref"); return err }, 100, 0},
		{"correction", func() error { _, err := book.Adjust(t.Context(), "cli", wallet, -1, "because", "ref", ""); return err }, 99, 0},
		{"hold", func() error { return hold("call_1", nil) }, 99, 10},
		{"settlement", func() error { return settle("call_1", nil) }, 95, 0},
		{"hold with a key", func() error { return hold("call_2", claim) }, 95, 10},
		{"settlement with a key", func() error { return settle("call_2", claim) }, 91, 0},
		{"refund", func() error { _, err := book.Refund(t.Context(), "cli", "call_1", "because"); return err }, 95, 0},
		{"delivery", func() error {
			return queue.Enqueue(t.Context(), []inbox.Arrival{{
				Route: store.Route{ChannelID: "chn_1", OrgID: "org_1", Type: "photo_dm"},
				Items: []inbox.Item{{Kind: platforms.Text, CustomerRef: "c", MessageID: "m", Text: "hello"}},
			}})
		}, 95, 0},
	}
	for _, step := range steps {
		wire.CutCommits()
		require.ErrorIs(t, step.do(), store.ErrCommitUnknown, step.name)
		wire.Mend()
		require.NoError(t, step.do(), step.name)
		is, err := book.Wallet(t.Context(), wallet)
		require.NoError(t, err)
		require.Equal(t, billing.Wallet{BalanceMicros: step.balance, HeldMicros: step.held}, is, step.name)
	}
	for table, rows := range map[string]int{"ledger_tx": 3, "holds": 0, "calls": 2, "idempotency_keys": 1, "messages": 1, "conversations": 1} {
		require.Equal(t, rows, countRows(t, db, table), table)
	}
	report, err := billing.Check(t.Context(), db)
	require.NoError(t, err)
	require.True(t, report.OK(), report)
}
