package billing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// ErrRefReused is returned if a reference of the wallet already names a posting with another amount. The first posting remains.
var ErrRefReused = errors.New("the reference already names another posting")

// ErrNothingToRefund is returned for a call that was never charged.
var ErrNothingToRefund = errors.New("the call was not charged")

// ErrNotPosted is returned for a correction of a transaction that the wallet doesn't have.
var ErrNotPosted = errors.New("the wallet has no transaction with this id")

// ErrCorrected is returned for a correction with which the corrections of its transaction would be larger than the transaction.
var ErrCorrected = errors.New("the transaction can't be corrected by more than its amount")

// EntryKind is the kind of a ledger transaction.
type EntryKind string

// The kinds of ledger transactions.
const (
	EntryTopUp  EntryKind = "topup"
	EntryCharge EntryKind = "charge"
	EntryAdjust EntryKind = "adjust"
	EntryRefund EntryKind = "refund"
	// EntryReversal follows from a refund or a dispute of a payment. It is positive after a dispute was won.
	EntryReversal EntryKind = "reversal"
)

// entryKinds are the public names of the kinds, and the accounts of their other legs.
var entryKinds = map[EntryKind]struct{ public, account string }{
	EntryTopUp: {"credit", "sys:cash"}, EntryCharge: {"charge", "sys:revenue"},
	EntryAdjust: {"adjustment", "sys:loss"}, EntryRefund: {"refund", "sys:revenue"},
	EntryReversal: {"reversal", "sys:cash"},
}

// Public returns the kind's name in the API and on the command line.
func (k EntryKind) Public() string { return entryKinds[k].public }

// Entry is one transaction of a wallet as the ledger keeps it.
type Entry struct {
	ID     string
	Wallet WalletID
	Kind   EntryKind
	// AmountMicros is the change of the wallet.
	AmountMicros int64
	// BalanceMicros is the wallet's balance right after the transaction.
	BalanceMicros int64
	// Seq is its number in the wallet, from 1, without a gap over charges and postings.
	Seq int64
	// Ref is unique within the wallet and kind. It is the operator's reference of a credit or adjustment, or the call id of a
	// charge or refund.
	Ref string
	// Note is the reason of an adjustment, or the operator's own reference of a refund.
	Note string
	// Corrects is the id of the transaction that an adjustment corrects. It may be empty.
	Corrects string
	// At is the time when it was written, by the database's clock, in epoch milliseconds.
	At int64
	// Replayed reports that the reference had been posted before and that nothing was written.
	Replayed bool

	auditID string
}

// posting is a change of a wallet that isn't a charge.
type posting struct {
	kind   EntryKind
	wallet WalletID // for a refund, of the call
	micros int64    // for a refund, the charge of the call
	ref    string
	note   string
	actor  string
	// corrects is [Entry].Corrects.
	corrects string
}

// undoes returns the id of the posting or the charge that is taken back, wholly or in part, or "".
func (p posting) undoes() string {
	if p.kind == EntryRefund {
		return p.ref
	}
	return p.corrects
}

// maxTextBytes limits references, notes and actors: long enough for a sentence, short enough for a list.
const maxTextBytes = 500

func (p posting) validate() error {
	for what, text := range map[string]string{"reference": p.ref, "reason": p.note, "actor": p.actor} {
		if len(text) > maxTextBytes || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("%w: the %s must be UTF-8 text of at most %d bytes", ErrInvalid, what, maxTextBytes)
		}
	}
	if p.actor == "" {
		return fmt.Errorf("%w: an actor is needed for the audit log", ErrInvalid)
	}
	if p.ref == "" {
		return fmt.Errorf("%w: a reference is needed, so that a repetition changes nothing", ErrInvalid)
	}
	switch p.kind {
	case EntryTopUp:
		if p.micros <= 0 {
			return fmt.Errorf("%w: a credit needs an amount above 0", ErrInvalid)
		}
	case EntryAdjust:
		if p.micros == 0 || p.micros == math.MinInt64 {
			return fmt.Errorf("%w: an adjustment needs an amount other than 0", ErrInvalid)
		}
		if strings.TrimSpace(p.note) == "" {
			return fmt.Errorf("%w: an adjustment needs a reason", ErrInvalid)
		}
	case EntryRefund:
		return nil // its call has the wallet
	case EntryCharge, EntryReversal:
		return fmt.Errorf("%w: a %s follows from a call or a payment", ErrInvalid, p.kind)
	}
	return p.wallet.validate()
}

// Credit adds micros, above 0, to a wallet, and makes the wallet with its first credit. ref names the payment: a repetition with
// the same amount changes nothing and returns the first entry, Replayed. Credit returns [ErrRefReused] if the amount differs,
// [store.ErrNotFound] for an unknown organization, [ErrOverflow], [ErrInvalid], or a wrapped error of the store.
func (b *Book) Credit(ctx context.Context, actor string, wallet WalletID, micros int64, ref string) (Entry, error) {
	return b.post(ctx, posting{kind: EntryTopUp, wallet: wallet, micros: micros, ref: ref, actor: actor})
}

// Adjust corrects a wallet by micros, up or down, for a reason that the customer may read. If the free balance is too small for a correction down,
// it returns [ErrInsufficientCredits] or [ErrCreditsInTranches] like [Book.Hold]. corrects is the id of the transaction that it corrects, or empty:
// Adjust returns [ErrNotPosted] if the wallet has no such transaction, and [ErrCorrected] if all corrections of the transaction would be larger
// than its amount. ref and the other errors are the same as for [Book.Credit].
func (b *Book) Adjust(ctx context.Context, actor string, wallet WalletID, micros int64, reason, ref, corrects string) (Entry, error) {
	return b.post(ctx, posting{kind: EntryAdjust, wallet: wallet, micros: micros, ref: ref, note: reason, actor: actor, corrects: corrects})
}

// Refund gives the whole charge of a call back, once: a repetition returns the first entry, Replayed, with any ref. ref is the operator's note,
// such as a ticket. It returns [store.ErrNotFound] for an unknown call, [ErrNothingToRefund] for a call without a charge, [ErrOverflow],
// [ErrInvalid], or a wrapped error of the store.
func (b *Book) Refund(ctx context.Context, actor, callID, ref string) (Entry, error) {
	return b.post(ctx, posting{kind: EntryRefund, ref: callID, note: ref, actor: actor})
}

// post writes the posting and its row of the audit log in one transaction.
func (b *Book) post(ctx context.Context, p posting) (Entry, error) {
	if err := p.validate(); err != nil {
		return Entry{}, err
	}
	op := &postOp{posting: p}
	try := func(ctx context.Context) (bool, error) {
		if err := b.db.Do(ctx, Ledger, op); err != nil {
			return false, fmt.Errorf("post %s: %w", p.kind, err)
		}
		op.recalls = true
		return op.pending, op.refused
	}
	_, err := try(ctx)
	if errors.Is(err, ErrInsufficientCredits) {
		err = b.recall(ctx, p.wallet, -p.micros, err, nil, try)
	}
	return op.entry, err
}
