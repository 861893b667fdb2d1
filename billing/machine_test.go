package billing

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// model is the expected state of the books, kept in maps, independently of how the books keep it.
type model struct {
	wallet  WalletID
	balance int64
	holds   map[string]int64   // open ones
	ended   map[string]Settled // calls that were settled or voided
	expired map[string]bool
	posted  map[string]int64 // credits by reference

	claims  map[string]*modelClaim // by key
	crashed map[string]bool        // open, but their time is over
	paid    map[string]bool        // keys that were charged for and not forgotten
}

// modelClaim is a key that is taken.
type modelClaim struct {
	call, content string
	done, over    bool // over: its lease or its 24 hours have ended
}

// keyOf is the key that a call with one uses in this test.
func keyOf(call string) string { return "key " + strconv.Itoa(int(call[len(call)-1])%3) }

func (m *model) held() (sum int64) {
	for _, amount := range m.holds {
		sum += amount
	}
	return sum
}

// step is one operation with the check of its result, before the model applies it.
type step struct {
	op    store.Op
	check func(t require.TestingT)
}

func (m *model) hold(id string, micros int64) step {
	hold := holdOf(id, micros)
	hold.Wallet = m.wallet
	op := &holdOp{Hold: hold}
	return step{op, func(t require.TestingT) {
		_, ended := m.ended[id]
		open, isOpen := m.holds[id]
		switch {
		case isOpen && open == micros:
			require.NoError(t, op.refused)
		case isOpen:
			require.ErrorIs(t, op.refused, ErrInvalid)
		case ended || m.expired[id]:
			require.Error(t, op.refused) // ErrCallEnded, or ErrInvalid for another amount
		case m.balance-m.held() < micros:
			require.ErrorIs(t, op.refused, ErrInsufficientCredits)
		default:
			require.NoError(t, op.refused)
			m.holds[id] = micros
		}
	}}
}

// claimedHold is a hold with the call's key; with 0 micros it is the claim alone.
func (m *model) claimedHold(id, content string, micros int64) step {
	hold := holdOf(id, micros)
	hold.Wallet, hold.Claim = m.wallet, claimOf(m.wallet.OrgID+keyOf(id), content)
	op := &holdOp{Hold: hold}
	return step{op, func(t require.TestingT) {
		claim := m.claims[keyOf(id)]
		if claim != nil && claim.over {
			m.drop(keyOf(id))
			claim = nil
		}
		_, ended := m.ended[id]
		switch {
		case claim != nil && claim.content != content:
			require.ErrorIs(t, op.refused, ErrKeyReused)
		case claim != nil && claim.done:
			require.NoError(t, op.refused)
			require.Equal(t, claim.call, op.finished)
			return
		case claim != nil && claim.call != id:
			require.ErrorIs(t, op.refused, ErrKeyInFlight)
		case claim != nil && m.holds[id] == micros:
			require.NoError(t, op.refused)
		case claim != nil:
			require.ErrorIs(t, op.refused, ErrInvalid)
		case ended || m.expired[id]:
			require.Error(t, op.refused) // ErrCallEnded, or ErrInvalid for another amount
		case m.balance-m.held() < micros:
			require.ErrorIs(t, op.refused, ErrInsufficientCredits)
		default:
			require.NoError(t, op.refused)
			m.claims[keyOf(id)] = &modelClaim{call: id, content: content}
			if micros > 0 {
				m.holds[id] = micros
			}
		}
		require.Empty(t, op.finished)
	}}
}

// drop takes a key that is over from its call.
func (m *model) drop(key string) (expired bool) {
	claim := m.claims[key]
	delete(m.claims, key)
	return m.expire(claim.call)
}

func (m *model) expire(call string) (expired bool) {
	if !m.crashed[call] {
		return false
	}
	delete(m.crashed, call)
	delete(m.holds, call)
	m.expired[call] = true
	return true
}

