package platforms

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Class is the class of a failed call, by its consequence for the message and the channel. The product maps each class to a
// public error code.
type Class string

const (
	// Retry means that the platform did not accept the message and may accept it later: no connection, 429, or a temporary error
	// in the platform's own words. Only after this class is the same message sent again automatically.
	Retry Class = "retry"
	// NeedsReauth means that the platform doesn't accept the channel's token. See [Error.Refreshable].
	NeedsReauth Class = "needs_reauth"
	// WindowExpired means that the customer's last message is too old.
	WindowExpired Class = "window_expired"
	// TemplateRequired is like WindowExpired, except that the platform still accepts approved templates.
	TemplateRequired Class = "template_required"
	// TemplatePaused means that the platform doesn't accept this template for some hours, because many customers didn't want it.
	TemplatePaused Class = "template_paused"
	// TemplateRefused means that the platform has no such template, not with these variables, or has disabled it.
	TemplateRefused Class = "template_refused"
	// CustomerBlocked means that the platform delivers nothing to this customer, who has blocked the channel or left. The
	// conversation ends; the channel works.
	CustomerBlocked Class = "customer_blocked"
	// Refused means that the platform will never accept this message, or that the call can't be made.
	Refused Class = "refused"
	// Unknown means that the request was sent, or may have been, and no usable answer came. The customer may have the message, so
	// it is never sent again automatically.
	Unknown Class = "unknown"
)

// Classes returns all classes.
func Classes() []Class {
	return []Class{Retry, NeedsReauth, WindowExpired, TemplateRequired, TemplatePaused, TemplateRefused, CustomerBlocked, Refused, Unknown}
}

// Bounds of [Error.RetryAfter].
const (
	minRetryAfter = time.Second
	maxRetryAfter = 24 * time.Hour
	maxClosed     = 12 * time.Hour
)

// unstatedPause is the pause after a platform's 429 that states none.
const unstatedPause = 2 * time.Second

// Error is a failed call to a platform. It contains no token and no text of the platform or the customer.
type Error struct {
	Class Class
	// RetryAfter is set with [Retry] to the pause that the platform demands, 1 s to 24 h. 0 means that the platform stated none.
	// Nothing is sent on the channel during the pause: a 429 concerns the whole channel on every platform.
	RetryAfter time.Duration
	// OneCustomer is set with RetryAfter if the pause concerns only messages to this customer.
	OneCustomer bool
	// Closed is set with [Retry] if the platform accepts no messages at this time of the day. RetryAfter is then the time until it
	// opens, up to 12 h, and the try isn't counted.
	Closed bool
	// MostTries is set with [Retry] to limit the tries of the message, whatever the cause of each failure. 0 means as many tries
	// as fit into a day.
	MostTries int64
	// Refreshable is set with [NeedsReauth] if a refresh may help. The caller refreshes once and tries once more.
	Refreshable bool
	// Cause is the underlying error, for logs only.
	Cause error
}

// Error describes the failure in one line for logs.
func (e *Error) Error() string {
	text := "platform call failed (" + string(e.Class) + ")"
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// Fail returns an error of a class without further details.
func Fail(class Class, cause error) *Error { return &Error{Class: class, Cause: cause} }

// Refusef returns an error of class [Refused] with its cause.
func Refusef(format string, args ...any) *Error { return Fail(Refused, fmt.Errorf(format, args...)) }

// RetryLater returns an error of class [Retry]. after is the pause that the platform demands, 0 if it stated none. It is clamped
// to the bounds of [Error.RetryAfter].
func RetryLater(after time.Duration, cause error) *Error {
	if after > 0 {
		after = min(max(after, minRetryAfter), maxRetryAfter)
	}
	return &Error{Class: Retry, RetryAfter: max(after, 0), Cause: cause}
}

// TooMany returns an error of class [Retry] for a platform that received too many messages. after is the pause that it demands, 0
// if it stated none.
func TooMany(after time.Duration, cause error) *Error {
	if after <= 0 {
		after = unstatedPause
	}
	return RetryLater(after, cause)
}

// TooManyForOne returns an error like [TooMany] for a platform that received too many messages to one customer.
func TooManyForOne(after time.Duration, cause error) *Error {
	failure := TooMany(after, cause)
	failure.OneCustomer = true
	return failure
}

// ClosedFor returns an error of class [Retry] for a platform that accepts no messages at this time of the day; see
// [Error.Closed].
func ClosedFor(rest time.Duration, cause error) *Error {
	return &Error{Class: Retry, Closed: true, RetryAfter: min(max(rest, minRetryAfter), maxClosed), Cause: cause}
}

// Unauthorized returns an error of class [NeedsReauth].
func Unauthorized(refreshable bool, cause error) *Error {
	return &Error{Class: NeedsReauth, Refreshable: refreshable, Cause: cause}
}

// Error describes the response for logs, with the platform's error codes, which may be empty. Codes that could be a token or an
// id are not shown, nor is the platform's text, which could quote a token or a customer.
func (r *Response) Error(code, subcode string) error {
	text := fmt.Sprintf("%s answered with status %d", r.Name, r.Status)
	if code = harmless(code); code != "" {
		text += ", code " + code
	}
	if subcode = harmless(subcode); subcode != "" {
		text += ", subcode " + subcode
	}
	return errors.New(text)
}

// harmless returns an error code that can't be a token or an id: a short number, or a short word without digits.
func harmless(code string) string {
	isLetter := func(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || b == '.' }
	if len(code) <= 8 && IsDigits(strings.TrimPrefix(code, "-")) || len(code) <= 40 && ConsistsOf(code, isLetter) {
		return code
	}
	if code == "" {
		return ""
	}
	return "(not shown)"
}
