package writer

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

const (
	// MaxQueued bounds the operations of each class that wait for the writer: 32 full batches.
	MaxQueued = 32 * maxBatch
	// urgentPlaces is how much of a batch is for urgent operations while ordinary ones wait; of those beyond, half are taken, up
	// to mostUrgent. Else a batch of holds alone would be followed by one of their settlements alone, and so on, and every hold
	// would wait for both. Settlements of calls that needed no hold make that line long: one tenant's must not stop all others.
	urgentPlaces = maxBatch * 9 / 16
	mostUrgent   = maxBatch * 7 / 8
	// lazyWait bounds how long an operation without a waiting caller stays in line for company.
	lazyWait = time.Second
)

// class is the line in which an operation waits. A transaction is filled from the lines in this order.
type class int

const (
	urgent   class = iota // ends what was begun, see [Urgent]
	ordinary              // everything else
	lazy                  // see store.DB.SubmitLazily
	classes
)

// errFull refuses an operation of a class that has MaxQueued in line.
var errFull = fmt.Errorf("%w: the write queue is full", driver.ErrOverloaded)

// queue is the bounded queue in front of the writer, with a line for each class. Lines are linked lists, so that an operation can leave
// immediately when its caller gives up.
type queue struct {
	wake   chan struct{} // wakes the writer: the queue is not empty, or closed
	closed chan struct{}

	mu    sync.Mutex
	lines [classes]line
	pace  pace
	open  int // transactions
	// overlapped reports that the open transaction began before the last one ended. Its duration is measured from that end.
	overlapped bool
	// company is the number of operations in line from which another transaction begins beside the open ones.
	company  int
	refused  int // at the door or in line, since the last transaction
	isClosed bool
	// While a transaction runs, the ordinary line is reviewed every reviewEvery.
	reviewing bool
	review    *time.Timer
	// Lazy writes start no transaction: they go with the next one, until they are due or many.
	due      bool
	ripening *time.Timer // set while lazy writes are in line
}

// line is the writes of a class in their order.
type line struct {
	first, last  *PendingWrite
	count, bytes int
}

func newQueue() *queue {
	return &queue{
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
		pace: pace{carried: usualShare, least: leastPatience, most: mostPatience, longest: longestWait},
	}
}

// push adds a write and wakes the writer when a transaction can begin.
func (q *queue) push(write *PendingWrite) error {
	begins, err := q.add(write)
	if begins {
		q.signal()
	}
	return err
}

// add puts a write at the end of its line, or refuses it, and reports whether a transaction can begin. Urgent and lazy writes are refused only
// when their line is full: the running calls and leases limit the urgent ones, and no caller waits for the lazy ones.
func (q *queue) add(write *PendingWrite) (begins bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.admit(write); err != nil {
		return false, err
	}
	l := &q.lines[write.class]
	write.queued = true
	write.previous = l.last
	if l.last == nil {
		l.first = write
	} else {
		l.last.next = write
	}
	l.last = write
	l.count++
	l.bytes += write.size
	if write.class == lazy && q.ripening == nil {
		q.ripening = time.AfterFunc(lazyWait, q.ripen)
	}
	return q.begins(), nil
}

// admit needs the mutex.
func (q *queue) admit(write *PendingWrite) error {
	if q.isClosed {
		return driver.ErrClosed
	}
	mine, before := &q.lines[write.class], &q.lines[urgent]
	switch {
	case mine.count >= MaxQueued:
		q.refused++
		return errFull
	case write.class == ordinary && !q.pace.admits(write.asked, mine.count, before.bytes+mine.bytes):
		q.refused++
		return errOverloaded
	}
	return nil
}

// ripen makes the lazy writes in line start a transaction of their own.
func (q *queue) ripen() {
	q.mu.Lock()
	q.due = q.lines[lazy].count > 0
	q.mu.Unlock()
	q.signal()
}

// ready reports whether there is a reason to start a transaction. It needs the mutex.
func (q *queue) ready() bool {
	waiting := q.lines[lazy].count
	return q.lines[urgent].count > 0 || q.lines[ordinary].count > 0 || waiting > 0 && (q.due || waiting >= maxBatch || q.isClosed)
}

// begins reports whether a transaction can begin, also beside an open one. It needs the mutex.
func (q *queue) begins() bool {
	return q.ready() && (q.open == 0 || q.lines[urgent].count+q.lines[ordinary].count >= q.company)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// withdraw removes a write from its line, and reports false when the writer has it already.
func (q *queue) withdraw(write *PendingWrite) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !write.queued {
		return false
	}
	q.unlink(write)
	return true
}

// take appends the next batch: line after line, as much as a transaction may carry.
func (q *queue) take(batch []*PendingWrite) []*PendingWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	places, room := maxBatch, maxBatchBytes
	if waiting, ending := q.lines[ordinary].count, q.lines[urgent].count; waiting > 0 {
		places, room = max(urgentPlaces, min((urgentPlaces+ending)/2, mostUrgent), maxBatch-waiting), maxBatchBytes/2
	}
	bytes := 0
	batch = q.takeFrom(urgent, batch, places, room, &bytes)
	before := len(batch)
	batch = q.takeFrom(ordinary, batch, maxBatch, maxBatchBytes, &bytes)
	q.pace.carry(len(batch)-before, q.lines[ordinary].first != nil)
	if next := q.lines[urgent].first; next != nil && bytes+next.size <= maxBatchBytes {
		batch = q.takeFrom(urgent, batch, maxBatch, maxBatchBytes, &bytes) // what ordinary ones left
	}
	return q.takeFrom(lazy, batch, maxBatch, maxBatchBytes, &bytes)
}

