package store

import "context"

// Row is the current row of a [Tx.Query]. Scan copies its columns into dest: *int64, *int, *string, *[]byte,
// *bool, *sql.NullInt64 and *sql.NullString; anything else, and NULL into one that can't hold it, is an error.
type Row interface {
	Scan(dest ...any) error
}

// AnyRows as the wanted count of [Tx.Queue] accepts every number of affected rows.
const AnyRows int64 = -1

// Tx is one kind's view of the writer's open transaction. Both engines speak the same SQL text with $n parameters
// (design §7), which bind by number. Arguments are int64, int, bool, string (or a type made of it), []byte (nil is
// NULL), sql.NullInt64, sql.NullString and nil; a text with NUL or invalid UTF-8 is refused with [ErrText]. A Tx is
// used by one goroutine and is dead after Apply returned.
//
// After a statement failed nothing more runs, on either engine: every later call returns its error, and the kind's
// savepoint is rolled back, whatever Apply answers.
type Tx interface {
	// Query flushes what is queued, then runs one statement that returns rows and hands each row to each. The first
	// error of each ends it and is returned; each must not use the Tx.
	Query(ctx context.Context, each func(Row) error, sql string, args ...any) error
	// Queue adds a writing statement that must affect exactly want rows ([AnyRows]: any number; else [ErrRows]). It
	// may run at once (SQLite) or with the next Flush or Query in one round trip (PostgreSQL); its error comes from
	// there. A count costs PostgreSQL a round trip of its own before COMMIT when it stands in the last flush: where a
	// constraint or a locked row says the same, AnyRows is cheaper.
	Queue(want int64, sql string, args ...any)
	// Flush runs what is queued. It is called by the writer after Apply, too.
	Flush(ctx context.Context) error
	// Now is the database's clock in epoch milliseconds, read once when the transaction began. Asked before the first
	// statement it costs PostgreSQL a round trip.
	Now() int64
	// LockRows is what a SELECT appends to lock the rows it reads: " FOR UPDATE" on PostgreSQL, "" on SQLite,
	// whose only writer holds the lock already. Rows are read in key order, so that nodes can't deadlock.
	LockRows() string
}

// Op is one durable operation of a kind: a pointer to the kind's own struct, which also carries the result.
type Op any

// Urgent is an [Op] that may end what was begun before: the settlement of a call whose vendor has answered, a worker's
// note that a message is sent. When Urgent is true it goes before the others, and isn't refused while they are because
// too much waits. How many can be in line must be bounded by what was begun. It is asked once, when the operation is
// handed over.
type Urgent interface{ Urgent() bool }

// Sized is an [Op] that may carry much. Size is about how many bytes it will write: a transaction carries at most 8 MiB,
// and in any case the first operation of each class that waits. It is asked once, when the operation is handed over; an Op
// without it counts as 0.
type Sized interface{ Size() int }

// Kind turns operations of one sort into rows. The writer hands it all operations of that sort which share a
// transaction, in arrival order; the kind locks what they touch, decides in Go, and writes.
//
// Apply answers one error for each op, or nil when all are decided: a refusal (no funds, already settled) is a
// decision, stored in the op itself. An error, a panic or a failed statement is a fault: the writer rolls the kind's
// savepoint back and runs its operations again, in small groups and then each alone, in the next transactions; one that
// ran alone gets its error. When the transaction as a whole is lost, all its operations get that error and none runs again. Apply must
// therefore set every result afresh, and must not keep what it wrote in memory of its own.
type Kind interface {
	// Name is the kind's name in metrics and logs, unique within a database.
	Name() string
	Apply(ctx context.Context, tx Tx, ops []Op) []error
}
