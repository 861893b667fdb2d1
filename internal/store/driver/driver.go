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
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// MigrationLockTimeout bounds how long a statement of a migration waits for a table on PostgreSQL. Every later statement on the table waits
// behind it, so a migration may delay a write of an old node by as much; it is far below the time of a write.
const MigrationLockTimeout = time.Second

// Driver is an open database of one engine. All methods may be called at the same time.
type Driver interface {
	Notifier

	// Writer is the connection that writes. As many goroutines use it as it may have transactions in flight.
	Writer() Writer
	// Reader is for reading with $n SQL.
	Reader() *sql.DB
	// HotReader reads what every request needs.
	HotReader() HotReader
	// Now returns the database's clock in epoch milliseconds, as [Tx.Now] does.
	Now(ctx context.Context) (int64, error)
	// ForMigration opens a connection without the bounds of everyday statements, because a migration may take long.
	// done closes the connection and gives back the turn to write.
	ForMigration(ctx context.Context) (conn *sql.DB, done func() error, err error)
	// Snapshot reads the database as it is now, until done is called.
	Snapshot(ctx context.Context) (reader SnapshotReader, done func() error, err error)
	// BackupTo writes a consistent copy to a new file, or fails with [ErrUnsupported].
	BackupTo(ctx context.Context, path string) error
	// WALBytes returns the size of the write-ahead log in bytes, 0 where the server keeps it.
	WALBytes() int64
	// Close closes all connections. It waits for open reads for as long as ctx allows.
	Close(ctx context.Context) error
}

// Notifier reports what other processes have written.
type Notifier interface {
	// Listen subscribes to a notification channel while use runs. On an engine without notifications each commit counts as one. Listen returns
	// the error of use.
	Listen(ctx context.Context, channel string, use func(Wait) error) error
	// Committed returns a channel that is closed within a tenth of a second after the next commit of any process. It is nil on PostgreSQL.
	// The commit of a process that dies right afterwards may be missed.
	Committed() <-chan struct{}
}

// Wait waits until a notification comes, or for the given time, and reports which.
type Wait = func(ctx context.Context, atMost time.Duration) (heard bool, err error)

// SnapshotReader reads a database as of one moment.
type SnapshotReader interface {
	QueryContext(ctx context.Context, text string, arguments ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, arguments ...any) *sql.Row
}

// Row is the current row of a [Tx.Query]. Scan copies its columns into dest: *int64, *int, *string, *[]byte, *bool, *sql.NullInt64 and
// *sql.NullString. Any other type is an error, as is NULL for a type without it.
type Row interface{ Scan(dest ...any) error }

// AnyRows as the wanted count of [Tx.Queue] accepts every number of affected rows.
const AnyRows int64 = -1

// Tx is one kind's view of the writer's open transaction. Both engines have the same SQL text with $n parameters that bind by number.
// Arguments are int64, int, bool, string (or a type made of it), []byte (nil means NULL), sql.NullInt64, sql.NullString and nil; a text
// with NUL or invalid UTF-8 is refused with [ErrText]. A Tx is used by one goroutine and is dead after Apply returned. PostgreSQL also
// accepts []string, [][]byte, []int64, []bool and []sql.NullInt64.
//
// After a statement failed nothing more runs, on either engine: every later call returns its error, and the kind's savepoint is rolled
// back, whatever Apply returns.
type Tx interface {
	// Query flushes the queue, and runs one statement that returns rows. each gets each row and must not use the Tx; its first error ends
	// the statement and is returned.
	Query(ctx context.Context, each func(Row) error, sql string, args ...any) error
	// Queue adds a writing statement without RETURNING that must affect exactly want rows ([ErrRows]); [AnyRows] accepts any number. It
	// runs immediately (SQLite) or with the next Flush or Query in one round trip (PostgreSQL), which return its error. PostgreSQL counts
	// by a statement around it; where a constraint says the same, AnyRows is cheaper.
	Queue(want int64, sql string, args ...any)
	// QueueQuery adds a statement that returns rows, in order with the statements of Queue. each gets its rows by the end of the next Flush
	// or Query, and must not use the Tx. An error of each fails the statement.
	QueueQuery(each func(Row) error, sql string, args ...any)
	// Flush runs the queue. The writer does so after Apply, together with COMMIT when it can, so that a Flush at the end of Apply costs
	// PostgreSQL a round trip.
	Flush(ctx context.Context) error
	// Now is the database's clock in epoch milliseconds, read once when the transaction began. Asked before the first
	// statement it costs PostgreSQL a round trip.
	Now() int64
	// LockRows returns the end of a SELECT that locks the rows it reads: " FOR UPDATE" on PostgreSQL. It is empty on SQLite, because the
	// only writer holds the lock already. Rows are read in key order, so that nodes can't deadlock.
	LockRows() string
}

