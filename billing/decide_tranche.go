package billing

import (
	"fmt"
	"time"
)

const (
	// trancheLease is how long a tranche outlives the last write of the process that has it, by the database's clock.
	trancheLease = 10 * time.Second
	// trancheShare is what of the free balance all tranches of a wallet may hold together: one part of so many.
	trancheShare = 100
)

// trancheStatus is the state of a tranche; the package comment draws them. It only moves forward.
type trancheStatus string

const (
	trancheOpen     trancheStatus = "open"
	trancheRecalled trancheStatus = "recalled"
	trancheDrained  trancheStatus = "drained"
	trancheEnded    trancheStatus = "ended"
)

// trancheRow is a tranche that has not ended, under the lock of its wallet: as it was read, and as the batch leaves it.
type trancheRow struct {
	id     string
	wallet WalletID
	owner  string
	trancheState
	read trancheState // the zero value for one that this batch takes
}

type trancheState struct {
	status                 trancheStatus
	taken, drawn, returned int64
	leaseUntil             int64
}

// left returns what the tranche holds.
func (s *trancheState) left() int64 { return s.taken - s.drawn - s.returned }

// take asks for more of a wallet for a tranche. It rides on another operation of the process, whose transaction is written anyway.
type take struct {
	id, owner string
	// opens: the tranche doesn't exist yet.
	opens bool
	// want is the amount asked for, and least the smallest that is of use.
	want, least int64

	got int64 // the decision
}

// use is the part of a tranche that a call was granted, in the call's settlement.
type use struct {
	tranche string
	micros  int64
	take    *take // nil when the tranche has enough

	// The decision. status is the tranche's: while it is open, the process may grant again what the call didn't cost; after that
	// the wallet has got it. repeated: an earlier settlement of the call stands, which may have found another status.
	status   trancheStatus
	repeated bool
}

// trancheOp is what a process does with a tranche beside its calls. A tranche that doesn't exist, or has ended, is left alone.
type trancheOp struct {
	id     string
	wallet WalletID
	act    trancheAct
	// unused is what a tranche that is drained gives back, and inUse what one that is trimmed keeps.
	unused, inUse int64

	status trancheStatus // the decision: the status afterwards
}

type trancheAct string

const (
	renewTranche trancheAct = "renew"
	trimTranche  trancheAct = "trim"
	drainTranche trancheAct = "drain"
	endTranche   trancheAct = "end"
)

// recallOp asks for a wallet's tranches back, because an amount is above the free balance.
type recallOp struct {
	wallet WalletID
	micros int64

	// The decision: enough is free by now, or pending says that processes with a valid lease have not answered yet.
	enough, pending bool
}

// addTake gives a tranche more, as far as all tranches of its wallet stay within their share. While one of them is recalled, or
// has been a short time ago, there is none: what was given back is for the call that asked for it. refused is the decision on the
// operation that the take rides on.
func (b *books) addTake(id WalletID, t *take, refused error) {
	if t == nil {
		return
	}
	t.got = 0
	wallet := b.wallets[id]
	if wallet == nil || refused != nil {
		return
	}
	var left int64
	var row *trancheRow
	for _, other := range wallet.tranches {
		if other.status == trancheEnded {
			continue
		}
		if other.status != trancheOpen {
			return
		}
		left += other.left()
		if other.id == t.id {
			row = other
		}
	}
	micros := min(t.want, (wallet.free()+left)/trancheShare-left)
	if micros < max(1, t.least) || (row == nil && !t.opens) {
		return
	}
	if row == nil {
		row = &trancheRow{id: t.id, wallet: id, owner: t.owner, trancheState: trancheState{status: trancheOpen}}
		wallet.tranches = append(wallet.tranches, row)
		b.newTranches = append(b.newTranches, row)
	}
	row.taken += micros
	row.leaseUntil = b.leaseEnd()
	wallet.held += micros
	t.got = micros
}

func (b *books) leaseEnd() int64 { return b.now + trancheLease.Milliseconds() }

