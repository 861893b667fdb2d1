// Package sqlite is the driver of SQLite: one writing connection, a few prepared connections for the hot look-ups, and a
// pool for everything else, on one file in WAL mode.
//
// Processes that share the file take turns by a pair of lock files; SQLite's own locks keep the file correct without them.
// A file on a network file system is refused.
package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
}

// Open opens a database file and creates it when it is missing. It refuses a file on a network file system.
func Open(ctx context.Context, path string, clock func() time.Time) (opened *Driver, err error) {
	if err := prepareFile(path); err != nil {
		return nil, err
	}
	d := &Driver{path: path, clock: clock}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close(ctx))
		}
	}()
	if d.writer, err = newWriterConn(ctx, path, clock); err != nil {
		return nil, err
	}
	if err = setWAL(ctx, d.writer.conn); err != nil {
		return nil, err
	}
	if d.reader, err = openPool(path, readerPragmas); err != nil {
		return nil, err
	}
	d.reader.SetMaxOpenConns(maxReaders)
	d.reader.SetMaxIdleConns(maxReaders)
	if d.hot, err = openHotReader(ctx, path, clock); err != nil {
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
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator chooses the path
	if err != nil {
		return fmt.Errorf("open the database file: %w", err)
	}
	return file.Close()
}

// setWAL puts the file into WAL mode, which stays with it. SQLite doesn't ask the busy handler for this, so a second
// process that opens the new file at the same moment must ask again.
func setWAL(ctx context.Context, conn *preparedConn) error {
	deadline := time.Now().Add(walPatience)
	for {
		var mode string
		err := conn.query("PRAGMA journal_mode = WAL", []sqldriver.NamedValue{}, func(row driver.Row) error { return row.Scan(&mode) })
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

// Listen implements [driver.Driver]: SQLite can't notify.
func (d *Driver) Listen(
	context.Context, string, func(wait func(ctx context.Context, atMost time.Duration) (heard bool, err error)) error,
) error {
	return driver.ErrUnsupported
}

// ForMigration implements [driver.Driver]. The process has the turn to write until the connection is closed, so that migrating
// processes don't meet; correctness doesn't depend on it.
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
	return conn, func() error {
		err := conn.Close()
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
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
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

// PreparedStatements returns the texts that the writer and one connection of the hot reader have prepared. Tests explain
// their plans.
func (d *Driver) PreparedStatements() (texts []string) {
	idle := <-d.hot.idle
	defer func() { d.hot.idle <- idle }()
	for _, conn := range []*preparedConn{d.writer.conn, idle} {
		for text := range conn.statements {
			texts = append(texts, text)
		}
	}
	return texts
}

// Close implements [driver.Driver].
func (d *Driver) Close(context.Context) error {
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
	return failed
}

// Interface guard.
var _ driver.Driver = (*Driver)(nil)
