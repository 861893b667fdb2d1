package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

const (
	// maxBatch, maxBatchBytes and batchTime bound a transaction, so that another process gets its turn soon and memory
	// has a bound. Operations that time cut off run in the next transaction, before any other. Where commits are slow a
	// transaction may work for as long as a quarter of one, mostBatchTime at most: fewer operations in each would be
	// written in the same time.
	maxBatch      = 256
	maxBatchBytes = 8 << 20
	batchTime     = 5 * time.Millisecond
	mostBatchTime = 500 * time.Millisecond

	// mostDeadlocks is how often an operation runs again after a deadlock.
	mostDeadlocks = 3
	// retryPieces is how many groups the operations of a failed one run in again: the faulty operation of a full batch is
	// alone after two rounds.
	retryPieces = 16
)

// errWriteSlow is why a transaction was cut.
var errWriteSlow = errors.New("store: the transaction took too long")

// errWaited refuses an operation that waits far longer than expected.
var errWaited = fmt.Errorf("%w: the operation waited too long for its transaction", ErrOverloaded)

// writerConn is the writer's connection to one of the two engines.
type writerConn interface {
	// takeTurn waits, with a bound, until this process may write; closing hurry ends the wait.
	takeTurn(hurry <-chan struct{}) (release func())
	begin(ctx context.Context) (transaction, error)
	// transactionTime is how long a transaction may take from its beginning until COMMIT; 0 is no bound.
	transactionTime() time.Duration
	close() error
}

// transaction is an open transaction with one savepoint at a time. After an error of savepoint or rollbackTo it is
// lost as a whole. It ends with exactly one commit or rollback.
type transaction interface {
	Tx
	// context bounds the transaction.
	context() context.Context
	savepoint() error
	// release flushes and keeps what was done since the savepoint. After the last group it may commit, too.
	release(ctx context.Context, last bool) error
	rollbackTo(ctx context.Context) error
	commit(ctx context.Context) error
	rollback()
}

// Batch is what one transaction of the writer did, for metrics.
type Batch struct {
	Operations  int           // that ended in it, well or not
	Failed      int           // of these, with an error
	Retried     int           // operations that will run again, in smaller groups or alone
	PutBack     int           // operations that time cut off
	Turn        time.Duration // waited for the turn
	Transaction time.Duration // from BEGIN to the end of COMMIT
	Refused     int           // since the transaction before, at the door or in line: they would have had to wait too long
	Expected    time.Duration // that the next transaction is expected to take, its turn included
}

// WriterObserver is told about each transaction by the writer's goroutine, and must return quickly.
type WriterObserver interface {
	ObserveBatch(batch Batch)
}

// writer runs everything that is written through one goroutine.
type writer struct {
	conn     writerConn
	kinds    []Kind
	queue    *queue
	logger   *slog.Logger
	observer WriterObserver

	patience time.Duration // longestWait
	life     time.Duration // the connection's transactionTime

	abandoned chan struct{} // closed when Close has no more time
	stopped   chan struct{} // closed when the goroutine has ended

	// Owned by the goroutine.
	back       []*Ticket   // put back by time, run before the queue
	again      [][]*Ticket // pieces of failed groups, run one by one
	retried    bool        // the last transaction was one of those
	committing time.Time   // when the transaction began to commit
	commits    recent      // how long that takes
	refusals   refusalLog
}

func newWriter(conn writerConn, options Options) *writer {
	w := &writer{
		conn: conn, kinds: options.Kinds, queue: newQueue(), logger: options.Logger, observer: options.Observer,
		patience: longestWait, life: conn.transactionTime(),
		abandoned: make(chan struct{}), stopped: make(chan struct{}), refusals: refusalLog{logger: options.Logger},
	}
	return w
}

// do queues a ticket and waits for its end, see [DB.Do].
func (w *writer) do(ctx context.Context, ticket *Ticket) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := w.queue.push(ticket); err != nil {
		return err
	}
	select {
	case <-ticket.done:
	case <-ctx.Done():
		if w.queue.withdraw(ticket) {
			return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
		<-ticket.done
	}
	return ticket.err
}

// run is the writer's goroutine. It ends when the queue is closed and everything queued has ended.
func (w *writer) run() {
	defer close(w.stopped)
	for {
		if !w.pending() {
			select {
			case <-w.queue.closed:
				if !w.pending() {
					return
				}
			case <-w.queue.wake:
				continue
			}
		}
		select {
		case <-w.abandoned:
			w.refuseAll()
		default:
			w.turn()
		}
	}
}

func (w *writer) pending() bool {
	return len(w.again) > 0 || len(w.back) > 0 || w.queue.waiting()
}

