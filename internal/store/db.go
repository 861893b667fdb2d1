// Package store is the database of a process: opening and closing it, its migration, its transactions, and plain reading
// and writing of the resources that have no rules of their own, with one type and one file for each ([Resources]).
//
// It has more than 3,000 lines because each resource brings its rows, its statements and its rules of locking; they share the
// audit log, locks and transactions with each other.
//
// Package driver is the contract with the two engines, driver/sqlite and driver/postgres implement it. Package writer runs
// all writes, package schema has the tables, package archive moves a store to another engine.
//
// # What holds
//
//   - One DDL text and one SQL text with $n parameters serve both engines, but for lists of rows ([RowStatement]): times are epoch milliseconds,
//     JSON is text, text is valid UTF-8 without NUL ([ErrText]).
//   - Every write of a process goes through the writer. Writes that wait at the same moment share one transaction (natural batching: no
//     timer), so the price of a commit is shared, too. A result is returned only after the COMMIT that made it durable. Transactions follow
//     each other; on PostgreSQL one of [RowLocking] kinds may begin while another one commits.
//   - A fault of one operation never fails another: kinds run in savepoints, and operations of a failed group run
//     again, each alone.
//   - Every wait has a bound: the queue's length, the turn between processes, statements, and an operation's life in
//     the writer.
//   - Correctness comes from constraints and guarded statements. File locks between processes of one SQLite file only
//     make them take turns; a process that can't get its turn writes without it.
//
// # What it does not do
//
// It has no rules of money and of the queue: billing and inbox bring them as a [Kind] and own every statement on
// their tables, but that a deleted channel takes its conversations along. It opens no secrets (sealed columns are opaque
// bytes), returns nothing that another process has changed since, but remembered routes, which are marked, and imports only the packages
// below it. Tests use storetest.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
	"github.com/caddy-svc/caddy-svc/internal/store/driver/postgres"
	"github.com/caddy-svc/caddy-svc/internal/store/driver/sqlite"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
	"github.com/caddy-svc/caddy-svc/internal/store/writer"
)

// Options configures a DB. The zero value has no kinds, keeps no logs and uses the system's clock.
type Options struct {
	// Kinds are applied in this order within a transaction. Names must be unique.
	Kinds []Kind
	// Logger gets lost transactions and panics; nil discards them.
	Logger *slog.Logger
	// Clock is [Tx.Now] on SQLite, where the process's clock is the database's; nil is [time.Now].
	Clock func() time.Time
	// Observer is called after every transaction of the writer; nil is none.
	Observer writer.Observer
}

// DB is an open database. All methods may be called at the same time.
type DB struct {
	Resources

	location Location

	driver driver.Driver
	reader *sql.DB          // the driver's
	hot    driver.HotReader // the driver's
	writer *writer.Writer
	routes routeMemory // of PostgreSQL, see [Routes]

	closing sync.Once
	closed  error
}

