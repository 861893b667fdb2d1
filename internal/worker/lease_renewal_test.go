package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

// TestLeaseIsRenewedWhileTheWorkRuns: every third of its life, whatever the work takes.
func TestLeaseIsRenewedWhileTheWorkRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue()
		w := New(Config{Queue: q, Lease: time.Minute})
		held, release := w.keepLease(t.Context(), inbox.Lease{Token: 1})
		_ = repeat.Pause(t.Context(), 10*time.Minute+time.Second)
		require.NoError(t, held.Err())
		release()
		require.Equal(t, 30, q.renewals)
		_ = repeat.Pause(t.Context(), time.Hour)
		require.Equal(t, 30, q.renewals, "a released lease is not renewed")
	})
}

func TestLostLeaseEndsTheWork(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		renew func(n int) error
		after time.Duration // the end of the work at the latest, 0 for none
	}{
		"the queue says so": {
			renew: func(n int) error {
				if n == 3 {
					return inbox.ErrLeaseLost
				}
				return nil
			},
			after: time.Minute,
		},
		"it can't be renewed": {renew: func(int) error { return errStore }, after: time.Minute - time.Millisecond},
		"a fault that passes": {
			renew: func(n int) error {
				if n%4 != 0 {
					return errStore
				}
				return nil
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue()
				q.renew = test.renew
				w := New(Config{Queue: q, Lease: time.Minute})
				start := time.Now()
				held, release := w.keepLease(t.Context(), inbox.Lease{Token: 1})
				defer release()
				if test.after == 0 {
					_ = repeat.Pause(t.Context(), time.Hour)
					require.NoError(t, held.Err())
					return
				}
				<-held.Done()
				require.ErrorIs(t, context.Cause(held), errLeaseLost)
				require.LessOrEqual(t, time.Since(start), test.after)
			})
		})
	}
}

// TestALostConversationIsLeftAlone: no write follows, not even giving the lease back.
func TestALostConversationIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(leases("a", 1)...)
		q.renew = func(int) error { return inbox.ErrLeaseLost }
		stop := running(t.Context(), q, 4, time.Hour, func(ctx context.Context, _ string) { <-ctx.Done() })
		_ = repeat.Pause(t.Context(), 10*time.Minute)
		stop()
		ended, put := q.seen()
		require.Empty(t, ended)
		require.Empty(t, put)
	})
}
