package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// A raw key is prefix (8) + 32 random bytes in base62 (43) + CRC-32 of everything before it in base62 (6). The checksum
// identifies a mistyped key without a look-up.
const (
	livePrefix = "ck_live_"
	testPrefix = "ck_test_"

	secretBytes    = 32
	secretDigits   = 43 // 62^43 > 2^256
	checksumDigits = 6  // 62^6 > 2^32
	keyLength      = len(livePrefix) + secretDigits + checksumDigits

	hintDigits = 4
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewKey returns a raw key of 256 random bits for env, its SHA-256, which the store keeps, and a hint: the prefix and the first
// four secret characters, for lists.
func NewKey(env store.Env) (raw string, hash [sha256.Size]byte, hint string) {
	var secret [secretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	prefix := livePrefix
	if env == store.Test {
		prefix = testPrefix
	}
	body := prefix + encodeBase62(new(big.Int).SetBytes(secret[:]), secretDigits)
	raw = body + checksum(body)
	return raw, sha256.Sum256([]byte(raw)), body[:len(prefix)+hintDigits] + "…"
}

// ParseKey checks prefix, length, alphabet and checksum of a raw key without the database and returns the hash for its look-up.
// ok is false for a malformed key.
func ParseKey(raw string) (hash [sha256.Size]byte, env store.Env, ok bool) {
	if len(raw) != keyLength {
		return hash, "", false
	}
	switch raw[:len(livePrefix)] {
	case livePrefix:
		env = store.Live
	case testPrefix:
		env = store.Test
	default:
		return hash, "", false
	}
	key := []byte(raw) // converted once: this runs on every request
	for _, digit := range key[len(livePrefix):] {
		if strings.IndexByte(base62, digit) < 0 {
			return hash, "", false
		}
	}
	if !checksumMatches(key[:keyLength-checksumDigits], key[keyLength-checksumDigits:]) {
		return hash, "", false
	}
	return sha256.Sum256(key), env, true
}

// checksum returns the CRC-32 (IEEE) of body in base62.
func checksum(body string) string {
	return encodeBase62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), checksumDigits)
}

// checksumMatches reports whether sum is checksum(body). It doesn't allocate.
func checksumMatches(body, sum []byte) bool {
	rest := crc32.ChecksumIEEE(body)
	for i := checksumDigits - 1; i >= 0; i-- {
		if sum[i] != base62[rest%62] {
			return false
		}
		rest /= 62
	}
	return true
}

// encodeBase62 writes n with exactly width digits, the most significant first; n must fit.
func encodeBase62(n *big.Int, width int) string {
	digits := make([]byte, width)
	base, digit := big.NewInt(62), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		digits[i] = base62[digit.Int64()]
	}
	return string(digits)
}
