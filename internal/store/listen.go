package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Now is the database's clock in epoch milliseconds, the one that [Tx.Now] reads.
func (db *DB) Now(ctx context.Context) (now int64, err error) {
	if db.location.Engine == SQLite {
		return db.clock().UnixMilli(), nil
	}
	if err := db.reader.QueryRowContext(ctx, "SELECT "+postgresClock).Scan(&now); err != nil {
		return 0, sqlError("store: read the clock", db.orClosed(err))
	}
	return now, nil
}

// Listen hears what is notified on a PostgreSQL channel while use runs: it takes a connection of its own, subscribes,
// and hands use a function that waits until a notification comes, or for at most the given time, and says which. One
// that came since the subscription is not lost. So use looks first and waits then. It returns [ErrUnsupported] on
// SQLite, which can't notify, and the error of use. A lost connection is an error: call it again.
func (db *DB) Listen(
	ctx context.Context, channel string,
	use func(wait func(ctx context.Context, atMost time.Duration) (heard bool, err error)) error,
) error {
	if db.location.Engine != Postgres {
		return fmt.Errorf("store: listen: %w", ErrUnsupported)
	}
	conn, err := db.pools.sessions.Acquire(ctx)
	if err != nil {
		return sqlError("store: listen", db.orClosed(err))
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return sqlError("store: listen", err)
	}
	failed := use(func(ctx context.Context, atMost time.Duration) (bool, error) {
		return waitForNotification(ctx, conn.Conn(), atMost)
	})
	// The connection goes back to the pool, so it must hear nothing more; one that can't say so is closed.
	if _, err := conn.Exec(context.WithoutCancel(ctx), "UNLISTEN *"); err != nil {
		err = errors.Join(err, conn.Conn().Close(context.WithoutCancel(ctx)))
		return errors.Join(failed, sqlError("store: stop listening", err))
	}
	return failed
}

// waitForNotification leaves the connection usable when the time is over: pgx breaks a wait by its deadline only.
func waitForNotification(ctx context.Context, conn *pgx.Conn, atMost time.Duration) (bool, error) {
	bounded, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	_, err := conn.WaitForNotification(bounded)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case pgconn.Timeout(err):
		return false, nil
	}
	return false, sqlError("store: wait for a notification", err)
}
