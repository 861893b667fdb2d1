// Package sqlite is the driver of SQLite: one writing connection, a few prepared connections for the hot look-ups, and a
// pool for everything else, on one file in WAL mode.
//
// Processes that share the file take turns by a pair of lock files; SQLite's own locks keep the file correct without them.
// A file on a network file system is refused.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

const (
	// maxReaders bounds the connections of the reader.
	maxReaders = 8
	// walPatience bounds the attempts to put a new file into WAL mode while other processes use it.
	walPatience = 5 * time.Second
)

// Driver is an open SQLite database.
type Driver struct {
	path   string
	clock  func() time.Time
	writer *writerConn
	reader *sql.DB
	hot    *hotReader

	generations *generations
	commits     *commitWatch
	scrubber    *scrubber
	copying     atomic.Int64 // connections that copy the database
}

// Open opens a database file and creates it if it is missing. logger gets conditions that need the operator. Open refuses a file on a network file
// system.
func Open(ctx context.Context, path string, clock func() time.Time, logger *slog.Logger) (opened *Driver, err error) {
	if err := prepareFile(path); err != nil {
		return nil, err
	}
	d := &Driver{path: path, clock: clock}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close(ctx))
		}
	}()
	if d.generations, err = openGenerations(ctx, path, logger); err != nil {
		return nil, err
	}
	d.commits = &commitWatch{generations: d.generations, noticed: make(chan struct{})}
	d.scrubber = &scrubber{path: path, wanted: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go d.scrubber.run()
	if d.writer, err = newWriterConn(ctx, path, clock, d.generations, d.scrubber); err != nil {
		return nil, err
	}
	if err = setWAL(ctx, d.writer.conn); err != nil {
		return nil, err
	}
	if d.reader, err = openReader(path); err != nil {
		return nil, err
	}
	if d.hot, err = openHotReader(ctx, path, clock, d.generations); err != nil {
		return nil, err
	}
	return d, nil
}

// prepareFile makes sure that the database file can be created where it should be and that its directory is on a file
// system SQLite's locks and shared memory work on. File and missing directories belong to this user alone.
func prepareFile(path string) error {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o700); err != nil { //nolint:gosec // the operator chooses the path
		return fmt.Errorf("create the directory of the database: %w", err)
	}
	if name, remote, err := networkFileSystem(directory); err != nil {
		return fmt.Errorf("look at the file system of the database: %w", err)
	} else if remote {
		return fmt.Errorf("%s is on a network file system (%s), where SQLite loses data: use a local disk, or store postgres", directory, name)
	}
	// A file that is there isn't opened: closing it would give up the locks that another connection of this process has on it.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator chooses the path
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the database file: %w", err)
	}
	return file.Close()
}

// setWAL puts the file into WAL mode, which stays with it. SQLite doesn't ask the busy handler for this, so a second
// process that opens the new file at the same moment must ask again.
func setWAL(ctx context.Context, conn *preparedConn) error {
	deadline := time.Now().Add(walPatience)
	for {
		var mode string
		err := conn.query(func(row driver.Row) error { return row.Scan(&mode) }, "PRAGMA journal_mode = WAL")
		switch {
		case err == nil && mode == "wal":
			return nil
		case err == nil:
			return fmt.Errorf("the file system allows no write-ahead log (journal mode %s)", mode)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, driver.ErrBusy) || time.Now().After(deadline):
			return err
		}
		preciseSleep(turnPollSlow)
	}
}

// Writer implements [driver.Driver].
func (d *Driver) Writer() driver.Writer { return d.writer }

// Reader implements [driver.Driver].
func (d *Driver) Reader() *sql.DB { return d.reader }

// HotReader implements [driver.Driver].
func (d *Driver) HotReader() driver.HotReader { return d.hot }

// Now implements [driver.Driver]: the process's clock is the database's.
func (d *Driver) Now(context.Context) (int64, error) { return d.clock().UnixMilli(), nil }

