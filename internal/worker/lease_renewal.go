package worker

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

// keepLease renews a lease every third of its life, on a goroutine of its own, until release is called. When the lease is lost,
// because the queue says so or because it can't be renewed in time, the returned context ends with errLeaseLost as its cause.
func (w *Worker) keepLease(ctx context.Context, lease inbox.Lease) (held context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if w.renew(ctx, lease) {
			cancel(errLeaseLost)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// renew returns false when ctx ended, true when the lease is lost. The local clock counts from before each renewal began, so
// that the work ends before another worker may get the lease.
func (w *Worker) renew(ctx context.Context, lease inbox.Lease) (lost bool) {
	ends := time.Now().Add(w.Lease)
	for wait := w.Lease / 3; ; {
		_ = repeat.Pause(ctx, wait)
		if ctx.Err() != nil {
			return false
		}
		asked := time.Now()
		bounded, cancel := context.WithDeadlineCause(ctx, ends, errLeaseLost)
		_, err := w.Leases.Renew(bounded, lease, w.Lease)
		cancel()
		switch {
		case err == nil:
			ends, wait = asked.Add(w.Lease), w.Lease/3
		case errors.Is(err, inbox.ErrLeaseLost):
			return true
		case ctx.Err() != nil:
			return false
		default:
			w.Logger.WarnContext(ctx, "renewing a lease failed", "conversation", lease.ConversationID, "error", err)
			if wait = w.Lease / 12; time.Until(ends) <= wait {
				return true
			}
		}
	}
}
