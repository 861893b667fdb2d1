package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// ClockSQL is the database's clock in epoch milliseconds.
const ClockSQL = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

// writerConn begins transactions on connections of a pool. Servers order their writers by row locks, so there are no
// turns to take.
type writerConn struct {
	pools *connPools
	// opening begins every transaction.
	opening []statement
}

// newWriterConn makes the writer. Where each transaction may have another session, the server's bounds are set for
// each transaction, in its first round trip.
func newWriterConn(pools *connPools, pooled bool) *writerConn {
	w := &writerConn{pools: pools, opening: []statement{{text: "BEGIN", want: driver.AnyRows}}}
	if pooled {
		w.opening = append(w.opening, statement{want: driver.AnyRows, text: fmt.Sprintf(
			"SELECT set_config('statement_timeout', '%d', true), set_config('idle_in_transaction_session_timeout', '%d', true), "+
				"set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), "+
				"set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)",
			statementTimeout.Milliseconds(), idleInWriteTimeout.Milliseconds())})
	}
	w.opening = append(w.opening, statement{text: "SELECT " + ClockSQL, clock: true})
	return w
}

func (w *writerConn) MaxTime() time.Duration { return writeTime }

// InFlight is 2 if that leaves the look-ups of requests a connection.
func (w *writerConn) InFlight() int {
	if w.pools.work.Stat().MaxConns() < 3 {
		return 1
	}
	return 2
}

func (w *writerConn) TakeTurn(<-chan struct{}) (release func()) { return func() {} }

func (w *writerConn) Begin(ctx context.Context) (driver.Transaction, error) {
	conn, err := w.pools.work.Acquire(ctx)
	if err != nil {
		return nil, driver.WrapError("connect to PostgreSQL", err)
	}
	t := &transaction{pools: w.pools, conn: conn, ctx: ctx, opening: w.opening, mark: notQueued}
	t.pending = append(t.pending, w.opening...)
	return t, nil
}

func (w *writerConn) Close() error { return nil }

// statement is a statement that waits for the next round trip.
type statement struct {
	text      string
	arguments []any
	want      int64
	clock     bool                   // its row is the transaction's clock
	each      func(driver.Row) error // gets the rows of a query
}

// wrongCount is the SQLSTATE of a division by zero. No other statement divides.
const wrongCount = "22012"

// notQueued as transaction.mark: the savepoint isn't among the pending statements.
const notQueued = -1

// transaction is a transaction that sends its queue in one round trip: BEGIN and the clock go with the first statements, COMMIT with the
// last ones. The first group has no savepoint, because its failure restarts the transaction.
type transaction struct {
	pools   *connPools
	conn    *pgxpool.Conn
	ctx     context.Context //nolint:containedctx // the transaction's own bound, which Now needs without a parameter
	opening []statement
	pending []statement
	groups  int   // savepoints so far
	mark    int   // where the group's SAVEPOINT stands in pending, or notQueued
	failed  error // of a statement; nothing runs after it until the savepoint is rolled back
	broken  error // the connection, or the transaction as a whole, is lost

	begun, committed, querying bool

	now int64
}

func (t *transaction) Context() context.Context { return t.ctx }

func (t *transaction) LockRows() string { return " FOR UPDATE" }

// Now reads the clock in a round trip of its own if no statement has been sent yet. The next Query or Flush returns its error.
func (t *transaction) Now() int64 {
	if !t.begun && t.fault() == nil {
		t.failed = t.send(t.ctx)
	}
	return t.now
}

func (t *transaction) Queue(want int64, text string, arguments ...any) {
	if want != driver.AnyRows {
		// The server itself fails a statement that affects another number of rows, with [wrongCount]. A count that is compared here would
		// need a round trip of its own before COMMIT.
		text = "WITH done AS (" + text + " RETURNING 1) SELECT 1 / CASE count(*) WHEN " + strconv.FormatInt(want, 10) + " THEN 1 ELSE 0 END FROM done"
	}
	t.queue(statement{text: text, want: want}, arguments)
}

func (t *transaction) QueueQuery(each func(driver.Row) error, text string, arguments ...any) {
	t.queue(statement{text: text, each: each}, arguments)
}

func (t *transaction) queue(s statement, arguments []any) {
	if t.querying && t.failed == nil {
		t.failed = driver.ErrNestedStatement
	}
	if t.fault() != nil {
		return
	}
	if s.arguments, t.failed = driver.BindArgs(arguments); t.failed == nil {
		t.pending = append(t.pending, s)
	}
}

func (t *transaction) Query(ctx context.Context, each func(driver.Row) error, text string, arguments ...any) error {
	if err := t.fault(); err != nil {
		return err
	}
	if t.querying {
		return driver.ErrNestedStatement
	}
	var refused error // by the caller, which is no fault of the database
	t.QueueQuery(func(row driver.Row) error {
		refused = each(row)
		return refused
	}, text, arguments...)
	err := t.Flush(ctx)
	if refused != nil {
		t.failed = nil
	}
	return err
}

func (t *transaction) Flush(ctx context.Context) error {
	if err := t.fault(); err != nil {
		return err
	}
	if t.querying {
		return driver.ErrNestedStatement
	}
	if len(t.pending) == 0 {
		return context.Cause(ctx)
	}
	if err := t.send(ctx); t.failed == nil {
		t.failed = err
	}
	return t.failed
}

