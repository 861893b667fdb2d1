package store

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ExportOptions is what an export needs from its caller. The zero value is ready.
type ExportOptions struct {
	// Probes are values sealed with each key that the store's secrets are sealed with, which go into the header: an
	// import shows them to [ImportOptions.Admit].
	Probes [][]byte
	// Progress is told after each block; nil is nobody. It must return quickly.
	Progress func(ArchiveProgress)
}

// Export writes everything the store holds to w as an archive, see [ArchiveHeader]: what was committed when it began,
// from one moment. Processes may go on working on the store; what they commit meanwhile is not in the archive. Memory
// doesn't grow with the store. On SQLite it reads a copy that is made first, in a new folder beside the database, so that
// no read stays open on the database itself (design §7); that takes the space of the database once more until Export
// returns. On PostgreSQL it reads one snapshot, which keeps the server from cleaning up for as long.
//
// An archive holds sealed values as they are: only the same master key opens them. It fails with [ErrArchiveNewer] when a
// newer version of the product has changed the schema.
func (db *DB) Export(ctx context.Context, w io.Writer, options ExportOptions) (ArchiveSummary, error) {
	header := ArchiveHeader{
		Format: archiveFormat, Version: archiveVersion, ID: NewID("arc"), Engine: db.Engine(),
		CreatedAt: db.clock().UnixMilli(), Probes: options.Probes,
	}
	source, done, err := db.snapshot(ctx)
	if err != nil {
		return ArchiveSummary{}, fmt.Errorf("store: export: %w", err)
	}
	rows, err := export(ctx, source, w, header, options.Progress)
	if err := errors.Join(err, done()); err != nil {
		return ArchiveSummary{}, fmt.Errorf("store: export: %w", err)
	}
	return ArchiveSummary{ID: header.ID, Rows: rows}, nil
}

// snapshotReader reads the store as it was at one moment.
type snapshotReader interface {
	QueryContext(ctx context.Context, text string, arguments ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, arguments ...any) *sql.Row
}

// snapshot is the store as it is now, until done is called.
func (db *DB) snapshot(ctx context.Context) (reader snapshotReader, done func() error, err error) {
	if db.Engine() == SQLite {
		return db.copiedSnapshot(ctx)
	}
	// A connection of its own: everyday reads have bounds, which are not for a table that is read whole, at the pace of
	// whoever takes the archive.
	conn, err := openForMigration(db.location)
	if err != nil {
		return nil, nil, err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, nil, errors.Join(sqlError("begin a snapshot", err), conn.Close())
	}
	done = func() error {
		err := tx.Rollback()
		if errors.Is(err, sql.ErrTxDone) { // ctx has ended
			err = nil
		}
		return errors.Join(sqlError("end the snapshot", err), conn.Close())
	}
	if _, err := tx.ExecContext(ctx, "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return nil, nil, errors.Join(sqlError("begin a snapshot", err), done())
	}
	return tx, done, nil
}

// copiedSnapshot is a copy of a SQLite database.
func (db *DB) copiedSnapshot(ctx context.Context) (reader snapshotReader, done func() error, err error) {
	folder, err := os.MkdirTemp(filepath.Dir(db.location.DSN), filepath.Base(db.location.DSN)+".export-")
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
	if err := db.BackupTo(ctx, path); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	copied, err := openSQLite(path, sqliteReaderPragmas)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return copied, func() error { return errors.Join(copied.Close(), remove()) }, nil
}

func export(ctx context.Context, source snapshotReader, w io.Writer, header ArchiveHeader, progress func(ArchiveProgress)) (map[string]int64, error) {
	var err error
	if header.Schema, err = knownSchema(ctx, source, header.Engine); err != nil {
		return nil, err
	}
	buffered := bufio.NewWriterSize(w, 256<<10)
	archive, err := newArchiveWriter(buffered, header, progress)
	if err != nil {
		return nil, err
	}
	for place := range archiveTables {
		if err := exportTable(ctx, source, archive, tableOfArchive(place)); err != nil {
			return nil, err
		}
	}
	if err := archive.end(); err != nil {
		return nil, err
	}
	if err := buffered.Flush(); err != nil {
		return nil, fmt.Errorf("write the archive: %w", err)
	}
	return archive.rows, nil
}

// knownSchema is the schema version of the store, or [ErrArchiveNewer] when a newer version of the product made it: it
// may have tables that this one doesn't know.
func knownSchema(ctx context.Context, source snapshotReader, engine Engine) (int64, error) {
	var version int64
	if err := source.QueryRowContext(ctx, "SELECT max(version_id) FROM "+versionTable).Scan(&version); err != nil {
		return 0, sqlError("read the schema version", err)
	}
	if version > newestSchema(engine) {
		return 0, fmt.Errorf("%w: the store's schema has version %d, this program knows %d", ErrArchiveNewer, version, newestSchema(engine))
	}
	return version, nil
}

// newestSchema is the schema version that this program brings a store to.
func newestSchema(engine Engine) int64 {
	all := migrations(engine)
	return all[len(all)-1].version
}

// exportTable writes a table in the order in which the engine reads it fastest: no reader of an archive needs another.
func exportTable(ctx context.Context, source snapshotReader, archive *archiveWriter, table archiveTable) (err error) {
	if err := archive.begin(table); err != nil {
		return err
	}
	doing := "read " + table.name
	rows, err := source.QueryContext(ctx, "SELECT "+strings.Join(table.columnNames(), ", ")+" FROM "+table.name)
	if err != nil {
		return sqlError(doing, err)
	}
	defer closeRows(rows, &err, doing)
	values := make([]any, len(table.columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return sqlError(doing, err)
		}
		for i, column := range table.columns {
			if values[i], err = archived(column.kind, values[i]); err != nil {
				return fmt.Errorf("%s: %s: %w", doing, column.name, err)
			}
		}
		if err := archive.row(values); err != nil {
			return err
		}
	}
	return sqlError(doing, rows.Err())
}
