package handlers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

func TestErrorTextForLogsHasFieldAndCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk full")
	e := &Error{Code: errcode.InvalidRequest, Message: "Bad.", Field: "stop", Cause: cause}
	require.Equal(t, "invalid_request: Bad. (stop): disk full", e.Error())
	require.ErrorIs(t, e, cause)
	require.Equal(t, "internal_error: "+internalMessage, Internal(nil).Error())
}

func TestAsErrorFindsOnlyErrorsOfTheContract(t *testing.T) {
	t.Parallel()
	e := NotFound("No %s.", "luck")
	require.Same(t, e, asError(fmt.Errorf("wrapped: %w", e)))
	other := errors.New("secret of the store")
	require.Equal(t, &Error{Code: errcode.InternalError, Cause: other}, asError(other))
	unknown := &Error{Code: "made_up", Message: "x"}
	require.Equal(t, &Error{Code: errcode.InternalError, Cause: unknown}, asError(unknown))
	require.Equal(t, errcode.InternalError, asError(nil).Code)
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
	want := map[int]errcode.Code{
		400: errcode.InvalidRequest, 401: errcode.Unauthenticated, 402: errcode.InvalidRequest, 403: errcode.Forbidden,
		404: errcode.NotFound, 405: errcode.NotFound, 409: errcode.Conflict, 413: errcode.InvalidRequest, 415: errcode.InvalidRequest,
		429: errcode.RateLimited, 500: errcode.InternalError, 502: errcode.InternalError, 503: errcode.InternalError,
		504: errcode.InternalError, 0: errcode.InternalError, 200: errcode.InternalError,
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
