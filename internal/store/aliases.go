package store

import (
	"github.com/caddy-svc/caddy-svc/internal/store/driver"
	"github.com/caddy-svc/caddy-svc/internal/store/writer"
)

// What the drivers and the writer define and every user of a store needs, under the store's own name.
type (
	// Engine is [driver.Engine].
	Engine = driver.Engine
	// Location is [driver.Location].
	Location = driver.Location
	// Env is [driver.Env].
	Env = driver.Env
	// Row is [driver.Row].
	Row = driver.Row
	// Tx is [driver.Tx].
	Tx = driver.Tx
	// Route is [driver.Route].
	Route = driver.Route
	// RouteKey is [driver.RouteKey].
	RouteKey = driver.RouteKey
	// KeyRecord is [driver.KeyRecord].
	KeyRecord = driver.KeyRecord
	// Windows is [driver.Windows].
	Windows = driver.Windows
	// KeyTerms is [driver.KeyTerms].
	KeyTerms = driver.KeyTerms
	// Permit is [driver.Permit].
	Permit = driver.Permit

	// Kind is [writer.Kind].
	Kind = writer.Kind
	// RowLocking is [writer.RowLocking].
	RowLocking = writer.RowLocking
	// Op is [writer.Op].
	Op = writer.Op
	// Urgent is [writer.Urgent].
	Urgent = writer.Urgent
	// Undoer is [writer.Undoer].
	Undoer = writer.Undoer
	// Sized is [writer.Sized].
	Sized = writer.Sized
	// Joint is [writer.Joint].
	Joint = writer.Joint
	// PendingWrite is [writer.PendingWrite].
	PendingWrite = writer.PendingWrite
	// Batch is [writer.Batch].
	Batch = writer.Batch
	// WriterObserver is [writer.Observer].
	WriterObserver = writer.Observer
)

// The constants of the drivers.
const (
	SQLite   = driver.SQLite
	Postgres = driver.Postgres

	Live = driver.Live
	Test = driver.Test

	AnyRows    = driver.AnyRows
	RetryAfter = driver.RetryAfter
)

// The errors of the drivers and the writer, see [driver.ErrNotFound] and those beside it.
var (
	ErrNotFound      = driver.ErrNotFound
	ErrConflict      = driver.ErrConflict
	ErrClosed        = driver.ErrClosed
	ErrBusy          = driver.ErrBusy
	ErrOverloaded    = driver.ErrOverloaded
	ErrCommitUnknown = driver.ErrCommitUnknown
	ErrRows          = driver.ErrRows
	ErrText          = driver.ErrText
	ErrUnsupported   = driver.ErrUnsupported
)

// ParseLocation is [driver.ParseLocation].
func ParseLocation(engine Engine, dsn string) (Location, error) {
	return driver.ParseLocation(engine, dsn)
}
