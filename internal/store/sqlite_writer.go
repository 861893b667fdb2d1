package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// busyPatience bounds the wait for SQLite's own lock, which somebody holds who writes without the turn or is stopped.
	busyPatience = 5 * time.Second
	// busyTry, in milliseconds, bounds one wait inside SQLite. It isn't fair: between two writers that take turns it may
	// never meet a gap. So whoever had to go without the turn comes back to the turnstile after it.
	busyTry = 500
)

// sqliteWriter is the writing connection to a SQLite file.
type sqliteWriter struct {
	path      string
	clock     func() time.Time
	turnstile *turnstile
	hurry     <-chan struct{} // of the turn
	release   func()          // gives the turn back
	conn      *sqliteConn     // nil after a fault that left it in an unknown state
}

func newSQLiteWriter(ctx context.Context, path string, clock func() time.Time) (*sqliteWriter, error) {
	turns, err := openTurnstile(path)
	if err != nil {
		return nil, err
	}
	w := &sqliteWriter{path: path, clock: clock, turnstile: turns}
	if err := w.connect(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *sqliteWriter) connect(ctx context.Context) (err error) {
	if w.conn != nil {
		return nil
	}
	if w.conn, err = dialSQLite(ctx, w.path, sqliteWriterPragmas); err != nil {
		return err
	}
	if _, err = w.conn.exec(fmt.Sprintf("PRAGMA busy_timeout = %d", busyTry), nil); err != nil {
		w.abandon()
	}
	return err
}

// transactionTime has no bound: SQLite runs in this process, on a local disk, and isn't interrupted.
func (w *sqliteWriter) transactionTime() time.Duration { return 0 }

func (w *sqliteWriter) takeTurn(hurry <-chan struct{}) (release func()) {
	w.hurry, w.release = hurry, w.turnstile.take(hurry)
	return func() { w.release() }
}

func (w *sqliteWriter) begin(ctx context.Context) (transaction, error) {
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	for until := time.Now().Add(busyPatience); ; {
		_, err := w.conn.exec("BEGIN IMMEDIATE", nil)
		switch {
		case err == nil:
			return &sqliteTx{writer: w, conn: w.conn, now: w.clock().UnixMilli()}, nil
		case !errors.Is(err, ErrBusy):
			w.abandon()
			return nil, err
		case !time.Now().Before(until):
			return nil, err
		case w.turnstile.stuck:
			w.turnstile.stuck = false // worth the whole patience again
			w.release = w.turnstile.take(w.hurry)
		}
	}
}

// abandon gives the connection up; the next transaction opens a new one.
func (w *sqliteWriter) abandon() {
	if w.conn == nil {
		return
	}
	w.conn.close() //nolint:errcheck // it is given up because it failed
	w.conn = nil
}

func (w *sqliteWriter) close() error {
	var failed error
	if w.conn != nil {
		failed = w.conn.close()
		w.conn = nil
	}
	return errors.Join(failed, w.turnstile.close())
}

// sqliteTx is a transaction of the SQLite writer. Statements run at once: there is no round trip to save.
type sqliteTx struct {
	writer    *sqliteWriter
	groups    int // savepoints so far
	conn      *sqliteConn
	now       int64
	arguments []driver.NamedValue // reused by every statement
	failed    error               // of a statement; nothing runs after it until the savepoint is rolled back
	querying  bool
}

func (t *sqliteTx) context() context.Context { return context.Background() }

func (t *sqliteTx) Now() int64 { return t.now }

func (t *sqliteTx) LockRows() string { return "" }

func (t *sqliteTx) Queue(want int64, text string, arguments ...any) {
	if t.failed != nil {
		return
	}
	if t.querying {
		t.failed = errNestedStatement
		return
	}
	if t.arguments, t.failed = sqliteArgs(t.arguments[:0], arguments); t.failed != nil {
		return
	}
	affected, err := t.conn.exec(text, t.arguments)
	if err == nil {
		err = checkRows(text, affected, want)
	}
	t.failed = err
}

func (t *sqliteTx) Query(ctx context.Context, each func(Row) error, text string, arguments ...any) error {
	if err := t.Flush(ctx); err != nil {
		return err
	}
	if t.querying {
		return errNestedStatement
	}
	if t.arguments, t.failed = sqliteArgs(t.arguments[:0], arguments); t.failed != nil {
		return t.failed
	}
	t.querying = true
	defer func() { t.querying = false }()
	var refused error // by the caller, which is no fault of the database
	t.failed = t.conn.query(text, t.arguments, func(row Row) error {
		refused = each(row)
		return refused
	})
	if err := t.failed; refused != nil {
		t.failed = nil
		return err
	}
	return t.failed
}

func (t *sqliteTx) Flush(ctx context.Context) error {
	if t.failed != nil {
		return t.failed
	}
	return context.Cause(ctx)
}

// savepoint of the first group is the beginning of the transaction itself: every page that is written within a savepoint
// of SQLite is copied first.
func (t *sqliteTx) savepoint() error {
	t.failed = nil
	if t.groups++; t.groups == 1 {
		return nil
	}
	_, err := t.conn.exec("SAVEPOINT kind", nil)
	return err
}

func (t *sqliteTx) release(ctx context.Context, _ bool) error {
	if err := t.Flush(ctx); err != nil {
		return err
	}
	if t.groups == 1 {
		return nil
	}
	_, err := t.conn.exec("RELEASE kind", nil)
	return err
}

func (t *sqliteTx) rollbackTo(context.Context) error {
	t.failed = nil
	if t.groups == 1 {
		return t.restart()
	}
	// SQLite rolls the whole transaction back by itself on a full disk and the like; then there is no savepoint.
	if _, err := t.conn.exec("ROLLBACK TO kind", nil); err != nil {
		return err
	}
	_, err := t.conn.exec("RELEASE kind", nil)
	return err
}

// restart begins anew, with nothing to keep. Like ROLLBACK TO it fails when SQLite has rolled back by itself.
func (t *sqliteTx) restart() error {
	if _, err := t.conn.exec("ROLLBACK", nil); err != nil {
		return err
	}
	_, err := t.conn.exec("BEGIN IMMEDIATE", nil)
	return err
}

func (t *sqliteTx) commit(context.Context) error {
	_, err := t.conn.exec("COMMIT", nil)
	if err == nil {
		return nil
	}
	t.rollback()
	if sqliteCode(err)&0xff == sqlite3.SQLITE_IOERR {
		// The frames may have reached the WAL before the disk failed, and would count after a restart.
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	return err
}

func (t *sqliteTx) rollback() {
	if _, err := t.conn.exec("ROLLBACK", nil); err != nil {
		t.writer.abandon()
	}
}

// errNestedStatement: a statement inside the callback of a query would disturb the rows still to come.
var errNestedStatement = errors.New("store: the callback of a query runs no statements")

// checkRows compares the rows a queued statement affected with what its kind expects.
func checkRows(text string, affected, want int64) error {
	if want == AnyRows || affected == want {
		return nil
	}
	return fmt.Errorf("%w: %s affected %d, wanted %d", ErrRows, verb(text), affected, want)
}
