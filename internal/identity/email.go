package identity

import (
	"fmt"
	"strings"
)

// MaxEmailLength bounds an e-mail address in bytes (RFC 5321 §4.5.3.1.3).
const MaxEmailLength = 254

// CleanEmail trims white space, puts an e-mail address into lower case, the form in which it is stored and unique, and
// checks that it could be one: visible ASCII characters with one @ that isn't at an end. Mail is never sent, so nothing
// more is known about it. Else a [FieldError].
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
