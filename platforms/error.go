package platforms

import (
	"fmt"
	"strings"
	"time"
)

// Class is the class of a failed call, by its consequence for the message and the channel. The product maps it to a public error
// code.
type Class string

// The classes of failures.
const (
	// Retry: the platform did not take the message, and may later: no connection, 429, or a temporary error in the
	// platform's own words. Only after this class is the same message sent again automatically.
	Retry Class = "retry"
	// NeedsReauth: the platform doesn't accept the channel's token. See [Error.Refreshable].
	NeedsReauth Class = "needs_reauth"
	// WindowExpired: the customer's last message is too long ago.
	WindowExpired Class = "window_expired"
	// TemplateRequired: the same, and the platform still accepts approved templates.
	TemplateRequired Class = "template_required"
	// TemplatePaused: the platform doesn't take this template for some hours, because many customers didn't want it.
	TemplatePaused Class = "template_paused"
	// TemplateRefused: the platform has no such template, or not with these variables, or doesn't take it any more.
	TemplateRefused Class = "template_refused"
	// CustomerBlocked: the platform delivers nothing to this customer, who has blocked the channel or left. The conversation ends; the
	// channel works.
	CustomerBlocked Class = "customer_blocked"
	// Refused: the platform will never take this message, or the call can't be made at all.
	Refused Class = "refused"
	// Unknown: the request was sent, or may have been, and no usable answer came. The customer may have the message, so it
	// is never sent again automatically.
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

// unstatedPause is [Error.RetryAfter] where a platform asks for patience and doesn't say how much.
const unstatedPause = 2 * time.Second

// Error is a failed call to a platform. It contains no token and no text of the platform or the customer.
type Error struct {
	Class Class
	// RetryAfter is the pause that the platform asks for, 1 s to 24 h; 0 if it gave none. With [Retry] only. Nothing is sent on the
	// channel before it is over.
	RetryAfter time.Duration
	// OneCustomer is set with RetryAfter if the pause is only for messages to this customer.
	OneCustomer bool
	// Closed is set with [Retry] if the platform takes no messages at this time of the day. RetryAfter is then how long that lasts, up
	// to 12 h, and such a try isn't counted.
	Closed bool
	// MostTries is set with [Retry] if the message is worth only so many tries, whatever they fail for; 0: as many as a day has time for.
	MostTries int64
	// Refreshable is set with [NeedsReauth] if a refresh may help: refresh once, then try once more.
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

// RetryLater returns an error of class [Retry]. after is the pause that the platform asked for, 0 for none; it is
// clamped to the bounds of [Error.RetryAfter].
func RetryLater(after time.Duration, cause error) *Error {
	if after > 0 {
		after = min(max(after, minRetryAfter), maxRetryAfter)
	}
	return &Error{Class: Retry, RetryAfter: max(after, 0), Cause: cause}
}

// TooMany returns an error of class [Retry] for a platform that has been sent too many messages. after is the pause that it asked for,
// 0 if it didn't say how long.
func TooMany(after time.Duration, cause error) *Error {
	if after <= 0 {
		after = unstatedPause
	}
	return RetryLater(after, cause)
}

// TooManyForOne is [TooMany] for a platform that has had too many messages to one customer.
func TooManyForOne(after time.Duration, cause error) *Error {
	failure := TooMany(after, cause)
	failure.OneCustomer = true
	return failure
}

// ClosedFor returns an error of class [Retry] for a platform that takes no messages at this time of the day; see [Error.Closed].
func ClosedFor(rest time.Duration, cause error) *Error {
	return &Error{Class: Retry, Closed: true, RetryAfter: min(max(rest, minRetryAfter), maxClosed), Cause: cause}
}

// Unauthorized returns an error of class [NeedsReauth].
func Unauthorized(refreshable bool, cause error) *Error {
	return &Error{Class: NeedsReauth, Refreshable: refreshable, Cause: cause}
}

// vendorError is an error response of a platform without its text, which could quote a token or a customer.
type vendorError struct {
	name          string
	status        int
	code, subcode string
}

func (e *vendorError) Error() string {
	text := fmt.Sprintf("%s answered with status %d", e.name, e.status)
	if code := harmless(e.code); code != "" {
		text += ", code " + code
	}
	if subcode := harmless(e.subcode); subcode != "" {
		text += ", subcode " + subcode
	}
	return text
}

// harmless keeps error codes: short numbers, and short words without digits, which no token or id is.
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
