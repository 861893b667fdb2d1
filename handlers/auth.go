package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Authenticator tells who a raw API key belongs to, as [identity.Authenticator] does: [identity.ErrInvalidKey],
// [identity.ErrRevokedKey], or a fault of the service.
type Authenticator interface {
	Authenticate(ctx context.Context, raw string) (identity.Principal, error)
}

// Auth lets requests in that carry a good API key, and nobody else: login sessions count only in the endpoint
// groups, which package endpoint checks.
type Auth struct {
	Authenticator Authenticator
	// Scopes are the scopes that the key must have, all of them.
	Scopes []identity.Scope
}

type principalKey struct{}

// PrincipalFrom returns who makes the request, once [Auth] or an endpoint.Server has let it in.
func PrincipalFrom(ctx context.Context) (identity.Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(*identity.Principal)
	if !ok {
		return identity.Principal{}, false
	}
	return *p, true
}

// WithPrincipal is ctx with the principal, as [Auth] leaves it.
func WithPrincipal(ctx context.Context, p identity.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, &p)
}

// Serve checks the key and answers the request with the principal in its context. It writes nothing but headers. The
// checks come in this order: unauthenticated, invalid_api_key and api_key_revoked (401), then
// organization_suspended (402), then insufficient_scope (403). A store that fails is internal_error, never a 401.
func (a *Auth) Serve(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	r, _ = EnsureRequestID(w, r)
	raw, err := identity.Credential(r.Header)
	var p identity.Principal
	if err == nil {
		p, err = a.Authenticator.Authenticate(r.Context(), raw)
	}
	if err != nil {
		return nil, Challenge(w, KeyRefusal(err))
	}
	if p.Suspended {
		return nil, Suspended()
	}
	for _, scope := range a.Scopes {
		if !p.Can(scope, "") {
			return nil, LacksScope(scope)
		}
	}
	return r.WithContext(WithPrincipal(r.Context(), p)), nil
}

// Suspended returns the error of requests of a suspended organization: organization_suspended, 402.
func Suspended() error {
	return &Error{
		Code: errcode.OrganizationSuspended, Message: "The organization is suspended. Ask the operator of the service.",
	}
}

// LacksScope returns the error of a key without the scope: insufficient_scope, 403.
func LacksScope(scope identity.Scope) error {
	return &Error{Code: errcode.InsufficientScope, Message: fmt.Sprintf("This API key lacks the scope %s.", scope)}
}

// Challenge is err, with the header that RFC 9110 §11.6.1 wants with every 401.
func Challenge(w http.ResponseWriter, err error) error {
	if AsError(err).Code.Status() == http.StatusUnauthorized {
		w.Header().Set("Www-Authenticate", `Bearer realm="svc"`)
	}
	return err
}

// KeyRefusal turns the error of a check into an answer. What exactly is wrong with an invalid key is not told (S2).
func KeyRefusal(err error) error {
	answer := &Error{Cause: err}
	switch {
	case errors.Is(err, identity.ErrNoKey):
		answer.Code = errcode.Unauthenticated
		answer.Message = "No API key was given. Send it as Authorization: Bearer <API_KEY> or as X-Api-Key."
	case errors.Is(err, identity.ErrInvalidKey):
		answer.Code = errcode.InvalidAPIKey
		answer.Message = "The API key is not valid: it is malformed, unknown or expired."
	case errors.Is(err, identity.ErrRevokedKey):
		answer.Code = errcode.APIKeyRevoked
		answer.Message = "The API key is revoked."
	default:
		return Internal(fmt.Errorf("authenticating: %w", err))
	}
	return answer
}

// RequirePrincipal returns the principal of a request whose handler stands behind [Auth]. A route without [Auth] is a fault of
// the configuration and not of the client, so the error is internal_error.
func RequirePrincipal(r *http.Request) (identity.Principal, error) {
	p, ok := PrincipalFrom(r.Context())
	if !ok {
		return p, Internal(errors.New("the route has no svc_auth before this handler"))
	}
	return p, nil
}

// BadField is the answer to a value that identity refused.
func BadField(err error) error {
	if fault, ok := errors.AsType[*identity.FieldError](err); ok {
		return InvalidRequest(fault.Field, "%s %s.", fault.Field, fault.Problem)
	}
	return Internal(err)
}
