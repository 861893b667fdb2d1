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

// voidOfHold is the settlement of a call whose hold had an unknown outcome.
func voidOfHold(hold Hold) Settlement {
	return Settlement{
		Call: Call{
			ID: hold.CallID, Wallet: hold.Wallet, BYOK: hold.AmountMicros == 0, UsageSource: UsageNone, Outcome: "internal_error",
		},
		ReservedMicros: hold.AmountMicros, Void: true, Claim: hold.Claim,
	}
}

// void ends a hold whose commit stayed unknown, twice: the second time must change nothing. Afterwards it can't be made.
func (k keyed) void(hold Hold) {
	k.Helper()
	for range 2 {
		settled, err := k.book.Settle(k.Context(), voidOfHold(hold))
		require.NoError(k, err)
		require.Equal(k, Settled{}, settled)
	}
	require.Zero(k, count(k.T, k.db, `SELECT count(*) FROM holds`))
}

// voids are what the void of a hold of unknown outcome may find. The wallet has 100 micros.
var voids = map[string]func(k keyed){
	"the commit arrived": func(k keyed) {
		hold := holdOf("call_1", 60)
		hold.Wallet = k.wallet
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.void(hold)
	},
	"the commit did not arrive": func(k keyed) {
		hold := holdOf("call_1", 60)
		hold.Wallet = k.wallet
		k.void(hold)
		require.ErrorIs(k, refusal(k.book.Hold(k.Context(), hold)), ErrCallEnded, "the hold can be made after all")
	},
	"the commit of a keyed call arrived": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 60)
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.void(hold)
		k.requireClaims()
		k.runs("call_2", "key", "content", 60)
		k.settle("call_2", "key", 0, false, "")
	},
	"the commit of a keyed call did not arrive": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 60)
		k.void(hold)
		require.ErrorIs(k, refusal(k.book.Hold(k.Context(), hold)), ErrCallEnded, "the hold can be made after all")
		k.requireClaims()
	},
	"the commit of a claim alone arrived": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 0)
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.void(hold)
		k.requireClaims()
		k.runs("call_2", "key", "content", 0)
		k.finishOwn("call_2", "key", false, "")
	},
	"the commit of a claim alone did not arrive": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 0)
		k.void(hold)
		require.ErrorIs(k, refusal(k.book.Hold(k.Context(), hold)), ErrCallEnded, "the key can be claimed after all")
		k.requireClaims()
	},
	"the hold was refused": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 101)
		require.ErrorIs(k, refusal(k.book.Hold(k.Context(), hold)), ErrInsufficientCredits)
		k.void(hold)
	},
	"another call has the key": func(k keyed) {
		k.runs("call_2", "key", "content", 30)
		k.void(k.keyedHold("call_1", "key", 60))
		k.requireClaims("call_2 in progress")
		k.requireWallet(100, 30)
		k.settle("call_2", "key", 0, true, "sealed")
		k.requireClaims("call_2 done")
	},
	"the hold has expired": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 60)
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.lapse("call_1")
		require.Equal(k, 1, k.sweep())
		k.void(hold)
		k.requireClaims()
	},
	"its time is over and nothing has swept": func(k keyed) {
		hold := k.keyedHold("call_1", "key", 60)
		require.NoError(k, refusal(k.book.Hold(k.Context(), hold)))
		k.lapse("call_1")
		k.void(hold)
		k.requireClaims()
	},
}

// TestVoidOfAnUnknownHold: after it, nothing is held, the key is free and the hold can't be made any more, whatever became of the commit.
func TestVoidOfAnUnknownHold(t *testing.T) {
	t.Parallel()
	for name, run := range voids {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
				topUp(t, book, 100)
				k := keyed{t, db, book, acme}
				run(k)
				k.requireWallet(100, 0)
				require.Equal(t, 1, count(t, db, `SELECT count(*) FROM calls WHERE id = 'call_1' AND outcome = 'internal_error'`))
				require.Zero(t, k.sweep(), "something was left to expire")
				again := holdOf("call_1", 1)
				require.ErrorIs(t, refusal(book.Hold(t.Context(), again)), ErrCallEnded)
				again.Claim = claimOf("a new key", "content")
				require.ErrorIs(t, refusal(book.Hold(t.Context(), again)), ErrCallEnded)
			})
		})
	}
}

// TestVoidWaitsForTheCommit: while the transaction of the hold is still open, on a server that has not noticed that
// the connection is gone, a void waits for it, and then ends what it wrote.
func TestVoidWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for name, c := range map[string]struct {
			micros int64
			keyed  bool
		}{"hold": {60, false}, "hold with a key": {60, true}, "key alone": {0, true}} {
			t.Run(string(engine)+" "+name, func(t *testing.T) {
				t.Parallel()
				location := storetest.Location(t, engine)
				db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				other := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				makeOrganization(t, db, acme.OrgID)
				book := NewBook(other)
				if c.micros > 0 { // the wallet of a key alone is made by the transaction itself
					topUp(t, book, 100)
				}
				k := keyed{t, other, book, acme}
				hold := k.keyedHold("call_1", "key", c.micros)
				if !c.keyed {
					hold.Claim = nil
				}
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
				voided := make(chan error, 1)
				go func() {
					_, err := book.Settle(context.Background(), voidOfHold(hold))
					voided <- err
				}()
				if engine == store.Postgres {
					require.Eventually(t, func() bool {
						return count(t, other, `SELECT count(*) FROM pg_stat_activity
							WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
					}, 30*time.Second, 5*time.Millisecond, "the void did not wait for the hold's transaction")
				}
				commit()
				require.NoError(t, <-ended)
				require.NoError(t, <-voided)
				k.requireClaims()
				require.Zero(t, count(t, db, `SELECT count(*) FROM holds`))
				if c.micros > 0 {
					k.requireWallet(100, 0)
				}
				requireSoundBooks(t, db)
			})
		}
	}
}
