package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// readPatience bounds [ReadRows] and [ReadRow]: a read that stays open keeps SQLite's log from being cut.
const readPatience = 2 * time.Second

// ReadRows reads all rows of a query through the reader, in at most 2 s; scan makes an item of the current row. The
// arguments are of the types that [Tx] takes. The error says what was being done, and may be [ErrBusy] when the time was too
// short, [ErrText] or [ErrClosed].
func ReadRows[T any](
	ctx context.Context, db *DB, doing string, scan func(Row) (T, error), text string, arguments ...any,
) (items []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	defer func() {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrBusy, err)
		}
	}()
	bound, err := driver.BindArgs(arguments) // database/sql takes the same values on both engines
	if err != nil {
		return nil, driver.WrapError(doing, err)
	}
	rows, err := db.reader.QueryContext(ctx, text, bound...)
	if err != nil {
		return nil, driver.WrapError(doing, db.orClosed(err))
	}
	defer closeRows(rows, &err, doing)
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			return nil, driver.WrapError(doing, err)
		}
		items = append(items, item)
	}
	return items, driver.WrapError(doing, rows.Err())
}

// ReadRow is [ReadRows] for a query of at most one row, and fails with [ErrNotFound] when there is none.
func ReadRow[T any](
	ctx context.Context, db *DB, doing string, scan func(Row) (T, error), text string, arguments ...any,
) (item T, err error) {
	items, err := ReadRows(ctx, db, doing, scan, text, arguments...)
	if err != nil {
		return item, err
	}
	if len(items) == 0 {
		return item, driver.WrapError(doing, ErrNotFound)
	}
	return items[0], nil
}

func closeRows(rows *sql.Rows, err *error, doing string) {
	if closed := rows.Close(); *err == nil && closed != nil {
		*err = driver.WrapError(doing, closed)
	}
}

// orClosed returns [ErrClosed] for a read that failed because the database was closed.
func (db *DB) orClosed(err error) error {
	select {
	case <-db.writer.Closed():
		return ErrClosed
	default:
		return err
	}
}

// Changed runs a writing statement with RETURNING and reports whether it changed a row.
func Changed(ctx context.Context, tx Tx, text string, arguments ...any) (bool, error) {
	found := false
	err := tx.Query(ctx, func(Row) error {
		found = true
		return nil
	}, text, arguments...)
	return found, err
}

// change is changed where a row that isn't there is an error: ErrNotFound.
func change(ctx context.Context, tx Tx, text string, arguments ...any) error {
	found, err := Changed(ctx, tx, text, arguments...)
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// orNow returns a time, or the transaction's clock when it is 0.
func orNow(tx Tx, at int64) int64 {
	if at == 0 {
		return tx.Now()
	}
	return at
}