// sweep is what a sweep should find.
func (m *model) sweep() (expired int) {
	for call := range maps.Clone(m.crashed) {
		if m.expire(call) {
			expired++
		}
	}
	for key, claim := range maps.Clone(m.claims) {
		if claim.over || m.expired[claim.call] {
			m.drop(key)
		}
	}
	return expired
}

// claimedSettle ends a call with a key. A charge is always kept: then the key was charged for at most once.
func (m *model) claimedSettle(id string, charge int64, keep, free bool) step {
	settle := m.settle(id, charge, false)
	op := settle.op.(*settleOp)
	op.Claim, op.Keep = claimOf(m.wallet.OrgID+keyOf(id), ""), keep || charge > 0
	op.Response = []byte("transcript of " + id)
	if free {
		op.Held, op.Call.BYOK = false, true
	}
	return step{op, func(t require.TestingT) {
		_, again := m.ended[id]
		if free && !again {
			require.NoError(t, op.refused)
			require.Zero(t, op.settled)
			m.ended[id] = Settled{}
		} else {
			settle.check(t)
		}
		if op.refused != nil || again {
			return
		}
		if op.settled.ChargedMicros > 0 {
			require.False(t, m.paid[keyOf(id)], "a key that was charged for twice")
			m.paid[keyOf(id)] = true
		}
		claim := m.claims[keyOf(id)]
		switch {
		case claim == nil || claim.call != id:
		case op.Keep && !op.settled.Expired:
			claim.done, claim.over = true, false
		default:
			delete(m.claims, keyOf(id))
		}
	}}
}

func (m *model) settle(id string, charge int64, void bool) step {
	settlement := chargeOf(id, charge)
	settlement.Call.Wallet, settlement.Void = m.wallet, void
	op := &settleOp{Settlement: settlement}
	return step{op, func(t require.TestingT) {
		first, ended := m.ended[id]
		held, open := m.holds[id]
		if ended {
			require.NoError(t, op.refused)
			require.Equal(t, first, op.settled)
			return
		}
		if !open && !m.expired[id] {
			require.ErrorIs(t, op.refused, ErrNoHold)
			return
		}
		require.NoError(t, op.refused)
		if void {
			charge = 0
		}
		want := Settled{}
		if open {
			delete(m.holds, id)
			delete(m.crashed, id)
			want.ChargedMicros = min(charge, m.balance-m.held())
			want.ExtraMicros = max(0, want.ChargedMicros-held)
			want.ShortfallMicros = charge - want.ChargedMicros
			m.balance -= want.ChargedMicros
		} else {
			want = Settled{ShortfallMicros: charge, Expired: true}
		}
		require.Equal(t, want, op.settled)
		m.ended[id] = want
	}}
}

// abandon decides a hold whose commit stayed unknown, with its key if it is a keyed call's.
func (m *model) abandon(id string, micros int64, isKeyed bool) step {
	hold := holdOf(id, micros)
	hold.Wallet = m.wallet
	if isKeyed {
		hold.Claim = claimOf(m.wallet.OrgID+keyOf(id), "")
	}
	op := &settleOp{abandoned: &hold, Settlement: Settlement{
		Call: Call{ID: id, Wallet: m.wallet, UsageSource: UsageNone}, Held: micros > 0, Void: true, Claim: hold.Claim,
	}}
	return step{op, func(t require.TestingT) {
		require.NoError(t, op.refused)
		if _, ended := m.ended[id]; ended {
			return
		}
		delete(m.holds, id)
		delete(m.crashed, id)
		m.ended[id] = Settled{Expired: m.expired[id]}
		if claim := m.claims[keyOf(id)]; isKeyed && claim != nil && claim.call == id {
			delete(m.claims, keyOf(id))
		}
	}}
}

func (m *model) credit(ref string, micros int64) step {
	op := &postOp{posting: posting{kind: EntryTopUp, wallet: m.wallet, micros: micros, ref: ref, actor: "test"}}
	return step{op, func(t require.TestingT) {
		if first, ok := m.posted[ref]; ok {
			if first != micros {
				require.ErrorIs(t, op.refused, ErrRefReused)
				return
			}
			require.NoError(t, op.refused)
			require.True(t, op.entry.Replayed)
			return
		}
		require.NoError(t, op.refused)
		m.posted[ref] = micros
		m.balance += micros
		require.Equal(t, m.balance, op.entry.BalanceMicros)
	}}
}

