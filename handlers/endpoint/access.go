package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// letIn checks the rights to a route, counts the request, and returns it with the principal in its context. An API key takes
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
	permit, err = s.Rates.take(w, r, &principal, route)
	return r, permit, err
}

func (s *Server) principal(r *http.Request) (identity.Principal, error) {
	raw, err := identity.Credential(r.Header)
	if errors.Is(err, identity.ErrNoKey) {
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

// checkRights reports whether the principal may use a route. The operator may act for a suspended organization.
func checkRights(principal *identity.Principal, route handlers.Route) error {
	switch {
	case principal.Suspended && principal.Operator == "":
		return handlers.Suspended()
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
		return &handlers.Error{Code: errcode.Forbidden, Message: fmt.Sprintf("This needs the role %s.", route.Role)}
	case route.Scope == "":
		return &handlers.Error{Code: errcode.Forbidden, Message: "This needs a login session: no API key has this right."}
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