// Writer is the writer's connection to one of the two engines.
type Writer interface {
	// TakeTurn waits, with a bound, until this process may write; closing hurry ends the wait.
	TakeTurn(hurry <-chan struct{}) (release func())
	// Begin begins a transaction, which ctx bounds.
	Begin(ctx context.Context) (Transaction, error)
	// InFlight returns how many transactions may be open at a time. More than one needs an engine that locks single rows.
	InFlight() int
	// MaxTime bounds a transaction from its beginning until COMMIT. 0 means unlimited.
	MaxTime() time.Duration
	Close() error
}

// Transaction is an open transaction with one savepoint at a time. After an error of Savepoint or RollbackTo it is
// lost as a whole. It ends with exactly one Commit or Rollback.
type Transaction interface {
	Tx
	// Context bounds the transaction.
	Context() context.Context
	// Savepoint begins a group.
	Savepoint() error
	// Release flushes, and keeps the writes since the savepoint. After the last group it may also commit.
	Release(ctx context.Context, last bool) error
	// RollbackTo undoes the writes since the savepoint.
	RollbackTo(ctx context.Context) error
	// Commit commits. It fails with [ErrCommitUnknown] when the outcome is unknown.
	Commit(ctx context.Context) error
	// Rollback undoes the transaction.
	Rollback()
}

// ErrWriteSlow is why a transaction was cut.
var ErrWriteSlow = errors.New("store: the transaction took too long")

// ErrNestedStatement is the error of a statement inside the callback of a query: it would disturb the rows still to come.
var ErrNestedStatement = errors.New("store: the callback of a query runs no statements")

// CheckRows compares the number of rows that a queued statement affected with the expected one.
func CheckRows(text string, affected, want int64) error {
	if want == AnyRows || affected == want {
		return nil
	}
	return fmt.Errorf("%w: %s affected %d, wanted %d", ErrRows, Verb(text), affected, want)
}

// Verb returns the first word of a statement, for errors, which must not repeat values.
func Verb(text string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	word, _, _ = strings.Cut(word, "\n")
	return word
}

// BindValue converts an argument of a statement into one of the five types that both engines' drivers accept: nil, int64, bool,
// string, []byte; or into a slice, which only PostgreSQL's accepts. A nil []byte is NULL, an empty one is an empty value. It fails with
// [ErrText] on a text that PostgreSQL couldn't keep, and on any other type.
func BindValue(argument any) (sqldriver.Value, error) {
	switch value := argument.(type) {
	case nil:
		return nil, nil
	case int64, bool:
		return value, nil
	case int:
		return int64(value), nil
	case string:
		if !IsText(value) {
			return nil, ErrText
		}
		return argument, nil // value would be copied into a new interface
	case Env:
		return bindText(string(value))
	case []byte:
		if value == nil {
			return nil, nil
		}
		return argument, nil
	case sql.NullInt64:
		if !value.Valid {
			return nil, nil
		}
		return value.Int64, nil
	case sql.NullString:
		if !value.Valid {
			return nil, nil
		}
		return bindText(value.String)
	case [][]byte, []int64, []bool:
		return argument, nil
	case []string:
		if slices.ContainsFunc(value, func(text string) bool { return !IsText(text) }) {
			return nil, ErrText
		}
		return argument, nil
	case []sql.NullInt64:
		pointers := make([]*int64, len(value))
		for i := range value {
			if value[i].Valid {
				pointers[i] = &value[i].Int64
			}
		}
		return pointers, nil
	}
	if kind := reflect.ValueOf(argument); kind.Kind() == reflect.String {
		return bindText(kind.String()) // a kind's own text type, such as a status
	}
	return nil, fmt.Errorf("store: an argument of type %T can't be bound", argument)
}

func bindText(text string) (sqldriver.Value, error) {
	if !IsText(text) {
		return nil, ErrText
	}
	return text, nil
}

