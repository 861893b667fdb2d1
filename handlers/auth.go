package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Authenticator returns the principal of a raw API key, as [identity.Authenticator] does. The errors are
// [identity.ErrInvalidKey], [identity.ErrRevokedKey], and faults of the service.
type Authenticator interface {
	Authenticate(ctx context.Context, raw string) (identity.Principal, error)
}

// Auth admits requests with a valid API key and refuses all others. Login sessions are valid only for the endpoint groups, where
// package endpoint checks them.
type Auth struct {
	Authenticator Authenticator
	// Scopes are required of the key, all of them.
	Scopes []identity.Scope
}

type principalKey struct{}

// PrincipalFrom returns the principal of a request that [Auth] or an endpoint.Server has admitted.
func PrincipalFrom(ctx context.Context) (identity.Principal, bool) {
	principal, ok := ctx.Value(principalKey{}).(*identity.Principal)
	if !ok {
		return identity.Principal{}, false
	}
	return *principal, true
}

// WithPrincipal returns ctx with the principal, as [Auth] does.
func WithPrincipal(ctx context.Context, principal identity.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, &principal)
}

// Caller is who sent a request, for logs. Its fields are empty if they are unknown or don't apply.
type Caller struct{ OrgID, KeyID, UserID string }

// CallerOf returns the principal as a caller.
func CallerOf(principal *identity.Principal) Caller {
	return Caller{OrgID: principal.OrgID, KeyID: principal.KeyID, UserID: principal.UserID}
}

// Refused returns the error with the caller of the refused request.
func (c Caller) Refused(err error) error {
	refused := *AsError(err)
	refused.Caller = c
	return &refused
}

// Serve checks the key and returns the request with the principal in its context. It writes nothing but headers. The order of
// the checks is: unauthenticated, invalid_api_key and api_key_revoked (401), organization_suspended (402), insufficient_scope
// (403). A failure of the store is internal_error, never a 401.
func (a *Auth) Serve(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	ctx, _, _ := ensureRequestID(r.Context(), w)
	raw, err := identity.Credential(r.Header)
	var principal identity.Principal
	if err == nil {
		principal, err = a.Authenticator.Authenticate(ctx, raw)
	}
	if err != nil {
		return nil, Challenge(w, KeyRefusal(err))
	}
	if principal.Suspended {
		return nil, CallerOf(&principal).Refused(Suspended(""))
	}
	for _, scope := range a.Scopes {
		if !principal.Can(scope, "") {
			return nil, CallerOf(&principal).Refused(LacksScope(scope))
		}
	}
	return r.WithContext(WithPrincipal(ctx, principal)), nil
}

// Suspended returns the error of requests of a suspended organization: organization_suspended, 402. reason may be empty.
func Suspended(reason string) error {
	message := "The organization is suspended. Ask the operator of the service."
	if reason != "" {
		message += " The operator's reason: " + reason
	}
	return &Error{Code: errcode.OrganizationSuspended, Message: message}
}

// LacksScope returns the error of a key without the scope: insufficient_scope, 403.
func LacksScope(scope identity.Scope) error {
	return &Error{Code: errcode.InsufficientScope, Message: fmt.Sprintf("This API key lacks the scope %s.", scope)}
}

// OperatorLacksScope returns the error of an operator without the scope: insufficient_scope, 403. No operator has the empty scope.
func OperatorLacksScope(scope identity.OperatorScope) error {
	if scope == "" {
		return &Error{Code: errcode.Forbidden, Message: "Only the command line of the service has this right."}
	}
	return &Error{Code: errcode.InsufficientScope, Message: fmt.Sprintf("This operator lacks the scope %s.", scope)}
}

// LiveOnly returns the error of a key of the test environment where only live data can be read or changed: forbidden, 403.
func LiveOnly() error {
	return &Error{
		Code:    errcode.Forbidden,
		Message: "A key of the test environment can't do this, because it would read or change what is live. Use a live key, or sign in.",
	}
}

// Challenge returns err and sets the header WWW-Authenticate, which RFC 9110, section 11.6.1, requires of every 401.
func Challenge(w http.ResponseWriter, err error) error {
	if AsError(err).Code.Status() == http.StatusUnauthorized {
		w.Header().Set("Www-Authenticate", `Bearer realm="svc"`)
	}
	return err
}

// keyErrors are the public forms of the errors of keys. The text is the same for all invalid keys, so that guessing a key teaches nothing.
var keyErrors = []publicForm{
	{identity.ErrNoKey, Error{
		Code: errcode.Unauthenticated, Message: "No API key was given. Send it as Authorization: Bearer <API_KEY> or as X-Api-Key.",
	}},
	{identity.ErrInvalidKey, Error{Code: errcode.InvalidAPIKey, Message: "The API key is not valid: it is malformed, unknown or expired."}},
	{identity.ErrRevokedKey, Error{Code: errcode.APIKeyRevoked, Message: "The API key is revoked."}},
}

// KeyRefusal returns the public error of a failed check.
func KeyRefusal(err error) error {
	if refusal := publicError(keyErrors, err); refusal != nil {
		return refusal
	}
	return Internal(fmt.Errorf("authenticating: %w", err))
}

// RequirePrincipal returns the principal of a request to a handler behind [Auth]. A route without [Auth] is a fault of the
// configuration and not of the client, so the error is internal_error.
func RequirePrincipal(r *http.Request) (identity.Principal, error) {
	principal, ok := PrincipalFrom(r.Context())
	if !ok {
		return principal, Internal(errors.New("the route has no svc_auth before this handler"))
	}
	return principal, nil
}

// BadField returns the public error of a value that package identity refused: invalid_request with the field.
func BadField(err error) error {
	if fault, ok := errors.AsType[*identity.FieldError](err); ok {
		return InvalidRequest(fault.Field, "%s %s.", fault.Field, fault.Problem)
	}
	return Internal(err)
}
