package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// tranchePause is the approximate time between two checks of the tranches.
	tranchePause = 250 * time.Millisecond
	// trancheIdle is the time after the last call for which a tranche keeps its unused part.
	trancheIdle = time.Second
	// trancheRenewal is the age at which a lease is renewed, unless a settlement has renewed it. It limits the time for which a
	// process waits for the unused parts of other processes.
	trancheRenewal = 2 * time.Second
	// trancheGood is the age of a lease from which no call is held from the tranche, because the lease must not end while a call
	// has just begun.
	trancheGood = 8 * time.Second
	// trancheGrace is the time for which a call may use its part of a tranche after the end of its hold. The process gives up
	// its settlement earlier.
	trancheGrace = time.Minute
	// trancheStop limits the return of all tranches when the process ends.
	trancheStop = 2 * time.Second
	// trancheTimeout limits the writes of one check. A failed write is repeated at the next check.
	trancheTimeout = 5 * time.Second
	// trancheSlow is the duration of a settlement from which no more calls are granted while slowCalls, a full transaction, are held from
	// tranches. Otherwise calls would be granted faster than the store writes their ends, and a settlement that isn't written in time is lost. A
	// hold is refused before the provider works.
	trancheSlow = 500 * time.Millisecond
	slowCalls   = 256
	// tendedAtOnce is the number of tranches that one transaction renews or returns.
	tendedAtOnce = 64
)

// Tranches are parts of wallets that this process holds, to hold the amounts of its calls from them in memory. A call that is held from a tranche
// needs one commit, its settlement, instead of two. The first call of a wallet after a second without calls has a hold of its own, so that rare
// calls open no tranche. So have calls with an Idempotency-Key, and calls for which the tranche is too small. All of a tranche counts as held.
// Unused credits go back a second after the last call, when another process needs them, and when the process ends. If the process was killed or
// hangs, [Book.Sweep] or a process that needs the credits releases the tranche after its lease of 10 s.
//
// The need of a process is not sent to the store. The decision on an operation reads this memory under the wallet's lock ([ride]). The memory may
// be lost at any moment without harm to a wallet, because a call of a tranche that has ended pays from the free balance.
type Tranches struct {
	db    *store.DB
	owner string
	log   *slog.Logger
	task  *repeat.Task
	now   func() time.Time
	// failing means that the last check failed. Only tend uses it.
	failing bool
	// begun has a token if there may be new tranches.
	begun chan struct{}

	mu sync.Mutex
	// off means that no call is held from a tranche, and that no tranche grows.
	off bool
	// faulty means that the last write for a tranche failed. Calls have holds of their own until a write succeeds, so that a store
	// that can't write refuses them before a provider works for nothing.
	faulty  bool
	wallets map[trancheKey]*tranche
	grants  map[string]*grant // by call id
	took    time.Duration     // duration of the last written settlement of a grant, or of a renewal
}

// trancheKey names the calls that a tranche is for: the calls of an organization without budgets that spend a wallet, or the calls of an API
// key or an assistant while no budget has been changed.
type trancheKey struct {
	wallet         WalletID
	keyID, agentID string
	version        int64
}

// tranche is a tranche in the memory of its process. Its row contains unused and inUse or more: a commit of unknown outcome
// leaves more in the row, which the next return releases.
type tranche struct {
	trancheKey

	id   string
	open bool // its row exists or may exist
	// budgets are the names of the periods in which it is reserved. No call is held from it from the moment until on, when one of them or a rise
	// ends. It is zero if none ends.
	budgets string
	until   time.Time

	// unused, inUse and coming are amounts in micros. coming was added by decisions that aren't known to be written.
	unused, inUse, coming int64
	// returned counts how often unused credits were given back. Credits from an operation are usable unless it has grown since the operation's
	// decision.
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
	// ended is the first settlement that was decided, or gaveUp. After that the amount is no longer in use.
	ended *ride
}

// ride is the part of an operation that concerns a tranche of its process. It is decided with the operation, under the wallet's lock, and undone
// if the transaction failed. The ledger keeps nothing else between transactions.
type ride struct {
	of      *Tranches
	tranche *tranche
	sentAt  time.Time
	grant   *grant // of the call that a settlement ends; may be nil
	asks    int64  // the amount of a call that needs more, or 0
	returns bool   // the unused part is returned

	// The decision.
	gave, got, rest int64 // micros that were released, added, and left of the call's amount
	opened          bool  // the tranche was created
	gone            bool  // the row doesn't exist
	returned        int   // tranche.returned at the decision
}

// StartTranches lets the book hold calls from tranches. It must be called once, before the book is used. The caller stops the
// tranches at the end.
func (b *Book) StartTranches(log *slog.Logger) *Tranches {
	t := newTranches(b.db, log)
	t.task = repeat.Start(tranchePause, t.round)
	b.tranches = t
	return t
}

func newTranches(db *store.DB, log *slog.Logger) *Tranches {
	return &Tranches{
		db: db, owner: store.NewID("own"), log: log, now: time.Now, wallets: map[trancheKey]*tranche{}, grants: map[string]*grant{},
		begun: make(chan struct{}, 1),
	}
}

// Allow switches tranches on, their initial state, or off. While they are off, every call has a hold of its own, and the tranches
// are returned as their calls end.
func (t *Tranches) Allow(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.off = !on
}

// Calls returns the number of this process's calls that are held from tranches.
func (t *Tranches) Calls() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.grants)
}

// Stop gives unused credits back. A call that settles later pays from the rest of its tranche, and after the lease from the free balance. After an
// error of writing the leases end by themselves. It waits for up to 2 s, and may be called again.
func (t *Tranches) Stop(ctx context.Context) error {
	t.task.Stop()
	t.Allow(false)
	ctx, cancel := context.WithTimeout(ctx, trancheStop)
	defer cancel()
	return t.do(ctx, t.due(t.now()))
}

