package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/driver"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
)

// ExportOptions configures an export. The zero value is ready.
type ExportOptions struct {
	// Probes are values sealed with each key that the store's secrets are sealed with, which go into the header: an
	// import shows them to [ImportOptions.Admit].
	Probes [][]byte
	// Progress is called after each block; nil is none. It must return quickly.
	Progress func(Progress)
}

// Export writes everything the store holds to w as an archive, see [Header]: what was committed when it began,
// from one moment. Processes may go on working on the store; what they commit meanwhile is not in the archive. Memory
// doesn't grow with the store. On SQLite it reads a copy that is made first, in a new folder beside the database, so that
// no read stays open on the database itself; that takes the space of the database once more until Export
// returns. On PostgreSQL it reads one snapshot, which keeps the server from cleaning up for as long.
//
// An archive holds sealed values as they are: only the same master key opens them. It fails as [store.DB.Check] does for a store of another
// version.
func Export(ctx context.Context, db *store.DB, w io.Writer, options ExportOptions) (Summary, error) {
	now, err := db.Now(ctx)
	if err != nil {
		return Summary{}, fmt.Errorf("store: export: %w", err)
	}
	header := Header{
		Format: formatName, Version: formatVersion, ID: store.NewID("arc"), Engine: db.Engine(), CreatedAt: now, Probes: options.Probes,
	}
	source, done, err := db.Snapshot(ctx)
	if err != nil {
		return Summary{}, fmt.Errorf("store: export: %w", err)
	}
	rows, err := export(ctx, source, w, header, options.Progress)
	if err := errors.Join(err, done()); err != nil {
		return Summary{}, fmt.Errorf("store: export: %w", err)
	}
	return Summary{ID: header.ID, Rows: rows}, nil
}

func export(ctx context.Context, source driver.SnapshotReader, w io.Writer, header Header, progress func(Progress)) (map[string]int64, error) {
	if err := schema.Check(ctx, header.Engine, source, schema.Versions(header.Engine)); err != nil {
		return nil, err
	}
	header.Schema = schema.Newest(header.Engine)
	buffered := bufio.NewWriterSize(w, 256<<10)
	archive, err := newWriter(buffered, header, progress)
	if err != nil {
		return nil, err
	}
	for place := range allTables {
		if err := exportTable(ctx, source, archive, tableAt(place)); err != nil {
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

// exportTable writes a table in the order in which the engine reads it fastest: no reader of an archive needs another.
func exportTable(ctx context.Context, source driver.SnapshotReader, archive *writer, table table) (err error) {
	if err := archive.begin(table); err != nil {
		return err
	}
	doing := "read " + table.name
	rows, err := source.QueryContext(ctx, "SELECT "+strings.Join(table.columnNames(), ", ")+" FROM "+table.name)
	if err != nil {
		return driver.WrapError(doing, err)
	}
	defer func() {
		if closed := rows.Close(); err == nil {
			err = driver.WrapError(doing, closed)
		}
	}()
	values := make([]any, len(table.columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return driver.WrapError(doing, err)
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
	return driver.WrapError(doing, rows.Err())
}
