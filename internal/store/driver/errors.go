package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

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
