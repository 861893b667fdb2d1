package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// letIn checks the rights to a route, counts the request, and returns it with the principal in its context. An API key has
// precedence over the cookie of a login session. permit counts it as a model call, if it is one. The answer gets the caller.
func (s *Server) letIn(answer *answer, r *http.Request, route handlers.Route) (_ *http.Request, permit handlers.Permit, err error) {
	w := answer.to
	r, _ = handlers.EnsureRequestID(w, r)
	if route.Public {
		return r.WithContext(context.WithValue(r.Context(), exchangeKey{}, &Exchange{w, r})), permit, nil
	}
	principal, err := s.principal(r)
	if err != nil {
		return nil, permit, err
	}
	answer.caller = handlers.CallerOf(&principal)
	if err := checkRights(&principal, route); err != nil {
		return nil, permit, err
	}
	ctx := handlers.WithPrincipal(r.Context(), principal)
	if principal.UserID != "" {
		ctx = context.WithValue(ctx, exchangeKey{}, &Exchange{w, r})
	}
	r = r.WithContext(ctx)
	if permit, err = s.Rates.take(w, r, &principal, route); err != nil || s.Complete == nil {
		return r, permit, err
	}
	completed, err := s.Complete(r, &principal)
	if err != nil {
		return nil, permit, err
	}
	return r.WithContext(handlers.WithPrincipal(ctx, *completed)), permit, nil
}

func (s *Server) principal(r *http.Request) (identity.Principal, error) {
	raw, err := identity.Credential(r.Header)
	if errors.Is(err, identity.ErrNoKey) && s.sessions != nil {
		return s.sessions.Principal(r)
	}
	var principal identity.Principal
	if err == nil {
		principal, err = s.authenticator.Authenticate(r.Context(), raw)
	}
	if err != nil {
		return identity.Principal{}, handlers.KeyRefusal(err)
	}
	return principal, nil
}

// checkRights reports whether the principal may use a route. An operator may act for a suspended organization.
func checkRights(principal *identity.Principal, route handlers.Route) error {
	switch {
	case principal.Operator != "":
		if !principal.OperatorScopes.Has(route.OperatorScope) {
			return handlers.OperatorLacksScope(route.OperatorScope)
		}
		if principal.NeedsCode && (route.OperatorScope == identity.OperatorWalletWrite || route.OperatorScope == identity.OperatorKeysWrite) {
			return handlers.NeedsCode()
		}
	case principal.Suspended:
		return handlers.Suspended(principal.SuspensionReason)
	case !principal.Can(route.Scope, route.Role):
		return refuseRights(principal, route)
	case principal.KeyID != "" && principal.Env != store.Live && !route.TestKeys:
		return handlers.LiveOnly()
	}
	return nil
}

// refuseRights returns the error that names the scope or role which the principal lacks.
func refuseRights(principal *identity.Principal, route handlers.Route) error {
	switch {
	case principal.UserID != "":
		return Refusal(errcode.Forbidden, nil, "This needs the role %s.", route.Role)
	case route.Scope == "":
		return Refusal(errcode.Forbidden, nil, "This needs a login session: no API key has this right.")
	default:
		return handlers.LacksScope(route.Scope)
	}
}

type exchangeKey struct{}

// Exchange is the request of a route that works with cookies, and where its answer goes.
type Exchange struct {
	W http.ResponseWriter
	R *http.Request
}

// ExchangeFrom returns the request of a public route, or of one for persons, and its response writer.
func ExchangeFrom(ctx context.Context) *Exchange {
	e, ok := ctx.Value(exchangeKey{}).(*Exchange)
	if !ok {
		panic("endpoint: the route is neither public nor a person's")
	}
	return e
}

// Bounds of requests within one minute of the clock, by one process. A change is any method but GET. The dashboard's requests
// count as its person's: an open page requests each of its parts every two seconds, which are up to 280 reads a minute. All
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
	// Calls counts operations with the scope chat:write, which are model calls, together with the calls of /v1. Its Limiter may be nil.
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
	if principal.OperatorID != "" {
		return []rateWindow{{"operator " + principal.OperatorID + kind, key}}
	}
	if principal.KeyID != "" {
		return []rateWindow{{"keys " + principal.OrgID + kind, key}}
	}
	return []rateWindow{{principal.Actor() + kind, person}, {"people " + principal.OrgID + kind, people}}
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
	return nil, RateLimited(d.ResetIn, nil,
		"The limit of %d such requests per minute is reached. Retry after %d seconds.", d.Limit, handlers.WholeSeconds(d.ResetIn))
}

// Bounds of the operations of one owner (an organization, or a client's address without credentials) in one process:
// OperationsAtATime run, which is half of SQLite's readers, and OperationsWaiting wait for up to TurnWait. Owners don't wait for
// each other here; the store serves their reads in order of arrival.
const (
	OperationsAtATime = 4
	OperationsWaiting = 60
	TurnWait          = 10 * time.Second
)

var errTurnSlow = fmt.Errorf("no place within %s", TurnWait)

// takeTurn waits until the request's operation may run. leave gives its place back, once. The error is rate_limited if too many wait or
// the place comes too late, or internal_error if the client has gone.
func (s *Server) takeTurn(r *http.Request) (leave func(), err error) {
	owner := handlers.AccountOf(r).Owner
	ctx, cancel := context.WithTimeoutCause(r.Context(), TurnWait, errTurnSlow)
	defer cancel()
	err = s.turns.Enter(ctx, owner)
	switch {
	case err == nil:
		return sync.OnceFunc(func() { s.turns.Leave(owner) }), nil
	case errors.Is(err, dispatch.ErrBusy), errors.Is(err, errTurnSlow):
		return nil, RateLimited(time.Second, err,
			"More than %d requests are being answered or wait at this moment. Retry shortly.", OperationsAtATime)
	default:
		return nil, handlers.Internal(fmt.Errorf("waiting for a place: %w", err))
	}
}
