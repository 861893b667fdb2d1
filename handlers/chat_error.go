package handlers

import (
	"errors"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// outcomeCodes maps each ending of a call that is an error to its public code (spec §7.2, design §6). A client that
// left gets no answer; its code is only for the log.
var outcomeCodes = map[gateway.Outcome]Code{
	gateway.OutcomeUnsupportedModel:    CodeUnsupportedModel,
	gateway.OutcomeContextTooLong:      CodeContextTooLong,
	gateway.OutcomeInsufficientCredits: CodeInsufficientCredits,
	gateway.OutcomeTooManyCalls:        CodeRateLimited,
	gateway.OutcomeProviderBusy:        CodeProviderOverloaded,
	gateway.OutcomeKeyReused:           CodeIdempotencyKeyReused,
	gateway.OutcomeInFlight:            CodeConflict,
	gateway.OutcomeNotKept:             CodeConflict,
	gateway.OutcomeRequestTooLarge:     CodeInvalidRequest,
	gateway.OutcomeProviderError:       CodeProviderError,
	gateway.OutcomeProviderOverloaded:  CodeProviderOverloaded,
	gateway.OutcomeProviderTimeout:     CodeProviderTimeout,
	gateway.OutcomeClientGone:          CodeInternalError,
	gateway.OutcomeExiting:             CodeInternalError,
	gateway.OutcomeInternalError:       CodeInternalError,
}

// chatError is the public form of an error of [gateway.Gateway.Call]; w gets the mark of one that is a replay.
func chatError(w http.ResponseWriter, err error) *Error {
	var f *gateway.Failure
	if !errors.As(err, &f) {
		return Internal(err)
	}
	if f.Replayed {
		markReplayed(w.Header())
	}
	code, ok := outcomeCodes[f.Outcome]
	if !ok {
		return Internal(err)
	}
	return &Error{
		Code: code, Message: f.Message, Field: f.Field, RetryAfter: f.RetryAfter, NoRetry: f.NoRetry, Cause: f.Cause,
	}
}
