package billing

import (
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// books is the part of the database that one batch of operations touches, read under the locks of its wallets, with the batch's
// changes. Operations are decided against it in arrival order: each sees the decisions before it, and a refused one leaves no
// trace, so that a hold that is too large doesn't block a smaller one behind it. It contains no SQL; ledger.go loads and writes
// it.
type books struct {
	now   int64 // the database's clock, epoch milliseconds
	newID func() string

	wallets map[WalletID]*walletRow
	holds   map[string]*holdRow
	calls   map[string]callFigures
	entries map[entryKey]Entry
	claims  map[claimKey]*claimRow

	newHolds    []*holdRow
	newTranches []*trancheRow
	newCalls    []callRow
	records     []callRow // of calls without money and key; a row of the same id stands
	newEntries  []Entry
	audits      []store.AuditEntry
	expired     int // holds that the batch expired
}

// walletRow is a locked wallet: as it was read, and as the batch leaves it.
type walletRow struct {
	balance, held         int64
	readBalance, readHeld int64
	// tranches are those that have not ended, read only where the batch needs them.
	tranches []*trancheRow
}

// free returns what may be held, charged above a hold or withdrawn. It is never negative.
func (w *walletRow) free() int64 { return w.balance - w.held }

func (w *walletRow) changed() bool { return w.balance != w.readBalance || w.held != w.readHeld }

// holdStatus is the state of a hold; the package comment draws them.
type holdStatus string

const (
	holdOpen    holdStatus = "open"
	holdSettled holdStatus = "settled"
	holdVoided  holdStatus = "voided"
	holdExpired holdStatus = "expired"
)

type holdRow struct {
	id        string
	wallet    WalletID
	amount    int64
	status    holdStatus
	expiresAt int64
	// readStatus is the status in the database, empty for a hold this batch made.
	readStatus holdStatus
	// model and price are known only for a hold this batch made.
	model string
	price Price
}

// callFigures are the amounts of a stored call.
type callFigures struct {
	wallet  WalletID
	settled Settled
}

// callRow is a call as it is written.
type callRow struct {
	Call
	settled Settled
	// txID, balance and chargedAt are those of the charge, txID empty when nothing was charged.
	txID               string
	balance, chargedAt int64
	// tranche and granted are those of a call without a hold of its own, else empty.
	tranche string
	granted int64
}

// entryKey identifies a ledger transaction, so that it happens once.
type entryKey struct {
	kind   EntryKind
	wallet WalletID
	ref    string
}

// hold reserves h and claims its key. It returns the finished call that has the key, or an error, when it doesn't.
func (b *books) hold(h Hold) (finished string, err error) {
	if h.Claim != nil {
		return b.claimAndHold(h)
	}
	return "", b.reserve(h)
}

// reserve holds h's amount.
func (b *books) reserve(h Hold) error {
	if known, ok := b.holds[h.CallID]; ok {
		return known.repeats(h)
	}
	wallet := b.wallets[h.Wallet]
	if wallet == nil || wallet.free() < h.AmountMicros {
		return ErrInsufficientCredits
	}
	wallet.held += h.AmountMicros
	b.addHold(h, holdOpen)
	return nil
}

func (b *books) addHold(h Hold, status holdStatus) {
	row := &holdRow{
		id: h.CallID, wallet: h.Wallet, amount: h.AmountMicros, status: status,
		expiresAt: b.now + max(1, h.ExpiresIn.Milliseconds()), model: h.Model, price: h.Price,
	}
	b.holds[row.id] = row
	b.newHolds = append(b.newHolds, row)
}

// preclude makes an abandoned hold impossible: one that doesn't exist gets its row, already voided. A claim alone needs no such
// row: the call's own row refuses it, and its transaction had the wallet's lock.
func (b *books) preclude(h Hold) {
	_, ended := b.calls[h.CallID]
	if ended || b.holds[h.CallID] != nil || h.AmountMicros == 0 {
		return
	}
	b.addHold(h, holdVoided)
}

// repeats decides a hold whose call id is known: the same hold sent again, after a connection that broke during its commit,
// succeeds as long as it is open.
func (row *holdRow) repeats(h Hold) error {
	switch {
	case row.wallet != h.Wallet || row.amount != h.AmountMicros:
		return fmt.Errorf("%w: the call id already names another hold", ErrInvalid)
	case row.status != holdOpen:
		return ErrCallEnded
	}
	return nil
}

// settle ends a call. The call's row is written once, its figures never change, and neither does what the first settlement made
// of its key. u is what the call was granted of a tranche, nil for a call that was not.
func (b *books) settle(s Settlement, u *use) (Settled, error) {
	if u != nil {
		u.status, u.repeated = trancheEnded, false
	}
	if stored, ok := b.calls[s.Call.ID]; ok {
		if stored.wallet != s.Call.Wallet {
			return Settled{}, fmt.Errorf("%w: the call id belongs to another wallet", ErrInvalid)
		}
		settled := stored.settled
		hold := b.holds[s.Call.ID]
		settled.Expired = hold != nil && hold.status == holdExpired
		b.repeatUse(s.Call.Wallet, u)
		return settled, nil
	}
	row := callRow{Call: s.Call}
	switch {
	case u != nil:
		if err := b.draw(s, u, &row); err != nil {
			return Settled{}, err
		}
	case s.Held:
		if err := b.resolve(s, &row); err != nil {
			return Settled{}, err
		}
	}
	b.calls[s.Call.ID] = callFigures{s.Call.Wallet, row.settled}
	b.newCalls = append(b.newCalls, row)
	if s.Claim != nil {
		b.endClaim(s, row.settled)
	}
	return row.settled, nil
}

// resolve releases the hold of a call and charges its wallet: first from the hold, then from the free balance, never more than
// both carry.
func (b *books) resolve(s Settlement, row *callRow) error {
	charge, status := s.charge(), holdSettled
	if s.Void {
		status = holdVoided
	}
	hold := b.holds[s.Call.ID]
	switch {
	case hold == nil:
		return ErrNoHold
	case hold.wallet != s.Call.Wallet:
		return fmt.Errorf("%w: the hold belongs to another wallet", ErrInvalid)
	case hold.status != holdOpen:
		row.settled = Settled{ShortfallMicros: charge, Expired: true}
		return nil
	}
	wallet := b.wallets[hold.wallet]
	if wallet == nil {
		return fmt.Errorf("hold %s has no wallet", hold.id)
	}

	hold.status = status
	wallet.held -= hold.amount
	fromHold := min(charge, hold.amount)
	wallet.balance -= fromHold
	b.charge(wallet, fromHold, charge-fromHold, row)
	return nil
}

// charge books what a call costs: reserved has left the wallet already, above is taken from the free balance as far as that goes.
func (b *books) charge(wallet *walletRow, reserved, above int64, row *callRow) {
	extra := min(above, wallet.free())
	wallet.balance -= extra
	charged := reserved + extra
	row.settled = Settled{ChargedMicros: charged, ExtraMicros: extra, ShortfallMicros: above - extra}
	if charged > 0 {
		row.txID, row.balance, row.chargedAt = b.newID(), wallet.balance, b.now
	}
}

// expire releases a hold whose time is over; it reports false for one that was resolved meanwhile.
func (b *books) expire(id string) bool {
	hold := b.holds[id]
	if hold == nil || hold.status != holdOpen || hold.expiresAt >= b.now {
		return false
	}
	return b.release(hold)
}

// release expires an open hold, whatever its time.
func (b *books) release(hold *holdRow) bool {
	wallet := b.wallets[hold.wallet]
	if wallet == nil {
		return false
	}
	hold.status = holdExpired
	b.expired++
	wallet.held -= hold.amount
	return true
}

// post books a top-up, an adjustment or a refund, once per kind and reference.
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
		ID: b.newID(), Wallet: p.wallet, Kind: p.kind, AmountMicros: p.micros, Ref: p.ref, Note: p.note, At: b.now,
	}
	if entry.Ref == "" {
		entry.Ref = entry.ID
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
	wallet.balance, entry.BalanceMicros = balance, balance
	b.addEntry(entry)
	b.audits = append(b.audits, entry.audit(p.actor))
	return entry, nil
}

// replay decides a posting whose reference is known.
func (e Entry) replay(again Entry) (Entry, error) {
	if e.AmountMicros != again.AmountMicros {
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
		action = "wallet.credit" // as the command is called
	}
	return store.AuditEntry{At: e.At, Actor: actor, Action: action, Target: e.ID, OrgID: e.Wallet.OrgID, Detail: detail}
}

func (b *books) addEntry(entry Entry) {
	b.entries[entry.key()] = entry
	b.newEntries = append(b.newEntries, entry)
}
