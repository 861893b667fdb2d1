// Package store is the database of a process: opening, migration, transactions, and the resources that have no rules of their own
// ([Resources]).
//
// Package driver is the contract with the two engines, driver/sqlite and driver/postgres implement it. Package writer runs all writes,
// package schema has the tables, package archive moves a store to another engine.
//
// # Invariants
//
//   - One DDL text and one SQL text with $n parameters serve both engines, except for lists of rows ([RowStatement]): times are epoch
//     milliseconds, JSON is text, text is valid UTF-8 without NUL ([ErrText]).
//   - Every write of a process goes through the writer, except for an import ([DB.Fill]). Writes that wait at the same moment share one
//     transaction and so the price of a commit (natural batching: no timer). A result is returned only after the COMMIT that made it durable.
//     Transactions follow each other; on PostgreSQL one of [RowLocking] kinds may begin while another one commits.
//   - A fault of one operation never fails another: kinds run in savepoints, and operations of a failed group run again, each alone.
//   - Every wait has a bound: the queue's length, the turn between processes, statements, and an operation's life in the writer.
//   - Correctness comes from constraints and guarded statements. File locks between processes of one SQLite file only order their
//     transactions; a process that can't get its turn writes without it.
//
// It has no rules of money and of the queue: billing and inbox bring them as a [Kind] and own every statement on their tables, except that
// a deleted channel deletes its conversations. It opens no sealed values, returns nothing that another process has changed since, except
// for remembered routes, which are marked, and imports only the packages below it. Tests use storetest.
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
	// Clock is [Tx.Now] on SQLite, where the process's clock is the database's. nil means [time.Now].
	Clock func() time.Time
	// Observer is called after every transaction of the writer. It may be nil.
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
	each := struct{ db *DB }{db}
	db.Resources = Resources{
		APIKeys(each), Agents(each), AuditLog(each), ChannelCredentials(each), Channels(each), Chunks(each), Documents(each),
		EventDeliveries(each), EventEndpoints(each), EventWatch(each), IDKeys(each), KnowledgeBases(each), Logins(each),
		OperatorKeys(each), Operators(each), OperatorRequests(each), Organizations(each), Processes(each), ProviderKeys(each),
		Routes(each), SecondFactors(each), Sessions(each), UserLinks(each), Users(each), Widgets(each),
	}
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

// Migrate brings the tables to the newest version. Older processes continue to run, because a version only expands. Several processes may
// call it concurrently: on PostgreSQL an advisory lock admits one; on SQLite the transaction checks its version again under the write lock.
// On PostgreSQL it uses the direct address, if there is one. It waits for a table for a second, so that no write waits longer behind it,
// and retries for up to five minutes. It returns [ErrNewer] in a store that a newer program has migrated, and [ErrUnreleased] in one from
// before the first version.
func (db *DB) Migrate(ctx context.Context) error {
	conn, done, err := db.driver.ForMigration(ctx)
	if err != nil {
		return fmt.Errorf("store: migrate: %w", err)
	}
	err = schema.Migrate(ctx, db.Engine(), conn, schema.Versions(db.Engine()))
	return driver.WrapError("store: migrate", cmp.Or(err, done()))
}

// Check returns nil if the program can use the store without a migration. It fails as [DB.Migrate] does, and with [ErrOlder] if a migration
// is due.
func (db *DB) Check(ctx context.Context) error {
	if err := schema.Check(ctx, db.Engine(), db.reader, schema.Versions(db.Engine())); err != nil {
		return fmt.Errorf("store: %w", db.orClosed(err))
	}
	return nil
}

