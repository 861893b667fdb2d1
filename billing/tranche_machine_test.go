package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// trancheBank is a wallet that several processes use, and what must be true of it, without a word about tranches.
type trancheBank struct {
	t         *testing.T
	db        *store.DB
	wallet    WalletID
	clock     atomic.Int64 // of the processes, in nanoseconds; the database has its own
	processes []*trancheProcess
	stopped   []*trancheProcess // their calls still settle
	// dead are the owners of processes that were killed and whose leases are not over.
	dead    map[string]bool
	balance int64
	// limit is that of a budget which counts all calls, and spent what they were charged; it is above what is in the wallet for none.
	limit, spent int64
	budget       *Budgeted
	running      map[string]*runningCall
	ended        map[string]Settled
	flights      []*flight
	calls        int
	posts        int
	steps        clockSteps // of the database's clock
}

type trancheProcess struct {
	book *Book
	name string
}

// runningCall is a call that was held and not settled.
type runningCall struct {
	process *trancheProcess // nil: it was killed
	owner   string
	micros  int64
	budgets *Budgeted
	granted bool
	// fenced: nothing is reserved for it any more. Its tranche ended before it did, or a settlement failed with an unknown outcome.
	fenced bool
	// decided are the figures of a settlement that was written and whose answer has not come, or was lost.
	decided *Settled
}

// flight is a batch that was decided, and whose answer has not come to its process.
type flight struct {
	process *trancheProcess
	ops     []store.Op
	rides   []*ride
	calls   []string // that it ends or holds
	written bool     // otherwise its transaction has failed, and it is decided again, or fails
	again   bool
	lost    bool // the process won't know the outcome
}

func newTrancheBank(t *testing.T, db *store.DB, org string) *trancheBank {
	t.Helper()
	m := &trancheBank{
		t: t, db: db, wallet: WalletID{org, store.Live},
		dead: map[string]bool{}, running: map[string]*runningCall{}, ended: map[string]Settled{},
	}
	for range 3 {
		m.processes = append(m.processes, m.start())
	}
	return m
}

// start starts a process whose tranches are tended by the test alone.
func (m *trancheBank) start() *trancheProcess {
	book := NewBook(m.db)
	book.tranches = newTranches(m.db, slog.New(slog.DiscardHandler))
	book.tranches.now = func() time.Time { return time.Unix(1_800_000_000, m.clock.Load()) }
	return &trancheProcess{book: book, name: book.tranches.owner}
}

func (m *trancheBank) advance(d time.Duration) { m.clock.Add(int64(d)) }

// tend does what every living process does four times a second.
func (m *trancheBank) tend() {
	for _, p := range m.processes {
		p.book.tranches.tend(m.t.Context())
	}
}

// endRecall lets the time of a recall be over.
func (m *trancheBank) endRecall() {
	execute(m.t, m.db, `UPDATE wallets SET recall_until = 0 WHERE org_id = $1`, m.wallet.OrgID)
}

// uses returns what calls use of the wallet.
func (m *trancheBank) uses() (micros int64) {
	for _, call := range m.running {
		if !call.fenced && call.decided == nil {
			micros += call.micros
		}
	}
	return micros
}

// stuck reports whether a process may be unable to give back what no call uses: it is dead, or hangs while an answer is on its way.
func (m *trancheBank) stuck() bool { return len(m.flights) > 0 || len(m.dead) > 0 }

// whileTended runs an operation that may wait until the other processes have given back what they don't use.
func (m *trancheBank) whileTended(r *rapid.T, run func(ctx context.Context) error) error {
	wait := time.Minute
	if m.stuck() {
		wait = 100 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), wait)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	for {
		select {
		case err := <-done:
			if errors.Is(err, ErrCreditsInTranches) || errors.Is(err, context.DeadlineExceeded) {
				require.True(r, m.stuck(), "only a process that is stuck may keep what it doesn't use")
				return ErrCreditsInTranches
			}
			return err
		case <-time.After(time.Millisecond):
			m.advance(trancheRenewal + 1)
			m.tend()
		}
	}
}

