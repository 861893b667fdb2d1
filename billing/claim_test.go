package billing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func claimOf(key, content string) *Claim {
	return &Claim{KeyHash: sha256.Sum256([]byte(key)), Fingerprint: sha256.Sum256([]byte(content))}
}

// keyed is a wallet of 100 micros whose calls carry Idempotency-Keys.
type keyed struct {
	*testing.T
	db     *store.DB
	book   *Book
	wallet WalletID
}

func (k keyed) hold(call, key, content string, micros int64) (*Replay, error) {
	hold := holdOf(call, micros)
	hold.Wallet, hold.Claim = k.wallet, claimOf(key, content)
	return k.book.Hold(k.Context(), hold)
}

// runs holds for a call that must get its key.
func (k keyed) runs(call, key, content string, micros int64) {
	k.Helper()
	require.NoError(k, refusal(k.hold(call, key, content, micros)))
}

func (k keyed) refused(want error, call, key, content string, micros int64) {
	k.Helper()
	require.ErrorIs(k, refusal(k.hold(call, key, content, micros)), want)
}

func (k keyed) replays(want Replay, key, content string, micros int64) {
	k.Helper()
	replay, err := k.hold("call_again_"+k.wallet.OrgID, key, content, micros)
	require.NoError(k, err)
	require.Equal(k, &want, replay)
}

// settle ends a call for which 60 micros were held.
func (k keyed) settle(call, key string, charge int64, keep bool, response string) Settled {
	k.Helper()
	settlement := chargeOf(call, 60, charge)
	settlement.Call.Wallet, settlement.Claim, settlement.Keep = k.wallet, claimOf(key, "content"), keep
	if response != "" {
		settlement.Response = []byte(response)
	}
	settled, err := k.book.Settle(k.Context(), settlement)
	require.NoError(k, err)
	return settled
}

// finishOwn ends a call with the organization's own key.
func (k keyed) finishOwn(call, key string, keep bool, response string) {
	k.Helper()
	_, err := k.book.Settle(k.Context(), Settlement{
		Call:  Call{ID: call, Wallet: k.wallet, BYOK: true, UsageSource: UsageProvider},
		Claim: claimOf(key, "content"), Keep: keep, Response: []byte(response),
	})
	require.NoError(k, err)
}

// lapse puts the end of a call's lease, and of what is held for it, into the past.
func (k keyed) lapse(call string) {
	k.Helper()
	lapse(k.T, k.db, call)
}

// age lets the time of a finished key be over.
func (k keyed) age(call string) {
	k.Helper()
	execute(k.T, k.db, `UPDATE idempotency_keys SET until = 1 WHERE call_id = $1`, call)
}

// sweep returns how many calls lost what was held for them.
func (k keyed) sweep() int {
	k.Helper()
	return len(sweep(k.T, k.book))
}

func (k keyed) requireWallet(balance, held int64) {
	k.Helper()
	wallet, err := k.book.Wallet(k.Context(), k.wallet)
	require.NoError(k, err)
	require.Equal(k, Wallet{BalanceMicros: balance, HeldMicros: held}, wallet)
}

// requireClaims compares the wallet's claims, as "call state" in the order of the calls' ids.
func (k keyed) requireClaims(want ...string) {
	k.Helper()
	rows, err := k.db.Reader().QueryContext(k.Context(),
		`SELECT call_id || ' in progress' AS claim FROM running_keys WHERE org_id = $1
			UNION ALL SELECT call_id || ' done' FROM idempotency_keys WHERE org_id = $1 ORDER BY claim`,
		k.wallet.OrgID)
	require.NoError(k, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var claim string
		require.NoError(k, rows.Scan(&claim))
		got = append(got, claim)
	}
	require.NoError(k, rows.Err())
	require.Equal(k, want, got)
}

// requireKept compares the bytes of the wallet's kept answers with those that it counts.
func (k keyed) requireKept(want int) {
	k.Helper()
	for _, query := range []string{
		`SELECT kept_bytes FROM wallets WHERE org_id = $1 AND env = $2`,
		`SELECT coalesce(sum(length(response)), 0) FROM kept_answers WHERE org_id = $1 AND env = $2`,
	} {
		require.Equal(k, want, count(k.T, k.db, query, k.wallet.OrgID, string(k.wallet.Env)), query)
	}
}

