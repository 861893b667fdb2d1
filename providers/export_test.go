package providers

import (
	"context"
	"net/http"
)

// What the tests of the call look at from outside, where they can use a dialect.
const (
	DrainWait        = drainWait
	MaxAnswerBytes   = maxAnswerBytes
	MaxStreamBytes   = maxStreamBytes
	MaxEventBytes    = maxEventBytes
	MaxLargeBytes    = maxLargeBytes
	SmallAnswerBytes = smallAnswerBytes
	SmallBody        = smallBody
)

var (
	ErrAnswerTooLarge = errAnswerTooLarge
	ErrEventTooLarge  = errEventTooLarge
	ErrManyLarge      = errManyLarge
	ErrTakenBack      = errTakenBack
)

// Transport returns what carries the requests.
func (p *HTTP) Transport() http.RoundTripper { return p.transport }

// LargeBytes returns how much of MaxLargeBytes is taken.
func (p *HTTP) LargeBytes() int64 { return p.largeBytes.Load() }

// HoldLarge begins a call that holds an answer of that size, and returns its end.
func (p *HTTP) HoldLarge(ctx context.Context, stream bool, size int) (end func(), err error) {
	c := p.newCall(ctx, nil, stream)
	return c.end, c.hold(size)
}

// Done is closed when the call of a stream has ended.
func Done(events Events) <-chan struct{} { return events.(*stream).ctx.Done() }
