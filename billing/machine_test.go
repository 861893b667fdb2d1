package billing

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// model is the expected state of the books, kept in maps, independently of how the books keep it.
type model struct {
	wallet  WalletID
	balance int64
	seq     int64              // charges and postings
	holds   map[string]int64   // of running calls, those with a key too
	ended   map[string]Settled // calls that were settled or voided
	posted  map[string]int64   // credits by reference

	claims  map[string]*modelClaim // by key
	crashed map[string]bool        // in holds, but their time is over
	paid    map[string]bool        // keys that were charged for
	content map[string]string      // of calls with a key
	asked   map[string]int64       // what a call was last held for, or tried to be
	adjusts int
	clock   clockSteps

	budgets []*modelBudget
	parts   map[string]*Budgeted      // of calls, as their processes keep them
	counted map[string][]*modelPeriod // of the last hold of a call
}

// modelBudget is a budget of all calls, or of those whose names end in an even digit.
type modelBudget struct {
	id    string
	even  bool
	limit int64
	last  *modelPeriod
}

type modelPeriod struct {
	budget *modelBudget
	spent  int64
}

// evenKey is the API key of calls whose names end in an even digit.
const evenKey = "key_even"

func isEven(call string) bool { return (call[len(call)-1]-'0')%2 == 0 }

// part returns the part of a new hold of a call in budgets.
func (m *model) part(id string) *Budgeted {
	if len(m.budgets) == 0 {
		return nil
	}
	part := &Budgeted{Version: 1}
	if isEven(id) {
		part.KeyID = evenKey + m.wallet.OrgID
	}
	return part
}

// reserved is what is reserved in a period for running calls.
func (m *model) reserved(p *modelPeriod) (sum int64) {
	for call, amount := range m.holds {
		if slices.Contains(m.counted[call], p) {
			sum += amount
		}
	}
	return sum
}

func (m *model) room(p *modelPeriod) int64 { return p.budget.limit - p.spent - m.reserved(p) }

// budgeted checks a hold that the wallet can carry, and applies it.
func (m *model) budgeted(t require.TestingT, op *holdOp) (held bool) {
	var periods []*modelPeriod
	short := false
	for _, budget := range m.budgets {
		if op.Budgets != nil && (!budget.even || isEven(op.CallID)) {
			periods = append(periods, budget.last)
			short = short || m.room(budget.last) < op.AmountMicros
		}
	}
	if short && op.AmountMicros > 0 {
		_, refused := errors.AsType[*BudgetError](op.refused)
		require.True(t, refused, "%v", op.refused)
		return false
	}
	require.NoError(t, op.refused)
	m.parts[op.CallID], m.counted[op.CallID] = op.Budgets, periods
	m.keep(op)
	return true
}

// keep gives the process of a call the outcome of its hold.
func (m *model) keep(op *holdOp) {
	if op.Budgets != nil {
		op.Budgets.periods = op.periods
		m.parts[op.CallID] = op.Budgets
	}
}

// modelClaim is a key that is taken.
type modelClaim struct {
	call, content string
	done, over    bool // over: its hold or its 24 hours have ended
	answer        []byte
}

// machineKept bounds the kept answers of a wallet in this test: about three of them.
const machineKept = 40

// keyOf is the key that a call with one uses in this test.
func keyOf(call string) string { return "key " + strconv.Itoa(int(call[len(call)-1])%3) }

func (m *model) held() (sum int64) {
	for _, amount := range m.holds {
		sum += amount
	}
	return sum
}

func (m *model) free() int64 { return m.balance - m.held() }

func (m *model) kept() (bytes int) {
	for _, claim := range m.claims {
		bytes += len(claim.answer)
	}
	return bytes
}

// step is one operation with the check of its result, before the model applies it.
type step struct {
	op    store.Op
	check func(t require.TestingT)
}

// holdOf is a hold that expires when the clock is set forward, and not while other histories run.
func (m *model) holdOf(id string, micros int64) Hold {
	return Hold{CallID: id, Wallet: m.wallet, AmountMicros: micros, ExpiresIn: 50 * time.Minute}
}

