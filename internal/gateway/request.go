package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Request is a validated call. The caller has checked the key, the limits and the fields.
type Request struct {
	// RequestID is the id of the HTTP request or turn, for logs.
	RequestID string
	OrgID     string
	KeyID     string
	// Env decides which of the organization's wallets pays.
	Env store.Env

	// KeyModels are the models that the key may use.
	KeyModels store.KeyModels
	// KeyConcurrent bounds the running calls of the key in this process; 0 means no bound.
	KeyConcurrent int64
	// AllModels means that the organization has no exceptions from the catalog, so they need not be read.
	AllModels bool
	// AgentID is the assistant that the call is for. It may be empty. BudgetVersion is the organization's when the call began: 0 means that it has
	// no budgets, so they need not be read.
	AgentID       string
	BudgetVersion int64

	// Model is the public id.
	Model       string
	Messages    []providers.Message
	Temperature *float64
	TopP        *float64
	// MaxTokens is the requested limit. 0 means the model's own.
	MaxTokens int64
	Stop      []string
	Stream    bool
	// BYOK means that the call uses the organization's own provider key and is free.
	BYOK bool
	// IdempotencyKey gives a repeated request the answer and the charge of the first one. It may be empty.
	IdempotencyKey string
	// Conversation may be empty. Calls with the same id go to the same endpoint of a model, if it works.
	Conversation string
	// Turn is the turn of a conversation that the call is for, in place of an IdempotencyKey. Nil means none.
	Turn *Turn
	// Sent may be nil. It is called once or more, from any goroutine, when the vendor has the prompt and the call no longer refers
	// to Messages, because a stream goes on for minutes without them. For that the call removes Messages from the Request. Sent
	// isn't called if the call ends before.
	Sent func()
	// Room, if not nil, reserves memory for the answer until the client has it, at least bytes in all, and reports whether there is room. It is
	// called before anything is held, for an answer in one piece with the bytes of its tokens and for the search of stop sequences, and before a
	// kept answer is read. Without room the outcome is [OutcomeTooManyCalls].
	Room func(bytes int64) bool
}

// ErrInterrupted is the cause with which a worker ends the context of a turn's call after a person has made its answer
// unnecessary.
var ErrInterrupted = errors.New("a person has taken the conversation or written in it")

// Turn lets a worker's turn begin and end in the transactions of its call's hold and settlement. So the call is paid exactly if
// its answer is stored or no longer wanted. Any other call without a complete answer costs nothing, because the turn is tried
// again.
type Turn struct {
	// Begin begins the turn, or its next call, with the hold. It is called before the vendor, and again if the hold is repeated
	// with a smaller amount. Its error ends the call.
	Begin func(ctx context.Context, callID string, commit Commit) error
	// End stores the outcome of the answer with the settlement. text is the complete answer of a call without a sink. After an
	// error before a successful commit, the hold remains until the turn's next call or until it expires.
	End func(text string, commit Commit) error
	// Cut ends the turn of a call that broke off because of [ErrInterrupted] after the vendor had begun. It commits with the
	// settlement of the text so far. Its error is as for End.
	Cut func(commit Commit) error
}

// Commit writes a step of a turn and the hold or settlement of its call in one transaction. It may be repeated after an error, and returns the
// error of [billing.Companion.Ruling] or a wrapped error of the store. It is nil if the call costs nothing.
type Commit func(ctx context.Context, step billing.Companion) error

// Head contains the values that every chunk of a stream repeats.
type Head struct {
	// ID is the completion's id, "chatcmpl-…".
	ID string
	// Created is in Unix seconds.
	Created int64
	// Model is the public id.
	Model string
	// Replayed means that the answer belongs to an earlier request with the same Idempotency-Key.
	Replayed bool
}

// Sink receives a streamed answer as it arrives. Its methods are never called concurrently or after Call has returned. All calls
// but an early Flush come from Call's goroutine. An error means that the client is gone.
type Sink interface {
	// Begin is called once, before the vendor is called. It should write nothing to the network: before the first Flush a failure
	// has a status of its own.
	Begin(head Head) error
	// Text receives a piece of the answer, which is never empty.
	Text(piece string) error
	// Flush sends all written text to the client. It is called when the next piece hasn't arrived yet, and, from another goroutine, when the first
	// one is slow ([Config.EarlyStatus]).
	Flush() error
}

