package v1

import (
	"errors"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// outcomeCodes has the public code of every outcome that is an error. A client that left gets no answer; its code is for the log
// only.
var outcomeCodes = map[gateway.Outcome]errcode.Code{
	gateway.OutcomeUnsupportedModel:    errcode.UnsupportedModel,
	gateway.OutcomeContextTooLong:      errcode.ContextTooLong,
	gateway.OutcomeInsufficientCredits: errcode.InsufficientCredits,
	gateway.OutcomeTooManyCalls:        errcode.RateLimited,
	gateway.OutcomeProviderBusy:        errcode.ProviderOverloaded,
	gateway.OutcomeKeyReused:           errcode.IdempotencyKeyReused,
	gateway.OutcomeInFlight:            errcode.Conflict,
	gateway.OutcomeNotKept:             errcode.Conflict,
	gateway.OutcomeRequestTooLarge:     errcode.InvalidRequest,
	gateway.OutcomeProviderError:       errcode.ProviderError,
	gateway.OutcomeProviderOverloaded:  errcode.ProviderOverloaded,
	gateway.OutcomeProviderTimeout:     errcode.ProviderTimeout,
	gateway.OutcomeClientGone:          errcode.InternalError,
	gateway.OutcomeExiting:             errcode.InternalError,
	gateway.OutcomeInternalError:       errcode.InternalError,
}

// chatError returns the public form of an error of [gateway.Gateway.Call], and marks a replayed one in w's headers.
func chatError(w http.ResponseWriter, err error) *handlers.Error {
	var f *gateway.Failure
	if !errors.As(err, &f) {
		return handlers.Internal(err)
	}
	if f.Replayed {
		handlers.MarkReplayed(w.Header())
	}
	code, ok := outcomeCodes[f.Outcome]
	if !ok {
		return handlers.Internal(err)
	}
	return &handlers.Error{
		Code: code, Message: f.Message, Field: f.Field, RetryAfter: f.RetryAfter, NoRetry: f.NoRetry, Cause: f.Cause,
	}
}