func (m *model) hold(id string, micros int64) step {
	hold := m.holdOf(id, micros)
	hold.Budgets = m.part(id)
	m.asked[id] = micros
	op := &holdOp{Hold: hold}
	return step{op, func(t require.TestingT) {
		_, ended := m.ended[id]
		open, isOpen := m.holds[id]
		switch {
		case isOpen && open == micros:
			require.NoError(t, op.refused)
			m.keep(op)
		case isOpen:
			require.ErrorIs(t, op.refused, ErrInvalid)
		case ended:
			require.ErrorIs(t, op.refused, ErrCallEnded)
		case m.free() < micros:
			require.ErrorIs(t, op.refused, ErrInsufficientCredits)
		default:
			if m.budgeted(t, op) {
				m.holds[id] = micros
			}
		}
	}}
}

// claimedHold is a hold with the call's key; with 0 micros it is the claim alone.
func (m *model) claimedHold(id, content string, micros int64) step {
	hold := m.holdOf(id, micros)
	hold.Claim, hold.Budgets = claimOf(m.wallet.OrgID+keyOf(id), content), m.part(id)
	m.content[id], m.asked[id] = content, micros
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
			return
		case claim != nil && claim.done:
			require.NoError(t, op.refused)
			require.Equal(t, claim.call, op.finished)
			return
		case claim != nil && claim.call == id && m.holds[id] == micros:
			require.NoError(t, op.refused)
			m.keep(op)
			return
		case claim != nil && claim.call == id:
			require.ErrorIs(t, op.refused, ErrInvalid)
			return
		case claim != nil:
			require.ErrorIs(t, op.refused, ErrKeyInFlight)
			return
		}
		switch {
		case ended:
			require.ErrorIs(t, op.refused, ErrCallEnded)
		case m.free() < micros:
			require.ErrorIs(t, op.refused, ErrInsufficientCredits)
		default:
			if !m.budgeted(t, op) {
				break
			}
			m.claims[keyOf(id)] = &modelClaim{call: id, content: content}
			if micros > 0 {
				m.holds[id] = micros
			}
		}
		require.Empty(t, op.finished)
	}}
}

// drop takes a key from its call, with what is held for that.
func (m *model) drop(key string) (lost bool) {
	claim := m.claims[key]
	delete(m.claims, key)
	if claim.done {
		return false
	}
	return m.release(claim.call)
}

func (m *model) release(call string) (released bool) {
	_, released = m.holds[call]
	delete(m.crashed, call)
	delete(m.holds, call)
	return released
}

// sweep returns the calls that a sweep should find to have lost what was held for them.
func (m *model) sweep() (lost []string) {
	for key, claim := range maps.Clone(m.claims) {
		if claim.over && m.drop(key) {
			lost = append(lost, claim.call)
		}
	}
	for call := range maps.Clone(m.crashed) {
		if m.release(call) {
			lost = append(lost, call)
		}
	}
	slices.Sort(lost)
	return lost
}

// settle ends a call without a key.
func (m *model) settle(id string, charge int64, void bool) step {
	settlement := chargeOf(id, max(1, m.asked[id]), charge)
	if charge%2 == 1 {
		withParts(&settlement)
	}
	settlement.Call.Wallet, settlement.Void, settlement.Budgets = m.wallet, void, m.parts[id]
	op := settleOpOf(settlement)
	return step{op, func(t require.TestingT) {
		m.ends(t, op, func() bool {
			m.release(id)
			return true
		})
	}}
}

// withParts makes the tokens of a call the parts of a prompt, with a price that has tiers, and adds attempts that failed before.
func withParts(s *Settlement) {
	n := s.Call.Usage.CompletionTokens
	s.Price, s.VendorPrice = tieredRates, Price{Input: n, Output: 1}
	s.Call.AnsweringModel = fmt.Sprint("answering ", n%32)
	s.Call.Usage = Usage{
		PromptTokens: 9 * n, CompletionTokens: n % 3, CachedPromptTokens: 4 * n, CacheWriteTokens: n, LongCacheWriteTokens: 7 * n, ReasoningTokens: n,
	}
	s.Attempts = make([]Attempt, n%5)
}

// claimedSettle ends a call with a key. A charge is always kept: then the key was charged for at most once.
func (m *model) claimedSettle(id string, charge int64, keep, void, free bool, answer []byte) step {
	settlement := chargeOf(id, max(1, m.asked[id]), charge)
	if charge%2 == 1 {
		withParts(&settlement)
	}
	content := m.content[id]
	settlement.Call.Wallet, settlement.Claim = m.wallet, claimOf(m.wallet.OrgID+keyOf(id), content)
	settlement.Budgets = m.parts[id]
	if settlement.Void = void; !void {
		settlement.Keep, settlement.Response = keep || charge > 0, answer
	}
	if free {
		settlement.ReservedMicros, settlement.Call.BYOK, settlement.Price = 0, true, Price{}
	}
	op := settleOpOf(settlement)
	op.keptBytes = machineKept
	return step{op, func(t require.TestingT) {
		_, again := m.ended[id]
		claim := m.claims[keyOf(id)]
		own, late := claim != nil && claim.call == id, claim == nil
		m.ends(t, op, func() (pays bool) {
			if own {
				m.release(id)
			}
			return own || late
		})
		if again {
			return
		}
		paid := op.settled.ChargedMicros
		if paid > 0 {
			require.False(t, m.paid[keyOf(id)], "a key that was charged for twice")
			m.paid[keyOf(id)] = true
		}
		switch {
		case own && op.Keep:
			claim.done, claim.over = true, false
			if m.kept()+len(answer) <= machineKept {
				claim.answer = answer
			}
		case own:
			delete(m.claims, keyOf(id))
		case late && op.Keep && paid > 0:
			m.claims[keyOf(id)] = &modelClaim{call: id, content: content, done: true}
		}
	}}
}

// ends checks and applies the end of a call: paid = min(cost, reserved, free), after release, which reports whether the call pays.
func (m *model) ends(t require.TestingT, op *settleOp, release func() (pays bool)) {
	id := op.Call.ID
	require.NoError(t, op.refused)
	if first, ended := m.ended[id]; ended {
		require.Equal(t, first, op.settled)
		return
	}
	cost, err := op.Price.Cost(op.Call.Usage)
	require.NoError(t, err)
	want := Settled{ShortfallMicros: cost}
	open := m.holds[id]
	if release() && !op.Void {
		want.ChargedMicros = min(cost, op.ReservedMicros, m.free())
		released := open - m.holds[id]
		if released > 0 || op.Budgets != nil {
			for _, period := range m.counted[id] {
				want.ChargedMicros = min(want.ChargedMicros, max(released, m.room(period)))
			}
		}
		want.ShortfallMicros -= want.ChargedMicros
	}
	require.Equal(t, want, op.settled)
	for _, period := range m.counted[id] {
		period.spent += want.ChargedMicros
	}
	if want.ChargedMicros > 0 {
		m.balance -= want.ChargedMicros
		m.seq++
	}
	m.ended[id] = want
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
		m.posted[ref] = micros
		m.posts(t, op, micros)
	}}
}

// posts checks and applies a posting that must succeed.
func (m *model) posts(t require.TestingT, op *postOp, micros int64) {
	require.NoError(t, op.refused)
	m.balance += micros
	m.seq++
	require.Equal(t, m.balance, op.entry.BalanceMicros)
	require.Equal(t, m.seq, op.entry.Seq)
}

func (m *model) adjust(micros int64) step {
	m.adjusts++
	op := &postOp{posting: posting{
		kind: EntryAdjust, wallet: m.wallet, micros: micros, note: "why", ref: strconv.Itoa(m.adjusts), actor: "test",
	}}
	return step{op, func(t require.TestingT) {
		if m.free()+micros < 0 {
			require.ErrorIs(t, op.refused, ErrInsufficientCredits)
			return
		}
		m.posts(t, op, micros)
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
		case refunded[id]:
			require.NoError(t, op.refused)
			require.True(t, op.entry.Replayed)
		default:
			refunded[id] = true
			m.posts(t, op, first.ChargedMicros)
		}
	}}
}

