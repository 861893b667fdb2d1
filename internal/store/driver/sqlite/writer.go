package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

const (
	// busyPatience bounds the wait for SQLite's own lock, which a process holds that writes without the turn or is stopped.
	busyPatience = 5 * time.Second
	// busyTry, in milliseconds, bounds one wait inside SQLite. It isn't fair: between two writers that take turns it may
	// never meet a gap. So a process that had to go without the turn comes back to the write lock after it.
	busyTry = 500
)

// writerConn is the writing connection to a SQLite file.
type writerConn struct {
	path      string
	clock     func() time.Time
	writeLock *writeLock
	hurry     <-chan struct{} // of the turn
	release   func()          // gives the turn back
	conn      *preparedConn   // nil after a fault that left it in an unknown state

	generations *generations
	scrubber    *scrubber
}

func newWriterConn(ctx context.Context, path string, clock func() time.Time, shared *generations, scrubber *scrubber) (*writerConn, error) {
	turns, err := openWriteLock(path)
	if err != nil {
		return nil, err
	}
	w := &writerConn{path: path, clock: clock, writeLock: turns, generations: shared, scrubber: scrubber}
	if err := w.connect(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *writerConn) connect(ctx context.Context) (err error) {
	if w.conn != nil {
		return nil
	}
	if w.conn, err = dial(ctx, w.path, writerPragmas); err != nil {
		return err
	}
	if _, err = w.conn.exec(fmt.Sprintf("PRAGMA busy_timeout = %d", busyTry)); err != nil {
		w.abandon()
	}
	return err
}

// InFlight is 1: a file has one writer.
func (w *writerConn) InFlight() int { return 1 }

// MaxTime has no bound: SQLite runs in this process, on a local disk, and isn't interrupted.
func (w *writerConn) MaxTime() time.Duration { return 0 }

func (w *writerConn) TakeTurn(hurry <-chan struct{}) (release func()) {
	w.hurry, w.release = hurry, w.writeLock.take(hurry)
	return func() { w.release() }
}

func (w *writerConn) Begin(ctx context.Context) (driver.Transaction, error) {
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	for until := time.Now().Add(busyPatience); ; {
		_, err := w.conn.exec("BEGIN IMMEDIATE")
		switch {
		case err == nil:
			w.conn.changed, w.conn.erased, w.conn.news = parts{}, false, false
			return &transaction{writer: w, conn: w.conn, now: w.clock().UnixMilli()}, nil
		case !errors.Is(err, driver.ErrBusy):
			w.abandon()
			return nil, err
		case !time.Now().Before(until):
			return nil, err
		case w.writeLock.stuck:
			w.writeLock.stuck = false // worth the whole patience again
			w.release = w.writeLock.take(w.hurry)
		}
	}
}

// abandon gives the connection up; the next transaction opens a new one.
func (w *writerConn) abandon() {
	if w.conn == nil {
		return
	}
	w.conn.Close() //nolint:errcheck // it is given up because it failed
	w.conn = nil
}

func (w *writerConn) Close() error {
	var failed error
	if w.conn != nil {
		failed = w.conn.Close()
		w.conn = nil
	}
	return errors.Join(failed, w.writeLock.close())
}

// transaction is a transaction of the SQLite writer. Statements run immediately, because there is no round trip to save.
type transaction struct {
	writer   *writerConn
	groups   int // savepoints so far
	conn     *preparedConn
	now      int64
	failed   error // of a statement; nothing runs after it until the savepoint is rolled back
	querying bool
}

func (t *transaction) Context() context.Context { return context.Background() }

func (t *transaction) Now() int64 { return t.now }

func (t *transaction) LockRows() string { return "" }

func (t *transaction) Queue(want int64, text string, arguments ...any) {
	if t.failed != nil {
		return
	}
	if t.querying {
		t.failed = driver.ErrNestedStatement
		return
	}
	affected, err := t.conn.exec(text, arguments...)
	if err == nil {
		err = driver.CheckRows(text, affected, want)
	}
	t.failed = err
}

func (t *transaction) QueueQuery(each func(driver.Row) error, text string, arguments ...any) {
	if err := t.Query(context.Background(), each, text, arguments...); t.failed == nil {
		t.failed = err
	}
}

func (t *transaction) Query(ctx context.Context, each func(driver.Row) error, text string, arguments ...any) error {
	if err := t.Flush(ctx); err != nil {
		return err
	}
	if t.querying {
		return driver.ErrNestedStatement
	}
	t.querying = true
	defer func() { t.querying = false }()
	var refused error // by the caller, which is no fault of the database
	t.failed = t.conn.query(func(row driver.Row) error {
		refused = each(row)
		return refused
	}, text, arguments...)
	if err := t.failed; refused != nil {
		t.failed = nil
		return err
	}
	return t.failed
}

func (t *transaction) Flush(ctx context.Context) error {
	if t.failed != nil {
		return t.failed
	}
	return context.Cause(ctx)
}

// Savepoint of the first group is the beginning of the transaction itself: every page that is written within a savepoint
// of SQLite is copied first.
func (t *transaction) Savepoint() error {
	t.failed = nil
	if t.groups++; t.groups == 1 {
		return nil
	}
	_, err := t.conn.exec("SAVEPOINT kind")
	return err
}

func (t *transaction) Release(ctx context.Context, _ bool) error {
	if err := t.Flush(ctx); err != nil {
		return err
	}
	if t.groups == 1 {
		return nil
	}
	_, err := t.conn.exec("RELEASE kind")
	return err
}

func (t *transaction) RollbackTo(context.Context) error {
	t.failed = nil
	if t.groups == 1 {
		return t.restart()
	}
	// SQLite rolls the whole transaction back by itself on a full disk and the like; then there is no savepoint.
	if _, err := t.conn.exec("ROLLBACK TO kind"); err != nil {
		return err
	}
	_, err := t.conn.exec("RELEASE kind")
	return err
}

// restart begins anew, with nothing to keep. Like ROLLBACK TO it fails when SQLite has rolled back by itself.
func (t *transaction) restart() error {
	if _, err := t.conn.exec("ROLLBACK"); err != nil {
		return err
	}
	_, err := t.conn.exec("BEGIN IMMEDIATE")
	return err
}

// Commit announces a change of the hot look-ups' tables before it is visible. After a failure the announcement remains, because something may have
// been committed, and reading too often does no harm.
func (t *transaction) Commit(context.Context) error {
	announced := t.writer.generations.announce(t.conn.changed)
	_, err := t.conn.exec("COMMIT")
	if err == nil {
		t.writer.generations.settle(announced)
		if t.conn.news {
			t.writer.generations.committed()
		}
		if t.conn.erased {
			t.writer.scrubber.want()
		}
		return nil
	}
	t.Rollback()
	if driver.SQLiteCode(err)&0xff == sqlite3.SQLITE_IOERR {
		// The frames may have reached the WAL before the disk failed, and would count after a restart.
		return fmt.Errorf("%w: %w", driver.ErrCommitUnknown, err)
	}
	return err
}

func (t *transaction) Rollback() {
	if _, err := t.conn.exec("ROLLBACK"); err != nil {
		t.writer.abandon()
	}
}

// How long a writer waits for the write lock. A turn lasts about 5 ms and one fsync; a process that holds one for a
// second is stopped, or waits for a disk that makes all processes wait. While the turn stays stuck the next writes probe it only briefly.
const (
	turnPatience      = time.Second
	stuckTurnPatience = 10 * time.Millisecond
	turnPollFast      = 100 * time.Microsecond
	turnPollSlow      = time.Millisecond
	turnPollFastUntil = 20 * time.Millisecond
)

// writeLock makes the writers of several processes (and of several pools of one process) take turns on one SQLite file. SQLite's own lock is not
// fair: a waiting writer sleeps up to 100 ms and never meets the gap between two transactions of a busy one, which left a second process one write
// a second.
//
// Two advisory locks: turn is held while writing, next while waiting for turn. After a write, a process that has more to write must first win
// next, which a waiting process holds, and so comes after it. The locks give fairness and nothing else. A process that can't get the turn in time
// tries to write without it, and comes back if SQLite's own lock is also held.
//
// The wait polls with LOCK_NB instead of blocking in flock(2), which only a signal ends: a blocked call would outlive Close for as long as a
// stopped process holds the turn. The sleep between two polls is a system call, because the runtime's timers are a millisecond coarse in an idle
// process. It happens only while another process writes.
type writeLock struct {
	turn, next *os.File
	stuck      bool // the last wait ended without the turn
}

// openWriteLock opens the two lock files beside a database file and creates them when they are missing. They are
// never deleted: a deleted one would be another lock for the next process that opens it.
func openWriteLock(path string) (*writeLock, error) {
	turn, err := openLock(path + ".turn")
	if err != nil {
		return nil, err
	}
	next, err := openLock(path + ".next")
	if err != nil {
		return nil, errors.Join(err, turn.Close())
	}
	return &writeLock{turn: turn, next: next}, nil
}

func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // it stands beside the database
	if err != nil {
		return nil, fmt.Errorf("open the lock file of the database: %w", err)
	}
	return file, nil
}

