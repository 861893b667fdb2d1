package identity

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is accepted (names count in Unicode code points, design §6 "characters").
const (
	MaxNameLength = 100
	MinExpiryDays = 1
	MaxExpiryDays = 3650
)

// FieldError is a value that was refused before anything was stored.
type FieldError struct {
	Field   string // as the caller knows it: name, scopes, expires_in_days, …
	Problem string // what is wrong and what is allowed
}

// Error is "field: problem".
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// CleanName trims white space and checks a name: 1 to [MaxNameLength] code points, valid UTF-8, no control
// characters. field names it in the [FieldError].
func CleanName(field, name string) (string, error) {
	name = strings.TrimSpace(name)
	switch length := utf8.RuneCountInString(name); {
	case !utf8.ValidString(name):
		return "", &FieldError{field, "is not valid UTF-8"}
	case length == 0:
		return "", &FieldError{field, "is empty"}
	case length > MaxNameLength:
		return "", &FieldError{field, fmt.Sprintf("has %d characters, at most %d are allowed", length, MaxNameLength)}
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", &FieldError{field, "contains a control character"}
	default:
		return name, nil
	}
}

// ExpiryInDays is the moment days after now, for 1 to 3650 days; else a [FieldError].
func ExpiryInDays(now time.Time, days int64) (time.Time, error) {
	if days < MinExpiryDays || days > MaxExpiryDays {
		return time.Time{}, &FieldError{"expires_in_days", fmt.Sprintf("is %d, want %d to %d", days, MinExpiryDays, MaxExpiryDays)}
	}
	return now.Add(time.Duration(days) * 24 * time.Hour), nil
}

// ExpiryAt reads an RFC 3339 moment, which may lie in the past (design §8: to try out expired keys); else a
// [FieldError].
func ExpiryAt(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, &FieldError{"expires_at", fmt.Sprintf("%q is not an RFC 3339 time such as 2027-01-31T12:00:00Z", clip(text))}
	}
	return at, nil
}

// clip shortens what an error quotes of its input.
func clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