// hold holds a call from a tranche with enough credits. Otherwise r is the ride of the call's own hold, nil if it has none.
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
	key := trancheKey{wallet: h.Wallet}
	if h.Budgets != nil {
		key.keyID, key.agentID, key.version = h.Budgets.KeyID, h.Budgets.AgentID, h.Budgets.Version
	}
	known := t.wallets[key]
	if known == nil {
		t.wallets[key] = &tranche{id: store.NewID("trc"), trancheKey: key, usedAt: now}
		select {
		case t.begun <- struct{}{}:
		default:
		}
		return false, nil, nil
	}
	known.usedAt = now
	slow := t.took > trancheSlow && len(t.grants) >= slowCalls
	if known.unused < h.AmountMicros || now.Sub(known.leasedAt) > trancheGood || known.isOver(now) || t.faulty || slow {
		return false, &ride{of: t, tranche: known, sentAt: now, asks: h.AmountMicros}, nil
	}
	known.unused -= h.AmountMicros
	known.inUse += h.AmountMicros
	known.grants++
	if h.Budgets != nil {
		h.Budgets.periods = known.budgets
	}
	t.grants[h.CallID] = &grant{call: h.CallID, tranche: known, micros: h.AmountMicros, until: now.Add(h.ExpiresIn + trancheGrace)}
	return true, nil, nil
}

// isOver reports whether a period or a rise of the tranche has ended.
func (t *tranche) isOver(now time.Time) bool { return !t.until.IsZero() && !now.Before(t.until) }

// returning returns rides that give this process's unused credits back to a wallet, one of each tranche.
func (t *Tranches) returning(wallet WalletID) (rides []*ride) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, known := range t.wallets {
		if key.wallet == wallet {
			rides = append(rides, &ride{of: t, tranche: known, sentAt: t.now(), returns: true})
		}
	}
	return rides
}

// names returns the names of the periods of the ride's tranche.
func (r *ride) names() string {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	return r.tranche.budgets
}

// settle returns the ride of a call's settlement, or nil if the call isn't held from a tranche. The ride requests credits for a tranche with less
// unused than in use. After tranches were switched off it returns the unused part, because no later operation might do so.
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

// undo reverses a decision after its transaction failed. Credits that the decision gave back are usable again unless more was given back since.
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

// clear ends a decision after it was undone or its outcome was added to the memory.
func (r *ride) clear() { r.gave, r.got, r.rest, r.opened, r.gone = 0, 0, 0, false, false }

// repeats reports whether a settlement of the call was decided and isn't known to have failed. The call's row may then exist.
func (r *ride) repeats() bool {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	return r.grant != nil && r.grant.ended != nil
}

// endGrant ends the use of a tranche by a call. It reports whether this is the call's first settlement.
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

// answer adds the outcome of an operation to the memory. After an unknown outcome none of its credits are usable. They remain in the books until
// the next return.
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
	if r.gone && t.wallets[known.trancheKey] == known {
		delete(t.wallets, known.trancheKey)
	}
}

// later returns the later of two moments, because operations end in any order, and a slow store ends them late.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forget drops a grant that is known to be settled, or that was given up.
func (t *Tranches) forget(g *grant) {
	if t.grants[g.call] == g {
		delete(t.grants, g.call)
		g.tranche.grants--
	}
}

// gaveUp marks a grant that was given up without a settlement.
var gaveUp = &ride{}

// round maintains the tranches once, and waits while there are none.
func (t *Tranches) round(ctx context.Context) {
	t.tend(ctx)
	for !t.any() {
		select {
		case <-t.begun:
		case <-ctx.Done():
			return
		}
	}
}

// tend returns idle tranches and renews other leases that are old enough.
func (t *Tranches) tend(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, trancheTimeout)
	defer cancel()
	err := t.do(bounded, t.due(t.now()))
	switch {
	case ctx.Err() != nil || (err != nil) == t.failing:
	case err != nil:
		t.failing = true
		t.log.ErrorContext(ctx, "tranches of wallets could not be kept; their leases may end", "error", err)
	default:
		t.failing = false
		t.log.InfoContext(ctx, "tranches of wallets are kept again")
	}
}

// any reports whether this process has tranches, or calls that are held from them.
func (t *Tranches) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.wallets)+len(t.grants) > 0
}

// due returns the rides of the tranches that must be returned or renewed now, and gives up calls long after their holds would have expired.
func (t *Tranches) due(now time.Time) (due []*ride) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.grants {
		if !now.After(g.until) {
			continue
		}
		if g.ended == nil {
			g.ended = gaveUp
			g.tranche.inUse -= g.micros
		}
		t.forget(g)
	}
	for key, known := range t.wallets {
		idle := t.off || now.Sub(known.usedAt) > trancheIdle || known.isOver(now)
		switch {
		case !known.open:
			if idle && known.coming == 0 {
				delete(t.wallets, key)
			}
		case idle && (known.unused > 0 || known.inUse == 0):
			due = append(due, &ride{of: t, tranche: known, sentAt: now, returns: true})
		case now.Sub(known.leasedAt) > trancheRenewal || t.faulty: // the write shows whether the store works again
			due = append(due, &ride{of: t, tranche: known, sentAt: now})
		}
	}
	return due
}

// do writes rides. Rides that fail are due again.
func (t *Tranches) do(ctx context.Context, due []*ride) error {
	for rides := range slices.Chunk(due, tendedAtOnce) {
		err := t.db.Do(ctx, Ledger, &tendOp{rides})
		for _, r := range rides {
			r.answer(err)
		}
		if err != nil {
			return fmt.Errorf("renew tranches: %w", err)
		}
	}
	return nil
}
