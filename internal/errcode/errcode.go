// Package errcode is the table of the public error codes: their names, HTTP statuses, and defaults that are sent if the cause of
// an error contains nothing more exact. Answers, rows of the store and pages use the codes from here. docs/failure-modes.md,
// which /docs shows, says what a client and an operator do about each code. docs/contract.md and contractCodes in this package's
// test repeat the table and must follow a change.
package errcode

import (
	"net/http"
	"time"
)

// Code is the stable machine name of an error. A new name for a code breaks clients.
type Code string

// The complete public set.
const (
	// InvalidRequest means that the body or a parameter breaks a rule. The error names the field.
	InvalidRequest Code = "invalid_request"
	// UnsupportedModel means that the model doesn't exist or isn't enabled for the organization.
	UnsupportedModel Code = "unsupported_model"
	// ContextTooLong means that the conversation exceeds the model's context window.
	ContextTooLong Code = "context_too_long"
	// Unauthenticated means that there is no API key and no login session, or that a webhook signature is wrong.
	Unauthenticated Code = "unauthenticated"
	// InvalidAPIKey means that the key is malformed, unknown or expired.
	InvalidAPIKey Code = "invalid_api_key"
	// APIKeyRevoked means that the key was valid and has been revoked.
	APIKeyRevoked Code = "api_key_revoked"
	// InsufficientCredits means that the wallet has no funds. There is no debt.
	InsufficientCredits Code = "insufficient_credits"
	// OrganizationSuspended means that the organization is suspended.
	OrganizationSuspended Code = "organization_suspended"
	// PlanLimitExceeded means that a limit of the plan is reached (channels, knowledge size, …).
	PlanLimitExceeded Code = "plan_limit_exceeded"
	// InsufficientScope means that the key is valid but lacks the scope.
	InsufficientScope Code = "insufficient_scope"
	// Forbidden means a wrong role, another organization's resource, or a failed webhook handshake.
	Forbidden Code = "forbidden"
	// NotFound means that the organization has no such resource. It is also the code of every unknown path and method.
	NotFound Code = "not_found"
	// Conflict means that the state forbids the request, typically a duplicate name.
	Conflict Code = "conflict"
	// IdempotencyKeyReused means that the Idempotency-Key was used with other content. The request must never be retried.
	IdempotencyKeyReused Code = "idempotency_key_reused"
	// ChannelNeedsReauth means that the channel's platform token expired or was revoked.
	ChannelNeedsReauth Code = "channel_needs_reauth"
	// ServiceWindowExpired means that the platform's window for proactive messages has ended.
	ServiceWindowExpired Code = "service_window_expired"
	// TemplateRequired means that only an approved template may be sent, because the window has ended.
	TemplateRequired Code = "template_required"
	// RateLimited means that the plan's requests per minute are used up.
	RateLimited Code = "rate_limited"
	// InternalError means a fault inside the service.
	InternalError Code = "internal_error"
	// ProviderError means that the model provider failed, or that no key is configured for it.
	ProviderError Code = "provider_error"
	// ProviderOverloaded means that the model provider is overloaded.
	ProviderOverloaded Code = "provider_overloaded"
	// ProviderTimeout means that the model provider did not answer in time.
	ProviderTimeout Code = "provider_timeout"
)

// entry has the properties of a code that are the same for all causes.
type entry struct {
	code   Code
	status int
	// retryAfter is the wait that is sent if the cause contains none. 0 means that none is sent.
	retryAfter time.Duration
	// final means that the same request can't succeed later.
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

// Status returns the HTTP status of the code. It returns 0 if the code isn't in the public set.
func (c Code) Status() int { return entries[c].status }

// RetryAfter returns the wait that is sent with the code if the cause of the error contains none. 0 means that none is sent.
func (c Code) RetryAfter() time.Duration { return entries[c].retryAfter }

// Final reports whether the same request can't succeed later, whatever the cause.
func (c Code) Final() bool { return entries[c].final }

// OfStatus returns the code for an HTTP status that has no cause of ours, such as Caddy's own 404 or 413. Every 5xx is
// InternalError, because only a model provider of ours can be a ProviderError. Every other 4xx is InvalidRequest.
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
