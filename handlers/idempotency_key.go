package handlers

import "net/http"

// HeaderIdempotencyKey names the header by which a repeated request gets the first one's answer and charge.
const HeaderIdempotencyKey = "Idempotency-Key"

// HeaderReplayed names the header of an answer that was given before, to a request with the same key.
const HeaderReplayed = "Idempotent-Replayed"

// MaxIdempotencyKey bounds the key in bytes, without quotes.
const MaxIdempotencyKey = 255

// IdempotencyKey reads the request's Idempotency-Key; empty for none. A key is 1 to 255 visible ASCII characters; one
// pair of double quotes around it is not part of it, so that the form of the IETF draft and the bare one are equal.
// Another value, or a second one, is invalid_request.
func IdempotencyKey(h http.Header) (string, error) {
	values := h[HeaderIdempotencyKey]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", InvalidRequest(HeaderIdempotencyKey, "The header was given more than once.")
	}
	key := values[0]
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	if key == "" || len(key) > MaxIdempotencyKey {
		return "", InvalidRequest(HeaderIdempotencyKey, "The key must have 1 to %d characters.", MaxIdempotencyKey)
	}
	for i := range len(key) {
		if key[i] < 0x21 || key[i] > 0x7e {
			return "", InvalidRequest(HeaderIdempotencyKey, "The key must consist of visible ASCII characters.")
		}
	}
	return key, nil
}

// MarkReplayed sets [HeaderReplayed] of an answer that repeats that of an earlier request with the same key.
func MarkReplayed(h http.Header) { h.Set(HeaderReplayed, "true") }