// takeUrgent returns as many urgent writes as a transaction may carry, and no others.
func (q *queue) takeUrgent() []*PendingWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes := 0
	return q.takeFrom(urgent, nil, maxBatch, maxBatchBytes, &bytes)
}

// takeFrom appends writes of a line until the batch reaches the limit or is too heavy. The first one of a line is never too heavy: it would be as
// heavy the next time, when others went before it again. It needs the mutex.
func (q *queue) takeFrom(c class, batch []*PendingWrite, limit, room int, bytes *int) []*PendingWrite {
	before := len(batch)
	for write := q.lines[c].first; write != nil && len(batch) < limit; write = q.lines[c].first {
		if *bytes+write.size > room && len(batch) > before {
			break
		}
		*bytes += write.size
		q.unlink(write)
		batch = append(batch, write)
	}
	return batch
}

// drain appends everything in line.
func (q *queue) drain(writes []*PendingWrite) []*PendingWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.lines {
		for q.lines[c].first != nil {
			write := q.lines[c].first
			q.unlink(write)
			writes = append(writes, write)
		}
	}
	return writes
}

// unlink needs the mutex.
func (q *queue) unlink(write *PendingWrite) {
	l := &q.lines[write.class]
	if write.previous == nil {
		l.first = write.next
	} else {
		write.previous.next = write.next
	}
	if write.next == nil {
		l.last = write.previous
	} else {
		write.next.previous = write.previous
	}
	write.next, write.previous, write.queued = nil, nil, false
	l.count--
	l.bytes -= write.size
	if write.class == lazy && l.count == 0 {
		q.ripening.Stop()
		q.ripening, q.due = nil, false
	}
}

// begin records that a transaction begins, or waits for its turn.
func (q *queue) begin(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open++; q.open == 1 {
		q.pace.began = now
	}
}

// boarded records that the transaction has its operations, and how many other transactions failed operations will
// have for themselves. Until its end the operations in line are reviewed.
func (q *queue) boarded(retries int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.cut, q.pace.retries = false, retries
	q.company = math.MaxInt
	q.reviewing = true
	if q.review == nil {
		q.review = time.AfterFunc(reviewEvery, q.reviewLine)
		return
	}
	q.review.Reset(reviewEvery)
}

// overlap lets another transaction begin beside one of the given number of operations, once half as many are in line. Smaller transactions would
// cost more than they gain.
func (q *queue) overlap(operations int) {
	q.mu.Lock()
	q.company = max(1, operations/2)
	begins := q.begins()
	q.mu.Unlock()
	if begins {
		q.signal()
	}
}

// end records the end of a transaction: its duration (0 if it did nothing), whether all of it was lost, whether the next transaction is for writes
// that were cut off, and how many transactions failed operations will have. It returns the number of operations refused since the last end, and
// the expected duration of a transaction.
func (q *queue) end(took time.Duration, lost, cut bool, retries int) (refused int, expected time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.overlapped {
		took = min(took, max(1, now.Sub(q.pace.began)))
	}
	q.open = max(0, q.open-1)
	q.overlapped = q.open > 0
	q.pace.began, q.pace.cut, q.pace.retries = now, cut, retries
	if !q.overlapped {
		q.pace.began = time.Time{}
		if q.reviewing {
			q.review.Stop()
			q.reviewing = false
		}
	}
	if took > 0 {
		q.pace.add(took, lost)
	}
	refused, q.refused = q.refused, 0
	return refused, time.Duration(q.pace.took)
}

// reviewLine refuses operations during a long transaction.
func (q *queue) reviewLine() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.reviewing {
		return // the transaction has ended, and the next one may take what is in line
	}
	q.shed(time.Now())
	q.review.Reset(reviewEvery)
}

// shed refuses the ordinary operations in line that can no longer begin in time, because transactions became slower. They are mostly the newest,
// which have waited the least; the others move up. Serving the newest instead would fill no transaction more, and the longest waits would be in
// vain. It needs the mutex.
func (q *queue) shed(now time.Time) {
	l := &q.lines[ordinary]
	if l.first == nil || q.pace.inTime(now, l.first.asked, l.count-1, q.lines[urgent].bytes+l.bytes) {
		return // none is older than the first, and none has to wait longer than the last
	}
	ahead, bytes := 0, q.lines[urgent].bytes
	for write := l.first; write != nil; {
		next := write.next
		if q.pace.inTime(now, write.asked, ahead, bytes) {
			ahead, bytes = ahead+1, bytes+write.size
		} else {
			q.unlink(write)
			q.refused++
			write.finish(errWaited)
		}
		write = next
	}
}

// skip records a transaction without writes from the lines.
func (q *queue) skip() {
	q.mu.Lock()
	q.pace.carry(0, q.lines[ordinary].count > 0)
	q.mu.Unlock()
}

// length is the number of writes in line.
func (q *queue) length() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.lines {
		n += q.lines[c].count
	}
	return n
}

// pending reports whether the writer should begin a transaction now.
func (q *queue) pending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.begins()
}

// waiting reports whether the writer has something to take now.
func (q *queue) waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ready()
}

// isShut reports whether all further operations are refused.
func (q *queue) isShut() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isClosed
}

// close refuses all further operations. The operations in line stay there.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isClosed {
		q.isClosed = true
		close(q.closed)
	}
	q.signal()
}