// newHold returns the hold of the next call.
func (m *trancheBank) newHold(micros int64) Hold {
	m.calls++
	hold := holdOf(fmt.Sprintf("call_%s_%d", m.wallet.OrgID, m.calls), micros)
	hold.Wallet, hold.ExpiresIn = m.wallet, 10_000*time.Hour
	if m.budget != nil {
		hold.Budgets = new(*m.budget)
	}
	return hold
}

// left returns what the wallet and the budget have beside the calls that run.
func (m *trancheBank) fits() int64 { return min(m.balance, m.limit-m.spent) - m.uses() }

// budgetRoom returns what the budget has beside all that is reserved in it.
func (m *trancheBank) budgetRoom() int64 {
	if m.budget == nil {
		return m.limit
	}
	states, err := NewBook(m.db).Budgets(m.t.Context(), m.wallet)
	require.NoError(m.t, err)
	return states[0].LimitMicros - states[0].SpentMicros - states[0].ReservedMicros
}

// call begins a call and requires that it is refused exactly when the wallet can't carry it beside the calls that run.
func (m *trancheBank) call(r *rapid.T, p *trancheProcess, micros int64) (id string) {
	hold := m.newHold(micros)
	err := m.whileTended(r, func(ctx context.Context) error { return refusal(p.book.Hold(ctx, hold)) })
	switch {
	case errors.Is(err, ErrCreditsInTranches):
		return ""
	case IsShort(err):
		require.Less(r, m.fits(), micros, "a call that fits is refused")
		return ""
	}
	require.NoError(r, err)
	m.begin(r, p, hold)
	return hold.CallID
}

// begin notes a call that is held. It may be held from a tranche that ended unnoticed, when the database's clock was set forward: then
// nothing is reserved for it.
func (m *trancheBank) begin(r *rapid.T, p *trancheProcess, hold Hold) {
	call := &runningCall{process: p, owner: p.name, micros: hold.AmountMicros, budgets: hold.Budgets}
	if g := p.book.tranches.grants[hold.CallID]; g != nil {
		call.granted = true
		_, call.fenced = m.left(g.tranche)
		call.fenced = !call.fenced
	}
	if !call.fenced {
		require.GreaterOrEqual(r, m.fits(), hold.AmountMicros, "a call that doesn't fit is held")
	}
	m.running[hold.CallID] = call
}

// left returns what a tranche has in the books.
func (m *trancheBank) left(t *tranche) (left int64, found bool) {
	err := m.db.Reader().QueryRowContext(m.t.Context(), `SELECT left_micros FROM tranches WHERE id = $1`, t.id).Scan(&left)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false
	}
	require.NoError(m.t, err)
	return left, true
}

// payable returns what the next settlement of a call should find for it: what is free, and what is reserved for it.
func (m *trancheBank) payable(id string) int64 {
	wallet, err := NewBook(m.db).Wallet(m.t.Context(), m.wallet)
	require.NoError(m.t, err)
	free := min(wallet.BalanceMicros-wallet.HeldMicros, m.budgetRoom())
	call := m.running[id]
	if !call.granted {
		return free + call.micros
	}
	if g := call.process.book.tranches.grants[id]; g != nil && g.ended == nil {
		left, _ := m.left(g.tranche)
		free += min(left, call.micros)
	}
	return free
}

func (m *trancheBank) settlement(id string, charge int64, void bool) Settlement {
	settlement := chargeOf(id, m.running[id].micros, charge)
	settlement.Call.Wallet, settlement.Void, settlement.Budgets = m.wallet, void, m.running[id].budgets
	return settlement
}

// settle ends a call.
func (m *trancheBank) settle(r *rapid.T, id string, charge int64, void bool) {
	call := m.running[id]
	payable := m.payable(id)
	settled, err := call.process.book.Settle(m.t.Context(), m.settlement(id, charge, void))
	require.NoError(r, err)
	if call.decided != nil {
		require.Equal(r, *call.decided, settled, "a repeated settlement")
	} else {
		m.charge(r, id, charge, void, payable, settled)
	}
	delete(m.running, id)
	m.ended[id] = settled
}

