package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ErrCreditsInTranches is returned when an amount would fit if a tranche of the wallet gave back what no call uses, and the process
// that has it didn't do so in time. After [trancheLease] the tranche ends without it, so trying again succeeds or is refused.
var ErrCreditsInTranches = errors.New("another process holds credits that it doesn't use")

const (
	// recallPause is about the pause between two looks at a wallet whose tranches are recalled.
	recallPause = 50 * time.Millisecond
	// recallWait bounds the wait: a lease, and some time for the database.
	recallWait = trancheLease + 5*time.Second
)

// recall tries an operation again that found too little in the free balance of its wallet, with all processes asked for what they don't
// use. try reports with [ErrInsufficientCredits] whether some may still give back. recall returns try's last error, ErrInsufficientCredits
// without a try when all that tranches have is too little, or [ErrCreditsInTranches].
func (b *Book) recall(ctx context.Context, wallet WalletID, micros int64, try func(context.Context) (pending bool, err error)) error {
	most, err := b.Spendable(ctx, wallet)
	if err != nil {
		return err
	}
	if most < micros {
		return ErrInsufficientCredits
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recallWait, ErrCreditsInTranches)
	defer cancel()
	for {
		pending, err := try(ctx)
		if !pending || !errors.Is(err, ErrInsufficientCredits) {
			return err
		}
		if err := b.awaitReturn(ctx, wallet, micros); err != nil {
			return err
		}
	}
}

// awaitReturn waits until another try may succeed: the amount is free, no tranche has anything to spare, or a second has passed, after
// which a lease may be over.
func (b *Book) awaitReturn(ctx context.Context, wallet WalletID, micros int64) error {
	for looks := time.Second / recallPause; looks > 0; looks-- {
		if err := repeat.Pause(ctx, repeat.Around(recallPause)); err != nil {
			return fmt.Errorf("recall tranches: %w: %w", ErrCreditsInTranches, err)
		}
		var free int64
		var spare bool
		err := b.db.Reader().QueryRowContext(ctx, selectSpare, wallet.OrgID, string(wallet.Env)).Scan(&free, &spare)
		if err != nil {
			return fmt.Errorf("look for returned tranches: %w", err)
		}
		if free >= micros || !spare {
			return nil
		}
	}
	return nil
}

// Spendable returns the most that a hold in a wallet may get, in micros: the free balance with all that its tranches hold. A part of
// the latter may be in use. The error is one of reading.
func (b *Book) Spendable(ctx context.Context, wallet WalletID) (micros int64, err error) {
	micros, err = store.ReadRow(ctx, b.db, "read the free balance", func(row store.Row) (int64, error) {
		var free, left int64
		if err := row.Scan(&free, &left); err != nil {
			return 0, err
		}
		return addMicros(free, left)
	}, selectSpendable, wallet.OrgID, string(wallet.Env))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return micros, err
}
