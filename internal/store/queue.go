package store

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// maxQueued bounds the operations that wait for the writer: 32 full batches. More would only make each wait longer.
	maxQueued = 32 * maxBatch
	// fullQueuePatience bounds the wait for a place in a full queue when the caller's context doesn't.
	fullQueuePatience = 5 * time.Second
	// lazyWait bounds how long an operation that nobody waits for stays in line for company.
	lazyWait = time.Second
)

// queue is the bounded line in front of the writer. It is linked, so that an operation whose caller gave up leaves it
// at once and its place is free again.
type queue struct {
	places chan struct{} // holds one element for each queued ticket
	wake   chan struct{} // tells the writer that the queue is not empty, or closed
	closed chan struct{}

	mu          sync.Mutex
	first, last *Ticket
	isClosed    bool
	// Lazy tickets start no transaction: they go with the next one, until they are due or many.
	eager, lazy int
	due         bool
	ripening    *time.Timer // set while lazy tickets are in line
}

func newQueue() *queue {
	return &queue{
		places: make(chan struct{}, maxQueued),
		wake:   make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
}

// push waits for a place and takes it.
func (q *queue) push(ctx context.Context, ticket *Ticket) error {
	select {
	case q.places <- struct{}{}:
		return q.append(ticket)
	default:
	}
	patience := time.NewTimer(fullQueuePatience)
	defer patience.Stop()
	select {
	case q.places <- struct{}{}:
		return q.append(ticket)
	case <-q.closed:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("%w: the write queue is full: %w", ErrBusy, context.Cause(ctx))
	case <-patience.C:
		return fmt.Errorf("%w: the write queue is full", ErrBusy)
	}
}

// tryPush takes a place if there is one.
func (q *queue) tryPush(ticket *Ticket) error {
	select {
	case q.places <- struct{}{}:
		return q.append(ticket)
	default:
		return fmt.Errorf("%w: the write queue is full", ErrBusy)
	}
}

// append puts a ticket that has its place at the end of the line.
func (q *queue) append(ticket *Ticket) error {
	q.mu.Lock()
	if q.isClosed {
		q.mu.Unlock()
		<-q.places
		return ErrClosed
	}
	ticket.queued = true
	ticket.previous = q.last
	if q.last == nil {
		q.first = ticket
	} else {
		q.last.next = ticket
	}
	q.last = ticket
	q.count(ticket, 1)
	ready := q.ready()
	q.mu.Unlock()
	if ready {
		q.signal()
	}
	return nil
}

// count keeps the sorts of tickets apart. It needs the mutex.
func (q *queue) count(ticket *Ticket, by int) {
	if !ticket.lazy {
		q.eager += by
		return
	}
	q.lazy += by
	switch {
	case q.lazy == 0:
		q.ripening.Stop()
		q.ripening, q.due = nil, false
	case q.ripening == nil:
		q.ripening = time.AfterFunc(lazyWait, q.ripen)
	}
}

// ripen makes the lazy tickets in line start a transaction of their own.
func (q *queue) ripen() {
	q.mu.Lock()
	q.due = q.lazy > 0
	q.mu.Unlock()
	q.signal()
}

// ready reports whether there is a reason to start a transaction. It needs the mutex.
func (q *queue) ready() bool {
	return q.eager > 0 || q.lazy > 0 && (q.due || q.lazy >= maxBatch || q.isClosed)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a ticket out of the line, and reports false when the writer has it already.
func (q *queue) withdraw(ticket *Ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !ticket.queued {
		return false
	}
	q.unlink(ticket)
	return true
}

// take appends up to limit tickets to batch, in their order.
func (q *queue) take(batch []*Ticket, limit int) []*Ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(batch) < limit && q.first != nil {
		ticket := q.first
		q.unlink(ticket)
		batch = append(batch, ticket)
	}
	return batch
}

// unlink needs the mutex.
func (q *queue) unlink(ticket *Ticket) {
	if ticket.previous == nil {
		q.first = ticket.next
	} else {
		ticket.previous.next = ticket.next
	}
	if ticket.next == nil {
		q.last = ticket.previous
	} else {
		ticket.next.previous = ticket.previous
	}
	ticket.next, ticket.previous, ticket.queued = nil, nil, false
	q.count(ticket, -1)
	<-q.places
}

// waiting reports whether the writer has something to take now.
func (q *queue) waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ready()
}

// close refuses what comes from now on. What is in the line stays there.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isClosed {
		q.isClosed = true
		close(q.closed)
	}
	q.signal()
}
