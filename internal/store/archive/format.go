// Package archive exports a whole store as a stream of lines, and imports it into an empty store of either engine.
//
// An import is one transaction: after a failure or an interruption the store is still empty, and the import starts over. Memory doesn't grow
// with the store. Sealed values stay sealed.
package archive

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
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
// Times and money have the units of the tables: epoch milliseconds and micros. A block line closes up to 1,000 rows
// and about 1 MiB, of one table or several; its sha256 is that of all bytes of the stream before the line, so that
// damage is found before a row of its block is written, and a place in the archive has a name. The last line counts the
// rows of each table: an archive without it is cut. Nothing follows.
const (
	formatName    = "caddy-svc archive"
	formatVersion = 1

	// A block is closed when it has this many rows or bytes of them.
	blockRows  = 1000
	blockBytes = 1 << 20
	// maxLine bounds a line in bytes, and so the memory of a reader: the largest value of a row has a few MiB.
	maxLine = 64 << 20
)

// leftOut are the tables that an archive doesn't have: users sign in again, because the new store has another address or an interruption
// behind it; failed logins count for a minute; processes announce themselves, and find conditions again, in the new store. Tables that one
// engine has for itself, and columns that the database counts up, aren't in [schema.Tables].
var leftOut = []string{"sessions", "operator_sessions", "login_windows", "processes", "conditions", "doctor_runs", "marks"}

// allTables are the tables that an archive has, in an order in which each row finds the rows that its foreign keys name.
// TestArchivesHoldTheWholeSchema compares them with the catalogue of both engines.
var allTables = sync.OnceValue(func() []schema.Table {
	return slices.DeleteFunc(schema.Tables(), func(t schema.Table) bool { return slices.Contains(leftOut, t.Name) })
})

// columnTypes are the types of the values of columns by the type of the column.
var columnTypes = map[string]reflect.Type{
	"TEXT":    reflect.TypeFor[string](), // a JSON string
	"BIGINT":  reflect.TypeFor[int64](),  // a JSON number without fraction, of 64 bits
	"BOOLEAN": reflect.TypeFor[bool](),   // true or false on either engine
	"BYTEA":   reflect.TypeFor[[]byte](), // a JSON string of base64
}

func columnNames(table schema.Table) []string {
	return store.Column(table.Columns, func(column schema.Column) string { return column.Name })
}

// Header is the first line of an archive.
type Header struct {
	// Format is always "caddy-svc archive".
	Format string `json:"format"`
	// Version is that of the format. A reader accepts only its own.
	Version int `json:"version"`
	// ID is unique among archives, also of the same store.
	ID string `json:"id"`
	// Schema is the version of the store's tables. Only a store of that version accepts the archive.
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
	// Rows is how many have been written or imported, over all tables.
	Rows int64
}

// Summary is the result of a whole export or import.
type Summary struct {
	// ID is the archive's.
	ID string
	// Rows are counted by table.
	Rows map[string]int64
}

// Total is the number of rows of all tables.
func (s Summary) Total() (rows int64) {
	for _, n := range s.Rows {
		rows += n
	}
	return rows
}

// The errors of [Import] that a caller distinguishes with [errors.Is]. The store is unchanged.
var (
	// ErrDamaged: the stream is no archive, or a damaged one, or cut.
	ErrDamaged = errors.New("store: not a whole, undamaged archive")
	// ErrOtherVersion: the archive is of another version of the tables, or of the format.
	ErrOtherVersion = errors.New("store: an archive of another version")
	// ErrNotEmpty: the store has rows.
	ErrNotEmpty = errors.New("store: not empty")
)

// damaged returns an ErrDamaged with its line. It never repeats a value of a row.
func damaged(line int64, format string, arguments ...any) error {
	return fmt.Errorf("%w: line %d: %s", ErrDamaged, line, fmt.Sprintf(format, arguments...))
}