// turn is a hold that another operation decides first: it may refuse it, or end that of another call.
func (m *model) turn(id, replaced string, micros int64, refused error) step {
	hold := m.hold(id, micros)
	op := hold.op.(*holdOp) //nolint:forcetypeassert // it is one
	op.With = &note{replaced: replaced, refused: refused}
	return step{op, func(t require.TestingT) {
		if refused != nil {
			require.ErrorIs(t, op.refused, refused)
			return
		}
		m.release(replaced)
		hold.check(t)
	}}
}

// endTurn is a settlement that another operation decides first.
func (m *model) endTurn(id string, charge int64, lost bool, refused error) step {
	settlement := chargeOf(id, max(1, m.asked[id]), charge)
	settlement.Call.Wallet, settlement.With, settlement.Budgets = m.wallet, &note{lost: lost, refused: refused}, m.parts[id]
	op := settleOpOf(settlement)
	return step{op, func(t require.TestingT) {
		if refused != nil {
			require.ErrorIs(t, op.refused, refused)
			return
		}
		m.ends(t, op, func() bool {
			m.release(id)
			return !lost
		})
	}}
}

// forward sets the clock forward: all that is held for calls expires.
func (m *model) forward(t *testing.T, db *store.DB) {
	m.clock.forward(t, db, m.wallet)
	for call := range m.holds {
		m.crashed[call] = true
	}
	for _, claim := range m.claims {
		claim.over = claim.over || !claim.done
	}
}

// clockSteps sets the database's clock, as a wallet sees it.
type clockSteps struct{ isBack bool }

// back sets the clock back by an hour, unless it is back already: the doctor takes no more for sound.
func (c *clockSteps) back(t *testing.T, db *store.DB, wallet WalletID) {
	t.Helper()
	if !c.isBack {
		c.isBack = true
		c.shift(t, db, wallet, time.Hour)
	}
}

// forward sets the clock forward by an hour from where it was first.
func (c *clockSteps) forward(t *testing.T, db *store.DB, wallet WalletID) {
	t.Helper()
	if c.isBack {
		c.isBack = false
		c.shift(t, db, wallet, -time.Hour)
	}
	c.shift(t, db, wallet, -time.Hour)
}

// shift moves the moments of a wallet; what has expired stays so.
func (*clockSteps) shift(t *testing.T, db *store.DB, wallet WalletID, by time.Duration) {
	t.Helper()
	now, err := db.Now(t.Context())
	require.NoError(t, err)
	execute(t, db, `UPDATE wallets SET moved_at = moved_at + $1, recall_until = recall_until + $1 WHERE org_id = $2`,
		by.Milliseconds(), wallet.OrgID)
	for table, column := range map[string]string{
		"holds": "expires_at", "running_keys": "expires_at", "idempotency_keys": "until", "tranches": "lease_until",
	} {
		execute(t, db, `UPDATE `+table+` SET `+column+` = `+column+` + $1 WHERE org_id = $2 AND `+column+` >= $3`,
			by.Milliseconds(), wallet.OrgID, now)
	}
}

