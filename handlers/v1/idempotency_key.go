package v1

import (
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// HeaderIdempotencyKey names the header by which a repeated request gets the first one's answer and charge.
const HeaderIdempotencyKey = "Idempotency-Key"

// MaxIdempotencyKey bounds the key in bytes, without quotes.
const MaxIdempotencyKey = 255

// idempotencyKey reads the request's Idempotency-Key; empty for none. A key is 1 to 255 visible ASCII characters; one
// pair of double quotes around it is not part of it, so that the form of the IETF draft and the bare one are equal.
// Another value, or a second one, is invalid_request.
func idempotencyKey(h http.Header) (string, error) {
	values := h[HeaderIdempotencyKey]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", handlers.InvalidRequest(HeaderIdempotencyKey, "The header was given more than once.")
	}
	key := values[0]
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	if key == "" || len(key) > MaxIdempotencyKey {
		return "", handlers.InvalidRequest(HeaderIdempotencyKey, "The key must have 1 to %d characters.", MaxIdempotencyKey)
	}
	for i := range len(key) {
		if key[i] < 0x21 || key[i] > 0x7e {
			return "", handlers.InvalidRequest(HeaderIdempotencyKey, "The key must consist of visible ASCII characters.")
		}
	}
	return key, nil
}

// markReplayed sets the header of an answer that repeats that of an earlier request with the same key.
func markReplayed(h http.Header) { h.Set("Idempotent-Replayed", "true") }