// idempotencyRows are the promises of docs/contract.md#idempotency-key that the book keeps.
var idempotencyRows = map[string]func(k keyed){
	"first use: the key is in progress as long as its hold stands": func(k keyed) {
		now, err := k.db.Now(k.Context())
		require.NoError(k, err)
		k.runs("call_1", "key", "content", 60)
		k.requireClaims("call_1 in progress")
		until := func(query string) int64 {
			var until, reserved int64
			require.NoError(k, k.db.Reader().QueryRowContext(k.Context(), query).Scan(&until, &reserved))
			require.Equal(k, int64(60), reserved)
			return until
		}
		require.InDelta(k, now+time.Minute.Milliseconds(), until(`SELECT expires_at, reserved_micros FROM running_keys`), 30_000)
		require.Zero(k, count(k.T, k.db, `SELECT count(*) FROM holds`))
		k.requireWallet(100, 60)
		require.Equal(k, Settled{ChargedMicros: 25}, k.settle("call_1", "key", 25, true, "sealed"))
		require.InDelta(k, now+KeyLife.Milliseconds(), until(`SELECT until, 60 FROM idempotency_keys`), 30_000)
		k.requireKept(len("sealed"))
	},
	"replay: the same call, its charge and transcript": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.settle("call_1", "key", 25, true, "sealed")
		for range 2 {
			k.replays(Replay{CallID: "call_1", Response: []byte("sealed"), Settled: Settled{ChargedMicros: 25}}, "key", "content", 60)
		}
		k.requireWallet(75, 0)
		k.requireClaims("call_1 done")
	},
	"replay: with room, and with too little of it": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.settle("call_1", "key", 25, true, "sealed")
		for room, want := range map[int64]error{int64(len("sealed")): nil, int64(len("sealed")) - 1: ErrNoRoom} {
			hold := holdOf("call_2", 60)
			hold.Wallet, hold.Claim = k.wallet, claimOf("key", "content")
			hold.Room = func(bytes int64) bool { return bytes <= room }
			replay, err := k.book.Hold(k.Context(), hold)
			require.ErrorIs(k, err, want)
			require.Equal(k, want == nil, replay != nil)
		}
		k.requireWallet(75, 0)
		k.requireClaims("call_1 done")
	},
	"replay: on an empty wallet, with a cost above the hold": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.settle("call_1", "key", 110, true, "sealed")
		_, err := k.book.Adjust(k.Context(), "test", k.wallet, -40, "why", "r", "")
		require.NoError(k, err)
		k.replays(Replay{
			CallID: "call_1", Response: []byte("sealed"), Settled: Settled{ChargedMicros: 60, ShortfallMicros: 50},
		}, "key", "content", 60)
	},
	"replay: a transcript that was too large": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.settle("call_1", "key", 25, true, "")
		k.replays(Replay{CallID: "call_1", Settled: Settled{ChargedMicros: 25}}, "key", "content", 60)
	},
	"in-flight duplicate": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.refused(ErrKeyInFlight, "call_2", "key", "content", 60)
		k.refused(ErrKeyInFlight, "call_2", "key", "content", 6_000) // whatever the wallet says
		k.requireWallet(100, 60)
		k.requireClaims("call_1 in progress")
	},
	"different content: the original is kept": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.refused(ErrKeyReused, "call_2", "key", "other content", 60)
		k.settle("call_1", "key", 25, true, "sealed")
		k.refused(ErrKeyReused, "call_2", "key", "other content", 60)
		k.refused(ErrKeyReused, "call_2", "key", "other content", 0)
		k.replays(Replay{CallID: "call_1", Response: []byte("sealed"), Settled: Settled{ChargedMicros: 25}}, "key", "content", 60)
		k.requireWallet(75, 0)
	},
	"other keys, environments and organizations are independent": func(k keyed) {
		k.runs("call_1", "key", "content", 10)
		k.runs("call_2", "another key", "content", 10)
		sandbox, stranger := k, k
		sandbox.wallet.Env = store.Test
		sandbox.runs("call_3", "key", "content of a test", 0)
		stranger.wallet.OrgID += "_stranger"
		makeOrganization(k.T, k.db, stranger.wallet.OrgID)
		stranger.runs("call_4", "key", "content of a stranger", 0)
		k.requireClaims("call_1 in progress", "call_2 in progress", "call_3 in progress")
		stranger.requireClaims("call_4 in progress")
	},
	"402 rolls the claim back": func(k keyed) {
		k.refused(ErrInsufficientCredits, "call_1", "key", "content", 101)
		k.requireClaims()
		k.runs("call_1", "key", "other content", 100)
		k.requireWallet(100, 100)
	},
	"failed without cost: the key runs again": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		require.Zero(k, k.settle("call_1", "key", 0, false, ""))
		k.requireClaims()
		k.runs("call_2", "key", "other content", 60)
		k.requireClaims("call_2 in progress")
	},
	"failed but charged: never a second charge": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.settle("call_1", "key", 10, true, "partial")
		k.replays(Replay{CallID: "call_1", Response: []byte("partial"), Settled: Settled{ChargedMicros: 10}}, "key", "content", 60)
		k.requireWallet(90, 0)
	},
	"crash, then a sweep: the next use runs": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.lapse("call_1")
		require.Equal(k, 1, k.sweep())
		k.requireClaims()
		k.requireWallet(100, 0)
		k.runs("call_2", "key", "content", 60)
	},
	"crash: the next use takes over and runs, the call that lost its key to it is never charged": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.lapse("call_1")
		k.runs("call_2", "key", "content", 100) // needs what the lost call held
		k.requireClaims("call_2 in progress")
		k.requireWallet(100, 100)
		require.Equal(k, Settled{ShortfallMicros: 25}, k.settle("call_1", "key", 25, true, "too late"))
		k.requireClaims("call_2 in progress")
		k.settle("call_2", "key", 30, true, "sealed")
		k.replays(Replay{CallID: "call_2", Response: []byte("sealed"), Settled: Settled{ChargedMicros: 30}}, "key", "content", 60)
		k.requireWallet(70, 0)
	},
	"crash: a take-over that is refused leaves no claim and no hold": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.lapse("call_1")
		k.refused(ErrInsufficientCredits, "call_2", "key", "content", 101)
		k.requireClaims()
		k.requireWallet(100, 0)
	},
	"late: the key's row was swept, the call is charged and the key is finished without its answer": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.lapse("call_1")
		require.Equal(k, 1, k.sweep())
		k.requireClaims()
		k.requireWallet(100, 0)
		for range 2 {
			require.Equal(k, Settled{ChargedMicros: 25}, k.settle("call_1", "key", 25, true, "too late"))
			k.requireClaims("call_1 done")
		}
		k.requireKept(0)
		k.replays(Replay{CallID: "call_1", Settled: Settled{ChargedMicros: 25}}, "key", "content", 60)
		k.requireWallet(75, 0)
	},
	"late: another call has the key in progress, or has finished it": func(k keyed) {
		for i, id := range []string{"call_1", "call_2"} {
			k.runs(id, "key", "content", 60)
			k.lapse(id)
			require.Equal(k, 1, k.sweep(), i)
		}
		k.runs("call_3", "key", "content", 60)
		require.Equal(k, Settled{ShortfallMicros: 25}, k.settle("call_1", "key", 25, true, "too late"))
		k.requireWallet(100, 60)
		k.settle("call_3", "key", 30, true, "sealed")
		require.Equal(k, Settled{ShortfallMicros: 25}, k.settle("call_2", "key", 25, true, "too late"))
		k.replays(Replay{CallID: "call_3", Response: []byte("sealed"), Settled: Settled{ChargedMicros: 30}}, "key", "content", 60)
		k.requireWallet(70, 0)
	},
	"the call that lost its key to time claims it again": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.lapse("call_1")
		k.runs("call_1", "key", "other content", 70)
		k.requireClaims("call_1 in progress")
		k.requireWallet(100, 70)
		require.Equal(k, 70, count(k.T, k.db, `SELECT reserved_micros FROM running_keys`))
		k.refused(ErrKeyReused, "call_2", "key", "content", 60)
		require.Equal(k, Settled{ChargedMicros: 25}, k.settle("call_1", "key", 25, true, "sealed"))
		k.requireWallet(75, 0)
	},
	"late: charged at most what is free, and only a charge finishes the key": func(k keyed) {
		for id, key := range map[string]string{"call_1": "key 1", "call_2": "key 2", "call_3": "key 3"} {
			k.runs(id, key, "content", 30)
			k.lapse(id)
		}
		require.Equal(k, 3, k.sweep())
		k.runs("call_4", "another", "content", 90)
		require.Equal(k, Settled{ChargedMicros: 10, ShortfallMicros: 15}, k.settle("call_1", "key 1", 25, true, "too late"))
		k.requireClaims("call_1 done", "call_4 in progress")
		require.Equal(k, Settled{ShortfallMicros: 25}, k.settle("call_2", "key 2", 25, true, "too late"))
		require.Equal(k, Settled{}, k.settle("call_3", "key 3", 0, true, "too late"))
		k.requireClaims("call_1 done", "call_4 in progress")
		k.requireWallet(90, 90)
		k.refused(ErrInsufficientCredits, "call_5", "key 2", "content", 1)
	},
	"late: not kept, nothing of the key is written": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.lapse("call_1")
		require.Equal(k, 1, k.sweep())
		require.Equal(k, Settled{ChargedMicros: 25}, k.settle("call_1", "key", 25, false, ""))
		k.requireClaims()
		k.requireWallet(75, 0)
	},
	"a late settlement before the sweep counts": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.lapse("call_1")
		require.Equal(k, Settled{ChargedMicros: 25}, k.settle("call_1", "key", 25, true, "sealed"))
		k.replays(Replay{CallID: "call_1", Response: []byte("sealed"), Settled: Settled{ChargedMicros: 25}}, "key", "content", 60)
	},
	"after 24 hours the key is new": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.settle("call_1", "key", 25, true, "sealed")
		k.age("call_1")
		k.runs("call_2", "key", "other content", 60)
		k.requireClaims("call_2 in progress")
		require.Equal(k, Settled{ChargedMicros: 25}, k.settle("call_1", "key", 25, true, "again"))
		k.requireClaims("call_2 in progress")
	},
	"old claims are purged, with their answers": func(k keyed) {
		k.runs("call_1", "key 1", "content", 10)
		k.settle("call_1", "key 1", 5, true, "sealed")
		k.runs("call_2", "key 2", "content", 10)
		k.settle("call_2", "key 2", 5, true, "sealed")
		k.runs("call_3", "key 3", "content", 10)
		k.age("call_1")
		k.requireKept(2 * len("sealed"))
		require.Zero(k, k.sweep())
		k.requireClaims("call_2 done", "call_3 in progress")
		k.requireKept(len("sealed"))
	},
	"a hold sent again": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		k.runs("call_1", "key", "content", 60)
		k.requireWallet(100, 60)
		k.refused(ErrInvalid, "call_1", "key", "content", 61)
		k.settle("call_1", "key", 0, false, "")
		k.refused(ErrCallEnded, "call_1", "key", "content", 60)
		k.requireClaims()
	},
	"a settlement sent again": func(k keyed) {
		k.runs("call_1", "key", "content", 60)
		for _, keep := range []bool{true, true, false} { // at last the void of someone who missed the commit
			require.Equal(k, Settled{ChargedMicros: 25}, k.settle("call_1", "key", 25, keep, "sealed"))
			k.requireClaims("call_1 done")
		}
		k.runs("call_2", "key 2", "content", 60)
		for _, keep := range []bool{false, true} {
			require.Zero(k, k.settle("call_2", "key 2", 0, keep, "sealed"))
			k.requireClaims("call_1 done")
		}
	},
	"kept answers have a limit, to the byte: above it a call is charged and not kept": func(k keyed) {
		k.book.KeepAtMost(10)
		end := func(call, answer string, want string) {
			k.Helper()
			k.runs(call, "key of "+call, "content", 10)
			require.Equal(k, Settled{ChargedMicros: 5}, k.settle(call, "key of "+call, 5, true, answer))
			replay := Replay{CallID: call, Settled: Settled{ChargedMicros: 5}}
			if want != "" {
				replay.Response = []byte(want)
			}
			k.replays(replay, "key of "+call, "content", 10)
		}
		end("call_1", "1234", "1234")
		end("call_2", "1234567", "") // one more than there is room for
		end("call_3", "123456", "123456")
		k.requireKept(10)
		end("call_4", "1", "")
		k.age("call_1")
		require.Zero(k, k.sweep())
		k.requireKept(6)
		end("call_5", "1234", "1234")
		k.requireKept(10)
		k.age("call_3")
		k.age("call_4")
		require.Zero(k, k.sweep())
		k.requireKept(4)
		k.requireClaims("call_2 done", "call_5 done")

		sandbox := k
		sandbox.wallet.Env = store.Test
		sandbox.runs("call_6", "key", "content", 0)
		sandbox.finishOwn("call_6", "key", true, "1234567890")
		sandbox.requireKept(10)
		k.requireKept(4)
	},
	"own key: only the claim is written": func(k keyed) {
		k.runs("call_1", "key", "content", 0)
		k.runs("call_1", "key", "content", 0)
		k.requireWallet(100, 0)
		k.refused(ErrInvalid, "call_1", "key", "content", 10)
		k.refused(ErrKeyInFlight, "call_2", "key", "content", 0)
		k.refused(ErrKeyReused, "call_2", "key", "the same on our key", 10)
		k.finishOwn("call_1", "key", true, "sealed")
		k.replays(Replay{CallID: "call_1", Response: []byte("sealed"), BYOK: true}, "key", "content", 0)
		require.Zero(k, count(k.T, k.db, `SELECT count(*) FROM holds`))
		k.requireKept(len("sealed"))

		k.runs("call_2", "key 2", "content", 0)
		k.finishOwn("call_2", "key 2", false, "")
		k.requireClaims("call_1 done")
		k.refused(ErrCallEnded, "call_2", "key 2", "content", 0)
	},
	"own key: a wallet that was never topped up": func(k keyed) {
		k.wallet.OrgID += "_poor"
		k.refused(store.ErrNotFound, "call_1", "key", "content", 0)
		makeOrganization(k.T, k.db, k.wallet.OrgID)
		k.runs("call_1", "key", "content", 0)
		k.refused(ErrKeyInFlight, "call_2", "key", "content", 0)
		k.finishOwn("call_1", "key", true, "sealed")
		k.replays(Replay{CallID: "call_1", Response: []byte("sealed"), BYOK: true}, "key", "content", 0)
	},
	"own key: crash": func(k keyed) {
		k.runs("call_1", "key", "content", 0)
		k.runs("call_2", "key 2", "content", 0)
		k.lapse("call_1")
		k.runs("call_3", "key", "content", 0)
		k.lapse("call_2")
		require.Zero(k, k.sweep())
		k.requireClaims("call_3 in progress")
		k.finishOwn("call_1", "key", true, "too late")
		k.finishOwn("call_2", "key 2", true, "too late")
		k.requireClaims("call_3 in progress")
		k.requireKept(0)
	},
}

