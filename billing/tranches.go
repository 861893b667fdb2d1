package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// tranchePause is about the time between two looks at the tranches: it bounds how long a process that asks for a tranche back
	// waits for the one that has it.
	tranchePause = 250 * time.Millisecond
	// trancheIdle is how long a tranche is kept after its last call.
	trancheIdle = time.Second
	// trancheRenewal is the age of a lease at which it is renewed; settlements do so on the way.
	trancheRenewal = 3 * time.Second
	// trancheGood is the age of a lease after which nothing more is granted: it must not end while a call has just begun.
	trancheGood = 8 * time.Second
	// trancheRest is how long a tranche that was recalled stays in the books, so that no other is taken of its wallet meanwhile.
	trancheRest = 10 * time.Second
	// trancheGrace is how much longer than a hold a call may use its part of a tranche: its settlement is given up before.
	trancheGrace = time.Minute
	// trancheStop bounds the return of all tranches when the process ends.
	trancheStop = 2 * time.Second
	// trancheTimeout bounds every write for tranches; it is repeated after the next pause.
	trancheTimeout = 5 * time.Second
	// trancheCalls is how many calls like the one that asks a new tranche is for.
	trancheCalls = 8
	// trancheSlow is how long a settlement takes when no more calls are granted while slowCalls, a full transaction, are held from
	// tranches. Else calls would be granted faster than the store writes how they end, and a settlement that isn't written in time is
	// lost; a hold is refused before the provider works.
	trancheSlow = 500 * time.Millisecond
	slowCalls   = 256
)

// Tranches are parts of wallets that this process holds, to hold the amounts of its calls from them in memory: such a call needs
// one commit, its settlement, instead of two. A wallet's first call within a second holds by itself, so that rare calls take none;
// so do calls with an Idempotency-Key, and calls for which the tranche is too small. What is in a tranche counts as held. It goes
// back a second after the last call, when another process needs it, and when the process ends; of a process that was killed, or
// hangs, [Book.Sweep] or the one that needs it takes it back when its lease of 10 s is over.
//
// Everything here may be lost at any moment without harm to a wallet: the books never let a call have more than its tranche still
// holds there, and what is above it comes from the free balance.
type Tranches struct {
	db    *store.DB
	owner string
	log   *slog.Logger
	task  *repeat.Task
	now   func() time.Time
	// failing: the last look failed. Only tend uses it.
	failing bool

	mu sync.Mutex
	// off: nothing is granted or taken.
	off bool
	// faulty: the last write for a tranche failed. Calls hold by themselves until one succeeds, so that a store which can't write
	// refuses them before a provider works for nothing.
	faulty bool
	// wallets are the newest tranche of each wallet, all those that the process must still give back.
	wallets map[WalletID]*tranche
	all     map[*tranche]bool
	grants  map[string]*grant // by call
	took    time.Duration     // by the last settlement of a grant, or operation on a tranche, that was written
}

// trancheStep is what a tranche is doing in its process.
type trancheStep int

const (
	trancheAsked    trancheStep = iota // it isn't in the books yet: a first call has been seen
	trancheGranting                    // calls are granted from it
	trancheGiving                      // recalled: what no call uses is to be given back
	trancheResting                     // given back; it ends when its calls have, after a rest
	trancheEnding
)

// tranche is a tranche in the memory of the process that has it. In the books it holds at least unused and inUse together: a commit
// of unknown outcome, or a call that was given up, leaves more there, which goes back when the tranche ends.
type tranche struct {
	id     string
	wallet WalletID
	step   trancheStep

	unused, inUse int64 // micros
	grants        int   // calls that use it
	// asking: a hold, or a settlement, is on its way that asks for more. Where commits are slow the hold is so for seconds, and settlements,
	// which go before it, don't wait for what it gets.
	asking [riders]bool
	// deciding counts the operations that were sent before a recall was seen and are not answered: each may still bring something
	// that no call uses.
	deciding int
	// settling counts the calls whose settlement was sent, and sent the settlements.
	settling, sent int
	// doubt: the books may hold more for it than is known here, because an answer was lost.
	doubt bool

	usedAt, leasedAt, restsAt time.Time
}

// renewed notes that an operation renewed the lease. A settlement goes before a hold that was sent earlier, so its answer may come first.
func (r *tranche) renewed(sent time.Time) {
	if sent.After(r.leasedAt) {
		r.leasedAt = sent
	}
}