// TestRandomHistories drives random batches of operations and compares wallet and answers with the model after each,
// and the invariants after each history.
func TestRandomHistories(t *testing.T) {
	var organizations atomic.Int64
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		book.KeepAtMost(machineKept)
		rapid.Check(t, func(r *rapid.T) {
			m := &model{
				wallet: WalletID{fmt.Sprintf("org_%d", organizations.Add(1)), store.Live},
				holds:  map[string]int64{}, ended: map[string]Settled{}, posted: map[string]int64{},
				claims: map[string]*modelClaim{}, crashed: map[string]bool{}, paid: map[string]bool{},
				content: map[string]string{}, asked: map[string]int64{},
				parts: map[string]*Budgeted{}, counted: map[string][]*modelPeriod{},
			}
			makeOrganization(t, db, m.wallet.OrgID)
			if rapid.Bool().Draw(r, "with budgets") {
				m.makeBudgets(t, db)
			}
			m.run(t, db, []step{m.credit("first", 60)})
			refunded := map[string]bool{}
			call := rapid.Custom(func(r *rapid.T) string {
				return fmt.Sprintf("call_%s_%d", m.wallet.OrgID, rapid.IntRange(0, 9).Draw(r, "call"))
			})
			claiming := rapid.Custom(func(r *rapid.T) string {
				return fmt.Sprintf("call_%s_keyed_%d", m.wallet.OrgID, rapid.IntRange(0, 9).Draw(r, "call"))
			})
			free := func(call string) bool { return call[len(call)-1] >= '7' } // calls with the organization's own key
			micros := rapid.Int64Range(1, 60)
			refusal := rapid.SampledFrom([]error{nil, nil, errNoted})
			end := func(void bool) step {
				id, charge := claiming.Draw(r, "id"), micros.Draw(r, "micros")-1
				if free(id) {
					charge = 0
				}
				answer := bytes.Repeat([]byte{'a'}, rapid.IntRange(1, 20).Draw(r, "answer"))
				return m.claimedSettle(id, charge, rapid.Bool().Draw(r, "keep"), void, free(id), answer)
			}
			draw := map[string]func() step{
				"hold":   func() step { return m.hold(call.Draw(r, "id"), micros.Draw(r, "micros")) },
				"settle": func() step { return m.settle(call.Draw(r, "id"), micros.Draw(r, "micros")-1, false) },
				"void": func() step {
					return m.settle(call.Draw(r, "id"), rapid.Int64Range(0, 9).Draw(r, "micros"), true)
				},
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
					content := rapid.SampledFrom([]string{"this", "this", "that"}).Draw(r, "content")
					return m.claimedHold(id, content, amount)
				},
				"end":             func() step { return end(false) },
				"void with a key": func() step { return end(true) },
				"turn": func() step {
					return m.turn(call.Draw(r, "id"), call.Draw(r, "replaced"), micros.Draw(r, "micros"), refusal.Draw(r, "refused"))
				},
				"end of a turn": func() step {
					return m.endTurn(call.Draw(r, "id"), micros.Draw(r, "micros")-1, rapid.Bool().Draw(r, "lost"), refusal.Draw(r, "refused"))
				},
			}
			names := []string{
				"hold", "hold", "settle", "settle", "void", "credit", "adjust", "claim", "claim", "claim", "end", "end",
				"void with a key", "turn", "turn", "end of a turn",
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
				"sweep": func(r *rapid.T) {
					id := call.Draw(r, "id")
					lapse(t, db, id)
					if _, open := m.holds[id]; open {
						m.crashed[id] = true
					}
					var micros int64
					before := maps.Clone(m.holds)
					want := m.sweep()
					for _, call := range want {
						micros += before[call]
					}
					lost, err := book.Sweep(t.Context())
					require.NoError(r, err)
					slices.Sort(lost.Calls)
					require.Equal(r, Lost{Calls: want, Micros: micros}, lost)
				},
				"crash": func(r *rapid.T) { // nobody has swept yet
					id := claiming.Draw(r, "id")
					lapse(t, db, id)
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
				"period": func(r *rapid.T) {
					if len(m.budgets) > 0 {
						budget := rapid.SampledFrom(m.budgets).Draw(r, "budget")
						execute(t, db, `UPDATE budget_spend SET ends_at = period_start + 1 WHERE budget_id = $1 AND ends_at = 0`, budget.id)
						budget.last = &modelPeriod{budget: budget}
					}
				},
				"limit": func(r *rapid.T) {
					if len(m.budgets) > 0 {
						budget := rapid.SampledFrom(m.budgets).Draw(r, "budget")
						budget.limit = rapid.Int64Range(0, 150).Draw(r, "limit")
						_, err := book.ChangeBudget(t.Context(), "test", m.wallet.OrgID, budget.id, BudgetChange{LimitMicros: &budget.limit})
						require.NoError(r, err)
					}
				},
				"clock forward": func(*rapid.T) { m.forward(t, db) },
				"clock back":    func(*rapid.T) { m.clock.back(t, db, m.wallet) },
				"replay": func(r *rapid.T) {
					id := claiming.Draw(r, "id")
					claim := m.claims[keyOf(id)]
					if claim == nil || !claim.done || claim.over {
						return
					}
					hold := m.holdOf("call_again", 1)
					hold.Claim = claimOf(m.wallet.OrgID+keyOf(id), claim.content)
					replay, err := book.Hold(t.Context(), hold)
					require.NoError(r, err)
					require.Equal(r, &Replay{
						CallID: claim.call, Response: claim.answer, BYOK: free(claim.call), Settled: m.ended[claim.call],
					}, replay)
				},
				"": func(r *rapid.T) {
					wallet, err := book.Wallet(t.Context(), m.wallet)
					require.NoError(r, err)
					require.Equal(r, Wallet{BalanceMicros: m.balance, HeldMicros: m.held()}, wallet)
					k := keyed{t, db, book, m.wallet}
					k.requireClaims(m.listClaims()...)
					k.requireKept(m.kept())
					require.Equal(r, m.seq, requireStatement(t, db, m.wallet, m.balance))
					m.requireBudgets(r, book)
				},
			})
			_, err := book.Sweep(t.Context())
			require.NoError(r, err)
			requireSoundBooks(r, db)
		})
	})
}

