package identity

import (
	"net/http"
	"strings"
)

// Credential takes the raw key out of a request's headers (spec §5.1 rule 1, design §6 "key headers", S4, S5):
//
//   - `X-Api-Key` wins over `Authorization`, where SDKs send a dummy; an empty one counts as absent;
//   - either header given twice is [ErrInvalidKey], whichever would have won: one of the two is not the caller's;
//   - `Authorization` counts only as `Bearer`, in any case, one space, the key. Another scheme or an empty key is no
//     key; another separator is [ErrInvalidKey], and more than one space leaves a malformed key.
//
// Without a key it returns [ErrNoKey]. The form of the key is not checked here but by [Authenticator.Authenticate].
// h has canonical names, as net/http makes them.
func Credential(h http.Header) (raw string, err error) {
	apiKeys, authorizations := h["X-Api-Key"], h["Authorization"]
	if len(apiKeys) > 1 || len(authorizations) > 1 {
		return "", errHeaderTwice
	}
	if len(apiKeys) == 1 && apiKeys[0] != "" {
		return apiKeys[0], nil
	}
	if len(authorizations) == 1 {
		return bearer(authorizations[0])
	}
	return "", ErrNoKey
}

func bearer(authorization string) (raw string, err error) {
	const scheme = "Bearer"
	if len(authorization) < len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return "", ErrNoKey
	}
	rest := authorization[len(scheme):]
	switch {
	case rest == "" || rest == " ":
		return "", ErrNoKey
	case rest[0] == ' ':
		return rest[1:], nil
	case rest[0] == '\t':
		return "", errMalformed
	default: // a longer scheme name
		return "", ErrNoKey
	}
}
