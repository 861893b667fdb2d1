package providers

import (
	"context"
	"errors"
	"io"
	"time"
)

// WithDeadline returns p with a deadline on the context of every call, after which the call fails as [FailureTimeout].
// [HTTP] bounds its calls by itself and is returned as it is.
func WithDeadline(p Provider, limit time.Duration) Provider {
	if _, bounded := p.(*HTTP); bounded || p == nil || limit <= 0 {
		return p
	}
	return &bounded{p, limit, &timeoutError{"the call did not end", limit}}
}

type bounded struct {
	Provider
	limit time.Duration
	cause *timeoutError
}

// Open implements [Provider].
func (b *bounded) Open(ctx context.Context, req *Request) (Events, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, b.cause)
	opened := false
	defer func() {
		if !opened { // also when the adapter panics
			cancel()
		}
	}()
	events, err := b.Provider.Open(ctx, req)
	if err != nil || events == nil {
		return nil, b.failure(ctx, err)
	}
	opened = true
	return &boundedEvents{events, b, ctx, cancel}, nil
}

// failure returns err, or that of the deadline if the call ended because of it.
func (b *bounded) failure(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) || !errors.Is(context.Cause(ctx), b.cause) {
		return err
	}
	return &Error{Failure: FailureTimeout, Cause: b.cause}
}

type boundedEvents struct {
	Events
	provider *bounded
	ctx      context.Context //nolint:containedctx // of the call
	cancel   context.CancelFunc
}

// Next implements [Events].
func (e *boundedEvents) Next() (Event, error) {
	event, err := e.Events.Next()
	return event, e.provider.failure(e.ctx, err)
}

// Close implements [Events].
func (e *boundedEvents) Close() {
	defer e.cancel()
	e.Events.Close()
}
