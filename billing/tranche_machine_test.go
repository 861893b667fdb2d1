package billing

import (
	"context"
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
	// dead are the owners of processes that were killed and whose leases are not over.
	dead    map[string]bool
	balance int64
	running map[string]*runningCall
	ended   map[string]Settled
	calls   int
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
	granted bool
	// fenced: its tranche ended before it did.
	fenced bool
	// decided are the figures of a settlement whose answer was lost.
	decided *Settled
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
	tranches := newTranches(m.db, slog.New(slog.DiscardHandler))
	tranches.now = func() time.Time { return time.Unix(1_800_000_000, m.clock.Load()) }
	return &trancheProcess{book: &Book{db: m.db, tranches: tranches}, name: tranches.owner}
}

func (m *trancheBank) advance(d time.Duration) { m.clock.Add(int64(d)) }

// tend does what every living process does four times a second.
func (m *trancheBank) tend() {
	for _, p := range m.processes {
		p.book.tranches.tend(m.t.Context())
	}
}

// uses returns what calls use of the wallet at most.
func (m *trancheBank) uses() (micros int64) {
	for _, call := range m.running {
		if !call.fenced && call.decided == nil {
			micros += call.micros
		}
	}
	return micros
}

// stuck reports whether a process may be unable to give back what no call uses: it is dead, or doesn't know how a settlement ended.
func (m *trancheBank) stuck() bool {
	for _, call := range m.running {
		if call.decided != nil {
			return true
		}
	}
	return len(m.dead) > 0
}

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
			m.tend()
		}
	}
}

// call begins a call and requires that it is refused exactly when the wallet can't carry it beside the calls that run.
func (m *trancheBank) call(r *rapid.T, p *trancheProcess, micros int64) (id string) {
	m.calls++
	id = fmt.Sprintf("call_%s_%d", m.wallet.OrgID, m.calls)
	hold := holdOf(id, micros)
	hold.Wallet, hold.ExpiresIn = m.wallet, time.Hour
	err := m.whileTended(r, func(ctx context.Context) error { return refusal(p.book.Hold(ctx, hold)) })
	switch {
	case errors.Is(err, ErrCreditsInTranches):
		return ""
	case errors.Is(err, ErrInsufficientCredits):
		require.Less(r, m.balance-m.uses(), micros, "a call that fits is refused")
		return ""
	}
	require.NoError(r, err)
	require.GreaterOrEqual(r, m.balance-m.uses(), micros, "a call that doesn't fit is held")
	granted := p.book.tranches.grants[id] != nil
	m.running[id] = &runningCall{process: p, owner: p.name, micros: micros, granted: granted}
	return id
}

// settle ends a call. lost: the settlement is decided, and its process doesn't learn how.
func (m *trancheBank) settle(r *rapid.T, id string, charge int64, void, lost bool) {
	call := m.running[id]
	settlement := chargeOf(id, charge)
	settlement.Call.Wallet, settlement.Void = m.wallet, void
	settled, err := m.send(call.process, settlement, lost)
	require.NoError(r, err)
	if void {
		charge = 0
	}
	if call.decided != nil {
		require.Equal(r, *call.decided, settled, "a repeated settlement")
	} else {
		require.False(r, settled.Expired)
		require.Equal(r, charge, settled.ChargedMicros+settled.ShortfallMicros)
		require.GreaterOrEqual(r, settled.ChargedMicros, int64(0))
		if !call.fenced {
			require.GreaterOrEqual(r, settled.ChargedMicros, min(charge, call.micros), "what was held for the call is there for it")
		}
		m.balance -= settled.ChargedMicros
	}
	if lost {
		call.decided = &settled
		return
	}
	delete(m.running, id)
	m.ended[id] = settled
}

func (m *trancheBank) send(p *trancheProcess, s Settlement, lost bool) (Settled, error) {
	if !lost {
		return p.book.Settle(m.t.Context(), s)
	}
	op := &settleOp{Settlement: s}
	settling := p.book.tranches.settle(s.Call)
	if settling != nil {
		op.use = &settling.use
	}
	err := m.db.Do(m.t.Context(), Ledger, op)
	p.book.tranches.settled(settling, Settled{}, nil, store.ErrCommitUnknown)
	return op.settled, errors.Join(err, op.refused)
}

// fence marks the calls that a process held from tranches.
func (m *trancheBank) fence(owner string) {
	for _, call := range m.running {
		call.fenced = call.fenced || (call.granted && call.owner == owner)
	}
}

// lapse lets the leases of a process run out.
func (m *trancheBank) lapse(r *rapid.T, owner string) {
	execute(m.t, m.db, `UPDATE tranches SET lease_until = 1 WHERE owner = $1 AND status <> 'ended'`, owner)
	_, err := NewBook(m.db).Sweep(m.t.Context())
	require.NoError(r, err)
	m.fence(owner)
	delete(m.dead, owner)
}

