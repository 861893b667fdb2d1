// Package writer runs all writes of a process, one batch after the other. Operations that wait at the same moment share one transaction (natural
// batching, without a timer), so they share the price of a commit. On an engine that locks single rows a batch of [RowLocking] kinds may begin
// while the last one commits. A result is returned only after the COMMIT that made it durable.
//
// A fault of one operation never fails another: kinds run in savepoints, and the operations of a failed group run again, in smaller groups and
// then each alone.
//
// Every wait has a bound: the queue's length, the turn between processes, and an operation's life. Writes that could not begin in time are refused
// when they come (pace.go).
//
// The package has no SQL and no rules of money or queues: kinds bring them.
package writer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

const (
	// maxBatch, maxBatchBytes and batchTime limit a transaction, so that another process gets its turn soon and memory has a bound. Operations
	// that time cut off run in the next transaction, before any other. Where commits are slow a transaction may work for a quarter of a commit's
	// duration, up to mostBatchTime, because otherwise each would carry fewer operations in the same time.
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

// errWaited refuses an operation that waits far longer than expected.
var errWaited = fmt.Errorf("%w: the operation waited too long for its transaction", driver.ErrOverloaded)

// Writer runs everything that a process writes.
type Writer struct {
	conn     driver.Writer
	kinds    []Kind
	indexes  map[string]int // of the kinds, by name
	queue    *queue
	logger   *slog.Logger
	observer Observer

	patience time.Duration // longestWait
	life     time.Duration // the connection's MaxTime

	abandoned chan struct{} // closed when Close has no more time
	stopped   chan struct{} // closed when the goroutines have ended

	inFlight int // goroutines that write, each one transaction at a time
	// next has a value from when a transaction collects its operations until the next one may begin, which is its end or, if all its
	// kinds lock rows, when it has run them. Then its row locks order it before the next one.
	next       chan struct{}
	committing sync.WaitGroup // transactions that commit while next is free; who filled next adds and waits

	mu       sync.Mutex        // guards what follows
	back     []*PendingWrite   // put back by time, run before the queue
	again    [][]*PendingWrite // pieces of failed groups, run one by one
	retried  bool              // the last transaction was one of those
	resumed  bool              // the last transaction was of what was put back
	commits  recent            // how long transactions take to commit
	refusals refusalLog
}

// Options configures a writer.
type Options struct {
	Kinds    []Kind       // applied in this order within a transaction; their names must be unique
	Logger   *slog.Logger // gets lost transactions and panics
	Observer Observer     // nil is none
}

// New makes a writer. The caller must [Writer.Run] it, and [Writer.Close] it.
func New(conn driver.Writer, options Options) (*Writer, error) {
	w := &Writer{
		conn: conn, kinds: options.Kinds, indexes: make(map[string]int, len(options.Kinds)), queue: newQueue(),
		logger: options.Logger, observer: options.Observer, patience: longestWait, life: conn.MaxTime(),
		abandoned: make(chan struct{}), stopped: make(chan struct{}), refusals: refusalLog{logger: options.Logger},
		inFlight: conn.InFlight(), next: make(chan struct{}, 1),
	}
	for i, kind := range options.Kinds {
		if _, twice := w.indexes[kind.Name()]; twice {
			return nil, fmt.Errorf("store: two kinds have the name %s", kind.Name())
		}
		w.indexes[kind.Name()] = i
	}
	return w, nil
}

// Ping reports whether the writer accepts work.
func (w *Writer) Ping(ctx context.Context) error {
	ping := newPendingWrite(pingWrite, nil)
	ping.class = urgent
	return w.await(ctx, ping)
}

// Queued returns the number of operations in line.
func (w *Writer) Queued() int { return w.queue.length() }

// Closed is closed when the writer refuses new work.
func (w *Writer) Closed() <-chan struct{} { return w.queue.closed }

// Close refuses new work and waits until everything in line has ended. When ctx ends first, waiting operations end with [driver.ErrClosed], and
// Close waits only for the running transaction.
func (w *Writer) Close(ctx context.Context) error {
	w.queue.close()
	select {
	case <-w.stopped:
		return nil
	case <-ctx.Done():
	}
	close(w.abandoned)
	<-w.stopped
	return fmt.Errorf("store: closed before all queued writes had run: %w", context.Cause(ctx))
}

// Abandoned is closed when the context of [Writer.Close] has ended before the work. Tests wait for it.
func (w *Writer) Abandoned() <-chan struct{} { return w.abandoned }

// SetPatience replaces the bounds of how long an operation may wait and a transaction may take. Tests call it before the
// first operation.
func (w *Writer) SetPatience(wait, transaction time.Duration) {
	w.patience, w.life = wait, transaction
	w.queue.pace.least, w.queue.pace.most, w.queue.pace.longest = wait, wait, wait
}

// await queues an operation and waits for its end.
func (w *Writer) await(ctx context.Context, write *PendingWrite) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	begins, err := w.queue.add(write)
	if err != nil {
		return err
	}
	if begins && !w.runHere() {
		w.queue.signal()
	}
	select {
	case <-write.done:
	case <-ctx.Done():
		if w.queue.withdraw(write) {
			return fmt.Errorf("%w: %w", driver.ErrBusy, context.Cause(ctx))
		}
		<-write.done
	}
	return write.err
}

