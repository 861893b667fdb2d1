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

// RateLimit admits the requests per minute of an API key with a bound of its own, and of the organization's plan. It runs after [Auth], so that
// every request with a valid key counts, also one with an invalid body, and a replay. A request that the key's bound refuses doesn't count for the
// organization. A request that the busy store refuses is given back ([Permit.Return]).
type RateLimit struct {
	// Limiter counts in the windows of keys and organizations. Its error is a fault of the service.
	Limiter limit.Limiter
	Plans   Plans
	// Counted: [Auth] runs directly before, and may have counted the request with the look-up of its key. Another RateLimit of the
	// same request counts it itself.
	Counted bool
}

// Permit is a request that [RateLimit.Serve] has counted. The zero value is no permit.
type Permit struct {
	limiter limit.Limiter
	// key and org are the windows that counted the request. A window without a limit counted nothing.
	key, org window
}

// window is the name of a window with its decision on a request.
type window struct {
	name string
	limit.Decision
}

// Return gives the request back to its windows if err means that the store was too busy for it: a request that is refused because of the service's
// own load must not use up a limit. It corrects the header that Serve has set. It does nothing for any other error, for nil,
// without a permit, and for a client that has left: leaving ends a wait for the store with the same error, and would otherwise let the client send
// requests without a limit.
func (p *Permit) Return(w http.ResponseWriter, r *http.Request, err error) {
	if p.limiter == nil || !errors.Is(err, store.ErrBusy) || r.Context().Err() != nil {
		return
	}
	if l, ok := p.limiter.(limit.Returner); ok {
		p.giveBack(l)
		setRemaining(w, p.nearest().Remaining+1)
	}
}

// giveBack uncounts the request.
func (p *Permit) giveBack(l limit.Returner) {
	for _, counted := range []*window{&p.key, &p.org} {
		if counted.Limit > 0 && counted.Allowed {
			l.Return(counted.name, counted.Decision)
		}
	}
}

// nearest returns the window that admits fewer further requests.
func (p *Permit) nearest() *window {
	if p.org.Limit <= 0 || p.key.Limit > 0 && p.key.Remaining < p.org.Remaining {
		return &p.key
	}
	return &p.org
}

// Serve counts the request. Under a limit it sets x-ratelimit-limit-requests, -remaining-requests and -reset-requests
// (seconds to the window's end, like "42s") of the window that admits fewer further requests; beyond a limit the error is rate_limited with
// 1 to 60 s in RetryAfter. A counter that fails is internal_error.
func (l *RateLimit) Serve(w http.ResponseWriter, r *http.Request) (Permit, error) {
	principal, err := RequirePrincipal(r)
	if err != nil {
		return Permit{}, err
	}
	permit := Permit{limiter: l.Limiter}
	counted := principal.Permit // by the look-up of the key
	if !l.Counted {
		counted = store.Permit{}
	}
	if principal.KeyPerMinute > 0 {
		permit.key, err = l.take(r, principal.KeyID, principal.KeyPerMinute, counted)
		counted = store.Permit{}
		if err != nil {
			return Permit{}, err
		}
		if !permit.key.Allowed {
			seconds := show(w, &permit.key)
			return Permit{}, overLimit(&permit.key, "The API key's limit of %d requests per minute is reached. Retry after %d seconds.", seconds)
		}
	}
	permit.org, err = l.take(r, principal.OrgID, l.Plans.RequestsPerMinute(principal.Plan), counted)
	if err != nil {
		return Permit{}, err
	}
	if !permit.org.Allowed {
		if l, ok := l.Limiter.(limit.Returner); ok {
			permit.giveBack(l)
		}
		seconds := show(w, &permit.org)
		return Permit{}, overLimit(&permit.org, "The limit of %d requests per minute is reached. Retry after %d seconds.", seconds)
	}
	nearest := permit.nearest()
	if nearest.Limit <= 0 {
		return Permit{}, nil
	}
	show(w, nearest)
	return permit, nil
}

// take counts the request in the window of a name, unless counted has the decision on it.
func (l *RateLimit) take(r *http.Request, name string, perMinute int64, counted store.Permit) (window, error) {
	if counted.Window != 0 && perMinute > 0 {
		return window{name, limit.Permitted(counted, perMinute)}, nil
	}
	d, err := l.Limiter.Take(r.Context(), name, perMinute)
	if err != nil {
		return window{}, Internal(fmt.Errorf("rate limit: %w", err))
	}
	return window{name, d}, nil
}

// show sets the headers of a window, and returns the seconds to its end.
func show(w http.ResponseWriter, shown *window) (seconds int64) {
	seconds = WholeSeconds(shown.ResetIn)
	h := w.Header()
	h["X-Ratelimit-Limit-Requests"] = []string{strconv.FormatInt(shown.Limit, 10)}
	setRemaining(w, shown.Remaining)
	h["X-Ratelimit-Reset-Requests"] = []string{strconv.FormatInt(seconds, 10) + "s"}
	return seconds
}

// overLimit returns the refusal of a window. Some clients take a 429 for permanent by its words.
func overLimit(of *window, message string, seconds int64) error {
	return &Error{
		Code: errcode.RateLimited, RetryAfter: max(of.ResetIn, time.Millisecond), Message: fmt.Sprintf(message, of.Limit, seconds),
	}
}

func setRemaining(w http.ResponseWriter, n int64) {
	w.Header()["X-Ratelimit-Remaining-Requests"] = []string{strconv.FormatInt(n, 10)}
}

// WholeSeconds returns the duration in seconds, rounded up, from 1 to 60.
func WholeSeconds(d time.Duration) int64 { return min(max(roundUp(d, time.Second), 1), 60) }
