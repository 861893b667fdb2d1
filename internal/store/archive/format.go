// Package archive exports a whole store as a stream of lines, and imports it into an empty store of either engine.
//
// Blocks of an archive are transactions of the import, so an import that is interrupted anywhere goes on with the same
// archive and ends with exactly the same rows. Damage is found before a row of its block is written. Memory doesn't grow
// with the store. Sealed values stay sealed.
package archive

import (
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// An archive is a whole store as a stream of lines of JSON, the same from either engine (docs/operating.md "Move from
// SQLite to PostgreSQL"):
//
//	{"format":"caddy-svc archive","version":1,"id":"arc_…","schema":1,"engine":"sqlite","createdAt":1795219200000,"probes":["…"]}
//	{"table":"org_models","columns":["org_id","model","enabled"]}
//	["org_…","acme/std",false]
//	{"block":1,"sha256":"…"}
//	…
//	{"end":{"org_models":1,…},"sha256":"…"}
//
// The first line is [Header]. Then come the tables in the order of [allTables], empty ones too, each with its
// rows as arrays in the order of its columns: text as strings, whole numbers, true and false, bytes as base64, null.
// Times and money have the units of the tables: epoch milliseconds and micros. A block line closes at most 1,000 rows
// and about 1 MiB, of one table or several; its sha256 is that of all bytes of the stream before the line, so that
// damage is found before a row of its block is written, and a place in the archive has a name. The last line counts the
// rows of each table: an archive without it is cut. Nothing follows.
const (
	formatName    = "caddy-svc archive"
	formatVersion = 1

	// A block is closed when it has this many rows or bytes of them.
	blockRows  = 1000
	blockBytes = 1 << 20
	// maxLine bounds a line in bytes, and so what a reader keeps: the largest value of a row has a few MiB.
	maxLine = 64 << 20
)

// Header is the first line of an archive.
type Header struct {
	// Format is always "caddy-svc archive".
	Format string `json:"format"`
	// Version is that of the format. A reader takes its own only.
	Version int `json:"version"`
	// ID is unique among archives, also of the same store.
	ID string `json:"id"`
	// Schema is the version of the store's tables. A store of that version takes the archive, and no other.
	Schema int64 `json:"schema"`
	// Engine is where the store was. Archives of both are read by both.
	Engine store.Engine `json:"engine"`
	// CreatedAt is when the export began, in epoch milliseconds of the store's clock.
	CreatedAt int64 `json:"createdAt"`
	// Probes are [ExportOptions.Probes].
	Probes [][]byte `json:"probes"`
}

// mark is any other line that isn't a row: exactly one of Table, Block and End is set.
type mark struct {
	Table   string           `json:"table,omitempty"`
	Columns []string         `json:"columns,omitempty"`
	Block   int64            `json:"block,omitempty"`
	End     map[string]int64 `json:"end,omitempty"`
	SHA256  string           `json:"sha256,omitempty"` // hexadecimal
}

// Progress is how far an export or import is, after each block.
type Progress struct {
	// Table is the table of the last row.
	Table string
	// Rows is how many have been written or imported, over all tables. Those of an earlier, interrupted import count.
	Rows int64
	// Skipped: an earlier, interrupted import had brought the block in.
	Skipped bool
}

// Summary is the result of a whole export or import.
type Summary struct {
	// ID is the archive's.
	ID string
	// Rows are counted by table.
	Rows map[string]int64
	// Resumed: an earlier import of the archive was interrupted, and this one finished it.
	Resumed bool
}

// Total is the number of rows of all tables.
func (s Summary) Total() (rows int64) {
	for _, n := range s.Rows {
		rows += n
	}
	return rows
}

// The errors of [Import] that a caller distinguishes with [errors.Is].
var (
	// ErrDamaged: the stream is no archive, or a damaged one, or cut. Blocks before the damage may have been imported.
	ErrDamaged = errors.New("store: not a whole, undamaged archive")
	// ErrOtherVersion: the archive is of another version of the tables, or of the format. Nothing happened.
	ErrOtherVersion = errors.New("store: an archive of another version")
	// ErrNotEmpty: the store has rows. Nothing happened.
	ErrNotEmpty = errors.New("store: not empty")
	// ErrOtherImport: an import of another archive is unfinished in the store, or another import is at work in it.
	ErrOtherImport = errors.New("store: another import")
)

// damaged returns an ErrDamaged with its line. It never repeats a value of a row.
func damaged(line int64, format string, arguments ...any) error {
	return fmt.Errorf("%w: line %d: %s", ErrDamaged, line, fmt.Sprintf(format, arguments...))
}
