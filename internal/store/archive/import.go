package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/driver"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
)

// ImportOptions configures an import. The zero value is ready.
type ImportOptions struct {
	// Admit may refuse an archive by its header before anything is written, for example if the master key of this side doesn't open its
	// probes. nil admits all.
	Admit func(Header) error
	// Progress is called after each block and must return quickly. It may be nil.
	Progress func(Progress)
}

// Import fills an empty, migrated store from an archive of [Export] of either engine, in one transaction: after an error or an interruption,
// also by kill -9, the store is still empty, and the import starts over. Meanwhile nothing else is written to the store. Memory doesn't grow
// with the archive; SQLite's write-ahead log does. It fails with [ErrDamaged], [ErrOtherVersion], [ErrNotEmpty], or with [store.ErrBusy] if
// another transaction holds the store.
func Import(ctx context.Context, db *store.DB, r io.Reader, options ImportOptions) (Summary, error) {
	summary, err := importArchive(ctx, db, r, options)
	if err != nil {
		return Summary{}, fmt.Errorf("store: import: %w", err)
	}
	return summary, nil
}

func importArchive(ctx context.Context, db *store.DB, r io.Reader, options ImportOptions) (Summary, error) {
	archive, err := newReader(r)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it has not one line", ErrDamaged)
	}
	if err != nil {
		return Summary{}, err
	}
	if err := schema.Check(ctx, db.Engine(), db.Reader(), schema.Versions(db.Engine())); err != nil {
		return Summary{}, err
	}
	if newest := schema.Newest(db.Engine()); archive.header.Schema != newest {
		return Summary{}, fmt.Errorf("%w: its tables have version %d, this program's %d", ErrOtherVersion, archive.header.Schema, newest)
	}
	if options.Admit != nil {
		if err := options.Admit(archive.header); err != nil {
			return Summary{}, err
		}
	}
	err = db.Fill(ctx, func(tx *sql.Tx) error {
		if err := lockEmpty(ctx, tx, db.Engine()); err != nil {
			return err
		}
		return importBlocks(ctx, tx, db.Engine(), archive, options.Progress)
	})
	return Summary{ID: archive.header.ID, Rows: archive.rows}, err
}

// lockEmpty keeps others from writing until the transaction ends, and returns [ErrNotEmpty] if a table has rows. On SQLite the transaction has
// the write lock from its beginning.
func lockEmpty(ctx context.Context, tx *sql.Tx, engine store.Engine) error {
	if engine == store.Postgres {
		names := store.Column(allTables(), func(table schema.Table) string { return table.Name })
		for _, text := range []string{
			"SET LOCAL idle_in_transaction_session_timeout = 0", // the archive may come slowly
			"SET LOCAL lock_timeout = '3s'",                     // autovacuum releases a table after deadlock_timeout, a second
			"LOCK TABLE " + strings.Join(names, ", ") + " IN SHARE ROW EXCLUSIVE MODE",
		} {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return driver.WrapError("lock the tables", err)
			}
		}
	}
	for _, table := range allTables() {
		var found bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+table.Name+")").Scan(&found); err != nil {
			return driver.WrapError("look for rows of "+table.Name, err)
		}
		if found {
			return fmt.Errorf("%w: table %s has rows", ErrNotEmpty, table.Name)
		}
	}
	return nil
}

// importBlocks writes all rows of an archive.
func importBlocks(ctx context.Context, tx *sql.Tx, engine store.Engine, archive *reader, progress func(Progress)) error {
	sizes, prepared := insertedRows[engine], map[string]*sql.Stmt{} // by text
	insert := func(table schema.Table, rows [][]any) (err error) {
		names := columnNames(table)
		texts := sizes.Statement("INSERT INTO "+table.Name+" ("+strings.Join(names, ", ")+") {list}", len(names), 0)
		store.EachExact(sizes, rows, func(size int, piece [][]any) {
			if err == nil && prepared[texts[size]] == nil {
				prepared[texts[size]], err = tx.PrepareContext(ctx, texts[size]) //nolint:sqlclosecheck // it ends with the transaction
			}
			if err == nil {
				_, err = prepared[texts[size]].ExecContext(ctx, slices.Concat(piece...)...)
			}
		})
		return driver.WrapError("write rows of "+table.Name, err)
	}
	for {
		block, err := archive.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, run := range block {
			rows, err := run.values()
			if err == nil {
				err = insert(run.table, rows)
			}
			if err != nil {
				return err
			}
		}
		if progress != nil {
			progress(Progress{Table: archive.table().Name, Rows: archive.total})
		}
	}
}

// insertedRows are the numbers of rows in one INSERT. SQLite, which needs no round trips, gets each row by itself.
var insertedRows = map[store.Engine]store.ListSizes{store.SQLite: {1}, store.Postgres: {100, 10, 1}}

// values returns the values of the rows. It returns [ErrDamaged] if a row doesn't fit its table.
func (r run) values() ([][]any, error) {
	rows := make([][]any, len(r.rows))
	for i, row := range r.rows {
		values, err := rowValues(r.table, row)
		if err == nil {
			rows[i], err = driver.BindArgs(values)
		}
		if err != nil {
			return nil, damaged(r.line+int64(i), "%v", err)
		}
	}
	return rows, nil
}

// run are rows of a block that follow each other in one table.
type run struct {
	table schema.Table
	line  int64    // of the first row
	rows  [][]byte // as they stand in the archive
}