// runHere runs a batch in the caller's goroutine, if no transaction is on its way and none waits for a server: waking another goroutine
// costs a fifth of a small one. It reports false if something waits for the writer.
func (w *Writer) runHere() bool {
	if w.inFlight > 1 {
		return false
	}
	select {
	case w.next <- struct{}{}:
	default:
		return false
	}
	if !w.pending() { // another goroutine has it
		<-w.next
		return true
	}
	defer func() {
		if cause := recover(); cause != nil {
			go panic(cause) // ends the process, as in the writer's goroutine; net/http recovers it in a caller's, and nobody would write again
		}
	}()
	w.turn()
	return !w.pending()
}

// Run writes the queue in goroutines of its own. It ends when the queue is closed and everything queued has ended.
func (w *Writer) Run() {
	defer close(w.stopped)
	var running sync.WaitGroup
	for range w.inFlight {
		running.Go(w.run)
	}
	running.Wait()
}

func (w *Writer) run() {
	for {
		if !w.pending() {
			select {
			case <-w.queue.closed:
			case <-w.queue.wake:
				continue
			}
		}
		w.next <- struct{}{} // a caller that writes leaves the rest
		isLast := w.queue.isShut()
		if !w.pending() {
			<-w.next
			if isLast {
				return
			}
			continue
		}
		select {
		case <-w.abandoned:
			w.refuseAll()
			<-w.next
		default:
			w.turn()
		}
	}
}

func (w *Writer) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.again) > 0 || len(w.back) > 0 || w.queue.pending()
}

// turn runs one batch, which is collected after the turn is won, so that operations that arrive during the wait join it. It needs next, and
// empties it.
func (w *Writer) turn() {
	start := time.Now()
	w.queue.begin(start)
	release := w.conn.TakeTurn(w.abandoned)
	waited := time.Since(start)
	runtime.Gosched() // callers that are ready to write join before the batch is collected, and share it
	batch := w.collect()
	w.queue.boarded(w.retries())
	outcome := w.transact(batch)
	release() // before the callers wake: the other process waits for this only
	w.observe(&outcome, start, waited)
	for _, ended := range outcome.ended {
		ended.write.finish(ended.err)
	}
	if outcome.overlapped {
		w.committing.Done()
	} else {
		<-w.next
	}
}

// retries is how many transactions failed operations will have for themselves.
func (w *Writer) retries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.again)
}

// observe measures the pace and reports a transaction to the observer.
func (w *Writer) observe(o *outcome, start time.Time, waited time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch, took := o.batch, time.Duration(0)
	if batch.Transaction > 0 {
		took = since(start)
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

// since is never 0, which is the time of a transaction that did nothing: a coarse clock may not move during one.
func since(start time.Time) time.Duration { return max(1, time.Since(start)) }

// collect returns the next batch. Writes that were cut off go before ordinary writes and unaccompanied, so that they can't be cut off for ever,
// and alternate with urgent ones. Writes that must run again alternate with the writes in line, which don't wait for all of them.
func (w *Writer) collect() []*PendingWrite {
	w.mu.Lock()
	defer w.mu.Unlock()
	resumed := w.resumed
	w.resumed = false
	switch {
	case len(w.back) > 0:
		w.queue.skip()
		if resumed {
			if ending := w.queue.takeUrgent(); len(ending) > 0 {
				return ending
			}
		}
		batch := w.back
		w.back, w.resumed = nil, true
		return batch
	case len(w.again) > 0 && (!w.retried || !w.queue.waiting()):
		batch := w.again[0]
		w.again, w.retried = w.again[1:], true
		return batch
	}
	w.retried = false
	return w.queue.take(make([]*PendingWrite, 0, 16))
}

// refuseAll ends everything that has not run.
func (w *Writer) refuseAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes := slices.Concat(append(w.again, w.back)...)
	w.again, w.back = nil, nil
	for _, write := range w.queue.drain(writes) {
		write.finish(driver.ErrClosed)
	}
}

// Batch describes one transaction of the writer, for metrics.
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

// Observer observes each transaction. Who runs the transaction calls it, so it must return quickly.
type Observer interface {
	ObserveBatch(batch Batch)
}

// calmAfter is how long no operation must have been refused until the condition is over.
const calmAfter = 10 * time.Second

// refusalLog logs refused operations as one condition, with a line when it begins and one when it is over. The metric counts them. Only the logger
// must be set. The writer's mutex guards it.
type refusalLog struct {
	logger      *slog.Logger
	began, last time.Time // of the refusals, zero while there are none
	refused     int
}

// note is called after each transaction, with the number of operations refused since the last transaction and the expected duration of the next
// one.
func (l *refusalLog) note(now time.Time, refused int, expected time.Duration) {
	switch {
	case refused > 0:
		if l.began.IsZero() {
			l.began = now
			l.logger.Warn("writes are refused: more wait than the store can do in time",
				"refused", refused, "transaction_expected", expected)
		}
		l.last = now
		l.refused += refused
	case !l.began.IsZero() && now.Sub(l.last) >= calmAfter:
		l.logger.Warn("all writes are served again", "refused", l.refused, "during", l.last.Sub(l.began))
		l.began, l.refused = time.Time{}, 0
	}
}
