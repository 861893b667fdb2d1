package billing

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

var errNoted = errors.New("the note refuses it")

// note is an operation that is written with a hold or a settlement, and rules as the test says. It writes a row of the audit log.
type note struct {
	id, replaced string
	refused      error
	lost         bool
}

func (*note) Kind() store.Kind                { return notes{} }
func (n *note) Ruling() (string, bool, error) { return n.replaced, n.lost, n.refused }
func (*note) Size() int                       { return 7 }

type notes struct{}

func (notes) Name() string { return "notes" }

func (notes) Apply(_ context.Context, tx store.Tx, ops []store.Op) []error {
	for _, op := range ops {
		store.QueueAudit(tx, store.AuditEntry{ID: store.NewID("aud"), At: tx.Now(), Actor: "test", Action: "test.note", Target: op.(*note).id})
	}
	return nil
}

// TestCompanions: what another operation decides about a hold or a settlement, and writes with it.
func TestCompanions(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{Ledger}, func(t *testing.T, db *store.DB) {
		makeOrganization(t, db, acme.OrgID)
		book := NewBook(db)
		topUp(t, book, 100)
		hold := func(call string, micros int64, with *note) error {
			hold := holdOf(call, micros)
			with.id = call
			hold.With = with
			return refusal(book.Hold(t.Context(), hold))
		}
		settle := func(call string, micros int64, with *note) (Settled, error) {
			settlement := chargeOf(call, 60, micros)
			settlement.With = with
			return book.Settle(t.Context(), settlement)
		}
		noted := func() int { return count(t, db, `SELECT count(*) FROM audit_log WHERE action = 'test.note'`) }

		require.ErrorIs(t, hold("call_1", 60, &note{refused: errNoted}), errNoted)
		requireWallet(t, book, 100, 0)
		require.Equal(t, 1, noted(), "a refusal is written")
		for range 2 {
			require.NoError(t, hold("call_1", 60, &note{}))
			requireWallet(t, book, 100, 60)
		}
		require.ErrorIs(t, hold("call_2", 100, &note{}), ErrInsufficientCredits)
		require.ErrorIs(t, hold("call_2", 100, &note{refused: errNoted, replaced: "call_1"}), errNoted)
		requireWallet(t, book, 100, 60)
		require.ErrorIs(t, hold("call_2", 101, &note{replaced: "call_1"}), ErrInsufficientCredits)
		requireWallet(t, book, 100, 0)
		require.NoError(t, hold("call_2", 60, &note{replaced: "call_1"}))
		requireWallet(t, book, 100, 60)
		require.NoError(t, hold("call_2", 60, &note{replaced: "call_unknown"}))

		settled, err := settle("call_1", 25, &note{lost: true})
		require.NoError(t, err)
		require.Equal(t, Settled{ShortfallMicros: 25}, settled, "another call has its place")
		requireWallet(t, book, 100, 60)
		_, err = settle("call_2", 30, &note{refused: errNoted})
		require.ErrorIs(t, err, errNoted)
		requireWallet(t, book, 100, 60)
		before := noted()
		for range 2 {
			settled, err = settle("call_2", 30, &note{})
			require.NoError(t, err)
			require.Equal(t, Settled{ChargedMicros: 30}, settled)
		}
		require.Equal(t, before+2, noted())
		requireWallet(t, book, 70, 0)
		settled, err = settle("call_3", 80, &note{}) // late: its hold is gone
		require.NoError(t, err)
		require.Equal(t, Settled{ChargedMicros: 60, ShortfallMicros: 20}, settled)

		require.NoError(t, hold("call_4", 2, &note{}))
		replacing := holdOf("call_5", 1)
		replacing.With = &note{replaced: "call_4"}
		again, other := holdOf("call_4", 3), holdOf("call_6", 4)
		applyTogether(t, db, &holdOp{Hold: replacing}, &holdOp{Hold: again}, &holdOp{Hold: other})
		requireWallet(t, book, 10, 8)
		requireSoundBooks(t, db)
	})
}

// TestCompanionNeedsItsOwnTransaction: a hold that begins something is written though the memory of a tranche could grant it.
func TestCompanionNeedsItsOwnTransaction(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite, Ledger)
	makeOrganization(t, db, acme.OrgID)
	book, _ := tendedBook(db)
	topUp(t, book, 100_000)
	for _, call := range []string{"call_1", "call_2", "call_3"} {
		require.NoError(t, refusal(book.Hold(t.Context(), holdOf(call, 10))))
	}
	require.True(t, isGranted(book, "call_3"))
	hold := holdOf("call_4", 10)
	hold.With, hold.ExpiresIn = &note{}, time.Minute
	require.NoError(t, refusal(book.Hold(t.Context(), hold)))
	require.False(t, isGranted(book, "call_4"))
	require.Equal(t, 1, count(t, db, `SELECT count(*) FROM holds WHERE id = 'call_4'`))
	require.Equal(t, 7, (&holdOp{Hold: hold}).Size())
	requireSoundBooks(t, db)
}
