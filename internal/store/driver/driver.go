// Package driver is the contract between a store and its two database engines: [Driver] with its readers and its writing
// connection, the transaction that kinds write in ([Tx]), the values and errors that both engines share, and the address of
// a database ([Location]).
//
// Both engines accept the same SQL text with $n parameters and the same values: times are epoch milliseconds, JSON is text,
// text is valid UTF-8 without NUL ([ErrText]). Package sqlite and package postgres implement the contract; the store's tests
// run every case on both. The package opens no database and contains no SQL but the columns of the hot look-ups.
package driver

import (
	"context"
	"database/sql"
	"time"
)

// MigrationLockTimeout bounds how long a statement of a migration waits for a table on PostgreSQL. Every later statement
// on the table waits behind it, so that is also what a migration may add to a write of an old node; it is far below the
// time that a write has.
const MigrationLockTimeout = time.Second

// Driver is an open database of one engine. All methods may be called at the same time.
type Driver interface {
	Listener
	// Writer is the connection that writes. As many goroutines use it as it may have transactions in flight.
	Writer() Writer
	// Reader is for reading with $n SQL.
	Reader() *sql.DB
	// HotReader reads what every request needs.
	HotReader() HotReader
	// Now returns the database's clock in epoch milliseconds, the one that [Tx.Now] reads.
	Now(ctx context.Context) (int64, error)
	// ForMigration opens a connection without the bounds of everyday statements, because a migration may take long.
	ForMigration(ctx context.Context) (*Migration, error)
	// Snapshot reads the database as it is now, until done is called.
	Snapshot(ctx context.Context) (reader SnapshotReader, done func() error, err error)
	// BackupTo writes a consistent copy to a new file, or fails with [ErrUnsupported].
	BackupTo(ctx context.Context, path string) error
	// WALBytes returns the size of the write-ahead log in bytes, 0 where the server keeps it.
	WALBytes() int64
	// Close closes all connections. It waits for open reads for as long as ctx allows.
	Close(ctx context.Context) error
}

// Listener reports commits.
type Listener interface {
	// Listen subscribes to a notification channel while use runs; the function that use gets waits until a notification
	// comes, or for at most the given time, and reports which. An engine without notifications takes each commit for one. It returns the
	// error of use.
	Listen(
		ctx context.Context, channel string,
		use func(wait func(ctx context.Context, atMost time.Duration) (heard bool, err error)) error,
	) error
	// Committed returns a channel that is closed after the next commit of any process, a tenth of a second later at most, or nil on an
	// engine that doesn't tell. A process that dies right after its commit may not be noticed.
	Committed() <-chan struct{}
}

// SnapshotReader reads a database as it was at one moment.
type SnapshotReader interface {
	QueryContext(ctx context.Context, text string, arguments ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, arguments ...any) *sql.Row
}

// Migration is a connection for migrating.
type Migration struct {
	Conn *sql.DB
	// Done closes the connection. Nothing else that migrates a SQLite file runs until it is called.
	Done func() error
}
