package billing

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// keyedHold is a hold with a key, or with 0 micros the key alone.
func (k keyed) keyedHold(call, key string, micros int64) Hold {
	hold := holdOf(call, micros)
	hold.Wallet, hold.Claim = k.wallet, claimOf(key, "content")
	return hold
}

// abandon decides a hold whose commit stayed unknown, twice: the second time must change nothing.
func (k keyed) abandon(hold Hold) {
	k.Helper()
	call := Call{ID: hold.CallID, Wallet: hold.Wallet, BYOK: hold.AmountMicros == 0, UsageSource: UsageNone, Outcome: "internal_error"}
	for range 2 {
		require.NoError(k, k.book.Abandon(k.Context(), hold, call))
	}
}

// requireHold compares the one hold of a call: its status, and that exactly those that are over have an end.
func (k keyed) requireHold(call, status string) {
	k.Helper()
	require.Equal(k, 1, count(k.T, k.db, `SELECT count(*) FROM holds WHERE id = $1 AND status = $2
		AND (resolved_at IS NULL) = (status = 'open')`, call, status))
}

// abandonments are what Abandon may find. The wallet has 100 micros.
var abandonments = map[string]func(k keyed){
	"the commit arrived": func(k keyed) {
		hold := holdOf("call_1", 60)
		hold.Wallet = k.wallet
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.abandon(hold)
		k.requireHold("call_1", "voided")
	},
	"the commit did not arrive": func(k keyed) {
		hold := holdOf("call_1", 60)
		hold.Wallet = k.wallet
		k.abandon(hold)
		k.requireHold("call_1", "voided")
		require.ErrorIs(k, refusal(k.book.Hold(k.Context(), hold)), ErrCallEnded, "the hold can be made after all")
	},
	"the commit of a keyed call arrived": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 60)
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.abandon(hold)
		k.requireHold("call_1", "voided")
		k.requireClaims()
		k.runs("call_2", "key", "content", 60)
		k.settle("call_2", "key", 0, false, "")
	},
	"the commit of a keyed call did not arrive": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 60)
		k.abandon(hold)
		k.requireHold("call_1", "voided")
		require.ErrorIs(k, refusal(k.book.Hold(k.Context(), hold)), ErrCallEnded, "the hold can be made after all")
		k.requireClaims()
	},
	"the commit of a claim alone arrived": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 0)
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.abandon(hold)
		k.requireClaims()
		k.runs("call_2", "key", "content", 0)
		k.finishOwn("call_2", "key", false, "")
	},
	"the commit of a claim alone did not arrive": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 0)
		k.abandon(hold)
		require.ErrorIs(k, refusal(k.book.Hold(k.Context(), hold)), ErrCallEnded, "the key can be claimed after all")
		k.requireClaims()
	},
	"the hold was refused": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 101)
		require.ErrorIs(k, refusal(k.book.Hold(k.Context(), hold)), ErrInsufficientCredits)
		k.abandon(hold)
		k.requireHold("call_1", "voided")
	},
	"another call has the key": func(k keyed) {
		k.runs("call_2", "key", "content", 30)
		k.abandon(k.keyedHold("call_1", "key", 60))
		k.requireClaims("call_2 in_progress")
		k.requireWallet(100, 30)
		k.settle("call_2", "key", 0, true, "sealed")
		k.requireClaims("call_2 done")
	},
	"the hold has expired": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 60)
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.lapse("call_1")
		require.Equal(k, 1, k.sweep())
		k.abandon(hold)
		k.requireHold("call_1", "expired")
	},
	"its time is over and nothing has swept": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 60)
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.lapse("call_1")
		k.abandon(hold)
		k.requireHold("call_1", "voided")
		k.requireClaims()
	},
}

// TestAbandon: after it, nothing is held, the key is free and the hold can't be made any more, whatever became of the
// commit.
func TestAbandon(t *testing.T) {
	t.Parallel()
	for name, run := range abandonments {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
				topUp(t, book, 100)
				k := keyed{t, db, book, acme}
				run(k)
				k.requireWallet(100, 0)
				require.Equal(t, 1, count(t, db, `SELECT count(*) FROM calls WHERE id = 'call_1' AND outcome = 'internal_error'`))
				require.Zero(t, k.sweep(), "something was left to expire")
			})
		})
	}
}

func TestAbandonWhatCannotBeRight(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		hold := holdOf("call_1", 60)
		call := Call{ID: "call_1", Wallet: acme, UsageSource: UsageNone}
		other, poor, nothing := call, call, hold
		other.ID = "call_2"
		poor.Wallet.Env = store.Test
		nothing.AmountMicros = 0
		require.ErrorIs(t, book.Abandon(t.Context(), hold, other), ErrInvalid)
		require.ErrorIs(t, book.Abandon(t.Context(), hold, poor), ErrInvalid)
		require.ErrorIs(t, book.Abandon(t.Context(), nothing, call), ErrInvalid)
		require.Zero(t, count(t, db, `SELECT count(*) FROM holds`)+count(t, db, `SELECT count(*) FROM calls`))
	})
}

// TestAbandonWaitsForTheCommit: while the transaction of the hold is still open, on a server that has not noticed that
// the connection is gone, Abandon waits for it, and then decides about what it wrote.
func TestAbandonWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for name, micros := range map[string]int64{"hold": 60, "claim": 0} {
			t.Run(string(engine)+" "+name, func(t *testing.T) {
				t.Parallel()
				location := storetest.Location(t, engine)
				db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				other := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				makeOrganization(t, db, acme.OrgID)
				book := NewBook(other)
				if micros > 0 { // the claim's wallet is made by the transaction itself
					topUp(t, book, 100)
				}
				k := keyed{t, other, book, acme}
				hold := k.keyedHold("call_1", "key", micros)
				written, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
				commit := sync.OnceFunc(func() { close(goOn) })
				defer commit()
				go func() {
					ended <- db.Exec(context.Background(), func(ctx context.Context, tx store.Tx) error {
						op := &holdOp{Hold: hold}
						if err := Ledger.Apply(ctx, tx, []store.Op{op})[0]; err != nil {
							return err
						}
						if err := tx.Flush(ctx); err != nil {
							return err
						}
						close(written)
						<-goOn
						return op.refused
					})
				}()
				<-written
				abandoned := make(chan error, 1)
				go func() {
					call := Call{ID: "call_1", Wallet: acme, BYOK: micros == 0, UsageSource: UsageNone}
					abandoned <- book.Abandon(context.Background(), hold, call)
				}()
				if engine == store.Postgres {
					require.Eventually(t, func() bool {
						return count(t, other, `SELECT count(*) FROM pg_stat_activity
							WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
					}, 30*time.Second, 5*time.Millisecond, "Abandon did not wait for the hold's transaction")
				}
				commit()
				require.NoError(t, <-ended)
				require.NoError(t, <-abandoned)
				k.requireClaims()
				if micros > 0 {
					k.requireWallet(100, 0)
					k.requireHold("call_1", "voided")
				}
				requireSoundBooks(t, db)
			})
		}
	}
}
