package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

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

func newWriter(to io.Writer, header Header, progress func(Progress)) (*writer, error) {
	w := &writer{to: to, sum: sha256.New(), rows: map[string]int64{}, progress: progress}
	w.lines = json.NewEncoder(&w.line)
	w.lines.SetEscapeHTML(false)
	return w, w.write(header)
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
	if _, err := w.to.Write(w.line.Bytes()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

func (w *writer) digest() string { return hex.EncodeToString(w.sum.Sum(nil)) }

// begin begins a table, whose rows follow.
func (w *writer) begin(table table) error {
	w.table, w.rows[table.name] = table.name, 0
	return w.write(mark{Table: table.name, Columns: table.columnNames()})
}

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

// end closes the last block and the archive.
func (w *writer) end() error {
	if w.blockRows > 0 {
		if err := w.closeBlock(); err != nil {
			return err
		}
	}
	return w.write(mark{End: w.rows, SHA256: w.digest()})
}

// errColumnType: the database holds a value of another type than the schema's.
var errColumnType = errors.New("has a value of another type than its column")

// archived puts a value as database/sql reads it into what stands in a row of an archive.
func archived(kind columnType, value any) (any, error) {
	switch from := value.(type) {
	case nil:
		return nil, nil
	case string:
		if kind != textColumn {
			break
		}
		if !driver.IsText(from) {
			return nil, store.ErrText // JSON would put something else in its place
		}
		return from, nil
	case int64:
		switch kind {
		case intColumn:
			return from, nil
		case boolColumn:
			return from != 0, nil // SQLite's
		case textColumn, bytesColumn:
		}
	case bool:
		if kind == boolColumn {
			return from, nil
		}
	case []byte:
		if kind != bytesColumn {
			break
		}
		if from == nil {
			from = []byte{} // an empty value, since NULL is nil itself
		}
		return from, nil
	}
	return nil, errColumnType
}

// restored reads a value of a row into an argument for the insert.
func restored(kind columnType, text json.RawMessage) (any, error) {
	if string(text) == "null" {
		return nil, nil
	}
	switch kind {
	case textColumn:
		return decoded[string](text)
	case intColumn:
		return decoded[int64](text)
	case boolColumn:
		return decoded[bool](text)
	case bytesColumn:
		return decoded[[]byte](text)
	}
	return nil, errColumnType
}

func decoded[T any](text json.RawMessage) (value T, err error) {
	err = json.Unmarshal(text, &value)
	return value, err
}
