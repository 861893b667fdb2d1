package store

import (
	"context"
	"errors"
)

// MaxQueued is the bound of the write queue, for the tests.
const MaxQueued = maxQueued

// HoldTurn takes the turn to write to a SQLite file until release is called.
func HoldTurn(path string) (release func() error, err error) {
	turns, err := openTurnstile(path)
	if err != nil {
		return nil, err
	}
	turns.take(nil)
	return turns.close, nil
}

// Abandoned reports that Close has run out of time.
func (db *DB) Abandoned() bool {
	select {
	case <-db.writer.abandoned:
		return true
	default:
		return false
	}
}

// Versions is the number of schema versions.
func Versions() int { return len(migrations(SQLite)) }

// MigrateTo does what Migrate of an older binary does, whose newest schema version this is.
func (db *DB) MigrateTo(ctx context.Context, version int) error {
	conn, err := openForMigration(db.location)
	if err != nil {
		return err
	}
	engine := db.location.Engine
	return errors.Join(migrate(ctx, engine, conn, migrations(engine)[:version]), conn.Close())
}
