package billing

import (
	"context"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// tend gives back what is idle or was recalled, and renews the other leases.
func (t *Tranches) tend(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, trancheTimeout)
	defer cancel()
	err := t.seeRecalls(bounded)
	if err == nil {
		err = t.do(bounded, t.due(t.now()))
	}
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

// due decides what is to be done with each tranche now.
func (t *Tranches) due(now time.Time) (due []*trancheWork) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for call, g := range t.grants {
		if now.After(g.until) && !g.settling { // its call was given up
			g.tranche.doubt = true
			t.release(call)
		}
	}
	for r := range t.all {
		act := r.next(now, t.off)
		if act == "" && t.faulty && r.step == trancheGranting {
			act = renewTranche // which shows whether the store writes again
		}
		switch act {
		case "":
		case endTranche:
			if r.step = trancheEnding; r.id == "" {
				t.forget(r)
				continue
			}
			if t.wallets[r.wallet] == r {
				delete(t.wallets, r.wallet)
			}
			due = append(due, r.work(act, now))
		default:
			due = append(due, r.work(act, now))
		}
	}
	return due
}

// next returns what is to be done with a tranche, "" for nothing.
func (r *tranche) next(now time.Time, off bool) trancheAct {
	idle := r.grants == 0 && r.asking == [riders]bool{}
	switch {
	case r.step == trancheEnding:
		return endTranche // it was tried before
	case idle && r.step <= trancheGranting && (off || now.Sub(r.usedAt) > trancheIdle):
		return endTranche
	case r.step == trancheAsked:
		return ""
	case r.step == trancheGiving && r.deciding == 0 && !r.doubt:
		return drainTranche
	case r.step == trancheGiving && r.deciding == 0 && r.settling == 0:
		return trimTranche
	case r.step == trancheResting && r.doubt && r.settling == 0:
		return trimTranche // a call was given up
	case idle && r.step == trancheResting && now.Sub(r.restsAt) > trancheRest:
		return endTranche
	case now.Sub(r.leasedAt) > trancheRenewal:
		return renewTranche
	}
	return ""
}

// trancheWork is an operation on a tranche on its way.
type trancheWork struct {
	trancheOp
	tranche *tranche
	at      time.Time
	sent    int // of the tranche, at the time
}

func (r *tranche) work(act trancheAct, now time.Time) *trancheWork {
	return &trancheWork{
		trancheOp: trancheOp{id: r.id, wallet: r.wallet, act: act, unused: r.unused, inUse: r.inUse}, tranche: r, at: now, sent: r.sent,
	}
}

// do runs operations on tranches side by side. Those that fail are due again.
func (t *Tranches) do(ctx context.Context, due []*trancheWork) error {
	pending := make([]*store.PendingWrite, len(due))
	for i, w := range due {
		pending[i] = t.db.Submit(Ledger, &w.trancheOp)
	}
	var fault error
	for i, w := range due {
		select {
		case <-pending[i].Done():
		case <-ctx.Done():
			t.done(w, context.Cause(ctx))
			return context.Cause(ctx) // what is still under way is repeated
		}
		if err := pending[i].Err(); err != nil {
			fault = err
		}
		t.done(w, pending[i].Err())
	}
	return fault
}

func (t *Tranches) done(w *trancheWork, fault error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.faulty = fault != nil; t.faulty {
		return
	}
	r := w.tranche
	r.renewed(w.at)
	t.took = t.now().Sub(w.at)
	switch {
	case w.act == drainTranche && r.step == trancheGiving:
		r.step, r.unused, r.restsAt = trancheResting, 0, w.at
	case w.act == trimTranche && r.sent == w.sent:
		// No settlement came between, so that the books hold what is in use, and nothing else.
		r.unused, r.doubt = 0, false
	}
	t.observe(r, w.status)
}

// seeRecalls reads which tranches other processes, or calls of this one, have recalled.
func (t *Tranches) seeRecalls(ctx context.Context) error {
	t.mu.Lock()
	granting := map[string]*tranche{}
	for r := range t.all {
		if r.step == trancheGranting {
			granting[r.id] = r
		}
	}
	t.mu.Unlock()
	if len(granting) == 0 {
		return nil
	}
	recalled, err := readRecalled(ctx, t.db, t.owner)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range recalled {
		if r := granting[id]; r != nil {
			t.observe(r, trancheRecalled)
		}
	}
	return nil
}
