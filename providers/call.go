package providers

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// timeoutError is the cause with which one of our timers cancels a call.
type timeoutError struct {
	what  string
	limit time.Duration
}

func (e *timeoutError) Error() string { return e.what + " within " + e.limit.String() }

// The causes with which we end a call ourselves.
var (
	errClosed   = errors.New("the call was closed")
	errFinished = errors.New("the answer is complete, the vendor keeps the stream open")
)

// call owns the context, the timers and the response body of one call. At most one wait is timed at a time (arm,
// disarm), beside the limit over the whole call.
type call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	whole  *time.Timer // over the whole call

	mu    sync.Mutex
	timer *time.Timer // of the current wait
	due   time.Time
	cause error // nil: no wait is timed
	ended bool
	body  io.Closer
	lent  *requestBody

	share *atomic.Int64 // how much of maxLargeBytes the vendor's answers have
	large int64         // how much of that is this call's
}

func (p *HTTP) newCall(parent context.Context, stream bool) *call {
	c := &call{share: &p.largeBytes}
	c.ctx, c.cancel = context.WithCancelCause(parent)
	limit, cause := p.timeouts.MaxDuration, p.maxDuration
	if !stream && p.timeouts.Response < limit {
		limit, cause = p.timeouts.Response, p.responseTimeout
	}
	c.whole = time.AfterFunc(limit, func() { c.cancel(cause) })
	return c
}

// arm times a wait: after d without another arm or disarm the call is canceled with cause.
func (c *call) arm(d time.Duration, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.due, c.cause = time.Now().Add(d), cause
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.expire)
		return
	}
	c.timer.Reset(d)
}

// disarm ends the timed wait.
func (c *call) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = nil
	if c.timer != nil {
		c.timer.Stop()
	}
}

// armedUntil returns when the timed wait is over.
func (c *call) armedUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due
}

// expire runs when the timer fires, which may overlap with an arm or disarm that came first: then the wait it was
// set for is over.
func (c *call) expire() {
	c.mu.Lock()
	cause := c.cause
	early := time.Now().Before(c.due)
	c.mu.Unlock()
	if cause != nil && !early {
		c.cancel(cause)
	}
}

// lend notes the request body that the transport is about to read; end takes it back.
func (c *call) lend(body *requestBody) {
	c.mu.Lock()
	before := c.lent
	c.lent = body
	c.mu.Unlock()
	before.takeBack()
}

// takeBack ends the reading of the request body.
func (c *call) takeBack() {
	c.mu.Lock()
	lent := c.lent
	c.mu.Unlock()
	lent.takeBack()
}

// attach notes the response body that end closes.
func (c *call) attach(body io.Closer) {
	c.mu.Lock()
	c.body = body
	c.mu.Unlock()
}

// hold takes the part of an answer's size that exceeds smallAnswerBytes from what the vendor's answers share, in place of
// what the call had until now; end gives it back. It fails with errManyLarge when they have too much together.
func (c *call) hold(size int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil // nothing more is read
	}
	more := int64(max(0, size-smallAnswerBytes)) - c.large
	c.large += more
	if c.share.Add(more) > maxLargeBytes && more > 0 {
		return errManyLarge
	}
	return nil
}

// end stops the timers, cancels the request and frees the connection, which is used again if the answer was read
// to its end. It may be called more than once and from any goroutine.
func (c *call) end() {
	c.mu.Lock()
	first := !c.ended
	c.ended, c.cause = true, nil
	body, lent := c.body, c.lent
	c.share.Add(-c.large)
	c.large = 0
	c.whole.Stop()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.cancel(errClosed)
	lent.takeBack()
	if first && body != nil {
		_ = body.Close()
	}
}

// failure returns the error of a call that broke off. Its class is read from the context's cause; err only goes along.
func (c *call) failure(err error) *Error {
	cause := context.Cause(c.ctx)
	var ours *timeoutError
	switch {
	case errors.As(cause, &ours):
		return &Error{Failure: FailureTimeout, Cause: cause}
	case cause != nil:
		return &Error{Failure: FailureCanceled, Cause: cause}
	case isTimeout(err):
		return &Error{Failure: FailureTimeout, Cause: err}
	}
	return &Error{Failure: FailureUnreachable, Cause: err}
}
