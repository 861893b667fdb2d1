package store

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caddy-svc/caddy-svc/internal/store/driver/postgres"
	"github.com/caddy-svc/caddy-svc/internal/store/driver/sqlite"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
	"github.com/caddy-svc/caddy-svc/internal/store/writer"
)

// MaxQueued is the bound of the write queue, for the tests.
const MaxQueued = writer.MaxQueued

// Abandoned reports that Close has run out of time.
func (db *DB) Abandoned() bool {
	select {
	case <-db.writer.Abandoned():
		return true
	default:
		return false
	}
}

// MigrateWith does what Migrate of a newer binary does, which has more versions.
func (db *DB) MigrateWith(ctx context.Context, ddl ...string) error {
	versions := schema.Versions(db.Engine())
	for _, text := range ddl {
		versions = append(versions, schema.Version{Number: int64(len(versions)) + 1, DDL: schema.Dialect(db.Engine(), text)})
	}
	conn, done, err := db.driver.ForMigration(ctx)
	if err != nil {
		return err
	}
	return errors.Join(schema.Migrate(ctx, db.Engine(), conn, versions), done())
}

// Unhurried lets operations and transactions take as long as they like. It is called before the first of them.
func (db *DB) Unhurried() { db.writer.SetPatience(time.Hour, 0) }

// Hurried leaves operations no time to wait. It is called before the first of them.
func (db *DB) Hurried() { db.writer.SetPatience(0, time.Hour) }

// Connections is the number of a process's connections to PostgreSQL, those that are being made or closed included.
func (db *DB) Connections() int32 { return db.driver.(*postgres.Driver).Connections() }

// Statements are the texts that the writer and one lookup connection have prepared on SQLite, and whether each changes what the
// hot look-ups remember.
func (db *DB) Statements() map[string]bool { return db.driver.(*sqlite.Driver).PreparedStatements() }

// WriterStatements is how many statements the writer has run on SQLite. Nothing may be written meanwhile.
func (db *DB) WriterStatements() int { return db.driver.(*sqlite.Driver).WriterStatements() }

// PostgresClock is the database's clock in PostgreSQL's words.
const PostgresClock = postgres.ClockSQL

// HoldTurn takes the turn to write to a SQLite file until release is called.
func HoldTurn(path string) (release func() error, err error) {
	file, err := os.OpenFile(path+".turn", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return file.Close, errors.Join(unix.Flock(int(file.Fd()), unix.LOCK_EX))
}

// MaxRemembered is the bound of the routes that a process remembers.
const MaxRemembered = maxRemembered

// LearnRoute remembers a route as one that was read.
func (db *DB) LearnRoute(route *Route) { db.routes.learnID(route.ChannelID, route) }
