package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// indexLockTimeout bounds how long the building of an index waits for one older transaction. No other statement waits behind it.
const indexLockTimeout = migrateLockSeconds * time.Second

// lateIndex is an index on a table of an earlier version, which may hold many millions of rows when its own version
// comes. On PostgreSQL it is built before the transaction of its version then, while others write; so it is about columns
// that the table has had from its beginning, unless its version says afterColumns.
type lateIndex struct {
	name, table string
	rows        string // the columns, and a partial index's condition, in SQL
}

// DDL is the statement that builds the index; how is "" or "CONCURRENTLY".
func (i lateIndex) DDL(how string) string {
	return "CREATE INDEX " + how + " " + i.name + " ON " + i.table + " " + i.rows
}

// createMissing creates the index in the transaction of its version: on SQLite, and on PostgreSQL where its table is as
// new, hence empty. An index that is there already is left alone without asking for a lock on its table.
func (i lateIndex) createMissing(ctx context.Context, tx *sql.Tx, engine driver.Engine) error {
	if engine == driver.Postgres {
		var there bool
		if err := tx.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", i.name).Scan(&there); err != nil {
			return fmt.Errorf("look for index %s: %w", i.name, err)
		}
		if there {
			return nil
		}
	}
	if _, err := tx.ExecContext(ctx, i.DDL("")); err != nil {
		return fmt.Errorf("create index %s: %w", i.name, err)
	}
	return nil
}

// indexBuilder is goose's lock of PostgreSQL. The process that has won it builds the late indexes before goose begins a transaction.
type indexBuilder struct {
	lock.SessionLocker
	versions []Version
}

// SessionLock wins the lock and builds; without the indexes it doesn't keep the lock, because goose wouldn't free it.
func (b indexBuilder) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := b.SessionLocker.SessionLock(ctx, conn); err != nil {
		return err //nolint:wrapcheck // goose says what it did
	}
	if err := b.build(ctx, conn); err != nil {
		return errors.Join(err, b.SessionUnlock(context.WithoutCancel(ctx), conn))
	}
	return nil
}

// build builds the indexes of the versions that are still to come, as far as their tables are there.
func (b indexBuilder) build(ctx context.Context, conn *sql.Conn) error {
	var old bool
	if err := conn.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", VersionTable).Scan(&old); err != nil {
		return fmt.Errorf("look for the versions: %w", err)
	}
	if !old {
		return nil
	}
	applied := true
	for _, version := range b.versions {
		before := applied
		var err error
		if applied, err = version.applied(ctx, conn); err != nil {
			return err
		}
		if applied || (version.afterColumns && !before) {
			continue
		}
		for _, index := range version.indexes {
			if err := index.buildBeside(ctx, conn); err != nil {
				return fmt.Errorf("version %d: build index %s: %w", version.Number, index.name, err)
			}
		}
	}
	return nil
}

// buildBeside builds the index of a table that is there while others write to it. What an interrupted build has left is
// dropped first: writers maintain it, and no reader may use it.
func (i lateIndex) buildBeside(ctx context.Context, conn *sql.Conn) (err error) {
	var table, there, valid bool
	row := conn.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL,
		coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($2)), false)`, i.table, i.name)
	if err = row.Scan(&table, &there, &valid); err != nil {
		return fmt.Errorf("look for it: %w", err)
	}
	if !table || valid {
		return nil
	}
	// Both statements wait for open transactions that write to the table, and no other statement waits behind them. Given up after a second,
	// each try would begin anew and none might come to an end.
	if err = setLockTimeout(ctx, conn, indexLockTimeout); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, setLockTimeout(context.WithoutCancel(ctx), conn, driver.MigrationLockTimeout))
	}()
	if there {
		if _, err = conn.ExecContext(ctx, "DROP INDEX CONCURRENTLY "+i.name); err != nil {
			return fmt.Errorf("drop what an interrupted build left: %w", err)
		}
	}
	_, err = conn.ExecContext(ctx, i.DDL("CONCURRENTLY"))
	return err //nolint:wrapcheck // the caller says which index
}

func setLockTimeout(ctx context.Context, conn *sql.Conn, timeout time.Duration) error {
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET lock_timeout = %d", timeout.Milliseconds())); err != nil {
		return fmt.Errorf("bound the wait for locks: %w", err)
	}
	return nil
}
