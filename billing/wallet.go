package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Wallet is what an organization has in one environment, in micros.
type Wallet struct {
	// BalanceMicros includes what is held.
	BalanceMicros int64
	// HeldMicros is reserved for calls that are running: 0..BalanceMicros.
	HeldMicros int64
}

// Wallet reads a wallet. One that was never topped up is empty, which is no error: wallets are made by their first
// credit.
func (b *Book) Wallet(ctx context.Context, id WalletID) (Wallet, error) {
	if err := id.validate(); err != nil {
		return Wallet{}, err
	}
	var wallet Wallet
	err := b.db.Reader().QueryRowContext(ctx,
		`SELECT balance_micros, held_micros FROM wallets WHERE org_id = $1 AND env = $2`, id.OrgID, string(id.Env),
	).Scan(&wallet.BalanceMicros, &wallet.HeldMicros)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Wallet{}, fmt.Errorf("read wallet: %w", err)
	}
	return wallet, nil
}