// TestIdempotencyRows runs each row on both engines, each with an organization of its own.
func TestIdempotencyRows(t *testing.T) {
	t.Parallel()
	for name, row := range idempotencyRows {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
				topUp(t, book, 100)
				row(keyed{t, db, book, acme})
			})
		})
	}
}

// TestFinishedKeyWithoutItsCall: broken books are an error, not a replay and not a second run.
func TestFinishedKeyWithoutItsCall(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{Ledger}, func(t *testing.T, db *store.DB) {
		makeOrganization(t, db, acme.OrgID)
		book := NewBook(db)
		topUp(t, book, 100)
		k := keyed{t, db, book, acme}
		k.runs("call_1", "key", "content", 60)
		k.settle("call_1", "key", 25, true, "sealed")
		execute(t, db, storetest.Unguard(db.Engine(), "calls"))
		execute(t, db, `DELETE FROM calls`)
		_, err := k.hold("call_2", "key", "content", 60)
		require.ErrorContains(t, err, "read finished call call_1: its row is missing")
	})
}

func TestClaimBusy(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		k := keyed{t, db, book, acme}
		busy := func() bool {
			busy, err := book.ClaimBusy(t.Context(), acme, claimOf("key", "").KeyHash)
			require.NoError(t, err)
			return busy
		}
		require.False(t, busy())
		k.runs("call_1", "key", "content", 60)
		require.True(t, busy())
		elsewhere, err := book.ClaimBusy(t.Context(), WalletID{acme.OrgID, store.Test}, claimOf("key", "").KeyHash)
		require.NoError(t, err)
		require.False(t, elsewhere)
		k.lapse("call_1")
		require.False(t, busy())
		k.runs("call_2", "key", "content", 60)
		k.settle("call_2", "key", 5, true, "sealed")
		require.False(t, busy())
		_, err = book.ClaimBusy(t.Context(), WalletID{}, [32]byte{})
		require.ErrorIs(t, err, ErrInvalid)
	})
}

