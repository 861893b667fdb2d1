package gateway

import (
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// Outcome names how a call ended. It is stored with the call and labels the metrics.
type Outcome string

// All endings of a call.
const (
	// OutcomeCompleted: the answer is whole and paid.
	OutcomeCompleted Outcome = "completed"
	// OutcomeUnsupportedModel: unknown, or not enabled for the organization.
	OutcomeUnsupportedModel Outcome = Outcome(errcode.UnsupportedModel)
	// OutcomeContextTooLong: the prompt exceeds the model's window, by our count or the vendor's word.
	OutcomeContextTooLong Outcome = Outcome(errcode.ContextTooLong)
	// OutcomeInsufficientCredits: the wallet can't carry the hold.
	OutcomeInsufficientCredits Outcome = Outcome(errcode.InsufficientCredits)
	// OutcomeTooManyCalls: as many calls of the organization run in this process as are allowed.
	OutcomeTooManyCalls Outcome = "too_many_calls"
	// OutcomeProviderBusy: as many calls to the provider run in this process as are allowed.
	OutcomeProviderBusy Outcome = "provider_busy"
	// OutcomeKeyReused: the Idempotency-Key was used for another content.
	OutcomeKeyReused Outcome = "key_reused"
	// OutcomeInFlight: the first request with this Idempotency-Key is still running.
	OutcomeInFlight Outcome = "in_flight"
	// OutcomeNotKept: the first request's answer was charged and is too long to be replayed.
	OutcomeNotKept Outcome = "not_kept"
	// OutcomeReplayed: an earlier request's answer was given again, at no further cost.
	OutcomeReplayed Outcome = "replayed"
	// OutcomeRequestTooLarge: the vendor refused the size of the request.
	OutcomeRequestTooLarge Outcome = "request_too_large"
	// OutcomeProviderError: the vendor failed, or there is no key for it.
	OutcomeProviderError Outcome = Outcome(errcode.ProviderError)
	// OutcomeProviderOverloaded: the vendor asked to come back later.
	OutcomeProviderOverloaded Outcome = Outcome(errcode.ProviderOverloaded)
	// OutcomeProviderTimeout: the vendor, or one of our timers, gave up.
	OutcomeProviderTimeout Outcome = Outcome(errcode.ProviderTimeout)
	// OutcomeClientGone: the caller left before the answer was whole.
	OutcomeClientGone Outcome = "client_gone"
	// OutcomeExiting: this process is shutting down and the grace period is over.
	OutcomeExiting Outcome = "exiting"
	// OutcomeInternalError: a fault of ours, mostly the store.
	OutcomeInternalError Outcome = Outcome(errcode.InternalError)
)

// Failure is every error of [Gateway.Call].
type Failure struct {
	Outcome Outcome
	// Message is public text: it names no vendor detail and no secret.
	Message string
	// Field names the request field at fault, empty if there is none.
	Field string
	// RetryAfter is a hint for the client, 0 for none.
	RetryAfter time.Duration
	// NoRetry: the same request can't succeed later.
	NoRetry bool
	// Replayed: the failure is that of an earlier request with the same Idempotency-Key.
	Replayed bool
	// Cause is for logs only.
	Cause error
}

// Error is for logs: it includes the cause, which may quote the vendor.
func (f *Failure) Error() string {
	if f.Cause == nil {
		return string(f.Outcome) + ": " + f.Message
	}
	return string(f.Outcome) + ": " + f.Message + ": " + f.Cause.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }
