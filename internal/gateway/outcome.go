package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
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
	// OutcomeClientGone: the client left before the answer was whole.
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
	// RetryAfter is a hint for the client. 0 means none.
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

// failure returns the public form of an error of the preparation or the vendor's call.
func (c *call) failure(ctx context.Context, err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if !c.upstreamAt.IsZero() {
		return c.vendorFailure(err)
	}
	f := &Failure{Outcome: OutcomeInternalError, Cause: err}
	switch {
	case errors.Is(err, billing.ErrInsufficientCredits):
		return &Failure{
			Outcome: OutcomeInsufficientCredits, NoRetry: true,
			Message: "The wallet has too few credits for this call; top it up or lower max_tokens.",
		}
	case errors.Is(err, billing.ErrKeyReused):
		return &Failure{
			Outcome: OutcomeKeyReused, NoRetry: true,
			Message: "This Idempotency-Key was already used with different content.",
		}
	case errors.Is(err, billing.ErrKeyInFlight):
		return &Failure{
			Outcome: OutcomeInFlight,
			Message: "The first request with this Idempotency-Key is still running; its answer is there when it has ended.",
		}
	case errors.Is(err, errUncounted):
		f.Message = "The service is too busy to count the tokens that the wallet could pay for; the model was not called."
		f.RetryAfter = time.Second
	case ctx.Err() != nil:
		return clientGone(err)
	case errors.Is(err, store.ErrBusy):
		f.Message, f.RetryAfter = "The service is busy; the model was not called. Try again shortly.", store.RetryAfter
	case errors.Is(err, billing.ErrCreditsInTranches):
		f.Message, f.RetryAfter = "The service is waiting for credits that another server still holds; the model was not called. "+
			"Try again shortly.", store.RetryAfter
	case errors.Is(err, store.ErrCommitUnknown):
		f.Message, f.RetryAfter = "The service failed; the model was not called. Try again shortly.", store.RetryAfter
	default:
		f.Message = "The service failed; the model was not called."
	}
	return f
}

// vendorFailure returns the public form of an adapter's error.
func (c *call) vendorFailure(err error) *Failure {
	p, ok := errors.AsType[*providers.Error](err)
	if !ok {
		return &Failure{Outcome: OutcomeInternalError, Message: "The service failed.", Cause: err}
	}
	if p.Detail != "" {
		c.Logger.Debug("what the vendor said", "call", c.id, "request_id", c.req.RequestID, "vendor", p.Detail)
	}
	switch p.Failure {
	case providers.FailureCanceled:
		if errors.Is(err, ErrExiting) {
			return &Failure{Outcome: OutcomeExiting, Message: "The service is shutting down.", Cause: err}
		}
		return clientGone(err)
	case providers.FailureOverloaded:
		return &Failure{
			Outcome: OutcomeProviderOverloaded, Message: "The model provider is overloaded.",
			RetryAfter: overloadedRetryAfter(p.RetryAfter), Cause: err,
		}
	case providers.FailureTimeout:
		return &Failure{
			Outcome: OutcomeProviderTimeout, Message: "The model provider did not answer in time.", Cause: err,
		}
	case providers.FailureContextTooLong:
		f := c.contextTooLong()
		f.Cause = err
		return f
	case providers.FailureRequestTooLarge:
		return &Failure{
			Outcome: OutcomeRequestTooLarge, Field: "messages", NoRetry: true,
			Message: "The model provider refused the size of the request.", Cause: err,
		}
	case providers.FailureRefused, providers.FailureUnreachable, providers.FailureBroken:
	}
	return &Failure{
		Outcome: OutcomeProviderError, Message: "The model provider returned an error.", NoRetry: p.Permanent, Cause: err,
	}
}

// overloadedRetryAfter returns the vendor's Retry-After within 1 to 60 s, else 5 s.
func overloadedRetryAfter(wish time.Duration) time.Duration {
	if wish <= 0 {
		return 5 * time.Second
	}
	return min(max(wish, time.Second), time.Minute)
}

// clientGone returns the failure of a call after its client left.
func clientGone(err error) *Failure {
	return &Failure{Outcome: OutcomeClientGone, Message: "The client closed the connection.", Cause: err}
}

func unsupportedModel() *Failure {
	return &Failure{
		Outcome: OutcomeUnsupportedModel, Field: "model", NoRetry: true,
		Message: "The model does not exist or is not enabled for the organization; GET /v1/models lists the enabled ones.",
	}
}

func (c *call) contextTooLong() *Failure {
	return &Failure{
		Outcome: OutcomeContextTooLong, Field: "messages", NoRetry: true,
		Message: fmt.Sprintf("This model's maximum context length is %d tokens, and the messages exceed it.",
			c.model.ContextWindow),
	}
}

func noKey(message string) *Failure {
	return &Failure{Outcome: OutcomeProviderError, NoRetry: true, Message: message}
}
