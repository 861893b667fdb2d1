package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
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

// Unhurried lets operations and transactions take as long as they like. It is called before the first of them.
func (db *DB) Unhurried() {
	db.writer.patience, db.writer.life = time.Hour, 0
	pace := &db.writer.queue.pace
	pace.least, pace.most, pace.longest = time.Hour, time.Hour, time.Hour
}

// Connections is the number of a process's connections to PostgreSQL, those that are being made or closed included.
func (db *DB) Connections() int32 {
	return db.pools.work.Stat().TotalConns() + db.pools.reads.Stat().TotalConns()
}

// Hurried leaves operations no time to wait. It is called before the first of them.
func (db *DB) Hurried() { db.writer.patience = 0 }

// MigrateWith does what Migrate of a newer binary does, which has one version more.
func (db *DB) MigrateWith(ctx context.Context, ddl string) error {
	conn, err := openForMigration(db.location)
	if err != nil {
		return err
	}
	engine := db.location.Engine
	versions := append(migrations(engine), migration{version: 1000, ddl: ddl})
	return errors.Join(migrate(ctx, engine, conn, versions), conn.Close())
}

// Statements are the texts that the writer and one lookup connection have prepared on SQLite.
func (db *DB) Statements() (texts []string) {
	writer, hot := db.writer.conn.(*sqliteWriter), db.hot.(*sqliteHotReader)
	idle := <-hot.idle
	defer func() { hot.idle <- idle }()
	for _, conn := range []*sqliteConn{writer.conn, idle} {
		texts = slices.AppendSeq(texts, maps.Keys(conn.statements))
	}
	return texts
}

// PostgresClock is the database's clock in PostgreSQL's words.
const PostgresClock = postgresClock
