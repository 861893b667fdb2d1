package handlers

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// internalMessage is the public text of an internal_error without a message of its own.
const internalMessage = "The service failed to handle the request. Quote the requestId when you report this."

// Handler serves a request. Its error is for [WriteError]. If it returns one, it has written nothing to w except headers.
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
	text := string(e.Code) + ": " + e.PublicMessage()
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

// PublicMessage returns the text for the client.
func (e *Error) PublicMessage() string { return cmp.Or(e.Message, internalMessage) }

// InvalidRequest returns an invalid_request about one field of the body, or about the whole body when field is empty.
func InvalidRequest(field, format string, args ...any) *Error {
	return &Error{Code: errcode.InvalidRequest, Field: field, Message: fmt.Sprintf(format, args...)}
}

// TooLarge returns the error of a body of more than limit bytes: invalid_request.
func TooLarge(limit int64) *Error {
	return InvalidRequest("", "The request body is larger than %d bytes.", limit)
}

// NotFound returns a not_found with the name of the missing thing.
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
	return &Error{Code: code, Message: cmp.Or(text, plainTexts[code], "The request is not valid."), Cause: cause}
}

// plainTexts are the messages of errors that have only a status.
var plainTexts = map[errcode.Code]string{
	errcode.Unauthenticated: "The request carries no valid credentials.",
	errcode.Forbidden:       "The request is not allowed.",
	errcode.NotFound:        "There is nothing at this address for this method.",
	errcode.Conflict:        "The request conflicts with the current state.",
	errcode.RateLimited:     "Too many requests.",
}

// AsError returns the *Error in err's chain, or internal_error when there is none.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok && e.Code.Status() != 0 {
		return e
	}
	return Internal(err)
}

// WaitSeconds returns the value of the header Retry-After in seconds; 0 means that there is none.
func (e *Error) WaitSeconds() int64 { return roundUp(retryAfter(e), time.Second) }

// maxRetryAfter: openai npm ignores a longer Retry-After and retries immediately.
const maxRetryAfter = 60 * time.Second

// retryAfter returns the wait that is sent, up to a minute. 0 means none, which 429 and 503 never have.
func retryAfter(e *Error) time.Duration {
	return min(cmp.Or(max(e.RetryAfter, 0), e.Code.RetryAfter()), maxRetryAfter)
}

func roundUp(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

// maxRetryAfterMS stays below the 60,000 from which on the ai-sdk ignores retry-after-ms.
const maxRetryAfterMS = 59_999

// ErrorBody is the member error of the error body, in the order in which it is written.
type ErrorBody struct {
	Code       errcode.Code `json:"code"`
	Message    string       `json:"message"`
	Field      string       `json:"field,omitempty"`
	DocsURL    string       `json:"docsUrl,omitempty"`
	RetryAfter int64        `json:"retryAfter,omitzero"`
	RequestID  string       `json:"requestId"`
}

// ErrorDocument is the body of every error.
type ErrorDocument struct {
	Error ErrorBody `json:"error"`
}

// WriteError writes err as the error body of docs/contract.md. An *[Error] anywhere in the chain is written unchanged. Any other error is
// internal_error without its text. docsBase is the address of the documentation page. Empty means that there is no page and no docsUrl.
//
// It must be called before anything was written to w. Headers that an earlier handler set for its own body are removed.
func WriteError(w http.ResponseWriter, r *http.Request, err error, docsBase string) {
	e := AsError(err)
	_, id := EnsureRequestID(w, r)
	body := ErrorBody{Code: e.Code, Message: e.PublicMessage(), Field: e.Field, RequestID: id}
	if docsBase != "" {
		body.DocsURL = docsBase + "#" + string(e.Code)
	}
	status := e.Code.Status()
	h := w.Header()
	for _, stale := range [...]string{
		"Content-Encoding", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified", "Trailer",
		"Retry-After", "Retry-After-Ms", "X-Should-Retry",
	} {
		h.Del(stale)
	}
	if wait := retryAfter(e); wait > 0 {
		seconds := roundUp(wait, time.Second)
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			body.RetryAfter = seconds
		}
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(min(roundUp(wait, time.Millisecond), maxRetryAfterMS), 10))
	}
	if e.NoRetry || e.Code.Final() {
		h.Set("X-Should-Retry", "false")
	}
	WriteJSON(w, status, Marshal(ErrorDocument{body}))
}

// AppendErrorEvent appends the event that ends a stream after its first byte:
// one data line with code, message and request id, and a blank line. Nothing may follow it.
func AppendErrorEvent(dst []byte, err error, requestID string) []byte {
	e := AsError(err)
	dst = append(dst, "data: "...)
	dst = append(dst, Marshal(ErrorDocument{ErrorBody{Code: e.Code, Message: e.PublicMessage(), RequestID: requestID}})...)
	return append(dst, "\n\n"...)
}

// Marshal encodes a value of the service's own types, which can't fail: bytes that aren't UTF-8 are replaced.
func Marshal(v any) []byte {
	text, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("handlers: encoding an answer: " + err.Error())
	}
	return text
}
