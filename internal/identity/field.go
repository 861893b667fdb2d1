package identity

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of input. Names count in Unicode code points.
const (
	MaxNameLength = 100
	MinExpiryDays = 1
	MaxExpiryDays = 3650
)

// FieldError is a value that was refused before anything was stored.
type FieldError struct {
	Field   string // as the caller spells it: name, scopes, expires_in_days, …
	Problem string // what is wrong and what is allowed
}

// Error is "field: problem".
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// CleanName trims white space and requires a name of 1 to [MaxNameLength] code points in valid UTF-8 without control
// characters, also those of the direction of text. It returns a [FieldError] for field otherwise.
func CleanName(field, name string) (string, error) {
	name = strings.TrimSpace(name)
	switch length := utf8.RuneCountInString(name); {
	case !utf8.ValidString(name):
		return "", &FieldError{field, "is not valid UTF-8"}
	case length == 0:
		return "", &FieldError{field, "is empty"}
	case length > MaxNameLength:
		return "", &FieldError{field, fmt.Sprintf("has %d characters, at most %d are allowed", length, MaxNameLength)}
	case strings.ContainsFunc(name, controls):
		return "", &FieldError{field, "contains a control character"}
	default:
		return name, nil
	}
}

// controls reports whether a character is a control, also of the direction of text: in a name it can make the text around it read as
// another one.
func controls(c rune) bool { return unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) }

// ExpiryInDays returns the moment days after now. It returns a [FieldError] unless days is 1 to 3650.
func ExpiryInDays(now time.Time, days int64) (time.Time, error) {
	if days < MinExpiryDays || days > MaxExpiryDays {
		return time.Time{}, &FieldError{"expires_in_days", fmt.Sprintf("is %d, want %d to %d", days, MinExpiryDays, MaxExpiryDays)}
	}
	return now.Add(time.Duration(days) * 24 * time.Hour), nil
}

// ExpiryAt parses an RFC 3339 moment. It may lie in the past, which lets operators try an expired key. It returns a
// [FieldError] for another text.
func ExpiryAt(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, &FieldError{"expires_at", fmt.Sprintf("%q is not an RFC 3339 time such as 2027-01-31T12:00:00Z", clip(text))}
	}
	return at, nil
}

// clip shortens input that an error quotes.
func clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// MaxEmailLength bounds an e-mail address in bytes (RFC 5321 §4.5.3.1.3).
const MaxEmailLength = 254

// CleanEmail trims white space, lowers the case, which is the stored and unique form, and requires visible ASCII with one @
// that isn't at an end. It returns a [FieldError] otherwise.
func CleanEmail(email string) (string, error) {
	email = strings.ToLower(strings.TrimSpace(email))
	local, domain, _ := strings.Cut(email, "@")
	invisible := func(c rune) bool { return c <= ' ' || c > '~' }
	switch {
	case email == "":
		return "", &FieldError{"email", "is empty"}
	case len(email) > MaxEmailLength:
		return "", &FieldError{"email", fmt.Sprintf("has %d bytes, at most %d are allowed", len(email), MaxEmailLength)}
	case strings.ContainsFunc(email, invisible):
		return "", &FieldError{"email", "may hold visible ASCII characters only"}
	case local == "", domain == "", strings.Contains(domain, "@"):
		return "", &FieldError{"email", "is not an e-mail address such as name@example.com"}
	default:
		return email, nil
	}
}