// QuotedSink is a [Sink] that writes JSON.
type QuotedSink interface {
	Sink
	// Quoted may be called instead of Text for a piece that is passed on unchanged ([providers.Event]). piece equals the literal
	// that [providers.AppendQuoted] writes. It is valid until Quoted returns.
	Quoted(piece providers.JSONString) error
}

// Result is a complete and settled answer.
type Result struct {
	// ID is the completion's id, "chatcmpl-…".
	ID string
	// Created is in Unix seconds.
	Created int64
	// Model is the public id.
	Model string
	// Text is the complete answer of a call without a stream.
	Text         string
	FinishReason string
	Usage        billing.Usage
	// ChargedMicros is the amount that left the wallet.
	ChargedMicros int64
	BYOK          bool
	// Replayed means that the answer belongs to an earlier request with the same Idempotency-Key.
	Replayed bool
}

// Outcome names the end of a call. It is stored with the call and labels the metrics.
type Outcome string

const (
	// OutcomeCompleted means that the answer is complete and paid.
	OutcomeCompleted Outcome = "completed"
	// OutcomeUnsupportedModel means that the model is unknown or not enabled for the organization.
	OutcomeUnsupportedModel Outcome = Outcome(errcode.UnsupportedModel)
	// OutcomeContextTooLong means that the prompt exceeds the model's window, by our count or the vendor's.
	OutcomeContextTooLong Outcome = Outcome(errcode.ContextTooLong)
	// OutcomeInsufficientCredits means that the wallet can't carry the hold.
	OutcomeInsufficientCredits Outcome = Outcome(errcode.InsufficientCredits)
	// OutcomeBudgetExceeded means that a budget has too little left for the hold.
	OutcomeBudgetExceeded Outcome = Outcome(errcode.PlanLimitExceeded)
	// OutcomeTooManyCalls means that the organization or the key runs as many calls in this process as are allowed.
	OutcomeTooManyCalls Outcome = "too_many_calls"
	// OutcomeProviderBusy means that as many calls to the provider run in this process as are allowed.
	OutcomeProviderBusy Outcome = "provider_busy"
	// OutcomeKeyReused means that the Idempotency-Key was used with other content.
	OutcomeKeyReused Outcome = "key_reused"
	// OutcomeInFlight means that the first request with this Idempotency-Key is still running.
	OutcomeInFlight Outcome = "in_flight"
	// OutcomeNotKept means that the first request's answer was charged and is too long to be replayed.
	OutcomeNotKept Outcome = "not_kept"
	// OutcomeReplayed means that an earlier request's answer was replayed, at no further cost.
	OutcomeReplayed Outcome = "replayed"
	// OutcomeRequestTooLarge means that the vendor refused the size of the request.
	OutcomeRequestTooLarge Outcome = "request_too_large"
	// OutcomeInvalidRequest means that the model can't take the request as it is. Nothing was sent to the vendor.
	OutcomeInvalidRequest Outcome = Outcome(errcode.InvalidRequest)
	// OutcomeProviderError means that the vendor failed, or that there is no key for it.
	OutcomeProviderError Outcome = Outcome(errcode.ProviderError)
	// OutcomeProviderOverloaded means that the vendor asked for a later try.
	OutcomeProviderOverloaded Outcome = Outcome(errcode.ProviderOverloaded)
	// OutcomeProviderTimeout means that the vendor or one of our timers gave up.
	OutcomeProviderTimeout Outcome = Outcome(errcode.ProviderTimeout)
	// OutcomeClientGone means that the client left before the answer was complete.
	OutcomeClientGone Outcome = "client_gone"
	// OutcomeExiting means that this process is shutting down and the grace period is over.
	OutcomeExiting Outcome = "exiting"
	// OutcomeInternalError means a fault of ours, mostly of the store.
	OutcomeInternalError Outcome = Outcome(errcode.InternalError)
)

