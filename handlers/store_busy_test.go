package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// errBusy is the error of a package when the store has refused a write because too many writes wait.
var errBusy = fmt.Errorf("doing something: %w", fmt.Errorf("%w: too much waits", store.ErrBusy))

// requireBusy requires the answer to a write that the store refused at once: 500, and when to come back, in the header
// alone.
func requireBusy(t *testing.T, a answer) {
	t.Helper()
	require.Equal(t, http.StatusInternalServerError, a.status)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.NotContains(t, a.fields, "retryAfter")
	require.Contains(t, a.fields["message"], "busy")
	require.NotContains(t, a.text, "too much waits")
}

// TestBusyStore guarantees that the answer of a store with too many writes says when to come back: a call whose hold was
// refused, a request that couldn't be counted, a delivery, and any other write.
func TestBusyStore(t *testing.T) {
	t.Parallel()
	t.Run("a call", func(t *testing.T) {
		t.Parallel()
		_, err := post(t, &scriptedCall{fail: &gateway.Failure{
			Outcome: gateway.OutcomeInternalError, Message: "The service is busy; the model was not called.", RetryAfter: time.Second,
			Cause: errBusy,
		}}, plain)
		requireBusy(t, written(t, err, ""))
	})
	t.Run("a window", func(t *testing.T) {
		t.Parallel()
		l := &RateLimit{Plans: planLimits{"free": 1}, Limiter: limiterFunc(func(context.Context, string, int64) (limit.Decision, error) {
			return limit.Decision{}, errBusy
		})}
		requireBusy(t, refusedWith(t, errcode.InternalError, counted(l), as(get("/"), someone())))
	})
	t.Run("any write", func(t *testing.T) {
		t.Parallel()
		requireBusy(t, written(t, errBusy, ""))
		require.Zero(t, Internal(errors.New("disk I/O error")).RetryAfter)
	})
	each(t, func(t *testing.T, p platform, g *gate) {
		g.fail = errBusy
		a := refusedWith(t, errcode.InternalError, p.serve(g), p.signed(p.text))
		requireBusy(t, a)
	})
}