// charge checks and applies a charge: paid = min(cost, reserved, free).
func (m *trancheBank) charge(r *rapid.T, id string, cost int64, void bool, payable int64, settled Settled) {
	call := m.running[id]
	want := Settled{ShortfallMicros: cost}
	if !void {
		want.ChargedMicros = min(cost, call.micros, payable)
		want.ShortfallMicros -= want.ChargedMicros
	}
	require.Equal(r, want, settled)
	if !call.fenced && !void {
		require.Equal(r, min(cost, call.micros), settled.ChargedMicros, "what was held for the call is there for it")
	}
	m.balance -= settled.ChargedMicros
	m.spent += settled.ChargedMicros
}

// send has a batch decided, and written or rolled back, and leaves its answer on the way.
func (m *trancheBank) send(r *rapid.T, f *flight) {
	f.again, f.lost = rapid.Bool().Draw(r, "again"), rapid.IntRange(0, 2).Draw(r, "lost") == 0
	err := m.db.Exec(m.t.Context(), func(ctx context.Context, tx store.Tx) error {
		if err := errors.Join(Ledger.Apply(ctx, tx, f.ops)...); err != nil {
			return err
		}
		if !f.written {
			return errors.Join(tx.Flush(ctx), errBroken)
		}
		return nil
	})
	if !f.written {
		require.ErrorIs(r, err, errBroken)
	} else {
		require.NoError(r, err)
	}
	switch {
	case f.written:
	case f.again || !f.lost:
		undo(f.ops...)
	default:
		for _, id := range f.calls {
			if call := m.running[id]; call != nil { // else a hold that was not written
				call.fenced = call.fenced || call.granted
			}
		}
	}
	m.flights = append(m.flights, f)
}

// sendSettlements leaves some settlements of a process on their way, all in one batch.
func (m *trancheBank) sendSettlements(r *rapid.T, p *trancheProcess, written bool, most int, charge *rapid.Generator[int64]) {
	f := &flight{process: p, written: written}
	for _, id := range m.of() {
		call := m.running[id]
		if len(f.ops) == most || call.process != p || call.decided != nil || m.flies(id) {
			continue
		}
		op, err := p.book.settlement(m.settlement(id, charge.Draw(r, "charge"), rapid.IntRange(0, 5).Draw(r, "void") == 0))
		require.NoError(r, err)
		op.ride = p.book.tranches.settle(op.Call)
		f.ops, f.rides, f.calls = append(f.ops, op), append(f.rides, op.ride), append(f.calls, id)
	}
	if len(f.ops) == 0 {
		return
	}
	m.send(r, f)
	if written {
		m.settled(r, f)
	}
}

// settled takes over what a written flight has charged. Its operations were decided one after the other, so what is free for each isn't
// known here; what is reserved for a call must be there.
func (m *trancheBank) settled(r *rapid.T, f *flight) {
	for _, op := range f.ops {
		if op, ok := op.(*settleOp); ok {
			require.NoError(r, op.refused)
			call, settled := m.running[op.Call.ID], op.settled
			cost, _ := op.Price.Cost(op.Call.Usage)
			require.Equal(r, cost, settled.ChargedMicros+settled.ShortfallMicros)
			switch paid := min(cost, call.micros); {
			case op.Void:
				require.Zero(r, settled.ChargedMicros)
			case call.fenced:
				require.LessOrEqual(r, settled.ChargedMicros, paid)
			default:
				require.Equal(r, paid, settled.ChargedMicros, "what was held for the call is there for it")
			}
			m.balance -= settled.ChargedMicros
			m.spent += settled.ChargedMicros
			call.decided = &settled
		}
	}
}

func (m *trancheBank) flies(call string) bool {
	return slices.ContainsFunc(m.flights, func(f *flight) bool { return slices.Contains(f.calls, call) })
}