func (m *model) adjust(micros int64) step {
	op := &postOp{posting: posting{kind: EntryAdjust, wallet: m.wallet, micros: micros, note: "why", actor: "test"}}
	return step{op, func(t require.TestingT) {
		if m.balance-m.held()+micros < 0 {
			require.ErrorIs(t, op.refused, ErrInsufficientCredits)
			return
		}
		require.NoError(t, op.refused)
		m.balance += micros
	}}
}

func (m *model) refund(id string, refunded map[string]bool) step {
	op := &postOp{posting: posting{kind: EntryRefund, ref: id, actor: "test"}}
	return step{op, func(t require.TestingT) {
		first, ended := m.ended[id]
		switch {
		case !ended:
			require.ErrorIs(t, op.refused, store.ErrNotFound)
		case first.ChargedMicros == 0:
			require.ErrorIs(t, op.refused, ErrNothingToRefund)
		default:
			require.NoError(t, op.refused)
			require.Equal(t, refunded[id], op.entry.Replayed)
			if !refunded[id] {
				m.balance += first.ChargedMicros
			}
			refunded[id] = true
		}
	}}
}

// TestRandomHistories drives random batches of operations and compares wallet and answers with the model after each,
// and the invariants after each history.
func TestRandomHistories(t *testing.T) {
	var organizations atomic.Int64
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		rapid.Check(t, func(r *rapid.T) {
			m := &model{
				wallet: WalletID{fmt.Sprintf("org_%d", organizations.Add(1)), store.Live},
				holds:  map[string]int64{}, ended: map[string]Settled{}, expired: map[string]bool{}, posted: map[string]int64{},
				claims: map[string]*modelClaim{}, crashed: map[string]bool{}, paid: map[string]bool{},
			}
			makeOrganization(t, db, m.wallet.OrgID)
			refunded := map[string]bool{}
			call := rapid.Custom(func(r *rapid.T) string {
				return fmt.Sprintf("call_%s_%d", m.wallet.OrgID, rapid.IntRange(0, 9).Draw(r, "call"))
			})
			claiming := rapid.Custom(func(r *rapid.T) string {
				return fmt.Sprintf("call_%s_keyed_%d", m.wallet.OrgID, rapid.IntRange(0, 9).Draw(r, "call"))
			})
			free := func(call string) bool { return call[len(call)-1] >= '7' } // calls with the organization's own key
			micros := rapid.Int64Range(1, 60)
			draw := map[string]func() step{
				"hold":   func() step { return m.hold(call.Draw(r, "id"), micros.Draw(r, "micros")) },
				"settle": func() step { return m.settle(call.Draw(r, "id"), micros.Draw(r, "micros")-1, false) },
				"void":   func() step { return m.settle(call.Draw(r, "id"), 0, true) },
				"credit": func() step {
					return m.credit(fmt.Sprintf("ref %d", rapid.IntRange(0, 9).Draw(r, "ref")), 2*micros.Draw(r, "micros"))
				},
				"adjust": func() step {
					return m.adjust(rapid.Int64Range(-60, 60).Filter(func(n int64) bool { return n != 0 }).Draw(r, "micros"))
				},
				"claim": func() step {
					id, amount := claiming.Draw(r, "id"), micros.Draw(r, "micros")
					if free(id) {
						amount = 0
					}
					return m.claimedHold(id, rapid.SampledFrom([]string{"this", "this", "that"}).Draw(r, "content"), amount)
				},
				"abandon": func() step { return m.abandon(call.Draw(r, "id"), micros.Draw(r, "micros"), false) },
				"abandon with a key": func() step {
					id, amount := claiming.Draw(r, "id"), micros.Draw(r, "micros")
					if free(id) {
						amount = 0
					}
					return m.abandon(id, amount, true)
				},
				"end": func() step {
					id, charge := claiming.Draw(r, "id"), micros.Draw(r, "micros")-1
					if free(id) {
						charge = 0
					}
					return m.claimedSettle(id, charge, rapid.Bool().Draw(r, "keep"), free(id))
				},
			}
			names := []string{
				"hold", "hold", "settle", "settle", "void", "credit", "adjust", "claim", "claim", "claim", "end", "end",
				"abandon", "abandon with a key",
			}
			r.Repeat(map[string]func(*rapid.T){
				"batch": func(r *rapid.T) {
					var steps []step
					for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 6).Draw(r, "batch") {
						steps = append(steps, draw[name]())
					}
					m.run(t, db, steps)
				},
				"refund": func(r *rapid.T) { m.run(t, db, []step{m.refund(call.Draw(r, "id"), refunded)}) },
				"expire": func(r *rapid.T) {
					id := call.Draw(r, "id")
					lapse(t, db, id)
					if _, open := m.holds[id]; open {
						m.crashed[id] = true
					}
					expired, err := book.Sweep(t.Context())
					require.NoError(r, err)
					require.Equal(r, m.sweep(), expired)
				},
				"crash": func(r *rapid.T) { // nobody has swept yet
					id := claiming.Draw(r, "id")
					keyed{t, db, book, m.wallet}.lapse(id)
					if _, open := m.holds[id]; open {
						m.crashed[id] = true
					}
					if claim := m.claims[keyOf(id)]; claim != nil && claim.call == id && !claim.done {
						claim.over = true
					}
				},
				"24 hours": func(r *rapid.T) {
					id := claiming.Draw(r, "id")
					keyed{t, db, book, m.wallet}.age(id)
					if claim := m.claims[keyOf(id)]; claim != nil && claim.call == id && claim.done {
						claim.over = true
						delete(m.paid, keyOf(id))
					}
				},
				"replay": func(r *rapid.T) {
					id := claiming.Draw(r, "id")
					claim := m.claims[keyOf(id)]
					if claim == nil || !claim.done || claim.over {
						return
					}
					hold := holdOf("call_again", 1)
					hold.Wallet, hold.Claim = m.wallet, claimOf(m.wallet.OrgID+keyOf(id), claim.content)
					replay, err := book.Hold(t.Context(), hold)
					require.NoError(r, err)
					require.Equal(r, &Replay{
						CallID: claim.call, Response: []byte("transcript of " + claim.call), BYOK: free(claim.call),
						Settled: m.ended[claim.call],
					}, replay)
				},
				"": func(r *rapid.T) {
					wallet, err := book.Wallet(t.Context(), m.wallet)
					require.NoError(r, err)
					require.Equal(r, Wallet{BalanceMicros: m.balance, HeldMicros: m.held()}, wallet)
					keyed{t, db, book, m.wallet}.requireClaims(m.listClaims()...)
				},
			})
			_, err := book.Sweep(t.Context())
			require.NoError(r, err)
			requireSoundBooks(t, db)
		})
	})
}

func isUrgent(op store.Op) bool {
	urgent, ok := op.(store.Urgent)
	return ok && urgent.Urgent()
}

func (m *model) listClaims() (list []string) {
	for _, claim := range m.claims {
		state := claimInProgress
		if claim.done {
			state = claimDone
		}
		list = append(list, claim.call+" "+state)
	}
	slices.Sort(list)
	return list
}

// run hands a batch to the writer in the order in which it runs, what is urgent first, and checks the answers in that order.
func (m *model) run(t *testing.T, db *store.DB, steps []step) {
	t.Helper()
	slices.SortStableFunc(steps, func(a, b step) int {
		switch {
		case isUrgent(a.op) == isUrgent(b.op):
			return 0
		case isUrgent(a.op):
			return -1
		}
		return 1
	})
	pending := make([]*store.PendingWrite, len(steps))
	for i, step := range steps {
		pending[i] = db.Submit(Ledger, step.op)
	}
	for i, step := range steps {
		<-pending[i].Done()
		require.NoError(t, pending[i].Err())
		step.check(t)
	}
}
