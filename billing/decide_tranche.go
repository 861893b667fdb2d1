package billing

import "time"

const (
	// trancheLease is how long a tranche outlives the last write of the process that has it, by the database's clock.
	trancheLease = 10 * time.Second
	// trancheShare is what of the free balance all tranches of a wallet may hold together: one part of so many.
	trancheShare = 100
	// trancheCalls is how many calls like the one that asks a tranche is for, beside twice what calls use.
	trancheCalls = 8
)

// trancheRow is a tranche under the lock of its wallet: as it was read, and as the batch leaves it. It stands or it has ended.
type trancheRow struct {
	id     string
	wallet WalletID
	owner  string
	trancheState

	read   trancheState
	stored bool // it was read
	ended  bool
}

type trancheState struct {
	left       int64
	spare      bool // some of left may be unused
	leaseUntil int64
}

// tendOp renews or returns tranches of a process.
type tendOp struct{ rides []*ride }

func (w *walletRow) tranche(id string) *trancheRow {
	for _, tranche := range w.tranches {
		if tranche.id == id && !tranche.ended {
			return tranche
		}
	}
	return nil
}

// end releases what a tranche has left.
func (w *walletRow) end(t *trancheRow) {
	w.held -= t.left
	t.left, t.ended = 0, true
}

// lapse ends the tranches of a wallet whose lease is over: their processes were killed, or hang. It returns
// their number.
func (b *books) lapse(wallet *walletRow) (ended int) {
	for _, tranche := range wallet.tranches {
		if !tranche.ended && tranche.leaseUntil < b.now {
			b.lost.add(tranche.left)
			wallet.end(tranche)
			ended++
		}
	}
	return ended
}

// restore puts back into a tranche what a call has not used, for the next ones.
func restore(r *ride, wallet *walletRow, tranche *trancheRow, rest int64) {
	if tranche == nil || rest <= 0 {
		return
	}
	tranche.left += rest
	tranche.spare = true
	wallet.held += rest
	r.rest = rest
}

// carry does what an operation carries for a tranche: the lease is renewed; what no call uses goes back, when the wallet is recalled or the
// ride returns it; otherwise a call that asks for more gets it, unless its operation was refused.
func (b *books) carry(r *ride, refused error) {
	if r == nil {
		return
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.returned = r.tranche.returned
	wallet := b.wallets[r.tranche.wallet]
	if wallet == nil {
		return
	}
	row := wallet.tranche(r.tranche.id)
	switch {
	case row == nil && r.tranche.open:
		r.gone = true // its lease was over, or all of it was returned
		return
	case wallet.recalls(b.now) || r.returns:
		if row != nil {
			r.giveBack(wallet, row)
		}
	case refused == nil && r.asks > 0 && r.of.wallets[r.tranche.wallet] == r.tranche: // else nobody would return it
		row = b.more(r, wallet, row)
	}
	if row != nil {
		row.leaseUntil = b.now + trancheLease.Milliseconds()
	}
}

// giveBack returns all of a tranche but what calls use. Under the lock of the wallet that is known: no operation of the process is
// decided meanwhile, and none of its calls is held from what was given back.
func (r *ride) giveBack(wallet *walletRow, row *trancheRow) {
	t := r.tranche
	r.gave, t.unused, r.rest = t.unused, 0, 0
	t.returned++
	r.returned = t.returned
	keep := min(row.left, t.inUse)
	wallet.held -= row.left - keep
	row.left = keep
	row.spare = keep > t.inUse
	if row.left == 0 {
		row.ended, r.gone = true, true
	}
}

// more gives a tranche twice what calls use, since what they cost is charged while as many come again, and some more for calls like the one
// that asks, as far as all tranches of the wallet stay within their share. It makes the tranche when it doesn't exist.
func (b *books) more(r *ride, wallet *walletRow, row *trancheRow) *trancheRow {
	t := r.tranche
	var left int64
	for _, other := range wallet.tranches {
		left += other.left // 0 for one that has ended
	}
	least := int64(1)
	if row == nil {
		least = r.asks
	}
	micros := min(2*t.inUse+trancheCalls*r.asks-t.unused-t.coming, (wallet.free()+left)/trancheShare-left)
	if micros < least {
		return row
	}
	if row == nil {
		row = &trancheRow{id: t.id, wallet: t.wallet, owner: r.of.owner}
		wallet.tranches = append(wallet.tranches, row)
		t.open, r.opened = true, true
	}
	row.left += micros
	row.spare = true
	wallet.held += micros
	t.coming += micros
	r.got = micros
	return row
}

// recall asks the processes that have tranches of a wallet for what they don't use, because the free balance is below an amount. What the own
// one has goes back at once. It reports whether others may still give back.
func (b *books) recall(id WalletID, micros int64, own *ride) (pending bool) {
	wallet := b.wallets[id]
	if wallet == nil {
		return false
	}
	b.lapse(wallet)
	b.carry(own, nil)
	if wallet.free() >= micros {
		return false
	}
	wallet.recallUntil = b.now + trancheLease.Milliseconds()
	for _, tranche := range wallet.tranches {
		pending = pending || tranche.spare && !tranche.ended
	}
	return pending
}