// turn runs one batch, which is collected after the turn is won: who arrived while waiting for it is on board.
func (w *writer) turn() {
	start := time.Now()
	w.queue.begin(start)
	release := w.conn.takeTurn(w.abandoned)
	waited := time.Since(start)
	runtime.Gosched() // whoever is ready to write does so before the batch is collected, and shares it
	batch := w.collect()
	w.queue.boarded(len(w.again))
	outcome := w.transact(batch)
	release() // before the callers wake: the other process waits for this only
	w.observe(&outcome, start, waited)
	for _, ended := range outcome.ended {
		ended.ticket.finish(ended.err)
	}
}

// observe measures the pace and passes on what a transaction did.
func (w *writer) observe(o *outcome, start time.Time, waited time.Duration) {
	batch, took := o.batch, time.Duration(0)
	if batch.Transaction > 0 {
		took = time.Since(start)
	}
	idle := batch == Batch{}
	batch.Turn = waited
	refused, expected := w.queue.end(took, o.lost, len(w.back) > 0, len(w.again))
	batch.Refused, batch.Expected = batch.Refused+refused, expected
	w.refusals.note(time.Now(), batch.Refused, expected)
	if w.observer != nil && (!idle || batch.Refused > 0) {
		w.observer.ObserveBatch(batch)
	}
}

// collect takes the next batch. What was cut off goes first and unaccompanied, so that it can't be cut off for ever. What
// must run again does so in turns with what is in line, which doesn't wait for all of it.
func (w *writer) collect() []*Ticket {
	switch {
	case len(w.back) > 0:
		batch := w.back
		w.back = nil
		w.queue.skip()
		return batch
	case len(w.again) > 0 && (!w.retried || !w.queue.waiting()):
		batch := w.again[0]
		w.again, w.retried = w.again[1:], true
		return batch
	}
	w.retried = false
	return w.queue.take(make([]*Ticket, 0, 16))
}

// refuseAll ends everything that has not run.
func (w *writer) refuseAll() {
	tickets := slices.Concat(append(w.again, w.back)...)
	w.again, w.back = nil, nil
	for _, ticket := range w.queue.drain(tickets) {
		ticket.finish(ErrClosed)
	}
}

// endedTicket is a ticket whose end is known and not told yet.
type endedTicket struct {
	ticket *Ticket
	err    error
}

// outcome gathers how a batch ended.
type outcome struct {
	ended []endedTicket
	batch Batch
	lost  bool // the transaction failed as a whole
}

func (o *outcome) end(err error, tickets ...*Ticket) {
	for _, ticket := range tickets {
		o.ended = append(o.ended, endedTicket{ticket, err})
		o.batch.Operations++
		if err != nil {
			o.batch.Failed++
		}
	}
}

// transact runs a batch in one transaction.
func (w *writer) transact(batch []*Ticket) (o outcome) {
	start := time.Now()
	groups := w.group(w.inTime(&o, batch, start))
	if len(groups) == 0 {
		return o
	}
	defer func() { o.batch.Transaction = time.Since(start) }()
	ctx := context.Background()
	if w.life > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, start.Add(w.life), errWriteSlow)
		defer cancel()
	}
	tx, err := w.conn.begin(ctx)
	if err != nil {
		w.logger.Warn("a write transaction could not begin", "error", err)
		o.lost = true
		for _, group := range groups {
			o.end(err, group.tickets...)
		}
		return o
	}
	w.committing = time.Time{}
	var kept []*Ticket // applied and released, not committed yet
	until := start.Add(max(batchTime, min(time.Duration(w.commits)/4, mostBatchTime)))
	for i, group := range groups {
		if i > 0 && time.Now().After(until) {
			w.putBack(&o, groups[i:])
			break
		}
		failed, lost := w.apply(tx, group, i == len(groups)-1)
		if lost != nil {
			w.logger.Warn("a write transaction was lost", "error", lost)
			o.lost = true
			tx.rollback()
			o.end(lost, append(kept, group.tickets...)...)
			w.putBack(&o, groups[i+1:])
			return o
		}
		if failed == nil {
			kept = append(kept, group.tickets...)
			continue
		}
		w.fail(&o, group, failed)
	}
	if len(kept) == 0 {
		tx.rollback()
		return o
	}
	err = w.commit(tx)
	o.lost = err != nil
	o.end(err, kept...)
	return o
}

// commit ends the transaction and measures how long that takes, since COMMIT was sent or is sent now.
func (w *writer) commit(tx transaction) error {
	if w.committing.IsZero() {
		w.committing = time.Now()
	}
	err := tx.commit(tx.context())
	if err != nil {
		w.logger.Warn("a write transaction could not commit", "error", err)
	}
	w.commits.add(time.Since(w.committing))
	return err
}

// inTime answers pings, ends the operations that have waited too long, and returns the others.
func (w *writer) inTime(o *outcome, batch []*Ticket, now time.Time) (left []*Ticket) {
	left = batch[:0]
	for _, ticket := range batch {
		switch {
		case ticket.kind == pingTicket:
			ticket.finish(nil)
		case w.late(ticket, now):
			o.ended = append(o.ended, endedTicket{ticket, errWaited})
			o.batch.Refused++
		default:
			left = append(left, ticket)
		}
	}
	return left
}