// Listen implements [driver.Driver]. SQLite can't notify: each commit of a process of ours is a notification on every channel.
func (d *Driver) Listen(_ context.Context, _ string, use func(driver.Wait) error) error {
	committed, known := d.commits.next(), d.generations.commits()
	return use(func(ctx context.Context, atMost time.Duration) (bool, error) {
		late := time.NewTimer(atMost)
		defer late.Stop()
		for {
			select {
			case <-committed:
			case <-late.C:
				return false, nil
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
			committed = d.commits.next()
			if commits := d.generations.commits(); commits != known {
				known = commits
				return true, nil
			}
		}
	})
}

// Committed implements [driver.Driver].
func (d *Driver) Committed() <-chan struct{} { return d.commits.next() }

// ForMigration implements [driver.Driver]. The process has the turn to write until the connection is closed, so that migrating
// processes don't meet; correctness doesn't depend on it. A change of everything is announced before and after, so that processes remember nothing
// during the migration; the next transaction of any process ends that.
func (d *Driver) ForMigration(ctx context.Context) (conn *sql.DB, done func() error, err error) {
	turns, err := openWriteLock(d.path)
	if err != nil {
		return nil, nil, err
	}
	conn, err = openPool(d.path, migrationPragmas)
	if err != nil {
		return nil, nil, errors.Join(err, turns.close())
	}
	conn.SetMaxOpenConns(1)
	release := turns.take(ctx.Done())
	all := parts{identityPart: true, routePart: true}
	d.generations.announce(all)
	return conn, func() error {
		err := conn.Close()
		d.generations.announce(all)
		release()
		turns.close() //nolint:errcheck // a lock file that was only read
		return err
	}, nil
}

// Snapshot implements [driver.Driver]. It reads a copy, which is made first, in a new folder beside the database.
func (d *Driver) Snapshot(ctx context.Context) (reader driver.SnapshotReader, done func() error, err error) {
	folder, err := os.MkdirTemp(filepath.Dir(d.path), filepath.Base(d.path)+".export-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder for a copy: %w", err)
	}
	remove := func() error {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("remove the copy: %w", err)
		}
		return nil
	}
	path := filepath.Join(folder, "copy.db")
	if err := d.BackupTo(ctx, path); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	copied, err := openPool(path, readerPragmas)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return copied, func() error { return errors.Join(copied.Close(), remove()) }, nil
}

// BackupTo implements [driver.Driver].
func (d *Driver) BackupTo(ctx context.Context, path string) error {
	target, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("back up: create the file: %w", err)
	}
	defer target.Close() //nolint:errcheck // it was synced
	if err := d.vacuumInto(ctx, path); err != nil {
		return errors.Join(fmt.Errorf("back up: %w", err), removeIfThere(path))
	}
	if err := target.Sync(); err != nil {
		return errors.Join(fmt.Errorf("back up: sync the file: %w", err), removeIfThere(path))
	}
	return nil
}