// grant is the amount of one call, held from a tranche.
type grant struct {
	tranche *tranche
	micros  int64
	until   time.Time
	// deciding and sent: it is counted in deciding and settling of its tranche. settling: a settlement is on its way.
	deciding, sent, settling bool
}

// StartTranches lets the book hold calls from tranches. It must be called before the book is used, once, and stopped at the end.
func (b *Book) StartTranches(log *slog.Logger) *Tranches {
	t := newTranches(b.db, log)
	t.task = repeat.Start(tranchePause, t.tend)
	b.tranches = t
	return t
}

func newTranches(db *store.DB, log *slog.Logger) *Tranches {
	return &Tranches{
		db: db, owner: store.NewID("own"), log: log, now: time.Now,
		wallets: map[WalletID]*tranche{}, all: map[*tranche]bool{}, grants: map[string]*grant{},
	}
}

// Allow switches tranches on, as they are at first, or off: then every call holds by itself, and the tranches go back as their calls
// end. A nil Tranches is off for ever.
func (t *Tranches) Allow(on bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.off = !on
}

// Calls returns how many calls of this process are held from tranches.
func (t *Tranches) Calls() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.grants)
}

// Stop gives all tranches back. Calls that have not settled by then pay from the free balance. The error is one of writing; then the
// leases end by themselves. It waits 2 s at most, may be called again, and for nil.
func (t *Tranches) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.task.Stop()
	t.mu.Lock()
	t.off = true
	var ends []*trancheWork
	for tranche := range t.all {
		if tranche.id != "" {
			tranche.step = trancheEnding
			ends = append(ends, tranche.work(endTranche, t.now()))
		}
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, trancheStop)
	defer cancel()
	return t.do(ctx, ends)
}

// hold holds a call from a tranche, if there is one that can.
func (t *Tranches) hold(h Hold) (granted bool, err error) {
	if t == nil || h.Claim != nil || h.AmountMicros <= 0 {
		return false, nil
	}
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.grants[h.CallID]; known != nil {
		if known.micros != h.AmountMicros || known.tranche.wallet != h.Wallet {
			return false, fmt.Errorf("%w: the call id already names another hold", ErrInvalid)
		}
		return true, nil
	}
	tranche := t.wallets[h.Wallet]
	if t.off || t.faulty || t.full() || tranche == nil || !tranche.canGrant(h.AmountMicros, now) {
		return false, nil
	}
	tranche.unused -= h.AmountMicros
	tranche.inUse += h.AmountMicros
	tranche.grants++
	tranche.usedAt = now
	t.grants[h.CallID] = &grant{tranche: tranche, micros: h.AmountMicros, until: now.Add(h.ExpiresIn + trancheGrace)}
	return true, nil
}

// full reports whether the store is too slow for more calls than are granted.
func (t *Tranches) full() bool { return t.took >= trancheSlow && len(t.grants) >= slowCalls }

func (r *tranche) canGrant(micros int64, now time.Time) bool {
	return r.step == trancheGranting && r.unused >= micros && now.Sub(r.leasedAt) < trancheGood
}

// take returns what a call that holds by itself takes along for the next ones, nil for nothing. [Tranches.taken] must follow.
func (t *Tranches) take(h Hold) *taking {
	if t == nil || h.Claim != nil || h.AmountMicros <= 0 {
		return nil
	}
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.off {
		return nil
	}
	known := t.wallets[h.Wallet]
	if known == nil {
		known = &tranche{wallet: h.Wallet, usedAt: now}
		t.wallets[h.Wallet], t.all[known] = known, true
		return nil
	}
	known.usedAt = now
	return t.takeMore(known, byHold, h.AmountMicros, now)
}

// takeMore asks for twice as much as calls use now, since what they cost is drawn while as many come again, and for some more calls of
// this size.
func (t *Tranches) takeMore(r *tranche, by rider, micros int64, now time.Time) *taking {
	if r.asking[by] || r.step > trancheGranting {
		return nil
	}
	asked := &take{id: r.id, owner: t.owner, want: 2*r.inUse + trancheCalls*micros - r.unused, least: 1}
	if asked.want <= 0 {
		return nil
	}
	if r.step == trancheAsked {
		asked.id, asked.opens, asked.least = store.NewID("trc"), true, micros
		r.id = asked.id
	}
	r.asking[by] = true
	r.deciding++
	return &taking{take: asked, tranche: r, by: by, at: now}
}