// draw ends the use of a tranche by a call that costs charge: what it carries is charged from the tranche, the rest from the free
// balance. A call whose tranche has ended meanwhile pays from the free balance alone, and never makes a debt.
func (b *books) draw(s Settlement, u *use, row *callRow) error {
	charge, wallet := s.charge(), b.wallets[s.Call.Wallet]
	if wallet == nil {
		return fmt.Errorf("tranche %s has no wallet", u.tranche)
	}
	row.tranche, row.granted = u.tranche, u.micros
	var fromTranche int64
	if tranche := wallet.tranche(u.tranche); tranche != nil {
		u.status = tranche.status
		fromTranche = min(charge, u.micros, tranche.left())
		tranche.drawn += fromTranche
		tranche.leaseUntil = b.leaseEnd()
		wallet.held -= fromTranche
		wallet.balance -= fromTranche
		if tranche.status != trancheOpen {
			b.giveBack(tranche, u.micros-fromTranche)
		}
	}
	b.charge(wallet, fromTranche, charge-fromTranche, row)
	return nil
}

// repeatUse decides the use of a tranche by a call that was settled before.
func (b *books) repeatUse(id WalletID, u *use) {
	if u == nil {
		return
	}
	u.repeated = true
	if wallet := b.wallets[id]; wallet != nil {
		if tranche := wallet.tranche(u.tranche); tranche != nil {
			u.status = tranche.status
		}
	}
}

// giveBack returns as much of an amount as the tranche has to its wallet.
func (b *books) giveBack(t *trancheRow, micros int64) {
	micros = min(micros, t.left())
	t.returned += micros
	b.wallets[t.wallet].held -= micros
}

func (w *walletRow) tranche(id string) *trancheRow {
	for _, tranche := range w.tranches {
		if tranche.id == id && tranche.status != trancheEnded {
			return tranche
		}
	}
	return nil
}

// move does op and sets its decision.
func (b *books) move(op *trancheOp) {
	op.status = trancheEnded
	wallet := b.wallets[op.wallet]
	if wallet == nil {
		return
	}
	tranche := wallet.tranche(op.id)
	if tranche == nil {
		return
	}
	switch op.act {
	case renewTranche:
		tranche.leaseUntil = b.leaseEnd()
	case trimTranche:
		tranche.leaseUntil = b.leaseEnd()
		b.giveBack(tranche, max(0, tranche.left()-op.inUse))
	case drainTranche:
		tranche.leaseUntil = b.leaseEnd()
		if tranche.status != trancheDrained { // else this is a repetition
			tranche.status = trancheDrained
			b.giveBack(tranche, op.unused)
		}
	case endTranche:
		b.endTranche(tranche)
	}
	op.status = tranche.status
}

func (b *books) endTranche(t *trancheRow) {
	b.giveBack(t, t.left())
	t.status = trancheEnded
}

// lapseTranches ends the tranches of a wallet whose lease is over: their processes were killed, or hang. It returns their number.
func (b *books) lapseTranches(wallet *walletRow) (ended int) {
	for _, tranche := range wallet.tranches {
		if tranche.status != trancheEnded && tranche.leaseUntil < b.now {
			b.endTranche(tranche)
			ended++
		}
	}
	return ended
}

// recall decides whether a wallet can carry an amount once its tranches have given back what no call uses, and asks for that.
func (b *books) recall(op *recallOp) {
	op.enough, op.pending = false, false
	wallet := b.wallets[op.wallet]
	if wallet == nil {
		return
	}
	b.lapseTranches(wallet)
	if op.enough = wallet.free() >= op.micros; op.enough {
		return
	}
	for _, tranche := range wallet.tranches {
		switch tranche.status {
		case trancheOpen:
			tranche.status = trancheRecalled
			op.pending = true
		case trancheRecalled:
			op.pending = true
		case trancheDrained, trancheEnded: // all that it holds is in use
		}
	}
}
