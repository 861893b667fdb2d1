package billing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// DefaultKeptBytes bounds the kept answers of a wallet unless [Book.KeepAtMost] sets another bound.
const DefaultKeptBytes = 64 << 20

// Book reads and changes the money of one database. Any number may be made with [NewBook].
type Book struct {
	db        *store.DB
	tranches  *Tranches // off until they are started
	keptBytes atomic.Int64
	// prices are the ids of those prices that this process has written.
	prices sync.Map
}

// NewBook opens the book kept in db, which must have been opened with [Ledger] among its kinds.
func NewBook(db *store.DB) *Book {
	b := &Book{db: db, tranches: newTranches(db, nil)}
	b.tranches.off = true
	b.KeepAtMost(DefaultKeptBytes)
	return b
}

// KeepAtMost bounds the kept answers of each wallet, in bytes. An answer that finds no room is charged and not kept; what is kept stays.
func (b *Book) KeepAtMost(bytes int64) { b.keptBytes.Store(bytes) }

// Hold reserves an amount, and claims the call's Idempotency-Key when it has one, in one transaction, and returns once that is
// durable. With [Tranches] the reservation may have been durable before. Nothing is reserved or claimed when it returns a [Replay],
// or an error other than [store.ErrCommitUnknown], after which both may exist until [Book.Settle] voids the call. Repeating a hold
// whose call has not ended succeeds; with Tranches a call without a claim is held once, and one of unknown outcome voided.
//
// A Replay is the finished call that has the key, with the same content. Hold returns [ErrKeyReused], [ErrKeyInFlight],
// [ErrInsufficientCredits], [ErrCreditsInTranches], [ErrCallEnded], [ErrInvalid], [store.ErrNotFound] (a claim for an unknown
// organization), the refusal of the hold's [Companion], or a wrapped error of the store.
func (b *Book) Hold(ctx context.Context, hold Hold) (*Replay, error) {
	if err := hold.validate(); err != nil {
		return nil, err
	}
	op := &holdOp{Hold: hold}
	if hold.With == nil { // else there is a transaction in any case
		granted, ride, err := b.tranches.hold(hold)
		if granted || err != nil {
			return nil, err
		}
		op.ride = ride
	}
	for {
		if err := b.do(ctx, op, op.ride); err != nil {
			return nil, fmt.Errorf("hold credits: %w", err)
		}
		switch {
		case op.finished != "":
			// A finished key that expires before it is read is free for this call.
			if replay, found, err := b.replay(ctx, hold, op.finished); found || err != nil {
				return replay, err
			}
		case errors.Is(op.refused, ErrInsufficientCredits) && !hold.Rough:
			if err := b.recall(ctx, hold.Wallet, hold.AmountMicros, op.retry(b)); err != nil || op.finished == "" {
				return nil, err
			}
		default:
			return nil, op.refused
		}
	}
}

// retry returns the hold as a try of [Book.recall].
func (op *holdOp) retry(b *Book) func(context.Context) (pending bool, err error) {
	return func(ctx context.Context) (bool, error) {
		op.recalls, op.ride = true, b.tranches.returning(op.Wallet)
		if err := b.do(ctx, op, op.ride); err != nil {
			return false, fmt.Errorf("hold credits: %w", err)
		}
		return op.pending, op.refused
	}
}

// do has an operation decided and written, with what it carries for a tranche.
func (b *Book) do(ctx context.Context, op store.Op, ride *ride) error {
	err := b.db.Do(ctx, Ledger, op)
	ride.answer(err)
	return err
}

// Settle ends a call for good: it releases the hold, charges the wallet and writes the call's row in one transaction, and returns once
// that is durable. It may be repeated, and then returns the figures of the first settlement. A settlement that comes after its hold
// was lost charges, too, unless another call has got the key meanwhile. See [Settled] for what isn't charged. After Settle no hold of
// the call can be made, so a void ends a call whose Hold returned [store.ErrCommitUnknown], whether or not that commit arrived. It
// returns [ErrInvalid], the refusal of the settlement's [Companion], or a wrapped error of the store; after these two it may be repeated.
func (b *Book) Settle(ctx context.Context, settlement Settlement) (Settled, error) {
	op, err := b.settlement(settlement)
	if err != nil {
		return Settled{}, err
	}
	op.ride = b.tranches.settle(settlement.Call)
	if err := b.do(ctx, op, op.ride); err != nil {
		return Settled{}, fmt.Errorf("settle call: %w", err)
	}
	if op.price != nil && op.refused == nil {
		b.prices.Store(*op.price, op.priceID)
	}
	return op.settled, op.refused
}

// Record writes the row of a call without money and without an Idempotency-Key. Its caller needn't wait for the result: the row
// goes with the next transaction, a second later at the latest, and is all that a process killed meanwhile loses. Any other
// settlement is refused with [ErrInvalid].
func (b *Book) Record(settlement Settlement) (*store.PendingWrite, error) {
	op, err := b.settlement(settlement)
	if err == nil && (settlement.ReservedMicros > 0 || op.priceID != 0 || settlement.Claim != nil) {
		err = fmt.Errorf("%w: a call with money or an idempotency key is settled, not recorded", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	op.recorded = true
	return b.db.SubmitLazily(Ledger, op), nil
}

// settlement returns the operation that ends a call.
func (b *Book) settlement(s Settlement) (*settleOp, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	op := &settleOp{Settlement: s, keptBytes: b.keptBytes.Load()}
	if s.Price.free() {
		return op, nil
	}
	price := pricedModel{s.Call.Model, s.Price}
	if id, known := b.prices.Load(price); known {
		op.priceID = id.(int64) //nolint:forcetypeassert // nothing else is stored
		return op, nil
	}
	op.priceID, op.price = price.id(), &price
	return op, nil
}