// TestClaimsInOneBatch: claims that share a transaction see each other in arrival order.
func TestClaimsInOneBatch(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		topUp(t, book, 100)
		hold := func(call, key string, micros int64) *holdOp {
			op := &holdOp{Hold: holdOf(call, micros)}
			op.Claim = claimOf(key, "content")
			return op
		}
		settle := func(call, key string, micros int64, keep bool) *settleOp {
			op := settleOpOf(chargeOf(call, 10, micros))
			op.Claim, op.Keep, op.Response = claimOf(key, "content"), keep, []byte("sealed")
			return op
		}
		tooLarge, first, second := hold("call_0", "key", 101), hold("call_1", "key", 10), hold("call_2", "key", 10)
		other := hold("call_3", "other", 10)
		released, again := settle("call_1", "key", 0, false), hold("call_4", "key", 10)
		finished, late := settle("call_4", "key", 7, true), hold("call_5", "key", 10)
		applyTogether(t, db, tooLarge, first, second, other, released, again, finished, late, &sweepOp{})

		require.ErrorIs(t, tooLarge.refused, ErrInsufficientCredits)
		require.NoError(t, first.refused)
		require.ErrorIs(t, second.refused, ErrKeyInFlight)
		require.NoError(t, other.refused)
		require.NoError(t, again.refused)
		require.NoError(t, late.refused)
		require.Equal(t, "call_4", late.finished)
		keyed{t, db, book, acme}.requireClaims("call_3 in progress", "call_4 done")
		requireWallet(t, book, 93, 10)

		// A stored key that moves from call to call in one batch.
		applyTogether(t, db, settle("call_3", "other", 0, false), hold("call_6", "other", 10))
		keyed{t, db, book, acme}.requireClaims("call_4 done", "call_6 in progress")
		applyTogether(t, db, hold("call_7", "third", 10), settle("call_7", "third", 0, false))
		keyed{t, db, book, acme}.requireClaims("call_4 done", "call_6 in progress")
	})
}