// taking is a take that is on its way.
type taking struct {
	*take
	tranche *tranche
	by      rider
	at      time.Time
}

// rider is the operation that a take rides on.
type rider int

const (
	byHold rider = iota
	bySettlement
	riders
)

// taken ends a take with the decision, or the fault of the operation that it rode on.
func (t *Tranches) taken(asked *taking, fault error) {
	if asked == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := asked.tranche
	r.asking[asked.by] = false
	r.deciding--
	switch {
	case errors.Is(fault, store.ErrCommitUnknown) && asked.opens:
		r.step = trancheEnding // if it is in the books
	case errors.Is(fault, store.ErrCommitUnknown):
		r.doubt = true
	case fault == nil && asked.got > 0:
		r.unused += asked.got
		r.renewed(asked.at)
		if asked.opens {
			r.step = trancheGranting
		}
	case asked.opens:
		r.id = ""
	}
}

// settle returns the use that a settlement ends, nil for a call that isn't held from a tranche. [Tranches.settled] must follow.
func (t *Tranches) settle(call Call) *settling {
	if t == nil {
		return nil
	}
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.grants[call.ID]
	if g == nil || g.tranche.wallet != call.Wallet {
		return nil
	}
	r := g.tranche
	g.settling = true
	r.sent++
	if !g.sent {
		g.sent = true
		r.settling++
		if g.deciding = r.step == trancheGranting; g.deciding {
			r.deciding++
		}
	}
	s := &settling{grant: g, call: call.ID, at: now, use: use{tranche: r.id, micros: g.micros}}
	if !t.off && r.step == trancheGranting && r.unused < r.inUse {
		if s.taking = t.takeMore(r, bySettlement, g.micros, now); s.taking != nil {
			s.take = s.taking.take
		}
	}
	return s
}

// settling is the end of a grant on its way.
type settling struct {
	use
	grant  *grant
	taking *taking
	call   string
	at     time.Time
}

// settled ends a settlement's use with the decision; after a fault of the store the call still uses it, and may be settled again.
func (t *Tranches) settled(s *settling, charged Settled, refused, fault error) {
	if s == nil {
		return
	}
	t.taken(s.taking, fault)
	t.mu.Lock()
	defer t.mu.Unlock()
	g, r := s.grant, s.grant.tranche
	g.settling = false
	t.faulty = fault != nil
	switch {
	case errors.Is(fault, store.ErrCommitUnknown):
		return
	case fault != nil: // nothing was written
		t.unsend(g)
		return
	case t.grants[s.call] != g:
		return // another settlement of the call has ended it
	}
	t.took = t.now().Sub(s.at)
	t.release(s.call)
	if r.usedAt = s.at; !s.repeated {
		r.renewed(s.at)
	}
	switch {
	case refused != nil || (s.repeated && s.status != trancheOpen):
		// Whether the wallet has got the rest isn't known.
		r.doubt = true
	case s.status == trancheOpen:
		r.unused += g.micros - (charged.ChargedMicros - charged.ExtraMicros)
	}
	t.observe(r, s.status)
}

// release forgets the grant of a call.
func (t *Tranches) release(call string) {
	g := t.grants[call]
	delete(t.grants, call)
	g.tranche.inUse -= g.micros
	g.tranche.grants--
	t.unsend(g)
}

// unsend takes a settlement off the counts of its tranche.
func (t *Tranches) unsend(g *grant) {
	if g.deciding {
		g.tranche.deciding--
	}
	if g.sent {
		g.tranche.settling--
	}
	g.deciding, g.sent = false, false
}

// observe takes the status of a tranche in the books over.
func (t *Tranches) observe(r *tranche, status trancheStatus) {
	switch {
	case status == trancheEnded:
		t.forget(r)
	case status == trancheRecalled && r.step == trancheGranting:
		r.step = trancheGiving
	}
}

func (t *Tranches) forget(r *tranche) {
	r.step, r.unused = trancheEnding, 0
	delete(t.all, r)
	if t.wallets[r.wallet] == r {
		delete(t.wallets, r.wallet)
	}
}