// Fill runs one transaction of any length, past the writer. On SQLite nothing else can be written until it ends.
func (db *DB) Fill(ctx context.Context, run func(*sql.Tx) error) (err error) {
	conn, done, err := db.driver.ForMigration(ctx)
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	defer func() { err = errors.Join(err, done()) }()
	if db.Engine() == SQLite {
		if _, err := conn.ExecContext(ctx, "PRAGMA foreign_keys = 1"); err != nil { // a migration has them off
			return driver.WrapError("have foreign keys checked", err)
		}
	}
	tx, err := conn.BeginTx(ctx, nil)
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

// Reader returns the pool for reading with $n SQL. Writes go through the writer; SQLite refuses them here. A read must end within 2 s and
// must not span a call to a provider or a client: on SQLite it keeps the WAL from being reused.
func (db *DB) Reader() *sql.DB { return db.reader }

// Windows counts requests for several processes that share a PostgreSQL. It is nil on SQLite.
func (db *DB) Windows() Windows { return db.hot.Windows() }

// Ping reports whether the database can be read and its writer accepts work. It writes nothing.
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

// BackupTo writes a consistent copy of a SQLite database in use to a new file, readable by this user only. It fails if the file exists, and
// with [ErrUnsupported] on PostgreSQL, which has pg_dump. [DB.LastBackup] is the time.
func (db *DB) BackupTo(ctx context.Context, path string) error {
	if err := db.driver.BackupTo(ctx, path); err != nil {
		return err
	}
	return db.ExecQueued(ctx, func(tx Tx) {
		tx.Queue(1, `INSERT INTO marks (name, node, at) VALUES ('backup', '', $1) ON CONFLICT (name) DO UPDATE SET at = excluded.at`, tx.Now())
	})
}

// LastBackup reads when [DB.BackupTo] last succeeded, in epoch milliseconds. 0 means never.
func (db *DB) LastBackup(ctx context.Context) (int64, error) {
	return ReadRow(ctx, db, "read the time of the last backup", ScanValue[int64], `SELECT coalesce(max(at), 0) FROM marks WHERE name = 'backup'`)
}

// Snapshot reads the database as of now, until done is called, while others work on it. On SQLite it reads a copy in a new folder beside
// the database, so that no read stays open on the database itself; the copy needs the space of the database. On PostgreSQL it reads one
// snapshot, which keeps the server from cleaning up until then.
func (db *DB) Snapshot(ctx context.Context) (reader driver.SnapshotReader, done func() error, err error) {
	return db.driver.Snapshot(ctx)
}

// Now returns the database's clock in epoch milliseconds, as [Tx.Now] does.
func (db *DB) Now(ctx context.Context) (int64, error) {
	now, err := db.driver.Now(ctx)
	if err != nil {
		return 0, driver.WrapError("store: read the clock", db.orClosed(err))
	}
	return now, nil
}

// Listen subscribes to a PostgreSQL channel on a connection of its own while use runs. A notification since the subscription isn't lost,
// so use should look first and wait afterwards. On SQLite each commit is a notification on every channel, within a tenth of a second.
// Listen returns the error of use. A lost connection is an error; the caller may call Listen again.
func (db *DB) Listen(ctx context.Context, channel string, use func(driver.Wait) error) error {
	subscribed := false
	err := db.driver.Listen(ctx, channel, func(wait driver.Wait) error {
		subscribed = true
		return use(wait)
	})
	if err != nil && !subscribed {
		err = driver.WrapError("store: listen", db.orClosed(err))
	}
	return err
}

// Committed returns a channel that is closed within a tenth of a second after the next commit of any process. It is nil on PostgreSQL. The
// notice of a process that was killed right after its commit may be missing, so a caller should bound its wait.
func (db *DB) Committed() <-chan struct{} { return db.driver.Committed() }

// Do hands an operation to the writer and waits until it is durable.
//
// An operation that could not begin within 2 s, or within one and a half transactions when they are slow, up to 4 s, is refused immediately
// with [ErrBusy]: nothing happened, and the caller may repeat it after a second. An [Urgent] operation is refused only if 8,192 of them are
// in line.
//
// When ctx ends before the writer has begun the operation, it is withdrawn, nothing happened, and Do returns the context's cause, as an
// [ErrBusy]. Afterwards Do waits for the end of its transaction, whatever ctx does, so that the outcome is always known. The writer bounds
// both. When transactions become slower, operations that can't begin within 5 s end with [ErrBusy] as soon as that is known, the last in
// line first; an urgent one is given up after 10 s. On PostgreSQL a transaction has 4 s from its beginning until COMMIT is sent, and 5 s
// more for the answer; on SQLite it may wait for its turn for a second and for the file's lock for 5 s. An operation that PostgreSQL ends
// because of a deadlock runs again, up to three times; its error is an [ErrBusy], as is that of an operation that ran alone and waited 3 s
// for a row that another node had locked. Other errors: [ErrClosed], [ErrCommitUnknown], or the fault of the operation itself, after it
// also failed alone.
func (db *DB) Do(ctx context.Context, kind Kind, op Op) error { return db.writer.Do(ctx, kind, op) }

// Submit hands an operation to the writer and does not wait. An operation that [DB.Do] would refuse is finished immediately.
func (db *DB) Submit(kind Kind, op Op) *PendingWrite { return db.writer.Submit(kind, op) }

// SubmitLazily is [DB.Submit] for an operation that has time: it joins the next transaction with room. After a second, with 256 such
// operations in line, or when the database is closed, it starts a transaction itself. It is refused with [ErrBusy] if 8,192 of its sort are
// in line. A process that is killed before loses it.
func (db *DB) SubmitLazily(kind Kind, op Op) *PendingWrite { return db.writer.SubmitLazily(kind, op) }

// Exec runs one write in a savepoint of its own in the writer's next transaction, and waits as [DB.Do] does. An error of run rolls the
// savepoint back and is returned unchanged. Statements that run has queued last are flushed after it. run must not wait for anything except
// tx.
func (db *DB) Exec(ctx context.Context, run func(ctx context.Context, tx Tx) error) error {
	return db.writer.Exec(ctx, run)
}

// Close refuses new work, waits until the queued work is done, and closes the connections. When ctx ends first, work that has not begun
// ends with [ErrClosed], and Close waits only for the transaction that runs. Later calls wait for the first and return its error. Close
// waits for open reads on PostgreSQL for as long as ctx allows.
func (db *DB) Close(ctx context.Context) error {
	db.closing.Do(func() { db.closed = errors.Join(db.writer.Close(ctx), db.driver.Close(ctx)) })
	return db.closed
}