// sendHold leaves a hold that asks for more on its way.
func (m *trancheBank) sendHold(r *rapid.T, p *trancheProcess, written bool, micros int64) {
	hold := m.newHold(micros)
	granted, carried, err := p.book.tranches.hold(hold)
	require.NoError(r, err)
	if granted {
		m.begin(r, p, hold)
		return
	}
	op := &holdOp{Hold: hold, ride: carried}
	f := &flight{process: p, written: written, ops: []store.Op{op}, rides: []*ride{carried}, calls: []string{hold.CallID}}
	m.send(r, f)
	m.held(r, f)
}

// held notes the call of a hold that was written.
func (m *trancheBank) held(r *rapid.T, f *flight) {
	if op, ok := f.ops[0].(*holdOp); ok && f.written && op.refused == nil {
		m.begin(r, f.process, op.Hold)
	}
}

// sendRenewals leaves what a process does four times a second on its way.
func (m *trancheBank) sendRenewals(r *rapid.T, p *trancheProcess, written bool) {
	if due := p.book.tranches.due(p.book.tranches.now()); len(due) > 0 {
		m.send(r, &flight{process: p, written: written, ops: []store.Op{&tendOp{due}}, rides: due})
	}
}

// land brings an answer: of what was written, or of a batch that is decided again after its transaction failed, or fails.
func (m *trancheBank) land(r *rapid.T, f *flight) {
	m.flights = slices.DeleteFunc(m.flights, func(other *flight) bool { return other == f })
	var fault error
	switch {
	case f.written:
	case f.again:
		for _, op := range f.ops { // each alone, as the writer does
			require.NoError(r, m.db.Do(m.t.Context(), Ledger, op))
		}
		f.written = true
		m.settled(r, f)
		m.held(r, f)
	default:
		fault = errBroken
	}
	if f.lost {
		fault = store.ErrCommitUnknown
	}
	for _, ride := range f.rides {
		ride.answer(fault)
	}
	for _, id := range f.calls {
		if call := m.running[id]; call != nil && call.decided != nil && !f.lost {
			m.ended[id] = *call.decided
			delete(m.running, id)
		}
	}
}

// fence marks the calls that a process held from tranches.
func (m *trancheBank) fence(owner string) {
	for _, call := range m.running {
		call.fenced = call.fenced || (call.granted && call.owner == owner)
	}
}

// lapse lets the leases of a process run out.
func (m *trancheBank) lapse(r *rapid.T, owner string) {
	execute(m.t, m.db, `UPDATE tranches SET lease_until = 1 WHERE owner = $1`, owner)
	_, err := NewBook(m.db).Sweep(m.t.Context())
	require.NoError(r, err)
	m.fence(owner)
	delete(m.dead, owner)
}

// kill ends a process without a word. Its calls never settle.
func (m *trancheBank) kill(place int) {
	killed := m.processes[place]
	m.flights = slices.DeleteFunc(m.flights, func(f *flight) bool { return f.process == killed })
	for _, call := range m.running {
		if call.process == killed {
			call.process = nil
		}
	}
	m.dead[killed.name] = true
	m.processes[place] = m.start()
}

