package billing

import "time"

const (
	// trancheLease is the time for which a tranche outlives the last write that its process made for it, by the
	// database's clock.
	trancheLease = 10 * time.Second
	// The tranches of a wallet together may grow to the sum of its free balance and their own amounts, divided by
	// trancheShare.
	trancheShare = 100
	// trancheCalls is the number of calls of the requesting size that a tranche is for, in addition to twice the amounts in use.
	trancheCalls = 8
)

// trancheRow is a tranche under the lock of its wallet: as read, and as the batch leaves it.
type trancheRow struct {
	id     string
	wallet WalletID
	owner  string
	trancheState

	read   trancheState
	stored bool // the row was read
	ended  bool
}

type trancheState struct {
	left       int64
	spare      bool // a part of left may be unused
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

// end releases the rest of a tranche.
func (w *walletRow) end(t *trancheRow) {
	w.held -= t.left
	t.left, t.ended = 0, true
}

// lapse ends the tranches of a wallet with expired leases, after their processes were killed or hung. It returns their number.
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

// restore puts the unused part of a reservation back into its tranche, for the next calls.
func restore(r *ride, wallet *walletRow, tranche *trancheRow, rest int64) {
	if tranche == nil || rest <= 0 {
		return
	}
	tranche.left += rest
	tranche.spare = true
	wallet.held += rest
	r.rest = rest
}

// carry decides a ride. It renews the lease. If the wallet is recalled or the ride returns the tranche, unused credits go back. Otherwise the ride
// gets the credits that it requests, unless its operation was refused.
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
		r.gone = true // its lease has ended, or all of it was returned
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

// giveBack returns the unused part of a tranche, and ends the tranche if no part is in use. The part in use is exact under the lock of the
// wallet, because no operation of the process is decided at the same time, and none of its calls is held from returned credits.
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

// more raises the unused credits of a tranche to twice the amounts in use, because their cost is charged while as many calls come again, plus
// credits for some calls of the requesting size, within the share of all tranches of the wallet. It creates a missing tranche if the credits are
// enough for the requesting call.
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

// recall ends the expired tranches of a wallet, and own returns the unused credits of this process. If the free balance is still below
// micros, recall requests the unused credits of all processes with tranches of the wallet. It reports whether some may still be returned.
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