// IsText reports whether PostgreSQL could keep the text.
func IsText(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// BindArgs converts a statement's arguments, see [BindValue].
func BindArgs(arguments []any) ([]any, error) {
	bound := make([]any, len(arguments))
	for i, argument := range arguments {
		value, err := BindValue(argument)
		if err != nil {
			return nil, fmt.Errorf("argument $%d: %w", i+1, err)
		}
		bound[i] = value
	}
	return bound, nil
}

// The errors that a caller distinguishes with [errors.Is]. None of them contains a value that was written or asked for.
var (
	// ErrNotFound: no row has that id, or its organization doesn't exist.
	ErrNotFound = errors.New("store: not found")
	// ErrConflict: a uniqueness constraint refused the row.
	ErrConflict = errors.New("store: already exists")
	// ErrClosed: the database was closed before the operation began. Nothing happened.
	ErrClosed = errors.New("store: closed")
	// ErrBusy: too much waits for the writer, or another process kept the database locked. Nothing happened.
	ErrBusy = errors.New("store: busy")
	// ErrOverloaded: the writer refused the operation, because too many wait for it. It is also an ErrBusy. The writer logs when such
	// refusals begin and end, so none of them needs a line of its own.
	ErrOverloaded = fmt.Errorf("%w: overloaded", ErrBusy)
	// ErrCommitUnknown: the connection broke, or the disk failed, during COMMIT. The write may have happened or not;
	// the caller may repeat it with the same id.
	ErrCommitUnknown = errors.New("store: commit outcome unknown")
	// ErrRows: a statement did not affect as many rows as [Tx.Queue] was called with.
	ErrRows = errors.New("store: unexpected number of rows")
	// ErrText: a text contains NUL or isn't valid UTF-8. PostgreSQL can't keep it; SQLite refuses it here, so that both engines accept the
	// same input.
	ErrText = errors.New("store: text contains NUL or invalid UTF-8")
	// ErrUnsupported: the engine can't do this.
	ErrUnsupported = errors.New("store: not supported by this engine")
)

// RetryAfter is when a write that ended with [ErrBusy] may be repeated. It doesn't follow how slow the store is: a
// refusal costs next to nothing, and there may be room again as soon as a transaction has ended.
const RetryAfter = time.Second

// WrapError prefixes err with the operation, and adds the package's own error for an engine's error that corresponds to one. The
// engine's error stays in the chain, for logs.
func WrapError(doing string, err error) error {
	if err == nil {
		return nil
	}
	code, lite := PostgresCode(err), SQLiteCode(err)
	switch {
	case code == "23505", lite == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, lite == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return fmt.Errorf("%s: %w: %w", doing, ErrConflict, err)
	case code == "23503", lite == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return fmt.Errorf("%s: %w: %w", doing, ErrNotFound, err)
	case code == LockNotAvailable, code == queryCanceled, lite&0xff == sqlite3.SQLITE_BUSY, lite&0xff == sqlite3.SQLITE_LOCKED,
		IsDeadlock(err), EndedIdle(err):
		return fmt.Errorf("%s: %w: %w", doing, ErrBusy, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// IsDeadlock reports whether PostgreSQL rolled a statement back to end a deadlock with another transaction.
func IsDeadlock(err error) bool { return PostgresCode(err) == "40P01" }

// EndedIdle reports whether PostgreSQL has ended a transaction because it heard nothing of it for too long: this process had no time to
// go on. The server had not read COMMIT, so nothing was committed.
func EndedIdle(err error) bool { return PostgresCode(err) == "25P03" }

// LockNotAvailable is PostgreSQL's SQLSTATE for a lock that was not won within lock_timeout.
const LockNotAvailable = "55P03"

// queryCanceled is PostgreSQL's SQLSTATE for a statement that statement_timeout ended: as a rule it waited for a row that another
// node had locked.
const queryCanceled = "57014"

// SQLiteCode returns SQLite's extended result code. It returns 0 if err isn't SQLite's.
func SQLiteCode(err error) int {
	if failed, ok := errors.AsType[*sqlite.Error](err); ok {
		return failed.Code()
	}
	return 0
}

// PostgresCode returns PostgreSQL's SQLSTATE. It is empty for any other error.
func PostgresCode(err error) string {
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok {
		return failed.Code
	}
	return ""
}