// of returns the running calls that can settle.
func (m *trancheBank) of() (ids []string) {
	for id, call := range m.running {
		if call.process != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// requireCover requires that what a process may grant, and what its calls use, is in its tranche.
func (m *trancheBank) requireCover(r *rapid.T) {
	for _, p := range m.processes {
		for _, t := range p.book.tranches.wallets {
			require.GreaterOrEqual(r, t.coming, int64(0))
			require.GreaterOrEqual(r, t.unused, int64(0))
			require.GreaterOrEqual(r, t.inUse, int64(0))
			if left, found := m.left(t); found {
				require.GreaterOrEqual(r, left, t.unused+t.inUse, "granted without cover")
			}
		}
	}
}

// TestRandomTranches drives random histories of three processes that share a wallet: calls, answers that are late or lost, transactions that
// fail, kills, leases that run out, restarts, clocks set forward and back. No call that fits is refused, none that doesn't fit is held, what
// is held for a call is there for it, each call is charged once and exactly, and the books are sound.
func TestRandomTranches(t *testing.T) {
	var organizations atomic.Int64
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		rapid.Check(t, func(r *rapid.T) {
			m := newTrancheBank(t, db, fmt.Sprintf("org_%d", organizations.Add(1)))
			makeOrganization(t, db, m.wallet.OrgID)
			m.credit(r, 100_000)
			m.limit = 1 << 40
			if rapid.Bool().Draw(r, "with a budget") {
				m.budgets(r, rapid.SampledFrom([]int64{300, 20_000, 90_000}).Draw(r, "limit"))
			}
			process := rapid.Custom(func(r *rapid.T) *trancheProcess { return m.processes[rapid.IntRange(0, 2).Draw(r, "process")] })
			micros := rapid.Int64Range(1, 60)
			calls := func(r *rapid.T) {
				p := process.Draw(r, "by")
				if rapid.Bool().Draw(r, "after a recall") {
					m.endRecall()
				}
				for range rapid.IntRange(1, 6).Draw(r, "calls") {
					m.call(r, p, micros.Draw(r, "micros"))
				}
			}
			settle := func(r *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(r, "settlements") {
					ids := slices.DeleteFunc(m.of(), m.flies)
					if len(ids) == 0 {
						return
					}
					id := rapid.SampledFrom(ids).Draw(r, "call")
					m.settle(r, id, micros.Draw(r, "charge"), rapid.IntRange(0, 5).Draw(r, "void") == 0)
				}
			}
			send := func(r *rapid.T) {
				p, written := process.Draw(r, "by"), rapid.Bool().Draw(r, "written")
				switch rapid.IntRange(0, 3).Draw(r, "what") {
				case 0:
					m.sendHold(r, p, written, micros.Draw(r, "micros"))
				case 1:
					m.sendRenewals(r, p, written)
				default:
					m.sendSettlements(r, p, written, rapid.IntRange(1, 3).Draw(r, "settlements"), micros)
				}
			}
			land := func(r *rapid.T) {
				if len(m.flights) > 0 {
					m.land(r, rapid.SampledFrom(m.flights).Draw(r, "answer"))
				}
			}
			r.Repeat(map[string]func(*rapid.T){
				"calls": calls, "more calls": calls, "many calls": calls,
				"settle": settle, "settle more": settle,
				"send": send, "send more": send, "land": land, "land more": land,
				"repeat": func(r *rapid.T) {
					for _, id := range slices.Sorted(maps.Keys(m.ended)) {
						settlement := chargeOf(id, 7, 7)
						settlement.Call.Wallet = m.wallet
						settled, err := m.processes[0].book.Settle(t.Context(), settlement)
						require.NoError(r, err)
						require.Equal(r, m.ended[id], settled)
						break
					}
				},
				"everything": func(r *rapid.T) {
					free := m.fits()
					p := process.Draw(r, "by")
					if id := m.call(r, p, free+1); id != "" {
						r.Fatal("more than there is")
					}
					if free == 0 {
						return
					}
					id := m.call(r, p, free)
					if !m.stuck() {
						require.NotEmpty(r, id, "all that is free fits")
					}
					if id != "" {
						m.settle(r, id, rapid.Int64Range(0, min(free, 90)).Draw(r, "charge"), false)
					}
				},
				"withdraw": func(r *rapid.T) {
					amount := micros.Draw(r, "micros")
					m.posts++
					err := m.whileTended(r, func(ctx context.Context) error {
						_, err := process.Draw(r, "by").book.Adjust(ctx, "test", m.wallet, -amount, "why", fmt.Sprint(m.posts), "")
						return err
					})
					if errors.Is(err, ErrCreditsInTranches) {
						return
					}
					require.NoError(r, err)
					m.balance -= amount
				},
				"another budget": func(r *rapid.T) {
					if m.budget == nil || rapid.IntRange(0, 3).Draw(r, "change") > 0 {
						return
					}
					limit := m.limit + rapid.Int64Range(-100, 5000).Draw(r, "more")
					if limit < m.spent { // a lower one than what is reserved is for calls, not for tranches
						return
					}
					states, err := NewBook(db).Budgets(t.Context(), m.wallet)
					require.NoError(r, err)
					if limit < states[0].SpentMicros+states[0].ReservedMicros {
						return
					}
					_, err = NewBook(db).ChangeBudget(t.Context(), "test", m.wallet.OrgID, states[0].ID, BudgetChange{LimitMicros: &limit})
					require.NoError(r, err)
					m.limit = limit
					m.budget = &Budgeted{Version: m.budget.Version + 1}
				},
				"time": func(r *rapid.T) {
					m.advance(time.Duration(rapid.IntRange(1, 12_000).Draw(r, "milliseconds")) * time.Millisecond)
					m.tend()
				},
				"clock forward": func(r *rapid.T) {
					m.steps.forward(t, db, m.wallet)
					_, err := NewBook(m.db).Sweep(t.Context())
					require.NoError(r, err)
					for _, p := range slices.Concat(m.processes, m.stopped) {
						m.fence(p.name)
					}
					for owner := range maps.Clone(m.dead) {
						m.lapse(r, owner)
					}
				},
				"clock back": func(*rapid.T) { m.steps.back(t, db, m.wallet) },
				"kill":       func(r *rapid.T) { m.kill(rapid.IntRange(0, 2).Draw(r, "process")) },
				"hang": func(r *rapid.T) {
					m.advance(trancheLease) // for which the process does nothing
					m.lapse(r, process.Draw(r, "process").name)
				},
				"end of the leases": func(r *rapid.T) {
					for owner := range maps.Clone(m.dead) {
						m.lapse(r, owner)
					}
				},
				"restart": func(r *rapid.T) {
					place := rapid.IntRange(0, 2).Draw(r, "process")
					require.NoError(r, m.processes[place].book.tranches.Stop(t.Context()))
					m.stopped = append(m.stopped, m.processes[place])
					m.processes[place] = m.start()
				},
				"": func(r *rapid.T) {
					wallet, err := m.processes[0].book.Wallet(t.Context(), m.wallet)
					require.NoError(r, err)
					require.Equal(r, m.balance, wallet.BalanceMicros)
					require.GreaterOrEqual(r, wallet.HeldMicros, m.uses())
					require.GreaterOrEqual(r, m.limit, m.spent, "more is spent than the budget allows")
					m.requireCover(r)
				},
			})
			m.end(r)
		})
	})
}

