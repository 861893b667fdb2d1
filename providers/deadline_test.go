package providers

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slow waits in Open or in Next until its context ends.
type slow struct {
	inOpen bool
	ctx    context.Context //nolint:containedctx // of the call
}

func (s *slow) canceled() error {
	<-s.ctx.Done()
	return &Error{Failure: FailureCanceled, Cause: context.Cause(s.ctx)}
}

func (s *slow) Open(ctx context.Context, _ *Request) (Events, error) {
	call := &slow{s.inOpen, ctx}
	if s.inOpen {
		return nil, call.canceled()
	}
	return call, nil
}

func (s *slow) Next() (Event, error) { return Event{}, s.canceled() }
func (s *slow) Buffered() bool       { return false }
func (s *slow) Close()               {}

// A provider without timers of its own gets the deadline in its context, and what the caller does keeps its own cause.
func TestWithDeadline(t *testing.T) {
	t.Parallel()
	for _, inOpen := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := WithDeadline(&slow{inOpen: inOpen}, time.Minute)
			call := func(ctx context.Context) *Error {
				events, err := p.Open(ctx, &Request{})
				if err == nil {
					defer events.Close()
					_, err = events.Next()
				}
				var e *Error
				require.ErrorAs(t, err, &e)
				return e
			}
			started := time.Now()
			e := call(t.Context())
			require.Equal(t, FailureTimeout, e.Failure)
			require.ErrorContains(t, e, "within 1m0s")
			require.Equal(t, time.Minute, time.Since(started))

			gone := errors.New("gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(gone) })
			e = call(ctx)
			require.Equal(t, FailureCanceled, e.Failure)
			require.ErrorIs(t, e, gone)
		})
	}
}

// The end of an answer stays io.EOF, and a provider with timers of its own stays what it is.
func TestWithDeadlineChangesNothingElse(t *testing.T) {
	t.Parallel()
	p := WithDeadline(ready{}, time.Minute)
	events, err := p.Open(t.Context(), &Request{})
	require.NoError(t, err)
	events.Close()
	event, err := events.Next()
	require.NoError(t, err)
	require.Equal(t, Event{Text: "x"}, event)
	_, err = events.Next()
	require.ErrorIs(t, err, io.EOF)
	own := &HTTP{}
	require.Same(t, own, WithDeadline(own, time.Minute))
	require.Nil(t, WithDeadline(nil, time.Minute))
}

type ready struct{}

func (ready) Open(context.Context, *Request) (Events, error) {
	return WholeAnswer(Event{Text: "x"}), nil
}