// makeBudgets gives the wallet two budgets.
func (m *model) makeBudgets(t *testing.T, db *store.DB) {
	t.Helper()
	hash := sha256.Sum256([]byte(m.wallet.OrgID))
	execute(t, db, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) VALUES ($1, $2, 'live', '', '', $3, '', 1)`,
		evenKey+m.wallet.OrgID, m.wallet.OrgID, hash[:])
	for _, budget := range []Budget{
		{Owner: OwnerOrganization, LimitMicros: 150}, {Owner: OwnerAPIKey, OwnerID: evenKey + m.wallet.OrgID, LimitMicros: 90},
	} {
		budget.Wallet, budget.Name, budget.Period = m.wallet, "n", PeriodTotal
		made, err := NewBook(db).CreateBudget(t.Context(), "test", budget)
		require.NoError(t, err)
		kept := &modelBudget{id: made.ID, even: budget.OwnerID != "", limit: budget.LimitMicros}
		kept.last = &modelPeriod{budget: kept}
		m.budgets = append(m.budgets, kept)
	}
	execute(t, db, `UPDATE budgets SET created_at = 1 WHERE org_id = $1`, m.wallet.OrgID) // so that periods of a millisecond have ended
}

// requireBudgets compares the present periods.
func (m *model) requireBudgets(r *rapid.T, book *Book) {
	states, err := book.Budgets(r.Context(), m.wallet)
	require.NoError(r, err)
	require.Len(r, states, len(m.budgets))
	for i, state := range states {
		budget := m.budgets[i]
		require.Equal(r, [3]int64{budget.limit, budget.last.spent, m.reserved(budget.last)},
			[3]int64{state.LimitMicros, state.SpentMicros, state.ReservedMicros})
	}
}

// requireStatement requires that the charges and postings of a wallet are numbered without a gap and that each balance follows from the one
// before, to the wallet's. It returns the last number.
func requireStatement(t *testing.T, db *store.DB, wallet WalletID, balance int64) (seq int64) {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), `SELECT wallet_seq, -charged_micros, balance_micros FROM calls
			WHERE org_id = $1 AND env = $2 AND charged_micros > 0
		UNION ALL SELECT wallet_seq, amount_micros, balance_micros FROM ledger_tx WHERE org_id = $1 AND env = $2
		ORDER BY 1`, wallet.OrgID, string(wallet.Env))
	require.NoError(t, err)
	defer rows.Close()
	var sum int64
	for rows.Next() {
		var number, amount, left int64
		require.NoError(t, rows.Scan(&number, &amount, &left))
		seq++
		sum += amount
		require.Equal(t, [2]int64{seq, sum}, [2]int64{number, left})
	}
	require.NoError(t, rows.Err())
	require.Equal(t, balance, sum)
	require.EqualValues(t, seq, count(t, db, `SELECT coalesce(max(seq), 0) FROM wallets WHERE org_id = $1 AND env = $2`,
		wallet.OrgID, string(wallet.Env)))
	return seq
}

func isUrgent(op store.Op) bool {
	urgent, ok := op.(store.Urgent)
	return ok && urgent.Urgent()
}

func (m *model) listClaims() (list []string) {
	for _, claim := range m.claims {
		state := " in progress"
		if claim.done {
			state = " done"
		}
		list = append(list, claim.call+state)
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
