package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"reflect"
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
	// Progress is called after each block and must return quickly. It may be nil.
	Progress func(Progress)
}

// Export writes the whole store to w as an archive, see [Header], as of the moment when it began. Other processes may continue to work;
// their later commits are not in the archive. Memory doesn't grow with the store. On SQLite it reads a copy in a new folder beside the
// database, which needs the space of the database until Export returns. On PostgreSQL it reads one snapshot, which keeps the server from
// cleaning up until then.
//
// Sealed values stay sealed: only the same master key opens them. Export fails as [store.DB.Check] does for a store of another version.
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
	archive := &writer{to: buffered, sum: sha256.New(), rows: map[string]int64{}, progress: progress}
	archive.lines = json.NewEncoder(&archive.line)
	archive.lines.SetEscapeHTML(false)
	if err := archive.write(header); err != nil {
		return nil, err
	}
	for _, table := range allTables() {
		if err := exportTable(ctx, source, archive, table); err != nil {
			return nil, err
		}
	}
	if archive.blockRows > 0 {
		if err := archive.closeBlock(); err != nil {
			return nil, err
		}
	}
	if err := archive.write(mark{End: archive.rows, SHA256: archive.digest()}); err != nil {
		return nil, err
	}
	return archive.rows, store.Wrap("write the archive", buffered.Flush())
}

// exportTable writes a table in the order in which the engine reads it fastest: no reader of an archive needs another.
func exportTable(ctx context.Context, source driver.SnapshotReader, archive *writer, table schema.Table) (err error) {
	archive.table, archive.rows[table.Name] = table.Name, 0
	if err := archive.write(mark{Table: table.Name, Columns: columnNames(table)}); err != nil {
		return err
	}
	doing := "read " + table.Name
	rows, err := source.QueryContext(ctx, "SELECT "+strings.Join(columnNames(table), ", ")+" FROM "+table.Name)
	if err != nil {
		return driver.WrapError(doing, err)
	}
	defer func() {
		if closed := rows.Close(); err == nil {
			err = driver.WrapError(doing, closed)
		}
	}()
	values := make([]any, len(table.Columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return driver.WrapError(doing, err)
		}
		for i, column := range table.Columns {
			if values[i], err = archived(column.Type, values[i]); err != nil {
				return fmt.Errorf("%s: %s: %w", doing, column.Name, err)
			}
		}
		if err := archive.row(values); err != nil {
			return err
		}
	}
	return driver.WrapError(doing, rows.Err())
}

// writer writes an archive line by line. It keeps one line.
type writer struct {
	to    io.Writer
	sum   hash.Hash // of all that was written
	line  bytes.Buffer
	lines *json.Encoder // into line

	table     string
	rows      map[string]int64 // by table
	total     int64
	block     int64 // the last that was closed
	blockRows int
	blockSize int
	progress  func(Progress)
}

// write writes one line.
func (w *writer) write(line any) error {
	w.line.Reset()
	if err := w.lines.Encode(line); err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	if w.line.Len() > maxLine {
		return fmt.Errorf("a row of %s has %d bytes, more than an archive takes (%d)", w.table, w.line.Len(), maxLine)
	}
	w.sum.Write(w.line.Bytes())
	_, err := w.to.Write(w.line.Bytes())
	return store.Wrap("write the archive", err)
}

func (w *writer) digest() string { return hex.EncodeToString(w.sum.Sum(nil)) }

// row writes a row, and closes its block when that is full.
func (w *writer) row(values []any) error {
	if err := w.write(values); err != nil {
		return err
	}
	w.rows[w.table]++
	w.total++
	w.blockRows++
	w.blockSize += w.line.Len()
	if w.blockRows < blockRows && w.blockSize < blockBytes {
		return nil
	}
	return w.closeBlock()
}

func (w *writer) closeBlock() error {
	w.block++
	w.blockRows, w.blockSize = 0, 0
	if err := w.write(mark{Block: w.block, SHA256: w.digest()}); err != nil {
		return err
	}
	if w.progress != nil {
		w.progress(Progress{Table: w.table, Rows: w.total})
	}
	return nil
}

// errColumnType: the database holds a value of another type than the schema's.
var errColumnType = errors.New("has a value of another type than its column")

// archived converts a value from database/sql to its form in a row of an archive.
func archived(kind string, value any) (any, error) {
	switch from := value.(type) {
	case nil:
		return nil, nil
	case string:
		if !driver.IsText(from) {
			return nil, store.ErrText // JSON would put something else in its place
		}
	case int64:
		if kind == "BOOLEAN" {
			value = from != 0 // SQLite's
		}
	case []byte:
		if from == nil {
			value = []byte{} // an empty value, since NULL is nil itself
		}
	}
	if reflect.TypeOf(value) != columnTypes[kind] {
		return nil, errColumnType
	}
	return value, nil
}