// kill ends a process without a word. Its calls never settle.
func (m *trancheBank) kill(place int) {
	killed := m.processes[place]
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

// TestRandomTranches drives random histories of three processes that share a wallet: calls, lost answers, kills, leases that run out,
// restarts. No call that fits is refused, none that doesn't fit is held, what is held for a call is there for it, and the books are
// sound.
func TestRandomTranches(t *testing.T) {
	var organizations atomic.Int64
	eachEngine(t, func(t *testing.T, db *store.DB, _ *Book) {
		rapid.Check(t, func(r *rapid.T) {
			m := newTrancheBank(t, db, fmt.Sprintf("org_%d", organizations.Add(1)))
			makeOrganization(t, db, m.wallet.OrgID)
			m.credit(r, 100_000)
			process := rapid.Custom(func(r *rapid.T) *trancheProcess { return m.processes[rapid.IntRange(0, 2).Draw(r, "process")] })
			micros := rapid.Int64Range(1, 60)
			calls := func(r *rapid.T) {
				p := process.Draw(r, "by")
				for range rapid.IntRange(1, 6).Draw(r, "calls") {
					m.call(r, p, micros.Draw(r, "micros"))
				}
			}
			settle := func(r *rapid.T) {
				ids := m.of()
				for range min(len(ids), rapid.IntRange(1, 4).Draw(r, "settlements")) {
					id := rapid.SampledFrom(m.of()).Draw(r, "call")
					m.settle(r, id, micros.Draw(r, "charge"), rapid.IntRange(0, 5).Draw(r, "void") == 0, rapid.IntRange(0, 5).Draw(r, "lost") == 0)
				}
			}
			r.Repeat(map[string]func(*rapid.T){
				"calls": calls, "more calls": calls, "many calls": calls,
				"settle": settle, "settle more": settle,
				"repeat": func(r *rapid.T) {
					for _, id := range slices.Sorted(maps.Keys(m.ended)) {
						settlement := chargeOf(id, 7)
						settlement.Call.Wallet = m.wallet
						settled, err := m.processes[0].book.Settle(t.Context(), settlement)
						require.NoError(r, err)
						require.Equal(r, m.ended[id], settled)
						break
					}
				},
				"everything": func(r *rapid.T) {
					free := m.balance - m.uses()
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
						m.settle(r, id, rapid.Int64Range(0, min(free, 90)).Draw(r, "charge"), false, false)
					}
				},
				"withdraw": func(r *rapid.T) {
					amount := micros.Draw(r, "micros")
					err := m.whileTended(r, func(ctx context.Context) error {
						_, err := process.Draw(r, "by").book.Adjust(ctx, "test", m.wallet, -amount, "why", "")
						return err
					})
					if errors.Is(err, ErrCreditsInTranches) {
						return
					}
					require.NoError(r, err)
					m.balance -= amount
				},
				"time": func(r *rapid.T) {
					m.advance(time.Duration(rapid.IntRange(1, 12_000).Draw(r, "milliseconds")) * time.Millisecond)
					m.tend()
				},
				"kill": func(r *rapid.T) { m.kill(rapid.IntRange(0, 2).Draw(r, "process")) },
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
					m.fence(m.processes[place].name)
				},
				"": func(r *rapid.T) {
					wallet, err := m.processes[0].book.Wallet(t.Context(), m.wallet)
					require.NoError(r, err)
					require.Equal(r, m.balance, wallet.BalanceMicros)
					require.GreaterOrEqual(r, wallet.HeldMicros, m.uses())
				},
			})
			m.end(r)
		})
	})
}

func (m *trancheBank) credit(r *rapid.T, micros int64) {
	_, err := NewBook(m.db).Credit(m.t.Context(), "test", m.wallet, micros, "")
	require.NoError(r, err)
	m.balance += micros
}

// end settles what can be settled and stops all processes: then nothing is held but by killed calls that held by themselves.
func (m *trancheBank) end(r *rapid.T) {
	for _, id := range m.of() {
		m.settle(r, id, 1, false, false)
	}
	for _, p := range m.processes {
		require.NoError(r, p.book.tranches.Stop(m.t.Context()))
		require.Zero(r, p.book.tranches.Calls())
	}
	for owner := range maps.Clone(m.dead) {
		m.lapse(r, owner)
	}
	wallet, err := m.processes[0].book.Wallet(m.t.Context(), m.wallet)
	require.NoError(r, err)
	require.Equal(r, Wallet{BalanceMicros: m.balance, HeldMicros: m.uses()}, wallet)
	requireSoundTranches(m.t, m.db)
}

// requireSoundTranches is requireSoundBooks, and looks at tranches that have ended a moment ago, too.
func requireSoundTranches(t *testing.T, db *store.DB) {
	t.Helper()
	execute(t, db, `UPDATE tranches SET ended_at = 1 WHERE status = 'ended'`)
	requireSoundBooks(t, db)
}