// TestIdenticalClaimsAtOnce: 50 parallel posts with one key make one call, whichever of two processes they reach.
func TestIdenticalClaimsAtOnce(t *testing.T) {
	t.Parallel()
	for name, micros := range map[string]int64{"with a hold": 10, "own key, no wallet yet": 0} {
		for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
			t.Run(name+"/"+string(engine), func(t *testing.T) {
				t.Parallel()
				location := storetest.Location(t, engine)
				db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				other := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				makeOrganization(t, db, acme.OrgID)
				books := []*Book{NewBook(db), NewBook(other)}
				if micros > 0 {
					topUp(t, books[0], 1_000)
				}
				k := keyed{t, db, books[0], acme}

				first := claimAtOnce(t, books, "first", micros)
				require.Len(t, first.won, 1)
				require.Equal(t, 49, first.inFlight)

				k.lapse(first.won[0])
				second := claimAtOnce(t, books, "second", micros)
				require.Len(t, second.won, 1, "one takes over")
				require.Equal(t, 49, second.inFlight)

				if micros > 0 {
					k.settle(second.won[0], "key", 7, true, "sealed")
					k.requireWallet(993, 0)
				} else {
					k.finishOwn(second.won[0], "key", true, "sealed")
				}
				third := claimAtOnce(t, books, "third", micros)
				require.Empty(t, third.won)
				require.Equal(t, map[string]int{second.won[0]: 50}, third.replayed)
				requireSoundBooks(t, db)
			})
		}
	}
}

