package billing

import (
	"math"
	"time"
)

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
	// budgets are the names of the periods in which the amount is also reserved.
	budgets string
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

// lapse ends the tranches of a wallet with expired leases, after their processes were killed or hung. It returns their number.
func (b *books) lapse(wallet *walletRow) (ended int) {
	for _, tranche := range wallet.tranches {
		if !tranche.ended && tranche.leaseUntil < b.now {
			b.lost.add(tranche.left)
			b.change(tranche.wallet, tranche.budgets, -tranche.left)
			tranche.left, tranche.ended = 0, true
			ended++
		}
	}
	return ended
}

// restore puts the unused part of a reservation back into its tranche, for the next calls.
func (b *books) restore(r *ride, tranche *trancheRow, rest int64) {
	if tranche == nil || rest <= 0 {
		return
	}
	tranche.left += rest
	tranche.spare = true
	b.change(tranche.wallet, tranche.budgets, rest)
	r.rest = rest
}

// carry decides a ride. It renews the lease. If the wallet is recalled, the ride returns the tranche, or one of its periods has ended, unused credits
// go back. Otherwise the ride gets the credits that it requests, unless its operation was refused.
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
	case wallet.recalls(b.now) || r.returns || row != nil && b.isOver(row):
		if row != nil {
			r.giveBack(b, row)
		}
	case refused == nil && r.asks > 0 && r.of.wallets[r.tranche.trancheKey] == r.tranche: // else nobody would return it
		row = b.more(r, wallet, row)
	}
	if row != nil {
		row.leaseUntil = b.now + trancheLease.Milliseconds()
	}
}

// giveBack returns the unused part of a tranche, and ends the tranche if no part is in use. The part in use is exact under the lock of the
// wallet, because no operation of the process is decided at the same time, and none of its calls is held from returned credits.
func (r *ride) giveBack(b *books, row *trancheRow) {
	t := r.tranche
	r.gave, t.unused, r.rest = t.unused, 0, 0
	t.returned++
	r.returned = t.returned
	keep := min(row.left, t.inUse)
	b.change(row.wallet, row.budgets, keep-row.left)
	row.left = keep
	row.spare = keep > t.inUse
	if row.left == 0 {
		row.ended, r.gone = true, true
	}
}

// more raises the unused credits of a tranche to twice the amounts in use, because their cost is charged while as many calls come again, plus
// credits for some calls of the requesting size, within the share of all tranches of the wallet and of each of its budgets. It creates a missing
// tranche if the credits are enough for the requesting call.
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
	var periods []*periodRow
	if t.version > 0 {
		periods = b.periodsOf(t, row)
		for _, period := range periods {
			left := wallet.leftIn(period.number)
			micros = min(micros, (max(0, period.room(b.now))+left)/trancheShare-left)
		}
	}
	if micros < least {
		return row
	}
	if row == nil {
		row = &trancheRow{id: t.id, wallet: t.wallet, owner: r.of.owner, budgets: b.reserveIn(periods, 0)}
		wallet.tranches = append(wallet.tranches, row)
		t.open, r.opened = true, true
		t.budgets, t.until = row.budgets, r.until(periods, b.now)
	}
	row.left += micros
	row.spare = true
	b.change(t.wallet, row.budgets, micros)
	t.coming += micros
	r.got = micros
	return row
}

// isOver reports whether a period of a tranche has ended.
func (b *books) isOver(row *trancheRow) bool {
	for _, period := range b.named(row.wallet, row.budgets) {
		if period.endAt > 0 && period.endAt <= b.now {
			return true
		}
	}
	return false
}

// periodsOf returns the periods of a tranche. row is nil for a new tranche, which belongs to the present periods of the open budgets that count
// its calls.
func (b *books) periodsOf(t *tranche, row *trancheRow) (periods []*periodRow) {
	if row != nil {
		return b.named(row.wallet, row.budgets)
	}
	for _, owner := range (&Budgeted{KeyID: t.keyID, AgentID: t.agentID}).owners(t.wallet) {
		for _, budget := range b.open[owner] {
			periods = append(periods, b.present(budget))
		}
	}
	return periods
}

// leftIn returns the sum of the tranches that are reserved in a period.
func (w *walletRow) leftIn(number int64) (sum int64) {
	for _, t := range w.tranches {
		for key := range periodKeys(t.wallet, t.budgets) {
			if key.number == number {
				sum += t.left
			}
		}
	}
	return sum
}

// until returns the moment, by the clock of the process, at which the first period or rise ends. It counts from the beginning of the operation, so
// it is never too late. The zero time means that none ends.
func (r *ride) until(periods []*periodRow, now int64) (first time.Time) {
	end := int64(math.MaxInt64)
	for _, period := range periods {
		if period.endAt > 0 {
			end = min(end, period.endAt)
		}
		for _, rise := range period.budget.rises {
			if rise.endsAt > now {
				end = min(end, rise.endsAt)
			}
		}
	}
	if end == math.MaxInt64 {
		return time.Time{}
	}
	return r.sentAt.Add(time.Duration(min(end-now, 1000*dayMillis)) * time.Millisecond)
}

// recall ends the expired tranches of a wallet, and own returns the unused credits of this process. If short reports that credits are still missing,
// recall requests the unused credits of all processes with tranches of the wallet. It reports whether some may still be returned.
func (b *books) recall(id WalletID, own []*ride, short func() bool) (pending bool) {
	wallet := b.wallets[id]
	if wallet == nil {
		return false
	}
	b.lapse(wallet)
	for _, r := range own {
		b.carry(r, nil)
	}
	if !short() {
		return false
	}
	wallet.recallUntil = b.now + trancheLease.Milliseconds()
	for _, tranche := range wallet.tranches {
		pending = pending || tranche.spare && !tranche.ended
	}
	return pending
}
