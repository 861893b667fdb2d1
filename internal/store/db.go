package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Options is what a DB needs from its wiring. The zero value has no kinds, keeps no logs and uses the system's clock.
type Options struct {
	// Kinds are applied in this order within a transaction. Names must be unique.
	Kinds []Kind
	// Logger gets lost transactions and panics; nil discards them.
	Logger *slog.Logger
	// Clock is [Tx.Now] on SQLite, where the process's clock is the database's; nil is [time.Now].
	Clock func() time.Time
	// Observer is told about every transaction of the writer; nil is nobody.
	Observer WriterObserver
}

// DB is one database: its readers and its writer. All methods may be called at the same time.
type DB struct {
	Resources

	location Location
	kinds    map[string]int // index in Options.Kinds by name
	logger   *slog.Logger
	clock    func() time.Time

	writer *writer
	reader *sql.DB
	hot    hotReader
	pools  *postgresPools // PostgreSQL only

	closing sync.Once
	closed  error
}

// Open connects to a database and starts its writer. It creates a SQLite file that doesn't exist, and refuses one on
// a network file system. It does not migrate: see [DB.Migrate]. The caller must [DB.Close] it.
func Open(ctx context.Context, location Location, options Options) (*DB, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Clock == nil {
		options.Clock = time.Now
	}
	kinds := make(map[string]int, len(options.Kinds))
	for i, kind := range options.Kinds {
		if _, twice := kinds[kind.Name()]; twice {
			return nil, fmt.Errorf("store: two kinds have the name %s", kind.Name())
		}
		kinds[kind.Name()] = i
	}
	db := &DB{location: location, kinds: kinds, logger: options.Logger, clock: options.Clock}
	db.Resources = newResources(db)
	conn, err := db.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("store: %w", errors.Join(err, db.disconnect(ctx)))
	}
	db.writer = newWriter(conn, options)
	go db.writer.run()
	return db, nil
}

// connect opens the readers and answers the writer's connection.
func (db *DB) connect(ctx context.Context) (conn writerConn, err error) {
	switch db.location.Engine {
	case SQLite:
		return db.connectSQLite(ctx)
	case Postgres:
		return db.connectPostgres(ctx)
	}
	return nil, errors.New("the location names no engine: use ParseLocation")
}

// Engine is the database's engine.
func (db *DB) Engine() Engine { return db.location.Engine }

// Location is where the database is.
func (db *DB) Location() Location { return db.location }

// Reader is for reading with $n SQL; whatever writes goes through the writer (SQLite refuses it here). A read must not
// stay open across a call to a provider or a client (≤ 2 s, design §7): on SQLite it keeps the WAL from being reused.
func (db *DB) Reader() *sql.DB { return db.reader }

// Ping reports whether the database can be read and its writer takes work. It writes nothing.
func (db *DB) Ping(ctx context.Context) error {
	var one int
	err := db.reader.QueryRowContext(ctx, "SELECT 1 FROM organizations LIMIT 1").Scan(&one)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return sqlError("store: read", err)
	}
	return db.writer.do(ctx, newPing())
}

// Queued is the number of operations that wait for the writer.
func (db *DB) Queued() int { return db.writer.queue.length() }

// WALBytes is the size of SQLite's write-ahead log in bytes, 0 on PostgreSQL.
func (db *DB) WALBytes() int64 {
	if db.location.Engine != SQLite {
		return 0
	}
	about, err := os.Stat(db.location.DSN + "-wal")
	if err != nil {
		return 0
	}
	return about.Size()
}

// BackupTo writes a consistent copy of a SQLite database to a new file, readable by this user only, while the database
// is in use. It fails when the file exists, and with [ErrUnsupported] on PostgreSQL, whose own pg_dump does it better.
func (db *DB) BackupTo(ctx context.Context, path string) error {
	if db.location.Engine != SQLite {
		return fmt.Errorf("back up: %w: use pg_dump", ErrUnsupported)
	}
	target, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("back up: create the file: %w", err)
	}
	defer target.Close() //nolint:errcheck // it was synced
	if err := db.vacuumInto(ctx, path); err != nil {
		return errors.Join(fmt.Errorf("back up: %w", err), removeIfThere(path))
	}
	if err := target.Sync(); err != nil {
		return errors.Join(fmt.Errorf("back up: sync the file: %w", err), removeIfThere(path))
	}
	return nil
}

func (db *DB) vacuumInto(ctx context.Context, path string) error {
	from, err := openSQLite(db.location.DSN, sqlitePragmas)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // it only read
	if _, err := from.ExecContext(ctx, "VACUUM INTO $1", path); err != nil {
		return sqlError("copy the database", err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the unfinished file: %w", err)
	}
	return nil
}

// Close refuses new work, lets the writer finish what is queued, and closes the connections. When ctx ends first, what
// has not begun ends with [ErrClosed], and Close waits only for the transaction that runs. Later calls wait for the
// first and return its error.
func (db *DB) Close(ctx context.Context) error {
	db.closing.Do(func() {
		db.closed = errors.Join(db.stopWriter(ctx), db.disconnect(ctx))
	})
	return db.closed
}

func (db *DB) stopWriter(ctx context.Context) error {
	db.writer.queue.close()
	select {
	case <-db.writer.stopped:
		return nil
	case <-ctx.Done():
	}
	close(db.writer.abandoned)
	<-db.writer.stopped
	return fmt.Errorf("store: closed before all queued writes had run: %w", context.Cause(ctx))
}

// disconnect closes whatever is open. A read that someone still has open holds a PostgreSQL pool back: it is waited
// for as long as ctx allows.
func (db *DB) disconnect(ctx context.Context) error {
	var failed error
	if db.writer != nil {
		failed = db.writer.conn.close()
	}
	if db.hot != nil {
		failed = errors.Join(failed, db.hot.close())
	}
	if db.reader != nil {
		failed = errors.Join(failed, db.reader.Close())
	}
	if db.pools != nil {
		failed = errors.Join(failed, db.pools.close(ctx))
	}
	return failed
}
