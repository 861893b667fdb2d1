package handlers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// contractCodes is the table of spec §7.2, written out again.
func contractCodes() map[string]int {
	return map[string]int{
		"invalid_request": 400, "unsupported_model": 400, "context_too_long": 400,
		"unauthenticated": 401, "invalid_api_key": 401, "api_key_revoked": 401,
		"insufficient_credits": 402, "organization_suspended": 402, "plan_limit_exceeded": 402,
		"insufficient_scope": 403, "forbidden": 403,
		"not_found": 404,
		"conflict":  409, "idempotency_key_reused": 409,
		"channel_needs_reauth": 422, "service_window_expired": 422, "template_required": 422,
		"rate_limited":   429,
		"internal_error": 500,
		"provider_error": 502, "provider_overloaded": 503, "provider_timeout": 504,
	}
}

func TestCodesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	got := make(map[string]int)
	for _, code := range Codes() {
		got[string(code)] = code.Status()
	}
	require.Len(t, got, 22)
	require.Equal(t, contractCodes(), got)
	require.Zero(t, Code("made_up").Status())
}

func TestErrorTextForLogsHasFieldAndCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk full")
	e := &Error{Code: CodeInvalidRequest, Message: "Bad.", Field: "stop", Cause: cause}
	require.Equal(t, "invalid_request: Bad. (stop): disk full", e.Error())
	require.ErrorIs(t, e, cause)
	require.Equal(t, "internal_error: "+internalMessage, Internal(nil).Error())
}

func TestAsErrorFindsOnlyErrorsOfTheContract(t *testing.T) {
	t.Parallel()
	e := NotFound("No %s.", "luck")
	require.Same(t, e, asError(fmt.Errorf("wrapped: %w", e)))
	other := errors.New("secret of the store")
	require.Equal(t, &Error{Code: CodeInternalError, Cause: other}, asError(other))
	unknown := &Error{Code: "made_up", Message: "x"}
	require.Equal(t, &Error{Code: CodeInternalError, Cause: unknown}, asError(unknown))
	require.Equal(t, CodeInternalError, asError(nil).Code)
}

func TestRetryLater(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk full")
	for _, err := range []error{cause, Internal(cause)} {
		later := RetryLater(err, 30*time.Second)
		require.ErrorIs(t, later, cause)
		a := written(t, later, "")
		require.Equal(t, "internal_error", a.code())
		require.Equal(t, "30", a.header.Get("Retry-After"))
	}
	refusal, busy := NotFound("No."), Busy(time.Second, nil)
	require.Same(t, refusal, RetryLater(refusal, time.Minute))
	require.Same(t, busy, RetryLater(busy, time.Minute))
}

func TestFromStatus(t *testing.T) {
	t.Parallel()
	want := map[int]Code{
		400: CodeInvalidRequest, 401: CodeUnauthenticated, 402: CodeInvalidRequest, 403: CodeForbidden,
		404: CodeNotFound, 405: CodeNotFound, 409: CodeConflict, 413: CodeInvalidRequest, 415: CodeInvalidRequest,
		429: CodeRateLimited, 500: CodeInternalError, 502: CodeInternalError, 503: CodeInternalError,
		504: CodeInternalError, 0: CodeInternalError, 200: CodeInternalError,
	}
	for status, code := range want {
		e := FromStatus(status, "", errors.New("cause"))
		require.Equal(t, code, e.Code, status)
		require.NotEmpty(t, e.message(), status)
		require.EqualError(t, e.Cause, "cause")
	}
	require.Equal(t, "Mine.", FromStatus(404, "Mine.", nil).Message)
	require.Empty(t, FromStatus(502, "of the proxy", nil).Message)
}