// claims counts what became of holds with one key.
type claims struct {
	won      []string
	inFlight int
	replayed map[string]int
}

func claimAtOnce(t *testing.T, books []*Book, round string, micros int64) claims {
	t.Helper()
	var mu sync.Mutex
	told := claims{replayed: map[string]int{}}
	start := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			hold := holdOf(fmt.Sprintf("call_%s_%d", round, i), micros)
			hold.Claim = claimOf("key", "content")
			<-start
			var replay *Replay
			err := storetest.Insist(func() (err error) {
				replay, err = books[i%len(books)].Hold(t.Context(), hold)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, ErrKeyInFlight):
				told.inFlight++
			case err != nil:
				t.Errorf("hold: %v", err)
			case replay != nil:
				told.replayed[replay.CallID]++
			default:
				told.won = append(told.won, hold.CallID)
			}
		})
	}
	close(start)
	callers.Wait()
	return told
}

// TestClaimsOfTwoWriters lets calls, crashes, ageing and sweeps meet on few keys from two processes: nothing fails, a
// call that has its key keeps its hold, and the books are sound.
func TestClaimsOfTwoWriters(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
			other := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
			for i := range 3 {
				wallet := WalletID{fmt.Sprintf("org_%d", i), store.Live}
				makeOrganization(t, db, wallet.OrgID)
				_, err := NewBook(db).Credit(t.Context(), "test", wallet, 1_000, "r")
				require.NoError(t, err)
			}
			time := &passingTime{db: storetest.OpenAt(t, location, store.Options{})}
			var lost atomic.Int64
			var callers sync.WaitGroup
			for caller := range 8 {
				callers.Go(func() {
					client := keyedClient{
						NewBook([]*store.DB{db, other}[caller%2]), time,
						rand.New(rand.NewPCG(uint64(caller), 7)), //nolint:gosec // a seed
						&lost,
					}
					for i := range 60 {
						call := fmt.Sprintf("call_%d_%d", caller, i)
						if err := client.call(t.Context(), call); err != nil {
							t.Errorf("%s: %v", call, err)
						}
					}
				})
			}
			callers.Wait()
			require.Positive(t, count(t, db, `SELECT count(*) FROM calls WHERE charged_micros > 0`))
			require.Positive(t, lost.Load(), "crashes")
			requireSoundBooks(t, db)
		})
	}
}

// passingTime lets the 24 hours of a finished key be over. It has a writer of its own and writes one row at a time, so
// that it can't be what others wait for in a circle.
type passingTime struct {
	mu sync.Mutex
	db *store.DB
}

func (p *passingTime) age(ctx context.Context, call string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return storetest.Insist(func() error {
		return p.db.Exec(ctx, func(_ context.Context, tx store.Tx) error {
			tx.Queue(store.AnyRows, `UPDATE idempotency_keys SET until = 1 WHERE call_id = $1`, call)
			return nil
		})
	})
}

type keyedClient struct {
	book   *Book
	time   *passingTime
	random *rand.Rand
	lost   *atomic.Int64
}

// call holds with one of a few keys and, when it gets it, ends in a random way or not at all.
func (c keyedClient) call(ctx context.Context, id string) error {
	wallet := WalletID{fmt.Sprintf("org_%d", c.random.IntN(3)), store.Live}
	micros, ending := int64(c.random.IntN(2)*10), c.random.IntN(4)
	hold := Hold{CallID: id, Wallet: wallet, AmountMicros: micros, ExpiresIn: time.Minute}
	hold.Claim = claimOf(fmt.Sprint("key ", c.random.IntN(2)), "content")
	if ending == 0 {
		hold.ExpiresIn = time.Millisecond
	}
	var replay *Replay
	err := storetest.Insist(func() (err error) {
		replay, err = c.book.Hold(ctx, hold)
		return err
	})
	switch {
	case errors.Is(err, ErrKeyInFlight):
		return nil
	case err != nil:
		return err
	case replay != nil:
		return c.time.age(ctx, replay.CallID)
	}
	settlement := chargeOf(id, micros, micros/2)
	settlement.Call.Wallet, settlement.Claim = wallet, hold.Claim
	switch ending {
	case 0: // a crash
		c.lost.Add(1)
		return nil
	case 1:
		settlement.Void = true
	default:
		settlement.Keep, settlement.Response = true, []byte("sealed")
	}
	var settled Settled
	err = storetest.Insist(func() (err error) {
		settled, err = c.book.Settle(ctx, settlement)
		return err
	})
	if err == nil && !settlement.Void && settled != (Settled{ChargedMicros: micros / 2}) {
		err = errors.New("lost its hold")
	}
	if err == nil && c.random.IntN(4) == 0 {
		err = storetest.Insist(func() error {
			_, err := c.book.Sweep(ctx)
			return err
		})
	}
	return err
}
