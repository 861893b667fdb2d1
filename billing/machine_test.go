package billing

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// model is what the books should say, kept in maps by someone who doesn't know how they are kept.
type model struct {
	wallet  WalletID
	balance int64
	holds   map[string]int64   // open ones
	ended   map[string]Settled // calls that were settled or voided
	expired map[string]bool
	posted  map[string]int64 // credits by reference
}

func (m *model) held() (sum int64) {
	for _, amount := range m.holds {
		sum += amount
	}
	return sum
}

// step is one operation with the check of what it was told, given that the model has not seen it yet.
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
			}
			makeOrganization(t, db, m.wallet.OrgID)
			refunded := map[string]bool{}
			call := rapid.Custom(func(r *rapid.T) string {
				return fmt.Sprintf("call_%s_%d", m.wallet.OrgID, rapid.IntRange(0, 9).Draw(r, "call"))
			})
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
			}
			names := []string{"hold", "hold", "settle", "settle", "void", "credit", "adjust"}
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
					expired, err := book.Sweep(t.Context())
					require.NoError(r, err)
					_, open := m.holds[id]
					require.Equal(r, open, expired == 1)
					if open {
						delete(m.holds, id)
						m.expired[id] = true
					}
				},
				"": func(r *rapid.T) {
					wallet, err := book.Wallet(t.Context(), m.wallet)
					require.NoError(r, err)
					require.Equal(r, Wallet{BalanceMicros: m.balance, HeldMicros: m.held()}, wallet)
				},
			})
			requireSoundBooks(t, db)
		})
	})
}

// run hands a batch to the writer in order, and checks the answers in that order.
func (m *model) run(t *testing.T, db *store.DB, steps []step) {
	t.Helper()
	tickets := make([]*store.Ticket, len(steps))
	for i, step := range steps {
		tickets[i] = db.Submit(Ledger, step.op)
	}
	for i, step := range steps {
		<-tickets[i].Done()
		require.NoError(t, tickets[i].Err())
		step.check(t)
	}
}
