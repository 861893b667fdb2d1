package handlers_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// standardText is the public message of a fault of the service.
const standardText = "The service failed to handle the request. Quote the requestId when you report this."

func TestErrorTextForLogsHasFieldAndCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk full")
	e := &handlers.Error{Code: errcode.InvalidRequest, Message: "Bad.", Field: "stop", Cause: cause}
	require.Equal(t, "invalid_request: Bad. (stop): disk full", e.Error())
	require.ErrorIs(t, e, cause)
	require.Equal(t, "internal_error: "+standardText, handlers.Internal(nil).Error())
}

func TestAsErrorFindsOnlyErrorsOfTheContract(t *testing.T) {
	t.Parallel()
	e := handlers.NotFound("No %s.", "luck")
	require.Same(t, e, handlers.AsError(fmt.Errorf("wrapped: %w", e)))
	other := errors.New("secret of the store")
	require.Equal(t, &handlers.Error{Code: errcode.InternalError, Cause: other}, handlers.AsError(other))
	unknown := &handlers.Error{Code: "made_up", Message: "x"}
	require.Equal(t, &handlers.Error{Code: errcode.InternalError, Cause: unknown}, handlers.AsError(unknown))
	require.Equal(t, errcode.InternalError, handlers.AsError(nil).Code)
}

func TestRetryLater(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk full")
	for _, err := range []error{cause, handlers.Internal(cause)} {
		later := handlers.RetryLater(err, 30*time.Second)
		require.ErrorIs(t, later, cause)
		a := handlertest.Written(t, later, "")
		require.Equal(t, "internal_error", a.Code())
		require.Equal(t, "30", a.Header.Get("Retry-After"))
	}
	refusal, busy := handlers.NotFound("No."), handlers.Busy(time.Second, nil)
	require.Same(t, refusal, handlers.RetryLater(refusal, time.Minute))
	require.Same(t, busy, handlers.RetryLater(busy, time.Minute))
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
		e := handlers.FromStatus(status, "", errors.New("cause"))
		require.Equal(t, code, e.Code, status)
		message := e.PublicMessage()
		require.NotEmpty(t, message, status)
		require.EqualError(t, e.Cause, "cause")
	}
	require.Equal(t, "Mine.", handlers.FromStatus(404, "Mine.", nil).Message)
	require.Empty(t, handlers.FromStatus(502, "of the proxy", nil).Message)
}
