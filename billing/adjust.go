package billing

import (
	"context"
	"fmt"
)

// Credit tops up a wallet by micros, above 0, and makes the wallet when it is the first. ref names the payment: the
// same reference and amount again change nothing and return the first entry, Replayed. An empty ref makes every call
// a payment of its own. It returns [ErrRefReused] for the reference with another amount, [store.ErrNotFound] for an
// unknown organization, [ErrOverflow], [ErrInvalid], or a wrapped error of the store.
func (b *Book) Credit(ctx context.Context, actor string, wallet WalletID, micros int64, ref string) (Entry, error) {
	return b.post(ctx, posting{kind: EntryTopUp, wallet: wallet, micros: micros, ref: ref, actor: actor})
}

// Adjust corrects a wallet by micros, up or down, for a reason that the customer may read. It takes at most the free balance:
// beyond that it returns [ErrInsufficientCredits]. ref and the other errors are as for [Book.Credit].
func (b *Book) Adjust(
	ctx context.Context, actor string, wallet WalletID, micros int64, reason, ref string,
) (Entry, error) {
	return b.post(ctx, posting{kind: EntryAdjust, wallet: wallet, micros: micros, ref: ref, note: reason, actor: actor})
}

// Refund gives back all that a call was charged, once: a repetition returns the first entry, Replayed, whatever ref is. ref is
// the operator's note, such as a ticket. It returns [store.ErrNotFound] for an unknown call, [ErrNothingToRefund] for one that
// wasn't charged, [ErrOverflow], [ErrInvalid], or a wrapped error of the store.
func (b *Book) Refund(ctx context.Context, actor, callID, ref string) (Entry, error) {
	return b.post(ctx, posting{kind: EntryRefund, ref: callID, note: ref, actor: actor})
}

// post writes the posting and its row of the audit log in one transaction.
func (b *Book) post(ctx context.Context, p posting) (Entry, error) {
	if err := p.validate(); err != nil {
		return Entry{}, err
	}
	op := &postOp{posting: p}
	if err := b.db.Do(ctx, Ledger, op); err != nil {
		return Entry{}, fmt.Errorf("post %s: %w", p.kind, err)
	}
	return op.entry, op.refused
}
