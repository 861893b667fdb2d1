// Package errcode is the one table of the public error codes: their names, HTTP statuses, and what is sent with them when the
// cause of an error says nothing more exact. Whatever names a code in an answer, in a row of the store or on a page takes it
// from here. What a client and an operator do about each code is written in docs/failure-modes.md, which /docs shows. docs/contract.md and
// contractCodes in this package's test repeat the table: they follow a change.
package errcode

import (
	"net/http"
	"time"
)

// Code is the stable machine name of an error. Renaming one breaks clients.
type Code string

// The complete public set.
const (
	// InvalidRequest: the body or a parameter breaks a rule; the error names the field.
	InvalidRequest Code = "invalid_request"
	// UnsupportedModel: the model doesn't exist or isn't enabled for the organization.
	UnsupportedModel Code = "unsupported_model"
	// ContextTooLong: the conversation exceeds the model's context window.
	ContextTooLong Code = "context_too_long"
	// Unauthenticated: no API key and no login session, or a wrong webhook signature.
	Unauthenticated Code = "unauthenticated"
	// InvalidAPIKey: the key is malformed, unknown or expired.
	InvalidAPIKey Code = "invalid_api_key"
	// APIKeyRevoked: the key was valid but is revoked.
	APIKeyRevoked Code = "api_key_revoked"
	// InsufficientCredits: the wallet has no funds; there is no debt.
	InsufficientCredits Code = "insufficient_credits"
	// OrganizationSuspended: the organization is suspended.
	OrganizationSuspended Code = "organization_suspended"
	// PlanLimitExceeded: a limit of the plan is reached (channels, knowledge size, …).
	PlanLimitExceeded Code = "plan_limit_exceeded"
	// InsufficientScope: the key is valid but lacks the scope.
	InsufficientScope Code = "insufficient_scope"
	// Forbidden: wrong role, another organization's resource, or a failed webhook handshake.
	Forbidden Code = "forbidden"
	// NotFound: no such resource in the organization; also every unknown path and method.
	NotFound Code = "not_found"
	// Conflict: the state forbids it, typically a duplicate name.
	Conflict Code = "conflict"
	// IdempotencyKeyReused: the Idempotency-Key was used with other content. Never retried.
	IdempotencyKeyReused Code = "idempotency_key_reused"
	// ChannelNeedsReauth: the channel's platform token expired or was revoked.
	ChannelNeedsReauth Code = "channel_needs_reauth"
	// ServiceWindowExpired: beyond the platform's window for proactive messages.
	ServiceWindowExpired Code = "service_window_expired"
	// TemplateRequired: outside the window only an approved template may be sent.
	TemplateRequired Code = "template_required"
	// RateLimited: the plan's requests per minute are used up.
	RateLimited Code = "rate_limited"
	// InternalError: a fault inside the service.
	InternalError Code = "internal_error"
	// ProviderError: the model provider failed, or no key is configured for it.
	ProviderError Code = "provider_error"
	// ProviderOverloaded: the model provider is overloaded.
	ProviderOverloaded Code = "provider_overloaded"
	// ProviderTimeout: the model provider did not answer in time.
	ProviderTimeout Code = "provider_timeout"
)

// entry has the properties that follow from a code alone.
type entry struct {
	code   Code
	status int
	// retryAfter is the wait that is sent when the cause has no better one; 0 sends none.
	retryAfter time.Duration
	// final: the same request can't succeed later.
	final bool
}

// table has all codes in the order in which they are documented.
var table = [...]entry{
	{code: InvalidRequest, status: http.StatusBadRequest},
	{code: UnsupportedModel, status: http.StatusBadRequest},
	{code: ContextTooLong, status: http.StatusBadRequest},
	{code: Unauthenticated, status: http.StatusUnauthorized},
	{code: InvalidAPIKey, status: http.StatusUnauthorized},
	{code: APIKeyRevoked, status: http.StatusUnauthorized},
	{code: InsufficientCredits, status: http.StatusPaymentRequired},
	{code: OrganizationSuspended, status: http.StatusPaymentRequired},
	{code: PlanLimitExceeded, status: http.StatusPaymentRequired},
	{code: InsufficientScope, status: http.StatusForbidden},
	{code: Forbidden, status: http.StatusForbidden},
	{code: NotFound, status: http.StatusNotFound},
	{code: Conflict, status: http.StatusConflict},
	{code: IdempotencyKeyReused, status: http.StatusConflict, final: true},
	{code: ChannelNeedsReauth, status: http.StatusUnprocessableEntity},
	{code: ServiceWindowExpired, status: http.StatusUnprocessableEntity},
	{code: TemplateRequired, status: http.StatusUnprocessableEntity},
	{code: RateLimited, status: http.StatusTooManyRequests, retryAfter: time.Second},
	{code: InternalError, status: http.StatusInternalServerError},
	{code: ProviderError, status: http.StatusBadGateway},
	{code: ProviderOverloaded, status: http.StatusServiceUnavailable, retryAfter: 5 * time.Second},
	{code: ProviderTimeout, status: http.StatusGatewayTimeout},
}

// entries finds a code's entry in table.
var entries = func() map[Code]entry {
	byCode := make(map[Code]entry, len(table))
	for _, e := range table {
		byCode[e.code] = e
	}
	return byCode
}()

// All returns the complete public set in the order in which it is documented.
func All() []Code {
	codes := make([]Code, len(table))
	for i, e := range table {
		codes[i] = e.code
	}
	return codes
}

// Status returns the HTTP status of the code, or 0 for a code that isn't in the public set.
func (c Code) Status() int { return entries[c].status }

// RetryAfter returns the wait that is sent with the code when the cause of the error has no better one; 0 is none.
func (c Code) RetryAfter() time.Duration { return entries[c].retryAfter }

// Final reports whether the same request can't succeed later, whatever the cause.
func (c Code) Final() bool { return entries[c].final }

// OfStatus returns the code that fits an HTTP status without a cause of ours, like Caddy's own 404 or 413. Every 5xx is
// InternalError, because only a model provider of ours can be a ProviderError, and every other 4xx is InvalidRequest.
func OfStatus(status int) Code {
	switch status {
	case http.StatusUnauthorized:
		return Unauthenticated
	case http.StatusForbidden:
		return Forbidden
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return NotFound
	case http.StatusConflict:
		return Conflict
	case http.StatusTooManyRequests:
		return RateLimited
	}
	if status < 400 || status >= 500 {
		return InternalError
	}
	return InvalidRequest
}
