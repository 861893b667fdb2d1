package billing

import (
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// books is the part of the database that one batch of operations needs, read under the locks of its wallets, with the batch's changes. Operations
// are decided against it in arrival order, each after the changes of the ones before it. A refused operation changes nothing, so that a hold that
// is too large doesn't block a smaller one behind it. It contains no SQL: ledger.go loads it, and rows.go writes it.
type books struct {
	now int64 // the database's clock, epoch milliseconds

	wallets map[WalletID]*walletRow
	claimed bool // there may be claims on some of them
	holds   map[string]*holdRow
	calls   map[string]callFigures // of ended calls
	entries map[entryKey]Entry
	claims  map[claimKey]*claimRow
	// budgets are the budgets that were read, open those among them by their owners that are open, and periods their periods.
	budgets map[string]*budgetRow
	open    map[budgetOwner][]*budgetRow
	periods map[periodKey]*periodRow
	// lastNamed are the periods that were named last, because most operations of a batch name the same ones.
	lastNamed namedPeriods
	// corrected are the transactions that postings of the batch correct.
	corrected map[correctedKey]*corrected
	payments  map[paymentKey]*paymentRow

	newPrices  map[int64]*priceRow
	newCalls   []callRow
	records    []callRow // of calls without money and key; an existing row with the same id remains
	newEntries []Entry
	audits     []store.AuditEntry
	events     []*store.Event
	lost       Lost // of calls that were not settled in time, and of abandoned tranches
}

// walletRow is a locked wallet: as read, and as the batch leaves it.
type walletRow struct {
	walletState

	read walletState
	// tranches are read only if the batch needs them.
	tranches []*trancheRow
	// periods is the number of the newest period of the wallet's budgets. It is read only if the batch needs it.
	periods int64
}

type walletState struct {
	balance, held int64
	seq, movedAt  int64 // of the last charge or posting
	recallUntil   int64
	kept          int64 // bytes of answers
	claimed       int64 // what anything free pays first
}

// free returns the amount that can be held, withdrawn, or charged after a hold was lost. It is never negative.
func (w *walletRow) free() int64 { return w.balance - w.held }

// recalls reports whether processes must give unused credits back.
func (w *walletRow) recalls(now int64) bool { return w.recallUntil >= now }

// clockLead is how far a wallet's last charge may be ahead of the database's clock for later charges to get the same time. After a clock was set
// back by more, the times in the statement go back as well.
const clockLead = int64(12 * time.Hour / time.Millisecond)

// move changes the balance and returns the number and the time of the change. Times don't decrease within a wallet, so that a
// period of its history is a range of numbers.
func (w *walletRow) move(balance, now int64) (seq, at int64) {
	at = max(now, w.movedAt)
	if at > now+clockLead {
		at = now
	}
	w.balance, w.movedAt = balance, at
	w.seq++
	return w.seq, at
}

type holdRow struct {
	id        string
	wallet    WalletID
	amount    int64
	expiresAt int64
	budgets   string // the names of the periods in which the amount is reserved
	// stored means that the hold was read, open that it exists after the batch. renewed means that the batch has ended it and held
	// the call again.
	stored, open, renewed bool
}

// callFigures are the amounts of an ended call.
type callFigures struct {
	wallet  WalletID
	settled Settled
}

// callRow is the row of a call to be written: its operation, and the decision. Its settled hides that of the operation, which is set later.
type callRow struct {
	*settleOp

	reserved int64
	settled  Settled
	endedAt  int64
	// seq and balance belong to the charge. Both are 0 if nothing was charged.
	seq, balance int64
	budgets      string // the names of the periods in which the charge is counted
}

// entryKey identifies a ledger transaction, so that it happens only once.
type entryKey struct {
	kind   EntryKind
	wallet WalletID
	ref    string
}

// correctedKey names a transaction of a wallet.
type correctedKey struct {
	wallet WalletID
	id     string
}

// corrected is the amount of a transaction and the sum of its corrections.
type corrected struct{ amount, sum int64 }

// correct adds a correction or a refund to the sum of its transaction. The sum can't be larger than the amount of the transaction, in either
// direction, so that two people can't undo the same transaction.
func (b *books) correct(p posting) error {
	of := b.corrected[correctedKey{p.wallet, p.undoes()}]
	if of == nil {
		return ErrNotPosted
	}
	most := max(of.amount, -of.amount)
	sum, err := addMicros(of.sum, p.micros)
	if err != nil || sum > most || sum < -most {
		return fmt.Errorf("%w: %s is of %s micros, and its corrections are %s micros", ErrCorrected, p.undoes(), FormatMicros(of.amount),
			FormatMicros(of.sum))
	}
	of.sum = sum
	return nil
}

// hold reserves h and claims its key. Otherwise it returns the finished call with the key, or an error. Unless its
// companion refuses, it first ends the hold of the earlier call that the companion names.
func (b *books) hold(h Hold) (finished string, err error) {
	replaced, _, refused := ruling(h.With)
	if refused != nil {
		return "", refused
	}
	b.drop(b.holds[replaced])
	if h.Claim != nil {
		return b.claimAndHold(h)
	}
	if known := b.holds[h.CallID]; known != nil && known.open {
		return "", repeats(h, known.wallet, known.amount)
	}
	periods, err := b.reserve(h)
	if err != nil {
		return "", err
	}
	row := b.holds[h.CallID]
	if row == nil {
		row = &holdRow{id: h.CallID}
		b.holds[h.CallID] = row
	}
	row.wallet, row.amount, row.budgets, row.expiresAt = h.Wallet, h.AmountMicros, periods, b.end(h)
	row.open, row.renewed = true, row.stored
	return "", nil
}

// end returns the time at which a hold that is made now expires.
func (b *books) end(h Hold) int64 { return b.now + max(1, h.ExpiresIn.Milliseconds()) }

// reserve reserves a hold's amount in the free balance and in the budgets that count the call. It returns the names of their periods.
func (b *books) reserve(h Hold) (names string, err error) {
	if _, ended := b.calls[h.CallID]; ended {
		return "", ErrCallEnded
	}
	wallet := b.wallets[h.Wallet]
	if h.AmountMicros > 0 && (wallet == nil || wallet.free() < h.AmountMicros) {
		return "", ErrInsufficientCredits
	}
	if wallet == nil {
		// No lock was taken, so another transaction could claim the same key.
		return "", fmt.Errorf("organization %q: %w", h.Wallet.OrgID, store.ErrNotFound)
	}
	if h.Budgets != nil && h.AmountMicros > 0 {
		periods, err := b.admit(h)
		if err != nil {
			return "", err
		}
		names = b.reserveIn(periods, h.AmountMicros)
	}
	wallet.held += h.AmountMicros
	return names, nil
}

// repeats decides a hold of a call that already has one. The same hold, sent again after its connection broke during the commit, succeeds.
func repeats(h Hold, wallet WalletID, amount int64) error {
	if wallet != h.Wallet || amount != h.AmountMicros {
		return fmt.Errorf("%w: the call id already names another hold", ErrInvalid)
	}
	return nil
}

// settle ends a call. The call's row is written once. Its figures never change, and neither does the first settlement's decision on the key.
func (b *books) settle(op *settleOp) (Settled, error) {
	s := &op.Settlement
	_, lost, refused := ruling(s.With)
	if refused != nil {
		return Settled{}, refused
	}
	first := op.ride.endGrant()
	if op.price != nil {
		b.newPrices[op.priceID] = op.price
	}
	if stored, ok := b.calls[s.Call.ID]; ok {
		if stored.wallet != s.Call.Wallet {
			return Settled{}, fmt.Errorf("%w: the call id belongs to another wallet", ErrInvalid)
		}
		return stored.settled, nil
	}
	cost, err := s.Price.Cost(s.Call.Usage)
	if err != nil {
		return Settled{}, err
	}
	wallet := b.wallets[s.Call.Wallet]
	var claim *claimRow // nil if the call has no key
	if s.Claim != nil {
		claim = b.claim(claimKey{s.Call.Wallet, s.Claim.KeyHash})
	}
	if wallet == nil && s.ReservedMicros > 0 && !s.Void {
		return Settled{}, fmt.Errorf("hold of call %s: organization %q: %w", s.Call.ID, s.Call.Wallet.OrgID, store.ErrNotFound)
	}
	row := callRow{settleOp: op, reserved: s.ReservedMicros, endedAt: b.now}
	var paid int64
	if wallet == nil {
		row.reserved = 0 // nothing can have been reserved
	} else {
		tranche, budgets, released := b.release(op, wallet, claim, first)
		if !s.Void && !lost && !claim.lostBy(s.Call.ID) {
			paid = min(cost, s.ReservedMicros, wallet.free())
			if budgets != "" {
				paid = min(paid, b.payable(s.Call.Wallet, budgets, released))
			}
		}
		if paid > 0 {
			row.balance, row.budgets = wallet.balance-paid, budgets
			row.seq, row.endedAt = wallet.move(row.balance, b.now)
			b.count(s.Call.Wallet, budgets, paid, row.seq)
		}
		b.restore(op.ride, tranche, released-paid)
	}
	row.settled = Settled{ChargedMicros: paid, ShortfallMicros: cost - paid}
	b.calls[s.Call.ID] = callFigures{s.Call.Wallet, row.settled}
	b.newCalls = append(b.newCalls, row)
	if s.Claim != nil {
		b.endClaim(op, claim, wallet, paid)
	}
	return row.settled, nil
}

// release ends the reservation of a call in its key, its hold or its tranche, and returns the amount that was released. budgets are the names of
// the periods of its hold. tranche is the tranche from which the call is held, if it is. It is nil if the tranche has ended, and if first is
// false, because another settlement, of unknown outcome, may have released the call's part. In these cases nothing is released.
func (b *books) release(op *settleOp, wallet *walletRow, claim *claimRow, first bool) (tranche *trancheRow, budgets string, released int64) {
	if op.Budgets != nil {
		budgets = op.Budgets.periods
	}
	switch {
	case op.ride != nil:
		if op.ride.tranche.version > 0 {
			budgets = op.ride.names()
		}
		tranche = wallet.tranche(op.ride.tranche.id)
		if tranche == nil || !first {
			return nil, budgets, 0
		}
		released = min(op.ride.grant.micros, tranche.left)
		tranche.left -= released
		b.change(tranche.wallet, tranche.budgets, -released)
	case op.Claim != nil:
		if claim.callID == op.Call.ID && claim.reserved > 0 {
			budgets, released = claim.budgets, claim.reserved
			b.change(op.Call.Wallet, budgets, -released)
			claim.reserved, claim.budgets = 0, ""
		}
	default:
		if hold := b.holds[op.Call.ID]; hold != nil && hold.wallet == op.Call.Wallet && b.drop(hold) {
			budgets, released = hold.budgets, hold.amount
		}
	}
	return tranche, budgets, released
}

// drop ends the hold of a call if it is open and its wallet is locked. It reports whether it did.
func (b *books) drop(hold *holdRow) (dropped bool) {
	if hold == nil || !hold.open || b.wallets[hold.wallet] == nil {
		return false
	}
	hold.open = false
	b.change(hold.wallet, hold.budgets, -hold.amount)
	return true
}

// expire releases an expired hold.
func (b *books) expire(id string) (expired bool) {
	hold := b.holds[id]
	if hold == nil || hold.expiresAt >= b.now || !b.drop(hold) {
		return false
	}
	b.lose(id, hold.amount)
	return true
}

// lose records a call that was not settled in time.
func (b *books) lose(id string, micros int64) {
	b.lost.Calls = append(b.lost.Calls, id)
	b.lost.add(micros)
}

// sweep ends everything that has expired. It returns the lost reservations, and the number of rows that it ended.
func (b *books) sweep(due []callKey) (lost Lost, done int) {
	b.lost = Lost{}
	for _, key := range due {
		if b.expire(key.id) {
			done++
		}
	}
	for key, claim := range b.claims {
		if b.clear(b.wallets[key.wallet], claim) {
			done++
		}
	}
	for _, wallet := range b.wallets {
		done += b.lapse(wallet)
	}
	return b.lost, done
}

// post books a credit, an adjustment or a refund, once per kind and reference.
func (b *books) post(p posting) (Entry, error) {
	if p.kind == EntryRefund {
		call, ok := b.calls[p.ref]
		switch {
		case !ok:
			return Entry{}, fmt.Errorf("call %q: %w", p.ref, store.ErrNotFound)
		case call.settled.ChargedMicros == 0:
			return Entry{}, ErrNothingToRefund
		}
		p.wallet, p.micros = call.wallet, call.settled.ChargedMicros
	}
	entry := Entry{
		ID: store.NewID("txn"), Wallet: p.wallet, Kind: p.kind, AmountMicros: p.micros, Ref: p.ref, Note: p.note, At: b.now, Corrects: p.corrects,
	}
	if known, ok := b.entries[entry.key()]; ok {
		return known.replay(entry)
	}

	wallet := b.wallets[p.wallet]
	if wallet == nil {
		return Entry{}, fmt.Errorf("organization %q: %w", p.wallet.OrgID, store.ErrNotFound)
	}
	if p.micros < 0 && wallet.free() < -p.micros {
		return Entry{}, ErrInsufficientCredits
	}
	balance, err := addMicros(wallet.balance, p.micros)
	if err != nil {
		return Entry{}, err
	}
	if p.undoes() != "" {
		if err := b.correct(p); err != nil {
			return Entry{}, err
		}
	}
	entry.BalanceMicros = balance
	entry.Seq, entry.At = wallet.move(balance, b.now)
	audit := entry.audit(p.actor)
	entry.auditID = audit.ID
	b.entries[entry.key()] = entry
	b.newEntries = append(b.newEntries, entry)
	b.audits = append(b.audits, audit)
	return entry, nil
}

// replay decides a posting with a known reference.
func (e Entry) replay(again Entry) (Entry, error) {
	if e.AmountMicros != again.AmountMicros || e.Corrects != again.Corrects {
		return Entry{}, fmt.Errorf("%w: %q is %s, a %s of %s micros at %s", ErrRefReused, e.Ref, e.ID, e.Kind.Public(),
			FormatMicros(e.AmountMicros), time.UnixMilli(e.At).UTC().Format(time.RFC3339))
	}
	e.Replayed = true
	return e, nil
}

func (e Entry) key() entryKey { return entryKey{e.Kind, e.Wallet, e.Ref} }

// audit returns the audit row of the posting.
func (e Entry) audit(actor string) store.AuditEntry {
	detail := FormatMicros(e.AmountMicros) + " micros to " + string(e.Wallet.Env) + ", ref " + e.Ref
	if e.Note != "" {
		detail += ": " + e.Note
	}
	action := "wallet." + string(e.Kind)
	if e.Kind == EntryTopUp {
		action = "wallet.credit" // the name of the command
	}
	return store.AuditEntry{ID: store.NewID("aud"), At: e.At, Actor: actor, Action: action, Target: e.ID, OrgID: e.Wallet.OrgID, Detail: detail}
}
