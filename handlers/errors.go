package handlers

import "net/http"

// Code is the stable machine name of an error (spec §7.2). Renaming one breaks clients.
type Code string

// The complete public set of spec §7.2, in its order.
const (
	// CodeInvalidRequest: invalid body or parameter; Error.Field names it.
	CodeInvalidRequest Code = "invalid_request"
	// CodeUnsupportedModel: the model doesn't exist or isn't enabled for the organization.
	CodeUnsupportedModel Code = "unsupported_model"
	// CodeContextTooLong: the conversation exceeds the model's context window.
	CodeContextTooLong Code = "context_too_long"
	// CodeUnauthenticated: no API key and no login session, or a wrong webhook signature.
	CodeUnauthenticated Code = "unauthenticated"
	// CodeInvalidAPIKey: the key is malformed, unknown or expired.
	CodeInvalidAPIKey Code = "invalid_api_key"
	// CodeAPIKeyRevoked: the key was valid but is revoked.
	CodeAPIKeyRevoked Code = "api_key_revoked"
	// CodeInsufficientCredits: the wallet has no funds; there is no debt.
	CodeInsufficientCredits Code = "insufficient_credits"
	// CodeOrganizationSuspended: the organization is suspended.
	CodeOrganizationSuspended Code = "organization_suspended"
	// CodePlanLimitExceeded: a limit of the plan is reached (channels, knowledge size, …).
	CodePlanLimitExceeded Code = "plan_limit_exceeded"
	// CodeInsufficientScope: the key is valid but lacks the scope.
	CodeInsufficientScope Code = "insufficient_scope"
	// CodeForbidden: wrong role, another organization's resource, or a failed webhook handshake.
	CodeForbidden Code = "forbidden"
	// CodeNotFound: no such resource in the organization; also every unknown path and method (design §6).
	CodeNotFound Code = "not_found"
	// CodeConflict: the state forbids it, typically a duplicate name.
	CodeConflict Code = "conflict"
	// CodeIdempotencyKeyReused: the Idempotency-Key was used with other content. Never retried.
	CodeIdempotencyKeyReused Code = "idempotency_key_reused"
	// CodeChannelNeedsReauth: the channel's platform token expired or was revoked.
	CodeChannelNeedsReauth Code = "channel_needs_reauth"
	// CodeServiceWindowExpired: beyond the platform's window for proactive messages.
	CodeServiceWindowExpired Code = "service_window_expired"
	// CodeTemplateRequired: outside the window only an approved template may be sent.
	CodeTemplateRequired Code = "template_required"
	// CodeRateLimited: the plan's requests per minute are used up.
	CodeRateLimited Code = "rate_limited"
	// CodeInternalError: a fault inside the service.
	CodeInternalError Code = "internal_error"
	// CodeProviderError: the model provider failed, or no key is configured for it.
	CodeProviderError Code = "provider_error"
	// CodeProviderOverloaded: the model provider is overloaded.
	CodeProviderOverloaded Code = "provider_overloaded"
	// CodeProviderTimeout: the model provider did not answer in time.
	CodeProviderTimeout Code = "provider_timeout"
)

// Status is the HTTP status of the code (spec §7.2), or 0 for a code that isn't in the public set.
func (c Code) Status() int {
	switch c {
	case CodeInvalidRequest, CodeUnsupportedModel, CodeContextTooLong:
		return http.StatusBadRequest
	case CodeUnauthenticated, CodeInvalidAPIKey, CodeAPIKeyRevoked:
		return http.StatusUnauthorized
	case CodeInsufficientCredits, CodeOrganizationSuspended, CodePlanLimitExceeded:
		return http.StatusPaymentRequired
	case CodeInsufficientScope, CodeForbidden:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeConflict, CodeIdempotencyKeyReused:
		return http.StatusConflict
	case CodeChannelNeedsReauth, CodeServiceWindowExpired, CodeTemplateRequired:
		return http.StatusUnprocessableEntity
	case CodeRateLimited:
		return http.StatusTooManyRequests
	case CodeInternalError:
		return http.StatusInternalServerError
	case CodeProviderError:
		return http.StatusBadGateway
	case CodeProviderOverloaded:
		return http.StatusServiceUnavailable
	case CodeProviderTimeout:
		return http.StatusGatewayTimeout
	default:
		return 0
	}
}

// Codes returns the complete public set in the order of spec §7.2.
func Codes() []Code {
	return []Code{
		CodeInvalidRequest, CodeUnsupportedModel, CodeContextTooLong,
		CodeUnauthenticated, CodeInvalidAPIKey, CodeAPIKeyRevoked,
		CodeInsufficientCredits, CodeOrganizationSuspended, CodePlanLimitExceeded,
		CodeInsufficientScope, CodeForbidden, CodeNotFound,
		CodeConflict, CodeIdempotencyKeyReused,
		CodeChannelNeedsReauth, CodeServiceWindowExpired, CodeTemplateRequired,
		CodeRateLimited, CodeInternalError,
		CodeProviderError, CodeProviderOverloaded, CodeProviderTimeout,
	}
}
