package billing

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// gaveUp is the end of a grant whose call was never settled.
var gaveUp = &ride{}

// round tends once, and then rests while there is nothing to tend.
func (t *Tranches) round(ctx context.Context) {
	t.tend(ctx)
	t.awaitTranche(ctx)
}

// tend returns what is idle and renews the other leases.
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

// awaitTranche waits until there is something to tend, or ctx ends.
func (t *Tranches) awaitTranche(ctx context.Context) {
	for !t.any() {
		select {
		case <-t.begun:
		case <-ctx.Done():
			return
		}
	}
}

// any reports whether this process has tranches, or calls that are held from them.
func (t *Tranches) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.wallets)+len(t.grants) > 0
}

// due decides what is to be done with each tranche now, and gives up calls whose hold would have expired long ago.
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
	for id, known := range t.wallets {
		idle := t.off || now.Sub(known.usedAt) > trancheIdle
		switch {
		case !known.open:
			if idle && known.coming == 0 {
				delete(t.wallets, id)
			}
		case idle && (known.unused > 0 || known.inUse == 0):
			due = append(due, &ride{of: t, tranche: known, sentAt: now, returns: true})
		case now.Sub(known.leasedAt) > trancheRenewal || t.faulty: // which shows whether the store writes again
			due = append(due, &ride{of: t, tranche: known, sentAt: now})
		}
	}
	return due
}

// do writes what is due. What fails is due again.
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
