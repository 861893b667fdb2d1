package endpoint

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
)

// Bounds of requests within one minute of the clock, by one process. A change is any method but GET. The dashboard's requests
// count as its person's: a page that is seen asks for each of its parts every two seconds, which are up to 280 reads a minute. All
// people of an organization together have a bound of their own, because one tenant may invite many.
const (
	KeyReadsPerMinute      = 12_000 // of all keys of an organization together
	KeyChangesPerMinute    = 600
	PersonReadsPerMinute   = 3_000
	PersonChangesPerMinute = 600
	PeopleReadsPerMinute   = 120_000 // of all people of an organization together
	PeopleChangesPerMinute = 6_000
)

// Rates bounds how often operations are used. The zero value bounds nothing.
type Rates struct {
	// Windows count the requests of keys, people and organizations; nil counts none.
	Windows *limit.Memory
	// Calls counts operations with the scope chat:write, which are model calls, with those of /v1. Its Limiter may be nil.
	Calls handlers.RateLimit
}

// rateWindow is a window that a request counts in, with its bound.
type rateWindow struct {
	subject string
	limit   int64
}

// windowsOf returns the windows of a request, the narrower one first.
func windowsOf(principal *identity.Principal, change bool) []rateWindow {
	kind, key, person, people := " reads", int64(KeyReadsPerMinute), int64(PersonReadsPerMinute), int64(PeopleReadsPerMinute)
	if change {
		kind, key, person, people = " changes", KeyChangesPerMinute, PersonChangesPerMinute, PeopleChangesPerMinute
	}
	if principal.KeyID != "" {
		return []rateWindow{{"keys " + principal.OrgID + kind, key}}
	}
	return []rateWindow{{principal.UserID + kind, person}, {"people " + principal.OrgID + kind, people}}
}

// take counts a request that has passed the checks of its rights. Beyond a bound the error is rate_limited.
func (l *Rates) take(w http.ResponseWriter, r *http.Request, principal *identity.Principal, route handlers.Route) (handlers.Permit, error) {
	for _, window := range windowsOf(principal, route.Method != http.MethodGet) {
		if _, err := l.Count(r.Context(), window.subject, window.limit); err != nil {
			return handlers.Permit{}, err
		}
	}
	if route.Scope != identity.ChatWrite || l.Calls.Limiter == nil {
		return handlers.Permit{}, nil
	}
	return l.Calls.Serve(w, r)
}

// Count counts one more of what subject names, of which one minute admits most. Beyond that the error is rate_limited. forgive uncounts it.
func (l *Rates) Count(ctx context.Context, subject string, most int64) (forgive func(), err error) {
	if l.Windows == nil {
		return func() {}, nil
	}
	d, err := l.Windows.Take(ctx, subject, most)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("counting a request: %w", err))
	}
	if d.Allowed {
		return func() { l.Windows.Return(subject, d) }, nil
	}
	return nil, &handlers.Error{
		Code: errcode.RateLimited, RetryAfter: d.ResetIn,
		Message: fmt.Sprintf("The limit of %d such requests per minute is reached. Retry after %d seconds.",
			d.Limit, handlers.WholeSeconds(d.ResetIn)),
	}
}
