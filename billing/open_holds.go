package billing

import (
	"context"
	"fmt"
)

// OpenHolds counts the holds of all wallets that are neither settled nor voided nor expired.
func (b *Book) OpenHolds(ctx context.Context) (count int64, err error) {
	err = b.db.Reader().QueryRowContext(ctx, `SELECT count(*) FROM holds WHERE status = 'open'`).Scan(&count)
	if err != nil {
		return 0, fmt.Errorf("counting open holds: %w", err)
	}
	return count, nil
}