func (t *transaction) fault() error {
	if t.broken != nil {
		return t.broken
	}
	return t.failed
}

// send runs the pending statements in one round trip.
func (t *transaction) send(ctx context.Context) error {
	sent := t.pending
	t.pending, t.mark, t.begun = nil, notQueued, true
	var batch pgx.Batch
	for _, statement := range sent {
		batch.Queue(statement.text, statement.arguments...)
	}
	results := t.conn.SendBatch(ctx, &batch)
	t.querying = true
	err := t.read(results, sent)
	t.querying = false
	if closed := results.Close(); err == nil && closed != nil {
		err = driver.WrapError("end a round trip", closed)
	}
	if err != nil && t.conn.Conn().IsClosed() {
		t.broken = err
	}
	return err
}

func (t *transaction) read(results pgx.BatchResults, sent []statement) error {
	for _, statement := range sent {
		switch {
		case statement.clock:
			if err := results.QueryRow().Scan(&t.now); err != nil {
				return driver.WrapError("read the clock", err)
			}
		case statement.each != nil:
			if err := readRows(results, statement.text, statement.each); err != nil {
				return err
			}
		default:
			tag, err := results.Exec()
			if driver.PostgresCode(err) == wrongCount {
				return fmt.Errorf("%w: not the %d wanted: %w", driver.ErrRows, statement.want, err)
			}
			if err != nil {
				return driver.WrapError("run "+driver.Verb(statement.text), err)
			}
			t.committed = t.committed || tag.String() == "COMMIT"
		}
	}
	return nil
}

func readRows(results pgx.BatchResults, text string, each func(driver.Row) error) error {
	rows, err := results.Query()
	if err != nil {
		return driver.WrapError("run "+driver.Verb(text), err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return driver.WrapError("run "+driver.Verb(text), err)
	}
	return nil
}

func (t *transaction) Savepoint() error {
	if t.broken != nil {
		return t.broken
	}
	t.failed = nil
	if t.groups++; t.groups > 1 {
		t.mark = len(t.pending)
		t.pending = append(t.pending, statement{text: "SAVEPOINT kind", want: driver.AnyRows})
	}
	return nil
}

func (t *transaction) Release(ctx context.Context, last bool) error {
	if err := t.fault(); err != nil {
		return err
	}
	if last {
		t.failed = t.sendCommit(ctx)
		return t.failed
	}
	// This group's statements are sent now, so that an error of theirs isn't taken for one of the next group.
	if err := t.Flush(ctx); err != nil {
		return err
	}
	if t.groups > 1 {
		t.pending = append(t.pending, statement{text: "RELEASE SAVEPOINT kind", want: driver.AnyRows})
	}
	return nil
}

// RollbackTo undoes the group: without a round trip when nothing of it has gone out.
func (t *transaction) RollbackTo(ctx context.Context) error {
	if t.broken != nil {
		return t.broken
	}
	t.failed = nil
	switch {
	case t.mark != notQueued:
		t.pending = t.pending[:t.mark]
		t.mark = notQueued
		return nil
	case !t.begun:
		t.pending = t.pending[:len(t.opening)]
		return nil
	}
	// Alone, because a batch prepares all its statements before it runs the first, and a failed transaction prepares
	// nothing but an end.
	if t.groups == 1 {
		t.pending = append(t.pending[:0], statement{text: "ROLLBACK", want: driver.AnyRows})
		if err := t.send(ctx); err != nil {
			return err
		}
		t.begun, t.pending = false, append(t.pending, t.opening...)
		return nil
	}
	// The savepoint stays: RELEASE and ROLLBACK TO mean the newest of a name.
	t.pending = append(t.pending[:0], statement{text: "ROLLBACK TO SAVEPOINT kind", want: driver.AnyRows})
	return t.send(ctx)
}

func (t *transaction) Commit(ctx context.Context) error {
	defer t.end()
	switch {
	case t.committed:
		return nil
	case t.broken != nil:
		return t.broken
	}
	return t.sendCommit(ctx)
}

// sendCommit sends the pending statements and COMMIT, and waits commitTime for the answer, however much of the transaction's time is left.
// Its error is [driver.ErrCommitUnknown] unless the server said clearly that the transaction did not commit.
func (t *transaction) sendCommit(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), commitTime, driver.ErrWriteSlow)
	defer cancel()
	t.pending = append(t.pending, statement{text: "COMMIT", want: driver.AnyRows})
	err := t.send(ctx)
	if t.committed {
		return nil // What broke after the server's confirmation doesn't matter.
	}
	if err == nil {
		// The server replies to COMMIT of a failed transaction with ROLLBACK.
		t.broken = errors.New("store: the transaction was rolled back")
		return t.broken
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR" {
		return err
	}
	if t.broken = err; !driver.EndedIdle(err) {
		t.broken = fmt.Errorf("%w: %w", driver.ErrCommitUnknown, err)
	}
	return t.broken
}

func (t *transaction) Rollback() {
	defer t.end()
	if !t.begun || t.broken != nil || t.committed {
		return
	}
	if _, err := t.conn.Exec(t.ctx, "ROLLBACK"); err != nil {
		t.broken = err
	}
}

// end gives the connection back.
func (t *transaction) end() {
	t.conn.Release()
	if t.broken != nil {
		t.pools.lost(t.pools.work, t.broken)
	}
}