// Open connects to a database and starts its writer. It creates a SQLite file that doesn't exist, and refuses one on
// a network file system. It does not migrate: see [DB.Migrate]. The caller must [DB.Close] it.
func Open(ctx context.Context, location Location, options Options) (*DB, error) {
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
	if options.Clock == nil {
		options.Clock = time.Now
	}
	db := &DB{location: location}
	db.Resources = newResources(db)
	var err error
	switch location.Engine {
	case SQLite:
		db.driver, err = sqlite.Open(ctx, location.DSN, options.Clock, options.Logger)
	case Postgres:
		db.driver, err = postgres.Open(ctx, location)
	default:
		err = errors.New("the location names no engine: use ParseLocation")
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db.reader, db.hot = db.driver.Reader(), db.driver.HotReader()
	db.writer, err = writer.New(db.driver.Writer(), writer.Options{Kinds: options.Kinds, Logger: options.Logger, Observer: options.Observer})
	if err != nil {
		return nil, errors.Join(err, db.driver.Close(ctx))
	}
	go db.writer.Run()
	return db, nil
}

// Migrate brings the tables to the newest version, and does nothing when they have it. Older processes that run go on working, because a
// version only expands. Several processes may call it at once: on PostgreSQL an advisory lock lets one work; on SQLite the transaction that
// takes the write lock looks again whether its version has been applied meanwhile. On PostgreSQL it works through the direct address, if there
// is one, waits for a table a second at most, so that no write waits longer behind it, and tries again, for up to five minutes.
//
// It fails with [ErrNewer] in a store that a newer program has migrated, and with [ErrUnreleased] in one that was made before the first version.
func (db *DB) Migrate(ctx context.Context) error {
	migration, err := db.driver.ForMigration(ctx)
	if err != nil {
		return fmt.Errorf("store: migrate: %w", err)
	}
	err = schema.Migrate(ctx, db.Engine(), migration.Conn, schema.Versions(db.Engine()))
	if closed := migration.Done(); err == nil {
		err = closed
	}
	return driver.WrapError("store: migrate", err)
}

// Check returns nil if the program can use the store as it is. It fails as [DB.Migrate] does, and with [ErrOlder] where that would change
// something.
func (db *DB) Check(ctx context.Context) error {
	if err := schema.Check(ctx, db.Engine(), db.reader, schema.Versions(db.Engine())); err != nil {
		return fmt.Errorf("store: %w", db.orClosed(err))
	}
	return nil
}

// Fill runs one transaction of any length, past the writer. On SQLite nothing else can be written until it ends.
func (db *DB) Fill(ctx context.Context, run func(*sql.Tx) error) (err error) {
	session, err := db.driver.ForMigration(ctx)
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	defer func() { err = errors.Join(err, session.Done()) }()
	if db.Engine() == SQLite {
		if _, err := session.Conn.ExecContext(ctx, "PRAGMA foreign_keys = 1"); err != nil { // a migration has them off
			return driver.WrapError("have foreign keys checked", err)
		}
	}
	tx, err := session.Conn.BeginTx(ctx, nil)
	if err != nil {
		return driver.WrapError("begin", err)
	}
	defer tx.Rollback() //nolint:errcheck // after an error, which is returned
	if err = run(tx); err == nil {
		err = driver.WrapError("commit", tx.Commit())
	}
	if err != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return err
}

// Engine returns the database's engine.
func (db *DB) Engine() Engine { return db.location.Engine }

// Location returns the database's address.
func (db *DB) Location() Location { return db.location }

// Reader returns the pool for reading with $n SQL. Writes go through the writer; SQLite refuses them here. A read must not
// stay open across a call to a provider or a client (2 s at most): on SQLite it keeps the WAL from being reused.
func (db *DB) Reader() *sql.DB { return db.reader }

// Windows counts requests for several processes that share a PostgreSQL; nil on SQLite.
func (db *DB) Windows() Windows { return db.hot.Windows() }

// Ping reports whether the database can be read and its writer takes work. It writes nothing.
func (db *DB) Ping(ctx context.Context) error {
	var one int
	err := db.reader.QueryRowContext(ctx, "SELECT 1 FROM organizations LIMIT 1").Scan(&one)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return driver.WrapError("store: read", err)
	}
	return db.writer.Ping(ctx)
}

// Queued returns the number of operations that wait for the writer.
func (db *DB) Queued() int { return db.writer.Queued() }

// WALBytes returns the size of SQLite's write-ahead log in bytes, 0 on PostgreSQL.
func (db *DB) WALBytes() int64 { return db.driver.WALBytes() }

// BackupTo writes a consistent copy of a SQLite database to a new file, readable by this user only, while the database
// is in use. It fails when the file exists, and with [ErrUnsupported] on PostgreSQL, whose own pg_dump does it better.
func (db *DB) BackupTo(ctx context.Context, path string) error { return db.driver.BackupTo(ctx, path) }

// Snapshot reads the database as it is now, until done is called, while others work on it. On SQLite it reads a copy that
// is made first, in a new folder beside the database, so that no read stays open on the database itself; that takes the
// space of the database once more until done is called. On PostgreSQL it reads one snapshot, which keeps the server from
// cleaning up for as long.
func (db *DB) Snapshot(ctx context.Context) (reader driver.SnapshotReader, done func() error, err error) {
	return db.driver.Snapshot(ctx)
}

// Now returns the database's clock in epoch milliseconds, the one that [Tx.Now] reads.
func (db *DB) Now(ctx context.Context) (int64, error) {
	now, err := db.driver.Now(ctx)
	if err != nil {
		return 0, driver.WrapError("store: read the clock", db.orClosed(err))
	}
	return now, nil
}