// take waits for the turn until it has it, patience ends, or hurry is closed. The returned release function is never nil;
// release is called once.
func (t *writeLock) take(hurry <-chan struct{}) (release func()) {
	deadline := time.Now().Add(turnPatience)
	if t.stuck {
		deadline = time.Now().Add(stuckTurnPatience)
	}
	t.stuck = !t.win(deadline, hurry)
	if t.stuck {
		return func() {}
	}
	return func() { unlock(t.turn) }
}

// win gets next, then turn, then releases next.
func (t *writeLock) win(deadline time.Time, hurry <-chan struct{}) bool {
	if !pollLock(t.next, deadline, hurry) {
		return false
	}
	defer unlock(t.next)
	return pollLock(t.turn, deadline, hurry)
}

func (t *writeLock) close() error {
	return errors.Join(t.turn.Close(), t.next.Close())
}

func pollLock(file *os.File, deadline time.Time, hurry <-chan struct{}) bool {
	if tryLock(file) {
		return true
	}
	for start := time.Now(); ; {
		select {
		case <-hurry:
			return false
		default:
		}
		now := time.Now()
		if !now.Before(deadline) {
			return false
		}
		pause := turnPollFast
		if now.Sub(start) > turnPollFastUntil {
			pause = turnPollSlow
		}
		preciseSleep(pause)
		if tryLock(file) {
			return true
		}
	}
}

func tryLock(file *os.File) bool {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

func unlock(file *os.File) {
	// Unlocking one's own open file fails only if it is closed, and then the lock is gone.
	unix.Flock(int(file.Fd()), unix.LOCK_UN) //nolint:errcheck // see above
}

// preciseSleep sleeps for about the pause, or shorter when a signal comes.
func preciseSleep(pause time.Duration) {
	interval := unix.NsecToTimeval(pause.Nanoseconds())
	unix.Select(0, nil, nil, nil, &interval) //nolint:errcheck // an early end is no harm
}
