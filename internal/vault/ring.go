package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// KeyBytes is the length of one master key: AES-256.
const KeyBytes = 32

// keyIDBytes of SHA-256(key) name a key inside a sealed value. Eight bytes rule out an accidental match among one operator's
// keys and reveal nothing about a random key.
const keyIDBytes = 8

// Ring holds the keys of `master_key`: the first seals, all open. It is safe for concurrent use. Every key encrypts directly;
// AES-GCM with random nonces is sound for 2^32 values per key, so rotate long before.
type Ring struct {
	keys atomic.Pointer[[]ringKey] // the first is current; never changed in place
}

func newRing(keys []ringKey) *Ring {
	r := new(Ring)
	r.keys.Store(&keys)
	return r
}

// Replace gives r the keys of another ring in place of its own, for all that use r.
func (r *Ring) Replace(other *Ring) { r.keys.Store(other.keys.Load()) }

// KeyIDs returns the ids of the keys, the first key's first. Every sealed value has the id of its key in plain; an id reveals
// nothing about the key.
func (r *Ring) KeyIDs() []string {
	keys := *r.keys.Load()
	ids := make([]string, len(keys))
	for i := range keys {
		ids[i] = hex.EncodeToString(keys[i].id[:])
	}
	return ids
}

type ringKey struct {
	id   [keyIDBytes]byte
	aead cipher.AEAD
}

// ParseRing parses the resolved value of `master_key`: standard base64 (padded or not) of exactly 32 bytes, then, separated by
// white space or commas, any number of older keys that stay readable. Errors give the position of the faulty key and never any
// of the value.
func ParseRing(masterKey string) (*Ring, error) {
	texts := strings.FieldsFunc(masterKey, func(r rune) bool {
		return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r'
	})
	if len(texts) == 0 {
		return nil, errors.New("master_key is empty: give the base64 of 32 random bytes (openssl rand -base64 32)")
	}
	keys := make([]ringKey, 0, len(texts))
	for i, text := range texts {
		key, err := parseKey(text)
		if err != nil {
			return nil, fmt.Errorf("master_key: key %d of %d %w", i+1, len(texts), err)
		}
		if j := index(keys, key.id[:]); j >= 0 {
			return nil, fmt.Errorf("master_key: key %d of %d is the same as key %d", i+1, len(texts), j+1)
		}
		keys = append(keys, key)
	}
	return newRing(keys), nil
}

func parseKey(text string) (ringKey, error) {
	raw, err := base64.RawStdEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		// The decoder's own error is dropped: it gives the position of the fault, which reveals something of the key.
		return ringKey{}, errors.New("is not standard base64 (openssl rand -base64 32 makes one)")
	}
	if len(raw) != KeyBytes {
		return ringKey{}, fmt.Errorf("is base64 of %d bytes, want exactly %d (openssl rand -base64 %d makes one)", len(raw), KeyBytes, KeyBytes)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return ringKey{}, fmt.Errorf("cannot be used as an AES-256 key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return ringKey{}, fmt.Errorf("cannot be used with GCM: %w", err)
	}
	key := ringKey{aead: aead}
	sum := sha256.Sum256(raw)
	copy(key.id[:], sum[:])
	return key, nil
}

// Format writes the number of keys under every verb, so that no log or test failure prints key material.
func (r *Ring) Format(f fmt.State, _ rune) {
	if r == nil {
		_, _ = f.Write([]byte("vault.Ring(nil)"))
		return
	}
	_, _ = fmt.Fprintf(f, "vault.Ring(%d keys)", len(*r.keys.Load()))
}