func (d *Driver) vacuumInto(ctx context.Context, path string) error {
	d.copying.Add(1)
	defer d.copying.Add(-1)
	from, err := openPool(d.path, commonPragmas)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // it only read
	if _, err := from.ExecContext(ctx, "VACUUM INTO $1", path); err != nil {
		return driver.WrapError("copy the database", err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { //nolint:gosec // the operator chooses the path
		return fmt.Errorf("remove the unfinished file: %w", err)
	}
	return nil
}

// WALBytes implements [driver.Driver].
func (d *Driver) WALBytes() int64 {
	about, err := os.Stat(d.path + "-wal")
	if err != nil {
		return 0
	}
	return about.Size()
}

// PreparedStatements returns the texts that the writer and one connection of the hot reader have prepared, and whether each changes tables of the
// hot look-ups. Tests explain their plans.
func (d *Driver) PreparedStatements() (texts map[string]bool) {
	texts = map[string]bool{}
	idle := <-d.hot.idle
	defer func() { d.hot.idle <- idle }()
	for _, conn := range []*preparedConn{d.writer.conn, idle} {
		for text, statement := range conn.statements {
			texts[text] = statement.changes != parts{}
		}
	}
	return texts
}

// WriterStatements returns how many statements the writer has run. Tests call it while nothing is written.
func (d *Driver) WriterStatements() int { return d.writer.conn.ran }

// Close implements [driver.Driver]. The process counts as a user of the database until all its connections are closed.
func (d *Driver) Close(ctx context.Context) error {
	var failed error
	if d.writer != nil {
		failed = d.writer.Close()
	}
	if d.hot != nil {
		failed = errors.Join(failed, d.hot.Close())
	}
	if d.reader != nil {
		failed = errors.Join(failed, d.reader.Close())
	}
	if d.scrubber != nil {
		d.scrubber.close(ctx)
	}
	for d.reader != nil && d.reader.Stats().OpenConnections > 0 || d.copying.Load() > 0 {
		if ctx.Err() != nil {
			return errors.Join(failed, fmt.Errorf("close the database, which is still read: %w", context.Cause(ctx)))
		}
		preciseSleep(turnPollSlow)
	}
	if d.generations != nil {
		failed = errors.Join(failed, d.commits.close(), d.generations.close())
	}
	return failed
}

// Interface guard.
// erasing finds statements that delete data about customers.
var erasing = regexp.MustCompile(`(?i)\bDELETE\s+FROM\s+(?:conversations|(?:outbound_)?messages|turns|media(?:_pieces)?|sent_file(?:s|_pieces))\b`)

const (
	// scrubPauseFirst and scrubPauseMost bound the pause after an attempt that readers or writers kept from emptying the log. It doubles.
	scrubPauseFirst = 50 * time.Millisecond
	scrubPauseMost  = 10 * time.Second
	// scrubEvery is when the log is emptied at the latest, for a process that died between a deletion and its scrub.
	scrubEvery = time.Hour
	// scrubLastAttempts bounds the attempts of a process that ends.
	scrubLastAttempts = 40
)

// scrubPragmas are the settings of an attempt's connection. While it waits for readers, it blocks all writers, for busy_timeout (ms) at the
// longest.
var scrubPragmas = []string{"busy_timeout(20)", "synchronous(FULL)", "journal_size_limit(67108864)"}

// scrubber empties the write-ahead log after customers were deleted, because its old frames hold their rows. The database file needs no scrubbing:
// the writer overwrites deleted rows (secure_delete).
type scrubber struct {
	path   string
	wanted chan struct{} // has an element when a deletion was committed that no attempt has covered
	stop   chan struct{}
	done   chan struct{}
	due    bool // when done: deletions are left that no attempt has covered
}

// want has the log emptied soon. It doesn't wait.
func (s *scrubber) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

func (s *scrubber) run() {
	defer close(s.done)
	for pause := scrubEvery; ; {
		wanted := s.wanted
		if s.due { // the next attempt covers newer deletions as well
			wanted = nil
		}
		select {
		case <-wanted:
		case <-time.After(pause):
		case <-s.stop:
			s.due = s.due || len(s.wanted) > 0
			return
		}
		switch {
		case s.attempt():
			pause, s.due = scrubEvery, false
		case s.due:
			pause = min(2*pause, scrubPauseMost)
		default:
			pause, s.due = scrubPauseFirst, true
		}
	}
}

// close ends the goroutine, and repeats attempts for some seconds or until ctx ends if deletions are left. If these fail, another process
// that uses the database empties the log within the hour; if there is none, SQLite deletes the log with the last connection.
func (s *scrubber) close(ctx context.Context) {
	close(s.stop)
	<-s.done
	for range scrubLastAttempts {
		if !s.due || ctx.Err() != nil {
			return
		}
		s.due = !s.attempt()
		preciseSleep(scrubPauseFirst)
	}
}

// attempt writes the log back into the database file and truncates it, and reports whether it did. It writes most of it back while others write,
// and waits for the turn to write the rest. A fault, such as a full disk, is a reason to try again.
func (s *scrubber) attempt() (emptied bool) {
	conn, err := dial(context.Background(), s.path, scrubPragmas)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // it holds nothing
	turns, err := openWriteLock(s.path)
	if err != nil {
		return false
	}
	defer turns.close() //nolint:errcheck // lock files that were only read
	if _, err := checkpoint(conn, "PASSIVE"); err != nil {
		return false
	}
	release := turns.take(s.stop)
	defer release()
	blocked, err := checkpoint(conn, "TRUNCATE")
	return err == nil && !blocked
}

// checkpoint writes the log back in one of SQLite's modes, and reports whether others kept it from doing all of that.
func checkpoint(conn *preparedConn, mode string) (blocked bool, err error) {
	var frames, written int64
	err = conn.query(func(row driver.Row) error { return row.Scan(&blocked, &frames, &written) }, "PRAGMA wal_checkpoint("+mode+")")
	return blocked, err
}
