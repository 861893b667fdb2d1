package billing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// tranchePause is about the time between two looks at the tranches.
	tranchePause = 250 * time.Millisecond
	// trancheIdle is how long a tranche keeps what no call uses after its last call.
	trancheIdle = time.Second
	// trancheRenewal is the age of a lease at which it is renewed; settlements do so on the way. It bounds how long a process that needs
	// what others don't use waits for them.
	trancheRenewal = 2 * time.Second
	// trancheGood is the age of a lease after which nothing more is granted: it must not end while a call has just begun.
	trancheGood = 8 * time.Second
	// trancheGrace is how much longer than a hold a call may use its part of a tranche: its settlement is given up before.
	trancheGrace = time.Minute
	// trancheStop bounds the return of all tranches when the process ends.
	trancheStop = 2 * time.Second
	// trancheTimeout bounds every write for tranches; it is repeated after the next pause.
	trancheTimeout = 5 * time.Second
	// trancheSlow is how long a settlement takes when no more calls are granted while slowCalls, a full transaction, are held from
	// tranches. Else calls would be granted faster than the store writes how they end, and a settlement that isn't written in time is
	// lost; a hold is refused before the provider works.
	trancheSlow = 500 * time.Millisecond
	slowCalls   = 256
	// tendedAtOnce is how many tranches one transaction renews or returns.
	tendedAtOnce = 64
)

// Tranches are parts of wallets that this process holds, to hold the amounts of its calls from them in memory: such a call needs
// one commit, its settlement, instead of two. A wallet's first call within a second holds by itself, so that rare calls take none;
// so do calls with an Idempotency-Key, and calls for which the tranche is too small. What is in a tranche counts as held. What no call
// uses goes back a second after the last call, when another process needs it, and when the process ends; of a process that was killed,
// or hangs, [Book.Sweep] or the one that needs it takes it back when its lease of 10 s is over.
//
// What a process still needs is not sent to the store: whoever decides an operation asks this memory under the wallet's lock ([ride]). The
// memory may be lost at any moment without harm to a wallet: a call whose tranche has ended pays from the free balance.
type Tranches struct {
	db    *store.DB
	owner string
	log   *slog.Logger
	task  *repeat.Task
	now   func() time.Time
	// failing: the last look failed. Only tend uses it.
	failing bool
	// begun has a token when there may be tranches to look at again.
	begun chan struct{}

	mu sync.Mutex
	// off: nothing is granted or asked for.
	off bool
	// faulty: the last write for a tranche failed. Calls hold by themselves until one succeeds, so that a store which can't write
	// refuses them before a provider works for nothing.
	faulty  bool
	wallets map[WalletID]*tranche
	grants  map[string]*grant // by call
	took    time.Duration     // by the last settlement of a grant, or renewal, that was written
}

// tranche is a tranche in the memory of the process that has it. In the books it has at least unused and inUse: a commit of unknown outcome
// leaves more there, which goes back with the next return.
type tranche struct {
	id     string
	wallet WalletID
	open   bool // it is in the books, or may be

	// unused, inUse and coming are micros; coming was got, which isn't known to be written.
	unused, inUse, coming int64
	// returned is how often what was unused was given back. What an operation brought is usable unless that happened since its decision.
	returned         int
	grants           int // calls that use it
	usedAt, leasedAt time.Time
}

// grant is the amount of one call, held from a tranche.
type grant struct {
	call    string
	tranche *tranche
	micros  int64
	until   time.Time
	// ended is the settlement that was decided first: its part of the tranche is in use no longer.
	ended *ride
}

// ride is what an operation carries for a tranche of its process. It is decided with the operation, under the wallet's lock, and undone when
// its transaction failed. That is all that the ledger keeps between transactions.
type ride struct {
	of      *Tranches
	tranche *tranche
	sentAt  time.Time
	grant   *grant // whose call a settlement ends; nil for others
	asks    int64  // the amount of a call for which more is wanted, 0 for none
	returns bool   // what is unused goes back

	// The decision.
	gave, got, rest int64 // micros given back, got, and left of the call's amount
	opened          bool  // the tranche was made
	gone            bool  // it is not in the books
	returned        int   // tranche.returned then
}

// StartTranches lets the book hold calls from tranches. It must be called before the book is used, once, and stopped at the end.
func (b *Book) StartTranches(log *slog.Logger) *Tranches {
	t := newTranches(b.db, log)
	t.task = repeat.Start(tranchePause, t.round)
	b.tranches = t
	return t
}

func newTranches(db *store.DB, log *slog.Logger) *Tranches {
	return &Tranches{
		db: db, owner: store.NewID("own"), log: log, now: time.Now, wallets: map[WalletID]*tranche{}, grants: map[string]*grant{},
		begun: make(chan struct{}, 1),
	}
}

