package store

import "context"

// Row is the current row of a [Tx.Query]. Scan copies its columns into dest: *int64, *int, *string, *[]byte,
// *bool, *sql.NullInt64 and *sql.NullString; anything else is an error.
type Row interface {
	Scan(dest ...any) error
}

// AnyRows as the wanted count of [Tx.Queue] accepts every number of affected rows.
const AnyRows int64 = -1

// Tx is one kind's view of the writer's open transaction. Both engines speak the same SQL text with $n parameters
// (design §7). A Tx is used by one goroutine and is dead after Apply returned.
type Tx interface {
	// Query flushes what is queued, then runs one statement that returns rows and hands each row to each.
	Query(ctx context.Context, each func(Row) error, sql string, args ...any) error
	// Queue adds a writing statement that must affect exactly want rows ([AnyRows]: any number). It may run at
	// once (SQLite) or with the next Flush or Query in one round trip (PostgreSQL); its error comes from there.
	Queue(want int64, sql string, args ...any)
	// Flush runs what is queued. It is called by the writer after Apply, too.
	Flush(ctx context.Context) error
	// Now is the database's clock in epoch milliseconds, read once when the transaction began.
	Now() int64
	// LockRows is what a SELECT appends to lock the rows it reads: " FOR UPDATE" on PostgreSQL, "" on SQLite,
	// whose only writer holds the lock already. Rows are read in key order, so that nodes can't deadlock.
	LockRows() string
}

// Op is one durable operation of a kind: a pointer to the kind's own struct, which also carries the result.
type Op any

// Kind turns operations of one sort into rows. The writer hands it all operations of that sort which share a
// transaction, in arrival order; the kind locks what they touch, decides in Go, and writes.
//
// Apply answers one error for each op, nil when the op is decided: a refusal (no funds, already settled) is a
// decision, stored in the op itself. An error is a fault of the database: the writer rolls the kind's savepoint
// back and runs its operations again, each alone, in the next transactions; one that fails alone, too, gets its
// error. Apply must therefore set every result afresh, and must not keep what it wrote in memory of its own.
type Kind interface {
	// Name is the kind's name in metrics and logs.
	Name() string
	Apply(ctx context.Context, tx Tx, ops []Op) []error
}
