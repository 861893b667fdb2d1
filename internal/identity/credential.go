package identity

import (
	"net/http"
	"strings"
)

// Credential returns the raw key of a request's headers (docs/contract.md#sending-a-key):
//
//   - `X-Api-Key` wins over `Authorization`, where SDKs put a placeholder; an empty one counts as absent;
//   - either header given twice is [ErrInvalidKey], because it is unclear which value a proxy in front has checked;
//   - `Authorization` counts only as `Bearer`, in any case, one space, the key. Another scheme or an empty key is no key; a tab
//     as separator is [ErrInvalidKey].
//
// Without a key it returns [ErrNoKey]. [Authenticator.Authenticate] checks the form of the key. h must have canonical names.
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