// late reports whether an operation has waited so long that it should end.
func (w *writer) late(ticket *Ticket, now time.Time) bool {
	waited := now.Sub(ticket.asked)
	switch ticket.class {
	case ordinary:
		return waited > w.patience
	case urgent:
		return waited > 2*w.patience
	default:
		return false
	}
}

// group sorts a batch by kind, in the order the kinds were registered, and by arrival within a kind. Hand-written
// writes come last, each alone in its group.
func (w *writer) group(batch []*Ticket) (groups []ticketGroup) {
	byKind := make([][]*Ticket, len(w.kinds))
	var execs []ticketGroup
	for _, ticket := range batch {
		if ticket.kind == execTicket {
			execs = append(execs, ticketGroup{tickets: []*Ticket{ticket}})
			continue
		}
		byKind[ticket.kind] = append(byKind[ticket.kind], ticket)
	}
	for i, tickets := range byKind {
		if len(tickets) > 0 {
			groups = append(groups, ticketGroup{kind: w.kinds[i], tickets: tickets})
		}
	}
	return append(groups, execs...)
}

// ticketGroup is what shares a savepoint: operations of one kind, or one hand-written write (kind nil).
type ticketGroup struct {
	kind    Kind
	tickets []*Ticket
}

func (w *writer) putBack(o *outcome, groups []ticketGroup) {
	for _, group := range groups {
		w.back = append(w.back, group.tickets...)
		o.batch.PutBack += len(group.tickets)
	}
}

// apply runs a group in a savepoint. failed holds one error for each operation, none of them nil, when the group was
// rolled back; lost is set when the whole transaction can't go on.
func (w *writer) apply(tx transaction, group ticketGroup, last bool) (failed []error, lost error) {
	if err := tx.savepoint(); err != nil {
		return nil, err
	}
	ctx := tx.context()
	failed = w.call(ctx, tx, group)
	if failed == nil {
		if last {
			w.committing = time.Now() // release may send COMMIT
		}
		err := tx.release(ctx, last)
		if err == nil {
			return nil, nil
		}
		failed = sameError(err, len(group.tickets))
	}
	if err := tx.rollbackTo(ctx); err != nil {
		if cause := firstError(failed); !errors.Is(cause, err) {
			err = errors.Join(cause, err)
		}
		return nil, err
	}
	return failed, nil
}

// call runs the group's code and turns a panic into its error.
func (w *writer) call(ctx context.Context, tx Tx, group ticketGroup) (failed []error) {
	defer func() {
		if cause := recover(); cause != nil {
			w.logger.Error("a write panicked", "kind", group.name(), "panic", cause, "stack", string(debug.Stack()))
			failed = sameError(fmt.Errorf("store: %s panicked", group.name()), len(group.tickets))
		}
	}()
	if group.kind == nil {
		if err := group.tickets[0].run(ctx, tx); err != nil {
			return []error{err}
		}
		return nil
	}
	ops := make([]Op, len(group.tickets))
	for i, ticket := range group.tickets {
		ops[i] = ticket.op
	}
	return checkErrors(group, group.kind.Apply(ctx, tx, ops))
}

// checkErrors answers nil when every operation was decided, else an error for each: its own, or its group's.
func checkErrors(group ticketGroup, errs []error) []error {
	if len(errs) != 0 && len(errs) != len(group.tickets) {
		err := fmt.Errorf("store: %s answered %d errors for %d operations", group.name(), len(errs), len(group.tickets))
		return sameError(err, len(group.tickets))
	}
	first := firstError(errs)
	if first == nil {
		return nil
	}
	for i, err := range errs {
		if err == nil {
			errs[i] = first
		}
	}
	return errs
}

// fail ends an operation that ran alone, and lets the others run again in smaller groups. One that the server chose to end a
// deadlock runs again, too, in a transaction without the others whose rows it had to wait for.
func (w *writer) fail(o *outcome, group ticketGroup, failed []error) {
	now := time.Now()
	again := make([]*Ticket, 0, len(group.tickets))
	for i, ticket := range group.tickets {
		ended := len(group.tickets) == 1
		if ended && isDeadlock(failed[i]) {
			ticket.deadlocks++
			ended = ticket.deadlocks > mostDeadlocks
		}
		if ended || w.late(ticket, now) {
			o.end(failed[i], ticket)
			continue
		}
		again = append(again, ticket)
	}
	o.batch.Retried += len(again)
	w.again = slices.AppendSeq(w.again, slices.Chunk(again, max(1, (len(again)+retryPieces-1)/retryPieces)))
}

func (g ticketGroup) name() string {
	if g.kind == nil {
		return "a hand-written write"
	}
	return "kind " + g.kind.Name()
}

func sameError(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
