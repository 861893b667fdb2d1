package providers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// timeoutError is the cause of a call that one of our timers canceled.
type timeoutError struct {
	what  string
	limit time.Duration
}

func (e *timeoutError) Error() string { return e.what + " within " + e.limit.String() }

// The causes of calls that we end ourselves.
var (
	errClosed   = errors.New("the call was closed")
	errFinished = errors.New("the answer is complete, the vendor keeps the stream open")
)

// call owns the context, the timer and the response body of one call. It times one wait at a time (arm, disarm), in addition to
// the limit of the whole call.
type call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	// target, trace and begun belong to the request. begun becomes true when the transport writes the request; from then on the
	// vendor may have received it.
	target url.URL
	trace  httptrace.ClientTrace
	begun  atomic.Bool

	mu sync.Mutex
	// timer fires at or before the end of the current wait and of the whole call, whichever is first. It is reset only for an
	// earlier end, so most waits don't reset it.
	timer *time.Timer
	fires time.Time
	// whole is the time at which the whole call ends with wholeCause.
	whole      time.Time
	wholeCause error
	due        time.Time
	cause      error // nil if no wait is timed
	ended      bool
	body       io.Closer
	lent       *requestBody

	share *atomic.Int64 // bytes of maxLargeBytes that the vendor's answers use
	large int64         // the part of this call
}

// newCall begins a call. cancel ends ctx; if it is nil, the call has a context of its own.
func (p *HTTP) newCall(ctx context.Context, cancel context.CancelCauseFunc, stream bool) *call {
	if cancel == nil {
		ctx, cancel = context.WithCancelCause(ctx)
	}
	c := &call{ctx: ctx, cancel: cancel, share: &p.largeBytes}
	limit, cause := p.timeouts.MaxDuration, p.maxDuration
	if !stream && p.timeouts.Response < limit {
		limit, cause = p.timeouts.Response, p.responseTimeout
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole, c.wholeCause = time.Now().Add(limit), cause
	c.fires = c.whole
	c.timer = time.AfterFunc(limit, func() { // the call or its wait has exceeded its limit, or an earlier wait of the timer is over
		if cause := c.expired(); cause != nil {
			c.cancel(cause)
		}
	})
	return c
}

// arm times a wait. After d without another arm or disarm the call is canceled with cause.
func (c *call) arm(d time.Duration, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.due, c.cause = time.Now().Add(d), cause
	if c.due.Before(c.fires) {
		c.fires = c.due
		c.timer.Reset(d)
	}
}

// disarm ends the timed wait.
func (c *call) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = nil
}

// armedUntil returns the end of the timed wait.
func (c *call) armedUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due
}

// expired returns the cause with which the call ends now. If there is none, it sets the timer for the next end.
func (c *call) expired() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	waits := c.cause != nil
	switch {
	case c.ended:
		return nil
	case waits && !now.Before(c.due) && c.due.Before(c.whole):
		return c.cause
	case !now.Before(c.whole):
		return c.wholeCause
	}
	c.fires = c.whole
	if waits && c.due.Before(c.whole) {
		c.fires = c.due
	}
	c.timer.Reset(c.fires.Sub(now))
	return nil
}

// lend stores the request body that the transport is about to read. end removes it.
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

// attach stores the response body that end closes.
func (c *call) attach(body io.Closer) {
	c.mu.Lock()
	c.body = body
	c.mu.Unlock()
}

// hold counts the part of an answer's size that exceeds smallAnswerBytes against the bytes that the vendor's answers share. The
// size replaces the call's last one, and end subtracts it. hold fails with errManyLarge if the answers are too large together.
func (c *call) hold(size int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil // nothing more will be read
	}
	more := int64(max(0, size-smallAnswerBytes)) - c.large
	c.large += more
	if c.share.Add(more) > maxLargeBytes && more > 0 {
		return errManyLarge
	}
	return nil
}

// end stops the timers, cancels the request and frees the connection, which is reused if the answer was read to its end. It may
// be called more than once and from any goroutine.
func (c *call) end() {
	c.mu.Lock()
	first := !c.ended
	c.ended, c.cause = true, nil
	body, lent := c.body, c.lent
	c.share.Add(-c.large)
	c.large = 0
	c.timer.Stop()
	c.mu.Unlock()
	c.cancel(errClosed)
	lent.takeBack()
	if first && body != nil {
		_ = body.Close()
	}
}

func isTooLarge(err error) bool {
	return errors.Is(err, errAnswerTooLarge) || errors.Is(err, errEventTooLarge)
}

// failure returns the error of an answer that is too large, or of a call that broke off. For the latter the context's cause decides the class;
// err is only wrapped.
func (c *call) failure(err error) *Error {
	cause := context.Cause(c.ctx)
	var ours *timeoutError
	switch {
	case errors.Is(err, errManyLarge):
		return &Error{Failure: FailureOverloaded, Status: http.StatusOK, Cause: err}
	case isTooLarge(err):
		return &Error{Failure: FailureRefused, Elsewhere: true, Status: http.StatusOK, Cause: err}
	case errors.As(cause, &ours):
		return &Error{Failure: FailureTimeout, Elsewhere: true, Cause: cause}
	case cause != nil:
		return &Error{Failure: FailureCanceled, Cause: cause}
	case isTimeout(err):
		return &Error{Failure: FailureTimeout, Elsewhere: true, Cause: err}
	}
	return &Error{Failure: FailureUnreachable, Elsewhere: true, Cause: err}
}