// Failure is every error of [Gateway.Call].
type Failure struct {
	Outcome Outcome
	// Message is public text. It contains no vendor detail and no secret.
	Message string
	// Field names the request field at fault. It may be empty.
	Field string
	// RetryAfter is a hint for the client. 0 means none.
	RetryAfter time.Duration
	// NoRetry means that the same request can't succeed later.
	NoRetry bool
	// Replayed means that the failure belongs to an earlier request with the same Idempotency-Key.
	Replayed bool
	// Cause is for logs only.
	Cause error
}

// Error describes the failure for logs, with the cause, which may quote the vendor.
func (f *Failure) Error() string {
	if f.Cause == nil {
		return string(f.Outcome) + ": " + f.Message
	}
	return string(f.Outcome) + ": " + f.Message + ": " + f.Cause.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// failure returns the public form of an error of the preparation or of the vendor's call.
func (c *call) failure(ctx context.Context, err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if !c.upstreamAt.IsZero() {
		return c.vendorFailure(err)
	}
	if budget, ok := errors.AsType[*billing.BudgetError](err); ok {
		return final(OutcomeBudgetExceeded, "", budget.Error())
	}
	f := &Failure{Outcome: OutcomeInternalError, Cause: err}
	switch {
	case errors.Is(err, billing.ErrInsufficientCredits):
		return final(OutcomeInsufficientCredits, "", "The wallet has too few credits for this call; top it up or lower max_tokens.")
	case errors.Is(err, billing.ErrKeyReused):
		return final(OutcomeKeyReused, "", "This Idempotency-Key was already used with different content.")
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
	if _, ok := errors.AsType[*providers.Error](err); !ok {
		return &Failure{Outcome: OutcomeInternalError, Message: "The service failed.", Cause: err}
	}
	p := faultOf(err)
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
		return &Failure{Outcome: OutcomeProviderTimeout, Message: "The model provider did not answer in time.", Cause: err}
	case providers.FailureContextTooLong:
		f := c.contextTooLong()
		f.Cause = err
		return f
	case providers.FailureRequestTooLarge:
		f := final(OutcomeRequestTooLarge, "messages", "The model provider refused the size of the request.")
		f.Cause = err
		return f
	case providers.FailureInvalid:
		if p.Invalid != nil {
			return &Failure{Outcome: OutcomeInvalidRequest, Field: p.Invalid.Field, Message: p.Invalid.Message, NoRetry: true, Cause: err}
		}
	case providers.FailureRefused, providers.FailureUnreachable, providers.FailureBroken:
	}
	return &Failure{
		Outcome: OutcomeProviderError, Message: "The model provider returned an error.", NoRetry: p.Permanent, Cause: err,
	}
}

// faultOf returns the error of an adapter. Adapters that keep the contract return no other.
func faultOf(err error) *providers.Error {
	fault, ok := errors.AsType[*providers.Error](err)
	switch {
	case !ok:
		return &providers.Error{Failure: providers.FailureBroken, Elsewhere: true, Cause: err}
	case fault.Failure == providers.FailureCanceled && (errors.Is(err, errBudget) || errors.Is(err, errSilent)):
		return &providers.Error{Failure: providers.FailureTimeout, Elsewhere: true, Cause: err}
	}
	return fault
}

// movesOn reports whether another endpoint may answer the call. The same fault lets its endpoint cool.
func movesOn(fault *providers.Error) bool {
	ofRequest := []providers.Failure{
		providers.FailureContextTooLong, providers.FailureRequestTooLarge, providers.FailureInvalid, providers.FailureCanceled,
	}
	return fault.Elsewhere && !slices.Contains(ofRequest, fault.Failure)
}

// overloadedRetryAfter returns the vendor's Retry-After, clamped to 1 to 60 s, or 5 s without one.
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

// final returns the failure of a request that can't succeed later. field may be empty.
func final(outcome Outcome, field, message string) *Failure {
	return &Failure{Outcome: outcome, Field: field, Message: message, NoRetry: true}
}

func unsupportedModel() *Failure {
	return final(OutcomeUnsupportedModel, "model",
		"The model does not exist or is not enabled for the organization; GET /v1/models lists the enabled ones.")
}

func (c *call) contextTooLong() *Failure {
	return final(OutcomeContextTooLong, "messages",
		fmt.Sprintf("This model's maximum context length is %d tokens, and the messages exceed it.", c.model.ContextWindow))
}
