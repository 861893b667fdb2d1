package handlers

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/limit"
)

// Plans knows the limits of the configured plans.
type Plans interface {
	// RequestsPerMinute of a plan; 0 is no limit.
	RequestsPerMinute(plan string) int64
}

// RateLimit admits the requests per minute of the organization's plan (spec §8). It stands behind [Auth], so that every
// request with a good key counts, also one whose body turns out to be bad, and a replay.
type RateLimit struct {
	// Limiter counts in the window of the organization. Its error is a fault of the service.
	Limiter limit.Limiter
	Plans   Plans
}

// Serve counts the request. Under a limit it sets x-ratelimit-limit-requests, -remaining-requests and -reset-requests
// (seconds to the window's end, like "42s"); beyond it the error is rate_limited with 1 to 60 s in RetryAfter. A counter
// that fails is internal_error.
func (l *RateLimit) Serve(w http.ResponseWriter, r *http.Request) error {
	p, err := principal(r)
	if err != nil {
		return err
	}
	perMinute := l.Plans.RequestsPerMinute(p.Plan)
	d, err := l.Limiter.Take(r.Context(), p.OrgID, perMinute)
	if err != nil {
		return Internal(fmt.Errorf("rate limit: %w", err))
	}
	if d.Limit <= 0 {
		return nil
	}
	seconds := wholeSeconds(d.ResetIn)
	h := w.Header()
	h["X-Ratelimit-Limit-Requests"] = []string{strconv.FormatInt(d.Limit, 10)}
	h["X-Ratelimit-Remaining-Requests"] = []string{strconv.FormatInt(d.Remaining, 10)}
	h["X-Ratelimit-Reset-Requests"] = []string{strconv.FormatInt(seconds, 10) + "s"}
	if d.Allowed {
		return nil
	}
	return &Error{
		Code:       CodeRateLimited,
		RetryAfter: max(d.ResetIn, time.Millisecond),
		// Some clients take a 429 for permanent by its words (notes/clients.md §2 item 20).
		Message: fmt.Sprintf("The limit of %d requests per minute is reached. Retry after %d seconds.", d.Limit, seconds),
	}
}

// wholeSeconds rounds up to 1 to 60.
func wholeSeconds(d time.Duration) int64 {
	return min(max(int64((d+time.Second-1)/time.Second), 1), 60)
}
