package providers

import (
	"strconv"
	"strings"
	"time"
)

// Failure says what went wrong with a model call, from the caller's point of view.
type Failure string

// The failures an adapter can report; the gateway maps each to one public code (design §6).
const (
	// FailureRefused: the vendor answered with an error, or with something that is no answer. → provider_error.
	FailureRefused Failure = "refused"
	// FailureUnreachable: no connection, or it broke. → provider_error.
	FailureUnreachable Failure = "unreachable"
	// FailureOverloaded: 429, 503, 529, or the same said in a stream. → provider_overloaded.
	FailureOverloaded Failure = "overloaded"
	// FailureTimeout: 408, 504, or one of our timers. → provider_timeout.
	FailureTimeout Failure = "timeout"
	// FailureContextTooLong: the vendor says that the prompt exceeds the model's window. → context_too_long.
	FailureContextTooLong Failure = "context_too_long"
	// FailureRequestTooLarge: 413. → invalid_request, field messages.
	FailureRequestTooLarge Failure = "request_too_large"
	// FailureCanceled: the caller's context ended; its cause is wrapped. No fault of the vendor.
	FailureCanceled Failure = "canceled"
)

// Error is every error of a [Provider]. It is for logs only and never reaches a client (reliability S20).
type Error struct {
	Failure Failure
	// Status is the vendor's HTTP status, 0 if there was none.
	Status int
	// RetryAfter is the vendor's wish, clamped to 1..60 s; 0 if it said nothing. Set with FailureOverloaded only.
	RetryAfter time.Duration
	// Permanent: the same request can't succeed later (wrong key, unknown model, no quota); the client is told
	// not to retry.
	Permanent bool
	// Detail is the vendor's error text, at most 512 bytes, valid UTF-8, without control characters and without
	// anything that looks like a key. It may quote the prompt: for debug logs only.
	Detail string
	// Cause is the underlying error, if any. With FailureCanceled it is the [context.Cause] of the caller's context.
	Cause error
}

// Error describes the failure in one line for logs, without the vendor's own words: those may quote the prompt, which no
// log above debug level may show (reliability S27).
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("model call failed (")
	b.WriteString(string(e.Failure))
	if e.Status != 0 {
		b.WriteString(", status ")
		b.WriteString(strconv.Itoa(e.Status))
	}
	b.WriteString(")")
	if e.Cause != nil {
		b.WriteString(": ")
		b.WriteString(e.Cause.Error())
	}
	return b.String()
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }
