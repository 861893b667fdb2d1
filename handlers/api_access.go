package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// letIn checks the rights to a route and answers the request with the principal in its context. An API key that is given
// decides, whatever cookies come with it; without one the login session does.
func (a *API) letIn(w http.ResponseWriter, r *http.Request, route Route) (*http.Request, error) {
	r, _ = EnsureRequestID(w, r)
	if route.Public {
		return r.WithContext(context.WithValue(r.Context(), exchangeKey{}, &exchange{w, r})), nil
	}
	caller, err := a.caller(r)
	if err != nil {
		return nil, err
	}
	if caller.Suspended {
		return nil, suspended()
	}
	if !caller.Can(route.Scope, route.Role) {
		return nil, refuseRights(&caller, route)
	}
	if caller.KeyID != "" && caller.Env == store.Test && actsLive(route.Scope) {
		return nil, &Error{
			Code:    errcode.Forbidden,
			Message: "A key of the test environment can't change agents, channels and conversations, which are live. Use a live key, or sign in.",
		}
	}
	ctx := WithPrincipal(r.Context(), caller)
	if caller.UserID != "" {
		ctx = context.WithValue(ctx, exchangeKey{}, &exchange{w, r})
	}
	return r.WithContext(ctx), nil
}

// actsLive reports whether a scope allows changes to agents, channels or conversations, which exist in the live environment
// only: they decide how customers are answered, and the answers cost live credits.
func actsLive(scope identity.Scope) bool {
	return scope == identity.AgentsWrite || scope == identity.ChannelsWrite || scope == identity.ConversationsWrite
}

func (a *API) caller(r *http.Request) (identity.Principal, error) {
	raw, err := identity.Credential(r.Header)
	if errors.Is(err, identity.ErrNoKey) {
		return a.Sessions.Principal(r)
	}
	var caller identity.Principal
	if err == nil {
		caller, err = a.Authenticator.Authenticate(r.Context(), raw)
	}
	if err != nil {
		return identity.Principal{}, keyRefusal(err)
	}
	return caller, nil
}

// refuseRights says what the caller lacks.
func refuseRights(caller *identity.Principal, route Route) error {
	switch {
	case caller.UserID != "":
		return &Error{Code: errcode.Forbidden, Message: fmt.Sprintf("This needs the role %s.", route.Role)}
	case route.Scope == "":
		return &Error{Code: errcode.Forbidden, Message: "This needs a login session: no API key has this right."}
	default:
		return lacksScope(route.Scope)
	}
}

type exchangeKey struct{}

// exchange is the request of a route that works with cookies, and where its answer goes.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

// exchangeFrom is the exchange of a public route, or of a person's.
func exchangeFrom(ctx context.Context) (*exchange, error) {
	e, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, Internal(errors.New("the route is neither public nor a person's"))
	}
	return e, nil
}
