package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// readTimeout bounds each read: one that stays open keeps SQLite's log from being cut (design §7).
const readTimeout = 2 * time.Second

// list reads all rows of a query.
func list[T any](
	ctx context.Context, db *store.DB, doing string, scan func(store.Row) (T, error), text string, args ...any,
) (items []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := db.Reader().QueryContext(ctx, text, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	defer rows.Close() //nolint:errcheck // Err tells
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		items = append(items, item)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return items, nil
}

// one reads the only row of a query, or [store.ErrNotFound].
func one[T any](
	ctx context.Context, db *store.DB, doing string, scan func(store.Row) (T, error), text string, args ...any,
) (item T, err error) {
	items, err := list(ctx, db, doing, scan, text, args...)
	if err == nil && len(items) == 0 {
		err = fmt.Errorf("%s: %w", doing, store.ErrNotFound)
	}
	if err != nil {
		return item, err
	}
	return items[0], nil
}
