package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// A token, of a session or a one-time link, is 256 random bits in base64url: 43 characters.
const (
	tokenBytes      = 32
	tokenCharacters = 43
)

// newToken makes a token and its SHA-256 hash, which is all that is stored.
func newToken() (token string, hash [sha256.Size]byte) {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	token = base64.RawURLEncoding.EncodeToString(random[:])
	return token, sha256.Sum256([]byte(token))
}

// tokenHash is the hash to look a token up by; ok is false for a text that can't be one, which needs no look-up.
func tokenHash(token string) (hash [sha256.Size]byte, ok bool) {
	if len(token) != tokenCharacters {
		return hash, false
	}
	return sha256.Sum256([]byte(token)), true
}