// Allow switches tranches on, as they are at first, or off: then every call holds by itself, and the tranches go back as their calls
// end.
func (t *Tranches) Allow(on bool) {
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

// Stop gives back what no call uses. A call that settles later pays from what it still has there, and after the lease from the free balance.
// The error is one of writing; then the leases end by themselves. It waits 2 s at most, and may be called again.
func (t *Tranches) Stop(ctx context.Context) error {
	t.task.Stop()
	t.Allow(false)
	ctx, cancel := context.WithTimeout(ctx, trancheStop)
	defer cancel()
	return t.do(ctx, t.due(t.now()))
}

// hold holds a call from a tranche if one has enough. Otherwise r is what the call's own hold is to carry, nil for nothing.
func (t *Tranches) hold(h Hold) (granted bool, r *ride, err error) {
	if h.Claim != nil || h.AmountMicros <= 0 {
		return false, nil, nil
	}
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.grants[h.CallID]; g != nil {
		return true, nil, repeats(h, g.tranche.wallet, g.micros)
	}
	if t.off {
		return false, nil, nil
	}
	known := t.wallets[h.Wallet]
	if known == nil {
		t.wallets[h.Wallet] = &tranche{id: store.NewID("trc"), wallet: h.Wallet, usedAt: now}
		select {
		case t.begun <- struct{}{}:
		default:
		}
		return false, nil, nil
	}
	known.usedAt = now
	slow := t.took > trancheSlow && len(t.grants) >= slowCalls
	if known.unused < h.AmountMicros || now.Sub(known.leasedAt) > trancheGood || t.faulty || slow {
		return false, &ride{of: t, tranche: known, sentAt: now, asks: h.AmountMicros}, nil
	}
	known.unused -= h.AmountMicros
	known.inUse += h.AmountMicros
	known.grants++
	t.grants[h.CallID] = &grant{call: h.CallID, tranche: known, micros: h.AmountMicros, until: now.Add(h.ExpiresIn + trancheGrace)}
	return true, nil, nil
}

// returning returns what gives a wallet back what this process doesn't use of it, nil if it has no tranche.
func (t *Tranches) returning(wallet WalletID) *ride {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.wallets[wallet]
	if known == nil {
		return nil
	}
	return &ride{of: t, tranche: known, sentAt: t.now(), returns: true}
}

// settle returns what the settlement of a call carries, nil for a call that isn't held from a tranche. A tranche with less unused than in
// use asks for more; once tranches are off, nobody else may come to return the rest.
func (t *Tranches) settle(call Call) *ride {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.grants[call.ID]
	if g == nil || g.tranche.wallet != call.Wallet {
		return nil
	}
	r := &ride{of: t, tranche: g.tranche, sentAt: t.now(), grant: g, returns: t.off}
	if !t.off && g.tranche.unused < g.tranche.inUse {
		r.asks = g.micros
	}
	return r
}

// undo takes back what was decided, since its transaction failed. What was given back is usable again unless more was given back since.
func (r *ride) undo() {
	if r == nil {
		return
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	t := r.tranche
	t.coming -= r.got
	if r.gave > 0 && r.returned == t.returned {
		t.unused += r.gave
	}
	if r.opened {
		t.open = false
	}
	if g := r.grant; g != nil && g.ended == r {
		g.ended = gaveUp
		if r.of.grants[g.call] == g {
			g.ended = nil
			t.inUse += g.micros
		}
	}
	r.clear()
}

// clear ends a decision that was undone, or whose outcome has been taken over.
func (r *ride) clear() { r.gave, r.got, r.rest, r.opened, r.gone = 0, 0, 0, false, false }

// repeats reports whether a settlement of the call was decided and isn't known to have failed: then its row may exist.
func (r *ride) repeats() bool {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	return r.grant != nil && r.grant.ended != nil
}

// endGrant ends the use of a tranche by a call in the first of its settlements, which it reports.
func (r *ride) endGrant() (first bool) {
	if r == nil || r.grant == nil {
		return false
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if r.grant.ended != nil {
		return false
	}
	r.grant.ended = r
	r.tranche.inUse -= r.grant.micros
	return true
}

// answer takes over what was written, or the fault of the operation. After one of unknown outcome nothing of it is usable: what it left in
// the books goes back with the next return.
func (r *ride) answer(fault error) {
	if r == nil {
		return
	}
	t := r.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.grant != nil || r.asks == 0 {
		t.faulty = fault != nil
	}
	switch {
	case errors.Is(fault, store.ErrCommitUnknown):
		r.tranche.coming -= r.got
	case fault == nil:
		r.written()
	}
	r.clear()
}

func (r *ride) written() {
	t, known := r.of, r.tranche
	known.coming -= r.got
	if r.returned == known.returned {
		known.unused += r.got + r.rest
	}
	known.leasedAt = later(known.leasedAt, r.sentAt)
	if r.grant != nil {
		known.usedAt = later(known.usedAt, r.sentAt)
		t.forget(r.grant)
	}
	if r.grant != nil || r.asks == 0 {
		t.took = t.now().Sub(r.sentAt)
	}
	if r.gone && t.wallets[known.wallet] == known {
		delete(t.wallets, known.wallet)
	}
}

// later returns the later of two moments: answers come in any order, and the slower the store is, the older they are.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forget ends a grant that is known to be settled, or was given up.
func (t *Tranches) forget(g *grant) {
	if t.grants[g.call] == g {
		delete(t.grants, g.call)
		g.tranche.grants--
	}
}
