package store

import (
	"context"
	"errors"
)

// fewestRows is how small ReadPages makes a page.
const fewestRows = 60

// ReadPages calls read until it says that there is no more. Each call is one page of at most rows rows, in statements
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
