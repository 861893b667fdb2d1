package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Plans returns the limits of the configured plans.
type Plans interface {
	// RequestsPerMinute returns the limit of a plan. 0 means unlimited.
	RequestsPerMinute(plan string) int64
}

// RateLimit admits the requests per minute of the organization's plan. It runs after [Auth], so that every request with a valid
// key counts, also one with an invalid body, and a replay. A request that the busy store refuses is given back
// ([Permit.Return]).
type RateLimit struct {
	// Limiter counts in the window of the organization. Its error is a fault of the service.
	Limiter limit.Limiter
	Plans   Plans
	// Counted: [Auth] runs directly before, and may have counted the request with the look-up of its key. Another RateLimit of the
	// same request counts it itself.
	Counted bool
}

// Permit is a request that [RateLimit.Serve] has counted. The zero value is no permit.
type Permit struct {
	limiter  limit.Limiter
	orgID    string
	decision limit.Decision
}

// Return gives the request back to its window if err means that the store was too busy for it: a request that is refused because of the service's
// own load must not use up the organization's limit. It corrects the header that Serve has set. It does nothing for any other error, for nil,
// without a permit, and for a client that has left: leaving ends a wait for the store with the same error, and would otherwise let the client send
// requests without a limit.
func (p *Permit) Return(w http.ResponseWriter, r *http.Request, err error) {
	if p.decision.Limit <= 0 || !errors.Is(err, store.ErrBusy) || r.Context().Err() != nil {
		return
	}
	if l, ok := p.limiter.(limit.Returner); ok {
		l.Return(p.orgID, p.decision)
		setRemaining(w, p.decision.Remaining+1)
	}
}

// Serve counts the request. Under a limit it sets x-ratelimit-limit-requests, -remaining-requests and -reset-requests
// (seconds to the window's end, like "42s"); beyond it the error is rate_limited with 1 to 60 s in RetryAfter. A counter
// that fails is internal_error.
func (l *RateLimit) Serve(w http.ResponseWriter, r *http.Request) (Permit, error) {
	principal, err := RequirePrincipal(r)
	if err != nil {
		return Permit{}, err
	}
	perMinute := l.Plans.RequestsPerMinute(principal.Plan)
	var d limit.Decision
	if l.Counted && principal.Permit.Window != 0 && perMinute > 0 {
		d = limit.Permitted(principal.Permit, perMinute) // counted when the key was read
	} else {
		d, err = l.Limiter.Take(r.Context(), principal.OrgID, perMinute)
	}
	if err != nil {
		return Permit{}, Internal(fmt.Errorf("rate limit: %w", err))
	}
	if d.Limit <= 0 {
		return Permit{}, nil
	}
	seconds := WholeSeconds(d.ResetIn)
	h := w.Header()
	h["X-Ratelimit-Limit-Requests"] = []string{strconv.FormatInt(d.Limit, 10)}
	setRemaining(w, d.Remaining)
	h["X-Ratelimit-Reset-Requests"] = []string{strconv.FormatInt(seconds, 10) + "s"}
	if d.Allowed {
		return Permit{l.Limiter, principal.OrgID, d}, nil
	}
	return Permit{}, &Error{
		Code:       errcode.RateLimited,
		RetryAfter: max(d.ResetIn, time.Millisecond),
		// Some clients take a 429 for permanent by its words.
		Message: fmt.Sprintf("The limit of %d requests per minute is reached. Retry after %d seconds.", d.Limit, seconds),
	}
}

func setRemaining(w http.ResponseWriter, n int64) {
	w.Header()["X-Ratelimit-Remaining-Requests"] = []string{strconv.FormatInt(n, 10)}
}

// WholeSeconds returns the duration in seconds, rounded up, from 1 to 60.
func WholeSeconds(d time.Duration) int64 {
	return min(max(roundUp(d, time.Second), 1), 60)
}