// budgets gives the wallet a budget.
func (m *trancheBank) budgets(r *rapid.T, limit int64) {
	m.limit, m.budget = limit, &Budgeted{Version: 1}
	_, err := NewBook(m.db).CreateBudget(m.t.Context(), "test",
		Budget{Wallet: m.wallet, Owner: OwnerOrganization, Name: "n", Period: PeriodTotal, LimitMicros: limit})
	require.NoError(r, err)
}

func (m *trancheBank) credit(r *rapid.T, micros int64) {
	_, err := NewBook(m.db).Credit(m.t.Context(), "test", m.wallet, micros, "r")
	require.NoError(r, err)
	m.balance += micros
}

// end settles what can be settled and stops all processes: then nothing is held but by killed calls that held by themselves.
func (m *trancheBank) end(r *rapid.T) {
	for len(m.flights) > 0 {
		m.land(r, m.flights[0])
	}
	for _, id := range m.of() {
		m.settle(r, id, 1, false)
	}
	for _, p := range slices.Concat(m.processes, m.stopped) {
		require.NoError(r, p.book.tranches.Stop(m.t.Context()))
		require.Zero(r, p.book.tranches.Calls())
		require.Empty(r, p.book.tranches.wallets)
	}
	for owner := range maps.Clone(m.dead) {
		m.lapse(r, owner)
	}
	wallet, err := m.processes[0].book.Wallet(m.t.Context(), m.wallet)
	require.NoError(r, err)
	require.Equal(r, Wallet{BalanceMicros: m.balance, HeldMicros: m.uses()}, wallet)
	require.Zero(r, count(m.t, m.db, `SELECT count(*) FROM tranches WHERE org_id = $1`, m.wallet.OrgID))
	if m.budget != nil {
		require.Equal(r, m.limit-m.spent-m.uses(), m.budgetRoom())
	}
	requireStatement(m.t, m.db, m.wallet, m.balance)
	requireSoundBooks(r, m.db)
}
