package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// internalMessage is the public text of an internal_error without a message of its own.
const internalMessage = "The service failed to handle the request. Quote the requestId when you report this."

// Handler answers a request. Its error is for [WriteError]; when it returns one, it has written nothing to w but headers.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Error is an error as docs/contract.md describes it.
type Error struct {
	// Code decides the status.
	Code errcode.Code
	// Message is public text; empty for internal_error means its standard text. It names no vendor detail, no secret
	// and nothing of another organization.
	Message string
	// Field names the faulty field of a validation error, like "messages[0].content"; empty if there is none.
	Field string
	// RetryAfter is how long the client should wait before the next try, 0 if unknown. 429 and 503 always get a value from 1 to
	// 60 s from [WriteError]; with other codes it is sent as a header only.
	RetryAfter time.Duration
	// NoRetry: the same request can't succeed later, which official clients read from x-should-retry.
	NoRetry bool
	// Cause is for logs only.
	Cause error
	// Caller is who sent the refused request, if that isn't known from elsewhere. It is for logs only.
	Caller Caller
}

// Error is for logs: it includes the cause.
func (e *Error) Error() string {
	text := string(e.Code) + ": " + e.message()
	if e.Field != "" {
		text += " (" + e.Field + ")"
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func (e *Error) message() string {
	if e.Message == "" {
		return internalMessage
	}
	return e.Message
}

// InvalidRequest returns an invalid_request about one field of the body, or about the whole body when field is empty.
func InvalidRequest(field, format string, args ...any) *Error {
	return &Error{Code: errcode.InvalidRequest, Field: field, Message: fmt.Sprintf(format, args...)}
}

// TooLarge returns the error of a body of more than limit bytes: invalid_request.
func TooLarge(limit int64) *Error {
	return InvalidRequest("", "The request body is larger than %d bytes.", limit)
}

// NotFound returns a not_found whose text says what is missing.
func NotFound(format string, args ...any) *Error {
	return &Error{Code: errcode.NotFound, Message: fmt.Sprintf(format, args...)}
}

// Internal returns an internal_error with the standard text, or [Busy] when the cause is [store.ErrBusy]. The cause is only
// logged.
func Internal(cause error) *Error {
	if errors.Is(cause, store.ErrBusy) {
		return Busy(store.RetryAfter, cause)
	}
	return &Error{Code: errcode.InternalError, Cause: cause}
}

// Busy returns an internal_error with a Retry-After: the service is overloaded or isn't ready yet. The contract reserves 503
// for providers.
func Busy(after time.Duration, cause error) *Error {
	return &Error{
		Code: errcode.InternalError, RetryAfter: after, Cause: cause,
		Message: "The service is busy. Try again shortly.",
	}
}

// RetryLater returns err with a Retry-After, if it is an internal_error without one. It is for platforms, which repeat their
// deliveries. Other errors are returned as they are.
func RetryLater(err error, after time.Duration) error {
	e := AsError(err)
	if e.Code != errcode.InternalError || e.RetryAfter > 0 {
		return err
	}
	later := *e
	later.RetryAfter = after
	return &later
}

// FromStatus returns the error for a status that another handler of Caddy failed with (404, 405, 413, …), by
// [errcode.OfStatus]. text is public and may be empty.
func FromStatus(status int, text string, cause error) *Error {
	code := errcode.OfStatus(status)
	if code == errcode.InternalError {
		return Internal(cause)
	}
	if text == "" {
		text = plainText(code)
	}
	return &Error{Code: code, Message: text, Cause: cause}
}

func plainText(code errcode.Code) string {
	switch code {
	case errcode.Unauthenticated:
		return "The request carries no valid credentials."
	case errcode.Forbidden:
		return "The request is not allowed."
	case errcode.NotFound:
		return "There is nothing at this address for this method."
	case errcode.Conflict:
		return "The request conflicts with the current state."
	case errcode.RateLimited:
		return "Too many requests."
	default:
		return "The request is not valid."
	}
}

// AsError returns the *Error in err's chain, or internal_error when there is none.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok && e.Code.Status() != 0 {
		return e
	}
	return Internal(err)
}

// PublicMessage returns the text for the client.
func (e *Error) PublicMessage() string { return e.message() }

// WaitSeconds returns the value of the header Retry-After in seconds; 0 means that there is none.
func (e *Error) WaitSeconds() int64 { return roundUp(retryAfter(e), time.Second) }

// maxRetryAfter: openai npm ignores a longer Retry-After and retries at once.
const maxRetryAfter = 60 * time.Second

// retryAfter returns the wait that is sent, at most a minute: 0 for none, which 429 and 503 never have.
func retryAfter(e *Error) time.Duration {
	wait := e.RetryAfter
	if wait <= 0 {
		wait = e.Code.RetryAfter()
	}
	return min(wait, maxRetryAfter)
}

func roundUp(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }
