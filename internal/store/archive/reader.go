package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
)

// block is a block of an archive that was read whole and undamaged.
type block struct {
	number int64
	digest string // of the archive up to its end: names this place of this archive
	runs   []run
}

// run are rows of a block that follow each other in one table.
type run struct {
	table table
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
	table table
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

func (r *reader) cut() error {
	return damaged(r.line, "the archive is cut: its last line is missing")
}

// next reads the next block. After the last one, when the whole archive has proved to be undamaged, it is [io.EOF].
func (r *reader) next() (*block, error) {
	block := &block{number: r.block + 1}
	var size, rows int
	for {
		if err := r.read(); errors.Is(err, io.EOF) {
			return nil, r.cut()
		} else if err != nil {
			return nil, err
		}
		if r.text[0] != '[' {
			done, err := r.mark(block, rows)
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
		if err := r.row(block); err != nil {
			return nil, err
		}
	}
}

// row takes the line as a row of the block.
func (r *reader) row(block *block) error {
	if r.place < 0 {
		return damaged(r.line, "a row before its table")
	}
	if len(block.runs) == 0 || block.runs[len(block.runs)-1].table.name != r.table.name {
		block.runs = append(block.runs, run{table: r.table, line: r.line})
	}
	run := &block.runs[len(block.runs)-1]
	run.rows = append(run.rows, bytes.Clone(r.text))
	r.sum.Write(r.text)
	r.rows[r.table.name]++
	r.total++
	return nil
}

// mark takes the line as one that isn't a row, and reports whether it ends the block. The end of the archive is [io.EOF].
func (r *reader) mark(block *block, rows int) (done bool, err error) {
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
	case mark.Block == block.number && rows > 0:
		r.block, block.digest = block.number, digest
		return true, nil
	case mark.End != nil && rows == 0 && maps.Equal(mark.End, r.rows) && len(r.rows) == len(allTables):
		return false, r.atEnd()
	}
	return false, damaged(r.line, "it doesn't fit what stands before it")
}

// begin begins a table.
func (r *reader) begin(mark mark) error {
	place := r.place + 1
	if place == len(allTables) || mark.Table != allTables[place].name {
		return damaged(r.line, "a table that is unknown or out of order")
	}
	table := tableAt(place)
	if !slices.Equal(mark.Columns, table.columnNames()) {
		return damaged(r.line, "table %s has other columns", table.name)
	}
	r.place, r.table, r.rows[table.name] = place, table, 0
	return nil
}

// atEnd is [io.EOF] when nothing follows the last line.
func (r *reader) atEnd() error {
	err := r.read()
	if err == nil {
		err = damaged(r.line, "something follows the archive's last line")
	}
	return err
}

// values are the arguments of a row's insert, appended to a buffer.
func (t table) values(to []any, row []byte) ([]any, error) {
	var texts []json.RawMessage
	if err := json.Unmarshal(row, &texts); err != nil || len(texts) != len(t.columns) {
		return nil, fmt.Errorf("the row doesn't have the columns of %s", t.name)
	}
	for i, column := range t.columns {
		value, err := restored(column.kind, texts[i])
		if err != nil {
			return nil, fmt.Errorf("%s.%s has a value that is no %s", t.name, column.name, column.kind)
		}
		to = append(to, value)
	}
	return to, nil
}
