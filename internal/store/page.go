package store

import (
	"context"
	"errors"
	"fmt"
)

// The rows of a page: how many a zero Page reads, and how many any page reads at most.
const (
	defaultPageRows = 100
	maxPageRows     = 1000
)

// Page is a part of a list that is in order of id, which is the order of creation ([NewID]): what follows After. The
// zero value is the first 100 rows.
type Page struct {
	After string // id of the last row that was seen; "" from the start
	Limit int    // rows; see [Page.Rows]
}

// Rows is how many rows the page reads at most: Limit, 100 when that is 0 or negative, never more than 1,000.
func (p Page) Rows() int {
	if p.Limit <= 0 {
		return defaultPageRows
	}
	return min(p.Limit, maxPageRows)
}

// readPage is [ReadRows] for a page: of the rows of a query that ends with its WHERE, those that follow the page's After, in
// order of the column id.
func readPage[T any](
	ctx context.Context, db *DB, doing string, scan func(Row) (T, error), text, id string, page Page, arguments ...any,
) ([]T, error) {
	after := len(arguments) + 1
	return ReadRows(ctx, db, doing, scan, fmt.Sprintf("%s AND %s > $%d ORDER BY %s LIMIT $%d", text, id, after, id, after+1),
		append(arguments, page.After, page.Rows())...)
}

// fewestRows is how small ReadPages makes a page.
const fewestRows = 60

// ReadPages calls read until it reports that there are no more rows. Each call is one page of at most rows rows, in statements
// with a deadline of their own, so that none stays open for long in a database that is in use; a page that took too long
// for it is read again with half the rows, down to 60, and so are the pages after it. The error is read's: also
// [context.DeadlineExceeded], of the smallest page or of ctx.
func ReadPages(ctx context.Context, rows int, read func(rows int) (more bool, err error)) error {
	for {
		more, err := read(rows)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && rows >= 2*fewestRows:
			rows /= 2
		case err != nil || !more:
			return err
		}
	}
}
