package billing

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Book reads and changes the money of one database. Any number may be made with [NewBook]; only one with [Book.StartTranches] has a
// state of its own.
type Book struct {
	db       *store.DB
	tranches *Tranches // nil without
}

// NewBook opens the book kept in db, which must have been opened with [Ledger] among its kinds.
func NewBook(db *store.DB) *Book {
	return &Book{db: db}
}

// Hold reserves an amount, and claims the call's Idempotency-Key when it has one, in one transaction, and returns once that is
// durable. With [Tranches] the reservation may have been durable before. Nothing is reserved or claimed when it returns a [Replay],
// or an error other than [store.ErrCommitUnknown], after which both may exist until [Book.Abandon] decides. Repeating an open hold
// with the same claim succeeds; with Tranches a call without a claim is held once, and one of unknown outcome abandoned.
//
// A Replay is the finished call that has the key, with the same content. Hold returns [ErrKeyReused], [ErrKeyInFlight],
// [ErrInsufficientCredits], [ErrCreditsInTranches], [ErrCallEnded], [ErrInvalid], [store.ErrNotFound] (a claim for an unknown
// organization), or a wrapped error of the store.
func (b *Book) Hold(ctx context.Context, hold Hold) (*Replay, error) {
	if err := hold.validate(); err != nil {
		return nil, err
	}
	if granted, err := b.tranches.hold(hold); granted || err != nil {
		return nil, err
	}
	for {
		op, err := b.holdOnce(ctx, hold)
		if err != nil {
			return nil, fmt.Errorf("hold credits: %w", err)
		}
		switch {
		case op.finished != "":
			// A finished key that expires before it is read is free for this call.
			if replay, found, err := b.replay(ctx, hold, op.finished); found || err != nil {
				return replay, err
			}
		case errors.Is(op.refused, ErrInsufficientCredits) && !hold.Rough:
			if err := b.recall(ctx, hold.Wallet, hold.AmountMicros); err != nil {
				return nil, err
			}
		default:
			return nil, op.refused
		}
	}
}

func (b *Book) holdOnce(ctx context.Context, hold Hold) (*holdOp, error) {
	taking := b.tranches.take(hold)
	op := &holdOp{Hold: hold}
	if taking != nil {
		op.take = taking.take
	}
	err := b.db.Do(ctx, Ledger, op)
	b.tranches.taken(taking, err)
	return op, err
}

// Settle ends a call for good: it releases the hold, charges the wallet and writes the call's row in one
// transaction, and returns once that is durable. See [Settled] for a cost above the hold, a hold that has expired
// and a settlement that is repeated. It returns [ErrNoHold], [ErrInvalid], or a wrapped error of the store; after the
// latter the settlement may be repeated.
func (b *Book) Settle(ctx context.Context, settlement Settlement) (Settled, error) {
	if err := settlement.validate(); err != nil {
		return Settled{}, err
	}
	op := &settleOp{Settlement: settlement}
	settling := b.tranches.settle(settlement.Call)
	if settling != nil {
		op.use = &settling.use
	}
	if err := b.db.Do(ctx, Ledger, op); err != nil {
		b.tranches.settled(settling, Settled{}, nil, err)
		return Settled{}, fmt.Errorf("settle call: %w", err)
	}
	b.tranches.settled(settling, op.settled, op.refused, nil)
	return op.settled, op.refused
}

// Abandon ends a call whose [Book.Hold] returned [store.ErrCommitUnknown]. After it the hold is voided and the Idempotency-Key
// is free, whether or not that commit arrived, and no later commit or repetition of the hold can restore them: a hold that
// doesn't exist is written as voided, so that its id is taken. call is the row of the call, which cost nothing. Abandon may be
// repeated. It returns [ErrInvalid], or a wrapped error of the store, after which nothing is decided.
func (b *Book) Abandon(ctx context.Context, hold Hold, call Call) error {
	settlement := Settlement{Call: call, Held: hold.AmountMicros > 0, Void: true, Claim: hold.Claim}
	err := errors.Join(hold.validate(), settlement.validate())
	if err == nil && (call.ID != hold.CallID || call.Wallet != hold.Wallet) {
		err = fmt.Errorf("%w: the hold is another call's", ErrInvalid)
	}
	if err != nil {
		return err
	}
	op := &settleOp{Settlement: settlement, abandoned: &hold}
	if err := b.db.Do(ctx, Ledger, op); err != nil {
		return fmt.Errorf("abandon hold: %w", err)
	}
	return op.refused
}

// Record writes the row of a call without money and without an Idempotency-Key. Its caller needn't wait for the result: the row
// goes with the next transaction, a second later at the latest, and is all that a process killed meanwhile loses. Any other
// settlement is refused with [ErrInvalid].
func (b *Book) Record(settlement Settlement) (*store.PendingWrite, error) {
	err := settlement.validate()
	if err == nil && (settlement.Held || settlement.ChargeMicros != 0 || settlement.Claim != nil) {
		err = fmt.Errorf("%w: a call with money or an idempotency key is settled, not recorded", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return b.db.SubmitLazily(Ledger, &settleOp{Settlement: settlement, recorded: true}), nil
}