// Listen subscribes to a PostgreSQL channel while use runs: it takes a connection of its own
// and passes use a function that waits until a notification comes, or for at most the given time, and reports which. One
// that came since the subscription is not lost, so use should look first and wait then. On SQLite, which can't notify, each commit is a
// notification on every channel, a tenth of a second late at most. Listen returns the error of use. A lost connection is an error: call it again.
func (db *DB) Listen(
	ctx context.Context, channel string,
	use func(wait func(ctx context.Context, atMost time.Duration) (heard bool, err error)) error,
) error {
	subscribed := false
	err := db.driver.Listen(ctx, channel, func(wait func(ctx context.Context, atMost time.Duration) (heard bool, err error)) error {
		subscribed = true
		return use(wait)
	})
	if err != nil && !subscribed {
		err = driver.WrapError("store: listen", db.orClosed(err))
	}
	return err
}

// Committed returns a channel that is closed after the next commit of any process, a tenth of a second later at most. It is nil on
// PostgreSQL, which doesn't tell. The notice of a process that was killed right after its commit may be missing, so a caller shouldn't wait
// for ever.
func (db *DB) Committed() <-chan struct{} { return db.driver.Committed() }

// Do hands an operation to the writer and waits until it is durable.
//
// An operation that could not begin within 2 s, or within one and a half transactions when they are slow, 4 s at
// most, is refused at once with [ErrBusy]: nothing happened, and the caller may repeat it after a second. An [Urgent]
// one isn't, unless 8,192 of them are in line.
//
// When ctx ends before the writer took the operation, it is withdrawn, nothing happened, and Do returns the context's
// cause, as an [ErrBusy]. Once taken, Do waits for the end of its transaction, whatever ctx does, so that the outcome is
// always known. The writer bounds both. When transactions become slower while operations wait, those that can't be taken
// within 5 s any more end with [ErrBusy] as soon as that shows, the last in line first; an urgent one is given up after
// 10 s. On PostgreSQL a transaction has 4 s from its beginning until COMMIT is sent, and then 5 s for the answer; on SQLite
// it may wait for its turn for a second and then 5 s for the file's lock. An operation that PostgreSQL ends
// because of a deadlock runs again, three times at most; then it is an [ErrBusy], as is one that ran alone and waited 3 s for a
// row that another node had locked. Other errors: [ErrClosed], [ErrCommitUnknown], or the fault of the operation itself, after
// it ran alone, too.
func (db *DB) Do(ctx context.Context, kind Kind, op Op) error { return db.writer.Do(ctx, kind, op) }

// Submit hands an operation to the writer and does not wait. What [DB.Do] would refuse is finished at once.
func (db *DB) Submit(kind Kind, op Op) *PendingWrite { return db.writer.Submit(kind, op) }

// SubmitLazily is [DB.Submit] for an operation that has time: it goes with the next transaction that something else
// starts and that has room, and starts one itself after a second, or when 256 of its sort are in line, or when the
// database is closed. It is refused with [ErrBusy] when 8,192 of its sort are in line. A process that is killed meanwhile
// loses it.
func (db *DB) SubmitLazily(kind Kind, op Op) *PendingWrite { return db.writer.SubmitLazily(kind, op) }

// Exec runs one hand-written write in a savepoint of its own in the writer's next transaction, and waits as [DB.Do]
// does. run's error rolls the savepoint back and is returned as it is wrapped; what it queued last is flushed after it.
// run is called in the transaction: it must not wait for anything but tx.
func (db *DB) Exec(ctx context.Context, run func(ctx context.Context, tx Tx) error) error {
	return db.writer.Exec(ctx, run)
}

// Close refuses new work, lets the writer finish what is queued, and closes the connections. When ctx ends first, what
// has not begun ends with [ErrClosed], and Close waits only for the transaction that runs. Later calls wait for the
// first and return its error. A read that is still open keeps a PostgreSQL pool from closing: Close waits for it for as
// long as ctx allows.
func (db *DB) Close(ctx context.Context) error {
	db.closing.Do(func() {
		db.closed = errors.Join(db.writer.Close(ctx), db.driver.Close(ctx))
	})
	return db.closed
}
