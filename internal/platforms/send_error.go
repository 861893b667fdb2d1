package platforms

import (
	"fmt"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// SendOutcome says what a failed call to a platform means for the message and its channel.
type SendOutcome string

// The outcomes of a call that did not succeed (design §6, notes/platforms.md §4 "Mapping rules").
const (
	// Retry: the platform did not take the message, and may later: no connection, 429, or a temporary error in the
	// platform's own words. The only outcome after which the same part may be sent again by itself.
	Retry SendOutcome = "retry"
	// NeedsReauth: the platform doesn't accept the channel's token. See SendError.Refreshable.
	NeedsReauth SendOutcome = "needs_reauth"
	// WindowExpired: the customer's last message is too long ago.
	WindowExpired SendOutcome = "window_expired"
	// TemplateRequired: the same, and the platform still takes approved templates.
	TemplateRequired SendOutcome = "template_required"
	// CustomerBlocked: this customer can't or doesn't want to be reached. The conversation ends, the channel is well.
	CustomerBlocked SendOutcome = "customer_blocked"
	// Refused: the platform will never take this message, or the call can't be made at all.
	Refused SendOutcome = "refused"
	// Unknown: the request went out, or may have, and no usable answer came. The customer may have the message, so it is
	// never sent again by itself.
	Unknown SendOutcome = "unknown"
)

// The public error codes (spec §7.2) of a failed send.
const (
	codeNeedsReauth      = string(errcode.ChannelNeedsReauth)
	codeWindowExpired    = string(errcode.ServiceWindowExpired)
	codeTemplateRequired = string(errcode.TemplateRequired)
)

// Bounds of SendError.RetryAfter.
const (
	minRetryAfter = time.Second
	maxRetryAfter = time.Hour
)

// SendError is every error of a [Client]. It never holds a token or a platform's own words (reliability S20).
type SendError struct {
	Outcome SendOutcome
	// Code is the public error code (spec §7.2) that fits: channel_needs_reauth with NeedsReauth, service_window_expired
	// with WindowExpired, template_required with TemplateRequired, otherwise empty.
	Code string
	// RetryAfter is how long the platform wants to be left alone, 1 s to 1 h; 0 if it didn't say. With Retry only.
	RetryAfter time.Duration
	// Refreshable is set with NeedsReauth when [Client.Refresh] may mend it: refresh once, then try once more.
	Refreshable bool
	// Cause says in our words what happened. For logs only.
	Cause error
}

// Error describes the failure in one line for logs.
func (e *SendError) Error() string {
	var b strings.Builder
	b.WriteString("platform call failed (")
	b.WriteString(string(e.Outcome))
	b.WriteString(")")
	if e.Cause != nil {
		b.WriteString(": ")
		b.WriteString(e.Cause.Error())
	}
	return b.String()
}

// Unwrap returns Cause.
func (e *SendError) Unwrap() error { return e.Cause }

func retryLater(after time.Duration, cause error) *SendError {
	if after > 0 {
		after = min(max(after, minRetryAfter), maxRetryAfter)
	}
	return &SendError{Outcome: Retry, RetryAfter: max(after, 0), Cause: cause}
}

func needsReauth(refreshable bool, cause error) *SendError {
	return &SendError{Outcome: NeedsReauth, Code: codeNeedsReauth, Refreshable: refreshable, Cause: cause}
}

func windowExpired(t Type, cause error) *SendError {
	code := WindowCode(t)
	if code == codeTemplateRequired {
		return &SendError{Outcome: TemplateRequired, Code: code, Cause: cause}
	}
	return &SendError{Outcome: WindowExpired, Code: code, Cause: cause}
}

func customerBlocked(cause error) *SendError {
	return &SendError{Outcome: CustomerBlocked, Cause: cause}
}

func refused(cause error) *SendError { return &SendError{Outcome: Refused, Cause: cause} }

func refusedf(format string, args ...any) *SendError { return refused(fmt.Errorf(format, args...)) }

func unknown(cause error) *SendError { return &SendError{Outcome: Unknown, Cause: cause} }

// vendorError is what a platform answered, reduced to what can't quote a token, a customer or a text.
type vendorError struct {
	platform      Type
	status        int
	code, subcode string
}

func (e *vendorError) Error() string {
	text := fmt.Sprintf("%s answered with status %d", e.platform, e.status)
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
	switch {
	case len(code) <= 8 && isDigits(strings.TrimPrefix(code, "-")), len(code) <= 40 && consistsOf(code, isLetter):
		return code
	case code == "":
		return ""
	}
	return "(not shown)"
}