// reader reads an archive block by block. It keeps one block, which has a bound.
type reader struct {
	from   *bufio.Reader
	sum    hash.Hash
	header Header

	line  int64 // number of the last line
	text  []byte
	place int // of the table in allTables
	rows  map[string]int64
	total int64
	block int64
}

// newReader reads the first line. It fails with [ErrDamaged] or [ErrOtherVersion].
func newReader(from io.Reader) (*reader, error) {
	r := &reader{from: bufio.NewReaderSize(from, 64<<10), sum: sha256.New(), place: -1, rows: map[string]int64{}}
	if err := r.read(); err != nil {
		return nil, err
	}
	err := json.Unmarshal(r.text, &r.header)
	switch {
	case err != nil || r.header.Format != formatName:
		return nil, damaged(r.line, "this is no archive of `caddy svc export`")
	case r.header.Version != formatVersion:
		return nil, fmt.Errorf("%w: its format has version %d, this program's %d", ErrOtherVersion, r.header.Version, formatVersion)
	case r.header.ID == "":
		return nil, damaged(r.line, "the first line doesn't say what an archive's says")
	}
	r.sum.Write(r.text)
	return r, nil
}

// read reads the next line, its line break included, into text. At the end of the stream it is [io.EOF].
func (r *reader) read() error {
	r.text = r.text[:0]
	for {
		piece, err := r.from.ReadSlice('\n')
		r.text = append(r.text, piece...)
		switch {
		case len(r.text) > maxLine:
			return damaged(r.line+1, "longer than %d bytes", maxLine)
		case err == nil:
			r.line++
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(r.text) == 0:
			return io.EOF
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the latter is gzip's
			return r.cut()
		default:
			return fmt.Errorf("read the archive after line %d: %w", r.line, err)
		}
	}
}

func (r *reader) cut() error { return damaged(r.line, "the archive is cut: its last line is missing") }

// table returns the table of the last row.
func (r *reader) table() schema.Table { return allTables()[r.place] }

// next reads the next block, whole and undamaged. After the last one, when the whole archive has proved to be undamaged, it is [io.EOF].
func (r *reader) next() (block []run, err error) {
	var size, rows int
	for {
		if err := r.read(); errors.Is(err, io.EOF) {
			return nil, r.cut()
		} else if err != nil {
			return nil, err
		}
		if r.text[0] != '[' {
			done, err := r.mark(rows)
			if err != nil || done {
				return block, err
			}
			continue
		}
		rows++
		size += len(r.text)
		if rows > blockRows || size > blockBytes+maxLine {
			return nil, damaged(r.line, "the block is larger than any")
		}
		if r.place < 0 {
			return nil, damaged(r.line, "a row before its table")
		}
		table := r.table()
		if len(block) == 0 || block[len(block)-1].table.Name != table.Name {
			block = append(block, run{table: table, line: r.line})
		}
		run := &block[len(block)-1]
		run.rows = append(run.rows, bytes.Clone(r.text))
		r.sum.Write(r.text)
		r.rows[table.Name]++
		r.total++
	}
}

// mark reads a line that isn't a row, and reports whether it ends a block of rows. The end of the archive is [io.EOF].
func (r *reader) mark(rows int) (done bool, err error) {
	var mark mark
	if err := json.Unmarshal(r.text, &mark); err != nil {
		return false, damaged(r.line, "it is neither a row nor what stands between rows")
	}
	digest := hex.EncodeToString(r.sum.Sum(nil))
	r.sum.Write(r.text)
	switch {
	case mark.Table != "":
		return false, r.begin(mark)
	case mark.SHA256 != digest:
		return false, damaged(r.line, "the checksum doesn't fit: something before this line was changed")
	case mark.Block == r.block+1 && rows > 0:
		r.block++
		return true, nil
	case mark.End != nil && rows == 0 && maps.Equal(mark.End, r.rows) && len(r.rows) == len(allTables()):
		if err := r.read(); err != nil {
			return false, err // io.EOF at the archive's end
		}
		return false, damaged(r.line, "something follows the archive's last line")
	}
	return false, damaged(r.line, "it doesn't fit what stands before it")
}

// begin begins a table.
func (r *reader) begin(mark mark) error {
	place := r.place + 1
	if place == len(allTables()) || mark.Table != allTables()[place].Name {
		return damaged(r.line, "a table that is unknown or out of order")
	}
	if !slices.Equal(mark.Columns, columnNames(allTables()[place])) {
		return damaged(r.line, "table %s has other columns", mark.Table)
	}
	r.place, r.rows[mark.Table] = place, 0
	return nil
}

// rowValues parses a row.
func rowValues(table schema.Table, row []byte) ([]any, error) {
	var texts []json.RawMessage
	if err := json.Unmarshal(row, &texts); err != nil || len(texts) != len(table.Columns) {
		return nil, fmt.Errorf("the row doesn't have the columns of %s", table.Name)
	}
	values := make([]any, len(texts))
	for i, column := range table.Columns {
		if string(texts[i]) == "null" {
			continue
		}
		value := reflect.New(columnTypes[column.Type])
		if err := json.Unmarshal(texts[i], value.Interface()); err != nil {
			return nil, fmt.Errorf("%s.%s has a value that is no %s", table.Name, column.Name, column.Type)
		}
		values[i] = value.Elem().Interface()
	}
	return values, nil
}
